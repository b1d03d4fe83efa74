"""``RunConfig``: what a command was asked for, typed, complete, and as plain data.

A key goes one way: files and arguments are merged (:mod:`bertlab.config.merge`) and parsed once, by
the parser of the plugins that they name (:mod:`bertlab.config.parser`).
"""

import re
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import jsonargparse
import yaml
from jsonargparse import ArgumentParser, Namespace

from bertlab.config.checkpoint_config import check_stored, check_users_own
from bertlab.config.named_classes import ADVICE, check_importable, check_no_classes
from bertlab.config.parse import explain_unknown_key, first_leaf, refusal, refuse_null, show
from bertlab.config.recorded import refuse_unknown
from bertlab.config.request import SEED_SECTION, TEXTS, Request, Seeds, check_seeds, choose_seed
from bertlab.config.yaml_files import (
    Config,
    NoValue,
    check_numbers,
    check_texts,
    keys_of,
    leaves,
    names_below,
    nulls,
    unknown_keys,
)
from bertlab.errors import BertlabError, ConfigError, causes, missing_package, told, told_with_place
from bertlab.plugins.hooks import package_keys
from bertlab.plugins.index import package_of

AUTO = "auto"  # of a key whose value is found when the data is known
# keys that do not change what a run computes
_RUN_KEYS = ("run_dir", "keep_predictions", "without_hooks", "backend")
_NOT_RECORDED = (*_RUN_KEYS, "ckpt_path", "config", "output", "output_format", "top_k", "head")
_LATER_DATA = ("text", "text_pair", "delimiter", "quote", "empty", "objectives")
_LATER_TEXT = ("input",)
_CLASS = re.compile(r"'class_path': '([\w.]+)'")
_JSONARGPARSE = Path(jsonargparse.__file__).parent
# the default of Timer's `interval: str` is a member of an enum, which jsonargparse leaves as it is
yaml.SafeDumper.add_multi_representer(Enum, lambda dumper, it: dumper.represent_data(it.value))
_FIT_ONLY = (*("checkpoint", "max_tokens", "max_words", "on_nonfinite", "compile"), *_RUN_KEYS)


@dataclass(frozen=True)
class RunConfig:
    """The config of one command.

    Attributes:
        command: ``fit``, ``validate``, ``test`` or ``predict``.
        request: the files and arguments that it comes from; it names the plugins.
        values: every key with its typed value: ``values.trainer.max_steps``.
        plain: the same as plain data, with every plugin named and without what does not change the
            computation. A run records it, checkpoints hold it, a resumption is compared with it.
        parser: that made it.
    """

    command: str
    request: Request
    values: Namespace
    plain: Config
    parser: ArgumentParser

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.plain["seed_everything"])

    @property
    def seeds(self) -> Seeds:
        """Seed of each part of the run."""
        return Seeds.of(self.plain)

    def defaults(self) -> Config:
        """Return the default of each key, as plain data like :attr:`plain`."""
        return _plain(self.parser, self.parser.get_defaults(), self.request)

    def set_trainer(self, settings: Mapping[str, Any]) -> None:
        """Set keys of ``trainer``, in what is run and in what is recorded."""
        for key, value in settings.items():
            self.values[f"trainer.{key}"] = value
            self.plain["trainer"][key] = value

    def divide_steps(self, parts: int) -> None:
        """Set the parts of a step, where they are found when the data is known."""
        interval = self.values.trainer.val_check_interval
        # an evaluation each 500 steps, of 4 parts each: Lightning counts 2,000 batches
        interval = interval * parts if isinstance(interval, int) else interval
        self.set_trainer({"accumulate_grad_batches": parts, "val_check_interval": interval})

    def trainer_arguments(self) -> dict[str, Any]:
        """Return the arguments of Lightning's Trainer; callbacks, loggers and plugins are made."""
        from lightning.pytorch import Callback  # noqa: PLC0415  torch

        try:
            made: Namespace = self.parser.instantiate(self.values)
        except Exception as error:  # whatever a class that a user names raises of its arguments
            if (reason := missing_package(error)) is not None:
                raise ConfigError(f"{self._place_of(error)}: {reason}") from None
            raise ConfigError(f"trainer: a class cannot be made: {_why_not_made(error)}") from error
        arguments = dict(made.trainer)
        given = arguments["callbacks"]
        callbacks = given if isinstance(given, list) else [given] * (given is not None)
        for each in callbacks:
            if not isinstance(each, Callback):
                raise ConfigError(
                    f"trainer.callbacks: found {str(each)[:80]}, expected {{class_path: CLASS}} of "
                    "a callback of Lightning"
                )
        return {**arguments, "callbacks": callbacks}

    def _place_of(self, error: Exception) -> str:
        """Return the key of the class that could not be made, as far as it can be told."""
        settings: Config = self.plain["trainer"]
        classes = {key: _CLASS.findall(str(value)) for key, value in settings.items()}
        named = [key for key, paths in classes.items() if paths]
        told = [key for key in named if any(path in str(error) for path in classes[key])]
        found = told if len(told) == 1 else named
        return f"trainer.{found[0]}" if len(found) == 1 else "trainer"


