"""Configs and command lines that are wrong: a grammar over all keys of ``bertlab fit``."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

import yaml
from hypothesis import strategies as st
from lightning.pytorch.cli import LightningArgumentParser

from bertlab.config.merge import read_request
from bertlab.config.parse import _hint, _members, takes_null
from bertlab.config.parser import build_parser

WORDS = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=12)
# numbers that no value of these keys can be
BELOW_NOUGHT = tuple(
    f"{section}{name}"
    for section, names in {
        "data.": (
            "batch_size max_seq_length num_workers prepare_workers random_pair_share "
            "short_sequence_probability validation_fraction validation_sequences vocab_size"
        ),
        "model.encoder.": (
            "attention_probs_dropout_prob bilstm_layers hidden_dropout_prob hidden_size "
            "initializer_range intermediate_size layer_norm_eps max_position_embeddings "
            "num_attention_heads num_hidden_layers type_vocab_size"
        ),
        "model.objectives.mlm.": "keep_share mask_share random_share rate static_copies",
        "model.optimizer.": "eps frozen_layers layer_decay learning_rate warmup_steps weight_decay",
        "trainer.": (
            "accumulate_grad_batches gradient_clip_val limit_train_batches "
            "limit_val_batches log_every_n_steps val_check_interval"
        ),
        "": "max_tokens max_words",
    }.items()
    for name in names.split()
)
_NOT_SPOILT = ("ckpt_path", "config", "seed_everything")


@dataclass(frozen=True)
class BadValue:
    """A key with a value that it cannot have, in the file or on the command line."""

    key: str
    value: Any
    in_file: bool

    def arguments(self) -> list[str]:
        """Return it as arguments, for the command line."""
        text = self.value if isinstance(self.value, str) else yaml.safe_dump(self.value)
        return [f"--{self.key}=" + text.removesuffix("...\n").strip()]


@cache
def parser() -> LightningArgumentParser:
    """Return a parser of all keys of a pre-training config."""
    return build_parser("fit", read_request(["--model.objectives=[mlm,nsp]"]))


@cache
def typed_keys() -> dict[str, Any]:
    """Return all keys with their types, but those that name other configs or runs."""
    hints = {action.dest: _hint(action.dest, parser()) for action in parser()._actions}
    return {
        key: hint
        for key, hint in hints.items()
        if hint is not None and not key.endswith(".help") and key not in _NOT_SPOILT
    }


def _misfits(hint: Any) -> st.SearchStrategy[Any]:
    """Return values that are of none of a type's members."""
    members = list(_members(hint))
    origins = {get_origin(each) or each for each in members}
    choices = {
        str(choice) for each in members if get_origin(each) is Literal for choice in get_args(each)
    }
    wrong: list[st.SearchStrategy[Any]] = [st.builds(dict, nowhere=st.integers(0, 9))]
    if not takes_null(hint):
        wrong.append(st.none())
    if str not in origins:
        numeric = {
            "nan",
            "inf",
            "infinity",
            "none",
            "null",
            "true",
            "false",
            "on",
            "off",
            "yes",
            "no",
        }
        wrong.append(
            WORDS.filter(lambda word: word not in choices | numeric and word not in ("y", "n"))
        )
    if list not in origins:
        wrong.append(st.lists(st.integers(0, 9), min_size=1, max_size=3))
    if origins <= {int, type(None)}:
        wrong.append(st.floats(0.1, 0.9))
    return st.one_of(wrong)


def wrong_types() -> st.SearchStrategy[BadValue]:
    """Return values of another type, in a file: the command line has only texts."""
    of_key = {
        key: hint
        for key, hint in typed_keys().items()
        if dict not in {get_origin(each) or each for each in _members(hint)}
    }
    return st.sampled_from(sorted(of_key)).flatmap(
        lambda key: st.builds(BadValue, st.just(key), _misfits(of_key[key]), st.just(True))
    )


def out_of_range() -> st.SearchStrategy[BadValue]:
    """Return negative numbers, NaN and infinities, in a file or on the command line."""
    hints = typed_keys()

    def values(key: str) -> st.SearchStrategy[Any]:
        whole = st.integers(-(10**9), -2)
        if float not in set(_members(hints[key])):
            return whole
        odd = st.sampled_from([float("nan"), float("-inf")])
        return st.one_of(whole, odd, st.floats(-1e9, -1e-3))

    return st.sampled_from(BELOW_NOUGHT).flatmap(
        lambda key: st.builds(BadValue, st.just(key), values(key), st.booleans())
    )


def unknown_keys() -> st.SearchStrategy[BadValue]:
    """Return keys with a letter missing, twice, changed or in another place."""

    def misspelt(key: str, place: int, letter: str, how: int) -> str:
        head, _, name = key.rpartition(".")
        at = place % len(name)
        changed = [
            name[:at] + name[at + 1 :],
            name[:at] + name[at] + name[at:],
            name[:at] + letter + name[at + 1 :],
            name[:at] + name[at + 1 : at + 2] + name[at] + name[at + 2 :],
        ][how]
        return f"{head}.{changed}" if head else changed

    keys = st.builds(
        misspelt,
        st.sampled_from(sorted(typed_keys())),
        st.integers(0, 40),
        st.sampled_from("aexz_"),
        st.integers(0, 3),
    )
    known = {action.dest for action in parser()._actions}
    sections = {key.rpartition(".")[0] for key in known}
    fine = keys.filter(lambda key: key not in known | sections and key.rpartition(".")[2])
    return st.builds(BadValue, fine, st.just(1), st.booleans())
