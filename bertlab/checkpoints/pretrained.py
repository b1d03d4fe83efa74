"""``Pretrained``: an earlier model as data, whether of a run, a Hugging Face folder or the hub."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertlab.api.examples import Labels
from bertlab.api.huggingface import HeadLayout, HuggingFaceForm
from bertlab.api.task import Head
from bertlab.api.tokenizer import Tokenizer
from bertlab.checkpoints.tensor_files import list_limited
from bertlab.config.request import choose_head, one_head_config
from bertlab.errors import CheckpointError
from bertlab.model.optimizer import EarlierOptimizer
from bertlab.plugins.index import load_class

_SEQUENCE = "BertForSequenceClassification"  # the one class whose problem_type is read
# head of bertlab by BERT's class of ``transformers``; sentence_pair has single_sentence's layers
_HEADS = {
    _SEQUENCE: "single_sentence",
    "BertForTokenClassification": "tagging",
    "BertForQuestionAnswering": "span",
    "BertForMultipleChoice": "multiple_choice",
}
_MULTI_LABEL = "multi_label_classification"


@dataclass
class HuggingFaceHead:
    """The head of a fine-tuned model.

    Attributes:
        architecture: its class in ``transformers``.
        layout: what that class has.
        state: its tensors by the layout's names.
        labels: names of the classes, with counts of 0 where they are not known; None if the task
            has no classes, or they have no names.
        dropout: in front of its layer, ``classifier_dropout``; the encoder's if None.
        problem_type: what ``config.json`` says, if the outputs are no single label and no number.
        threshold: probability from which on one of several labels holds; 0.5 if None.
    """

    architecture: str
    layout: HeadLayout
    state: dict[str, Tensor]
    labels: Labels | None = None
    dropout: float | None = None
    problem_type: str | None = None
    threshold: float | None = None

    @property
    def num_rows(self) -> int:
        """Outputs of the layer."""
        return len(self.state[self.layout.names[1]])

    @property
    def has_classes(self) -> bool:
        """Whether an output of the layer stands for a class, named or not."""
        # one row of a text is a regression, though transformers names it LABEL_0
        is_number = self.num_rows == 1 and self.layout.kind == _SEQUENCE
        return self.layout.rows is None and (not is_number or self.problem_type is not None)


@dataclass
class Pretrained:
    """What a checkpoint holds, as plain data and tensors; reading it executes nothing.

    Attributes:
        source: where it comes from, for messages: a file, a folder or a hub name.
        encoder_config: entry-point ``name`` of the encoder and its arguments, without
            ``vocab_size``.
        vocab_size: rows of its token embedding.
        state: tensors by the module's names: ``encoder.…`` and ``tasks.NAME.…``, in the file's
            dtypes. A Hugging Face model may lack ``encoder.pooler.…``.
        tokenizer: the one it was trained with; None if there is none beside it.
        labels: classes of a fine-tuned model; None if it has none, or they have no names.
        head_labels: those of each of several heads of a run, by name.
        head: of a fine-tuned Hugging Face model that bertlab knows; a run's head is in ``state``.
        unused: names of tensors in a Hugging Face file that stand for nothing here.
        model_max_length: of a Hugging Face model's tokenizer, in tokens; None if it says none.
        trained_max_length: tokens of the longest sequence in training; None if that is not known.
        path: the file of a run's checkpoint; None of a Hugging Face model. So are all below.
        config: resolved config of the run, as far as a checkpoint may bring one, see
            :mod:`bertlab.config.checkpoint_config`.
        left_out: keys that the run's config had besides, such as ``trainer.callbacks``.
        global_step: optimiser steps done.
        token_counts: ``(vocab_size,)`` int64 of the training text, for the baselines; None of a
            fine-tuning run.
        optimizer: state of AdamW and its schedule, if it was asked for.
        data: fingerprints of what the run was trained on; empty where it does not tell.
        version: of bertlab that wrote it; None before 0.2.
    """

    source: str
    encoder_config: dict[str, Any]
    vocab_size: int
    state: dict[str, Tensor]
    tokenizer: Tokenizer | None
    labels: Labels | None = None
    head_labels: dict[str, Labels] = field(default_factory=dict)
    head: HuggingFaceHead | None = None
    unused: list[str] = field(default_factory=list)
    model_max_length: int | None = None
    trained_max_length: int | None = None
    path: Path | None = None
    config: dict[str, Any] | None = None
    left_out: list[str] = field(default_factory=list)
    global_step: int = 0
    token_counts: Tensor | None = None
    optimizer: EarlierOptimizer | None = None
    data: dict[str, str] = field(default_factory=dict)
    version: str | None = None

    @property
    def encoder_state(self) -> dict[str, Tensor]:
        """Tensors of the encoder, by name inside it."""
        return _below(self.state, "encoder.")

    @property
    def task_states(self) -> dict[str, dict[str, Tensor]]:
        """Tensors of each task, by the task's name and the name inside it."""
        # tasks.mlm.dense.weight -> mlm
        names = {key.split(".")[1] for key in self.state if key.startswith("tasks.")}
        return {name: _below(self.state, f"tasks.{name}.") for name in sorted(names)}

    @property
    def head_config(self) -> dict[str, Any] | None:
        """``name`` and arguments of the head of a fine-tuned run; None if there is none."""
        return None if self.config is None else self.config["model"].get("head")

    @property
    def class_labels(self) -> Labels | None:
        """Labels of the model; classes without names get their numbers."""
        head = self.head
        if self.labels is not None or head is None or not head.has_classes:
            return self.labels
        names = tuple(str(number) for number in range(head.num_rows))  # LABEL_0, LABEL_1, …
        return Labels(names, (0,) * head.num_rows)

    def longest_read(self, most: int, usual: int | None = None) -> int:
        """Return how many tokens of a text are read of the ``most`` that the encoder can."""
        of_head = self.model_max_length, self.trained_max_length or usual
        return min([most, *filter(None, (usual,) if self.head is None else of_head)])

    def weights_digest(self) -> str:
        """Return 12 hexadecimal digits of the SHA-256 of all tensors and their names."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.state.items()):
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
            content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            digest.update(content.numpy().data)
        return digest.hexdigest()[:12]

    def release_weights(self) -> None:
        """Drop the tensors, once a module has them; names, sizes and tokenizer stay."""
        self.state = {}
        self.head = None


def _below(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)
    }


def one_head(start: Pretrained, name: str | None, key: str = "--head") -> Pretrained:
    """Return what a checkpoint holds of one of its heads, in the form of a run with one head."""
    its_own = {} if start.head is None else {"head": head_settings(start.head)}
    config = start.config or {"model": its_own}  # of a Hugging Face folder there is none
    chosen = choose_head(config, name, start.source, key)
    if chosen is None:
        return start
    plugin, prefix = config["model"]["heads"][chosen]["name"], f"tasks.{chosen}."
    state = {
        # tasks.mrpc.classifier.weight -> tasks.sentence_pair.classifier.weight
        key.replace(prefix, f"tasks.{plugin}.", 1): tensor
        for key, tensor in start.state.items()
        if key.startswith(("encoder.", prefix))
    }
    return replace(
        start,
        config=one_head_config(config, chosen),
        state=state,
        labels=start.head_labels.get(chosen),
        head_labels={},
    )


def known_tokenizer(start: Pretrained) -> Tokenizer:
    """Return the tokenizer of an earlier model, all of whose ids the encoder knows.

    There may be more rows than ids: many models are padded to a multiple of 8 or 64.
    """
    tokenizer = start.tokenizer
    if tokenizer is None:
        raise CheckpointError(f"{start.source}: has no tokenizer (vocab.txt or tokenizer.json)")
    if tokenizer.vocab_size > start.vocab_size:
        told = f"{start.source}: its tokenizer has {tokenizer.vocab_size} ids"
        raise CheckpointError(f"{told}, but its token embedding only {start.vocab_size} rows")
    return tokenizer


def read_head(
    form: HuggingFaceForm, config: Mapping[str, Any], tensors: Mapping[str, Tensor], weights: Path
) -> HuggingFaceHead | None:
    """Return the head of a checkpoint, or None if it has none that bertlab knows."""
    found = form.head_layout(config)
    if found is None or not all(name in tensors for name in found[1].written_names):
        return None
    named, layout = found
    weight, bias = (tensors[name] for name in layout.written_names)
    names = _label_names(config, weights) if layout.rows is None else None
    # 2 of a span, 1 of choices; else a row for each name, or as many as the bias has
    rows = layout.rows or (len(bias) if names is None and bias.dim() == 1 else len(names or ()))
    shapes = (rows, config["hidden_size"]), (rows,)
    expected = dict(zip(layout.written_names, shapes, strict=True))
    differing = [
        f"{name}: tensor {tuple(tensor.shape)}, config.json {expected[name]} float"
        for name, tensor in zip(layout.written_names, (weight, bias), strict=True)
        if tuple(tensor.shape) != expected[name] or not tensor.is_floating_point()
    ]
    if differing:
        raise CheckpointError(
            f"{weights}: the tensors of {named}'s head are not as config.json beside it says:\n"
            + list_limited(differing)
        )
    problem = config.get("problem_type") if layout.kind == _SEQUENCE else None
    kind = _MULTI_LABEL if problem == _MULTI_LABEL else None
    if problem == "regression" and rows > 1:
        found_rows = f"problem_type: found regression of {rows} numbers"
        raise CheckpointError(f"{weights}: config.json: {found_rows}, expected one number")
    state = dict(zip(layout.names, (weight, bias), strict=True))
    dropout = _share(config, "classifier_dropout", "the encoder's", weights)
    threshold = None if kind is None else _share(config, "threshold", "0.5", weights)
    head = HuggingFaceHead(named, layout, state, None, dropout, kind, threshold)
    # what transformers writes where nobody gave a name; names may be there twice
    unnamed = tuple(f"LABEL_{n}" for n in range(rows))
    if names and head.has_classes and names != unnamed and len(set(names)) == rows:
        head.labels = Labels(names, (0,) * rows)
    return head


def head_settings(head: HuggingFaceHead, name: str | None = None) -> dict[str, Any]:
    """Return the config section ``model.head`` of a fine-tuned model."""
    if head.problem_type is not None:
        if name not in (None, "multi_label"):
            raise CheckpointError(f"head: found {name}, expected multi_label, as its layers are")
        threshold = {} if head.threshold is None else {"threshold": head.threshold}
        return {"name": "multi_label", **threshold}
    settings: dict[str, Any] = {"name": name or _HEADS[head.layout.kind]}
    if head.layout.kind == _SEQUENCE and not head.has_classes:
        if "regression" not in signature(load_class("head", settings["name"], Head)).parameters:
            raise CheckpointError(f"head: found {name}, expected one of numbers: single_sentence")
        settings["regression"] = True
    return settings


def _label_names(config: Mapping[str, Any], weights: Path) -> tuple[str, ...] | None:
    """Return the names in the order of their ids; None if ``id2label`` lacks."""
    found = config.get("id2label")
    if found is None:
        return None
    if isinstance(found, dict) and found:
        names = tuple(str(found.get(str(number))) for number in range(len(found)))
        if set(found) == {str(number) for number in range(len(found))}:
            return names
    raise CheckpointError(
        f"{weights.parent / 'config.json'}: found id2label {str(found)[:80]}, expected a name for "
        'each id from 0: {"0": "no", "1": "yes"}'
    )


def _share(config: Mapping[str, Any], key: str, instead: str, weights: Path) -> float | None:
    """Return a number from 0 to 1 of ``config.json``; None if it has none."""
    found = config.get(key)
    # JSON's true is an int in Python
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    if found is not None and not (is_number and 0 <= found <= 1):
        told = f"{weights.parent / 'config.json'}: found {key} {str(found)[:80]!r}"
        raise CheckpointError(f"{told}, expected a number from 0 to 1, or null for {instead}")
    return None if found is None else float(found)