def _why_not_made(error: BaseException) -> str:
    """Return why a class cannot be made: what it raised, with its place if jsonargparse has it."""
    # where jsonargparse tries several types for a value, it keeps what each raised as words only
    for found in causes(error):
        frames = traceback.extract_tb(found.__traceback__)
        if frames and not Path(frames[-1].filename).is_relative_to(_JSONARGPARSE):
            return told_with_place(found)
    return " ".join(str(error).split())[:500]


def parse_request(
    request: Request,
    command: str,
    resumed_seed: int | bool | None = None,
    parser: ArgumentParser | None = None,
) -> RunConfig:
    """Return the config of a command."""
    from bertlab.config.parser import build_parser  # noqa: PLC0415  torch

    parser = parser or build_parser(command, request)
    if request.helps:
        parser.print_help()
        raise SystemExit(0)
    values = parse_values(parser, request, command)
    values.seed_everything = choose_seed(values.seed_everything, resumed_seed)
    plain = _plain(parser, values, request)
    # a run records that it keeps them; studies name their runs by what is computed alone
    plain |= {"keep_predictions": True} if values.get("keep_predictions") else {}
    return RunConfig(command, request, values, plain, parser)


def resolve_request(request: Request) -> Config:
    """Return the plain config that ``fit`` would run, without sizes that ``init_from`` brings."""
    from bertlab.config.parser import build_parser  # noqa: PLC0415  torch

    parser = build_parser("fit", request)
    return _plain(parser, parse_values(parser, request), request)


def parse_values(parser: ArgumentParser, request: Request, command: str = "fit") -> Namespace:
    """Parse all that was asked for, once."""
    known, unknown = keys_of(parser), {}
    top = names_below("", known)
    values = {
        key: value
        for key, value in request.values.items()
        if key in top or request.is_argument(key) or not _is_of_fit(key, value, command)
    }
    if request.checkpoint is not None:
        source = str(request.checkpoint)
        _check_not_brought(request, parser, command)
        stored = {key: each for key, each in request.part_of(source).items() if key in values}
        unknown = dict(unknown_keys(stored, known))
        refuse_unknown(unknown, source, command)
        check_no_classes(parser, stored, source)
        check_stored(stored, source)
    for source in dict.fromkeys(request.source.values()) if ADVICE.get() else ():
        check_importable(parser, request.part_of(source), source)
    parsed = parse_config(parser, values, request.where, unknown)
    for key in (*TEXTS, "data.input") if command != "predict" else ():
        if parsed.get(key) is not None:
            reads = f"{command} reads data.corpus, or data.train, data.validation and data.test"
            raise ConfigError(f"{request.where(key)}{key}: only `predict` reads it; {reads}")
    return parsed


def parse_config(
    parser: ArgumentParser,
    content: Mapping[str, Any],
    place: Callable[[str], str],
    dropped: Collection[str] = (),
) -> Namespace:
    """Parse a config; a section may be empty.

    Args:
        parser: of its keys.
        content: files, arguments and others, merged.
        place: returns ``"FILE: "`` of the file that a key comes from; ``""`` if from none.
        dropped: keys that are left out where no argument has them.

    Raises:
        ConfigError: one line that names the file, if it comes from one, and the key.
    """
    checked = _check_keys(content, parser, place, dropped)
    given = [(f"{place(key)}{key}", value) for key, value in leaves(checked) if key not in TEXTS]
    for key, value in given:
        check_texts(value, key)
    try:
        parsed: Namespace = parser.parse_object(checked)
    except BertlabError:
        raise
    except Exception as error:
        source = place("").removesuffix(": ") or "the config"
        raise refusal(error, parser, given, source, content, place) from error
    check_numbers(parsed.as_dict(), "")
    for action in nulls(parsed, parser):
        refuse_null(action, place(action.dest))
    return parsed


def _check_keys(
    content: Mapping[str, Any],
    parser: ArgumentParser,
    place: Callable[[str], str],
    dropped: Collection[str],
    above: str = "",
) -> Config:
    """Return a config without its empty sections; refuse other keys that no argument has."""
    known = keys_of(parser)
    checked: Config = {}
    for name, value in content.items():
        key = f"{above}{name}"
        if names_below(key, known):
            if isinstance(value, Mapping):
                if below := _check_keys(value, parser, place, dropped, f"{key}."):
                    checked[name] = below
            elif value is not None:
                raise ConfigError(
                    f"{place(key)}{key}: found {show(str(value))}, expected a mapping of keys to "
                    "values"
                )
        elif key in dropped:
            continue
        elif key not in known:
            leaf = first_leaf(key, value)
            raise ConfigError(f"{place(leaf)}{explain_unknown_key(leaf, parser)}")
        elif isinstance(value, NoValue):
            raise ConfigError(f"--{key}: expected a value after it")
        else:
            checked[name] = value
    return checked


def _check_not_brought(request: Request, parser: ArgumentParser, command: str) -> None:
    """Say what a stored config asks for that only the user may; an error if a run needs it."""
    assert request.checkpoint is not None
    source = str(request.checkpoint)
    asked = {
        key: value
        for key, value in request.not_brought.items()
        if value is not None and _is_recorded(key.partition(".")[0])
    }
    known, defaults = keys_of(parser), parser.get_defaults()
    refuse_unknown(dict(unknown_keys(asked, known)), source, command)
    differing = [
        key
        for key, value in {**dict(leaves(asked)), **asked}.items()  # rev: {sub: 1} is rev.sub
        if key in known and value != defaults.get(key) and not request.is_argument(key)
    ]
    check_users_own(differing, request.checkpoint, command)


def _plain(parser: ArgumentParser, values: Namespace, request: Request) -> Config:
    """Return typed values as plain data, without what does not change the computation."""
    content = whole_config(parser, values, request)
    return {key: value for key, value in content.items() if _is_recorded(key)}


def _is_recorded(key: str) -> bool:
    said = package_keys().get(key)
    return key not in _NOT_RECORDED and (said is None or key not in said.not_recorded)


def whole_config(parser: ArgumentParser, values: Namespace, request: Request) -> Config:
    """Return typed values as plain data, with every plugin named."""
    try:
        text = parser.dump(values, skip_unset=False, skip_validation=True)
    except Exception as error:  # of arguments of a class that are none, such as a Timer's
        raise ConfigError(f"trainer: the arguments of a class are wrong: {told(error)}") from error
    content: Config = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    data = content["data"]
    _name_plugins(content["model"], data, request)
    # keys that came later are recorded where they are given: runs and studies of before go on
    for section in (data, data.get("mixing", {}), *data.get("heads", {}).values()):
        for key in _LATER_DATA if request.fine_tunes else _LATER_TEXT:
            if section.get(key, "") is None:
                del section[key]
    seeds = check_seeds(content.pop(SEED_SECTION), bool(request.objectives))
    if seeds:
        content[SEED_SECTION] = seeds
    for as_recorded in {said.as_recorded: None for said in package_keys().values()}:
        content = content if as_recorded is None else as_recorded(content)
    return content


def _name_plugins(model: Config, data: Config, request: Request) -> None:
    """Keep what is said of the plugins that a request names, and of no others."""
    model["optimizer"] = _plain_optimizer(model["optimizer"], request)
    if request.objectives or not request.fine_tunes:
        model["objectives"] = _named(model.get("objectives"), request.objectives)
    if request.metrics:
        model["metrics"] = _named(model.get("metrics"), request.metrics)
    if request.transforms:
        data["transforms"] = _named(data.get("transforms"), request.transforms)
    if request.adapter is None:
        del model["adapter"]
    if request.tokenizer is None:
        data.pop("tokenizer_kind", None)


def _plain_optimizer(section: Config, request: Request) -> Config:
    """Return the section with its plugins named as briefly as a config file does."""
    # AdamW has no name and a schedule without arguments is its name, as before there were others:
    # runs and studies of those days go on
    if list(section["schedule"]) == ["name"]:
        section["schedule"] = request.schedule
    del section["name"]
    return section if request.optimizer == "adamw" else {"name": request.optimizer, **section}


def _named(given: Config | None, names: Sequence[str]) -> Config:
    """Return the arguments of each named plugin, in the order of the names."""
    return {name: (given or {}).get(name) or {} for name in names}


def _is_of_fit(key: str, value: object, command: str) -> bool:
    """Whether an unknown key asks nothing of a command: a config of ``fit`` also serves others."""
    asks = command == "fit" and value is not None
    return key in _FIT_ONLY or key in package_keys() or not (asks or package_of("key", key) is None)
