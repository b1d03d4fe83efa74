"""What config files and command-line arguments ask for: plugins by name, and their arguments.

Objectives are a mapping from entry-point name to arguments. Config files may also write a list
(``objectives: [mlm, nsp]``), and a later file or argument may take one out with ``nsp: null``.
This module turns all of these into the mapping that jsonargparse parses.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

import yaml

from bertlab.config.plain_yaml import load_yaml
from bertlab.config.shipped import find_config
from bertlab.config.yaml_files import Config, needs_value, read_config, split_arguments, yaml_inline
from bertlab.errors import ConfigError
from bertlab.plugins.index import installed, load_class

DEFAULT_OBJECTIVES = ("mlm", "nsp")
# sections of one plugin, and the attribute of a request that names it; a section above comes first
_SECTIONS = {
    "model.encoder": "encoder",
    "model.head": "head",
    "model.optimizer": "optimizer",
    "model.optimizer.schedule": "schedule",
    "data.tokenizer_kind": "tokenizer",
}
# keys of model.optimizer that stay where another optimiser is chosen
OF_EVERY_OPTIMIZER = (
    *("learning_rate", "weight_decay", "warmup_steps", "schedule", "schedule_steps"),
    *("layer_decay", "frozen_layers"),
)


@dataclass
class Request:
    """Config files and arguments of one command, normalised.

    Attributes:
        argv: the arguments as they were given, files included.
        files: each config file's path and content, in the order given.
        arguments: command-line arguments that override them.
        encoder: entry-point name of the encoder.
        encoder_named: whether a file or argument named it; else it is the default one.
        objectives: entry-point names of the objectives, in order.
        objectives_named: whether a file or argument named them; else they are the default ones.
        metrics: entry-point names of further metrics.
        optimizer: entry-point name of the optimiser, or a class of ``torch.optim``.
        schedule: entry-point name of the learning rate's schedule.
        tokenizer: entry-point name of the kind of tokenizer to train, if given anywhere.
        head: entry-point name of the head, for fine-tuning; there are no objectives then.
        init_from: ``model.init_from``, if given anywhere.
        init_optimizer: ``model.init_optimizer``.
        ckpt_path: ``--ckpt_path``, if given.
        run_dir: ``run_dir``, if given anywhere.
        checkpoint: the file whose stored config is the first of ``files``, if one is.
        stages: ``stages``, if given anywhere; not checked yet.
    """

    argv: tuple[str, ...] = ()
    files: list[tuple[Path, Config]] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    encoder: str = "bert"
    encoder_named: bool = False
    objectives: list[str] = field(default_factory=lambda: list(DEFAULT_OBJECTIVES))
    objectives_named: bool = False
    metrics: list[str] = field(default_factory=list)
    optimizer: str = "adamw"
    schedule: str = "linear"
    tokenizer: str | None = None
    head: str | None = None
    init_from: str | None = None
    init_optimizer: bool = False
    ckpt_path: str | None = None
    run_dir: str | None = None
    checkpoint: Path | None = None
    stages: object = None

    @property
    def run_name(self) -> str:
        """What a run is called by default: its config's name; ``finetune-…`` with a head."""
        name = self.files[-1][0].stem if self.files else "run"
        return name if self.head is None else f"finetune-{name}"

    def packages(self) -> dict[str, str]:
        """Return the version by name of each package that brings a named plugin."""
        named = [
            installed("encoder")[self.encoder],
            *(installed("objective")[name] for name in self.objectives),
            *(installed("metric")[name] for name in self.metrics),
            installed("schedule")[self.schedule],
            *([] if self.head is None else [installed("head")[self.head]]),
            *([] if self.tokenizer is None else [installed("tokenizer")[self.tokenizer]]),
        ]
        optimizer = installed("optimizer").get(self.optimizer)  # None: a class of torch.optim
        named += [] if optimizer is None else [optimizer]
        return {plugin.package: plugin.version for plugin in named}


def read_request(
    argv: Sequence[str],
    base: Config | None = None,
    base_name: str = "",
    checkpoint: Path | None = None,
) -> Request:
    """Read the config files that ``argv`` names and say which plugins they ask for.

    Args:
        argv: arguments after the subcommand; ``--config`` takes a file or a name.
        base: a config to start from, that of a checkpoint or a mapping of Python's.
        base_name: what messages call it.
        checkpoint: the file that stores the base, if one does: nothing of the base may name a
            class then.
    """
    request = Request(tuple(argv), checkpoint=checkpoint)
    if base is not None:
        _add_content(request, Path(base_name), deepcopy(base))  # it is changed there
    overrides = []
    for key, value, tokens in split_arguments(argv):
        if key in ("--config", "-c"):
            path = find_config(needs_value(key, value))
            _add_content(request, path, read_config(path))
        else:
            overrides.append((key, value, tokens))
    # after all files: an argument wins wherever it stands on the line
    for key, value, tokens in overrides:
        _add_argument(request, key, value, tokens)
    if request.head is not None:
        if request.objectives_named and request.objectives:
            raise ConfigError(
                f"model.head and model.objectives: found {request.head} and "
                f"{', '.join(request.objectives)}, expected one of the two keys"
            )
        request.objectives = []
    for _, content in request.files:
        for section in _SECTIONS:
            _drop_others(content, section, _named(request, section))
        _keep(content, "objectives", request.objectives)
        _keep(content, "metrics", request.metrics)
    return request


def _add_content(request: Request, path: Path, content: Config) -> None:
    for section in ("model", "data"):
        if not isinstance(content.get(section) or {}, dict):
            raise ConfigError(
                f"{path}: {section}: found {content[section]!r}, expected a mapping of keys to "
                "values"
            )
    for section in _SECTIONS:
        _name(request, section, _named_plugin(path, content, section))
    model = content.get("model") or {}
    if model.get("objectives") is not None:
        model["objectives"] = _name_objectives(request, model["objectives"], f"{path}: ")
    if model.get("metrics") is not None:
        model["metrics"] = _name_metrics(request, model["metrics"], f"{path}: ")
    request.init_from = _text_at(model, "init_from", request.init_from, f"{path}: model.")
    request.init_optimizer = model.get("init_optimizer", request.init_optimizer) is True
    request.run_dir = _text_at(content, "run_dir", request.run_dir, f"{path}: ")
    request.stages = content.get("stages", request.stages)
    request.files.append((path, content))


def _text_at(section: Config, key: str, before: str | None, where: str) -> str | None:
    """Return a text of a config file, or null; ``before`` if it has none."""
    found = section.get(key, before)
    if found is not None and not isinstance(found, str):
        raise ConfigError(f"{where}{key}: found {str(found)[:80]}, expected a text or null")
    return found


def _above(content: Config, section: str) -> Config:
    """Return the mapping that a section stands in: ``model`` of ``model.head``; {} if none."""
    found: object = content
    for key in section.split(".")[:-1]:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _named_plugin(path: Path, content: Config, section: str) -> str | None:
    """Return the plugin name of a section such as ``model.head``; it may be just that name."""
    above, key = _above(content, section), section.rpartition(".")[2]
    if isinstance(above.get(key), str):
        above[key] = {"name": above[key]}
    if not isinstance(above.get(key), dict):
        return None
    name = above[key].get("name")
    if name is not None and not isinstance(name, str):
        raise ConfigError(f"{path}: {section}.name: found {name!r}, expected a name")
    return name


def _add_argument(request: Request, key: str, value: str | None, tokens: list[str]) -> None:
    # --model.objectives.nsp, not --model.objectives.mlm.rate
    one_objective = key.startswith("--model.objectives.") and key.count(".") == 2
    if key == "--model.objectives" or one_objective:
        _add_objectives(request, key if one_objective else None, needs_value(key, value))
    elif key == "--model.metrics":
        given = _parse(needs_value(key, value), "model.metrics", "[NAME, …]")
        for name, arguments in _name_metrics(request, given, "").items():
            request.arguments += _as_arguments(f"--model.metrics.{name}", arguments)
    elif (section := key.removeprefix("--").removesuffix(".name")) in _SECTIONS:
        _add_section(request, section, needs_value(key, value))
    elif key == "--ckpt_path":
        request.ckpt_path = needs_value(key, value)
    else:
        if key == "--model.init_from":
            request.init_from = None if value == "null" else value  # takes a file's out
        elif key == "--model.init_optimizer":
            request.init_optimizer = (value or "").lower() == "true"
        elif key == "--run_dir":
            request.run_dir = value
        elif key == "--stages":
            request.stages = _parse(needs_value(key, value), "stages", "{NAME: {share: 0.9}, …}")
        request.arguments += tokens


def _add_section(request: Request, section: str, value: str) -> None:
    """Name the plugin of a section; a mapping gives its arguments as well."""
    given = _parse(value, section, "a name, or {name: NAME, …}")
    if not isinstance(given, dict):
        _name(request, section, value)
        return
    for name, each in given.items():
        key, text = f"--{section}.{name}", yaml_inline(each)
        _add_argument(request, key, text, [f"{key}={text}"])


def _name(request: Request, section: str, name: str | None) -> None:
    """Name the plugin of a section, if there is a name."""
    if name is not None:
        setattr(request, _SECTIONS[section], name)
        request.encoder_named |= section == "model.encoder"


def _named(request: Request, section: str) -> str | None:
    """Return the plugin that a request names for a section."""
    name: str | None = getattr(request, _SECTIONS[section])
    return name


def _add_objectives(request: Request, one: str | None, value: str) -> None:
    """Add all objectives, or the one of the key ``one``, which leaves the others as they are."""
    given = _parse(value, "model.objectives", "[mlm, nsp]")
    if one is not None:
        request.objectives_named = True  # the default ones too
        given = {one.rsplit(".", 1)[1]: given}
    for name, arguments in _name_objectives(request, given, "").items():
        request.arguments += _as_arguments(f"--model.objectives.{name}", arguments)


def _as_arguments(prefix: str, settings: Config | None) -> list[str]:
    return [f"{prefix}.{key}={yaml_inline(value)}" for key, value in (settings or {}).items()]


def _name_metrics(request: Request, given: object, where: str) -> Config:
    """Set the request's metrics; return their arguments by name."""
    entries = given if isinstance(given, list) else [given]
    found: dict[Any, Any] = {}
    for entry in entries:
        found |= entry if isinstance(entry, dict) else {entry: {}}
    for name, settings in found.items():
        if not isinstance(name, str) or not isinstance(settings, dict | None):
            raise ConfigError(
                f"{where}model.metrics: found {name!r}: {settings!r}, expected names, or a mapping "
                "of names to their arguments"
            )
    request.metrics = list(found)
    return {name: settings or {} for name, settings in found.items()}


def _name_objectives(request: Request, given: object, where: str) -> Config:
    """Update the request's objectives; return their arguments by name."""
    if isinstance(given, list):
        if not given:
            raise ConfigError(f"{where}model.objectives: found none, expected names: [mlm, nsp]")
        request.objectives = []
        items: list[tuple[object, object]] = []
        for entry in given:
            pairs = list(entry.items()) if isinstance(entry, dict) else [(entry, {})]
            items += pairs
    elif isinstance(given, dict):
        # {sop: {}} replaces the default mlm and nsp; {nsp: null} only takes one of them out
        if not request.objectives_named and any(each is not None for each in given.values()):
            request.objectives = []
        items = list(given.items())
    else:
        raise ConfigError(f"{where}model.objectives: found {given!r}, expected names: [mlm, nsp]")
    request.objectives_named = True
    arguments: Config = {}
    for name, setting in items:
        if not isinstance(name, str) or not isinstance(setting, dict | None):
            raise ConfigError(
                f"{where}model.objectives: found {name!r}: {setting!r}, expected a name and its "
                "arguments, as in {mlm: {rate: 0.15}}, or null to take it out"
            )
        if setting is None:
            request.objectives = [other for other in request.objectives if other != name]
        elif name not in request.objectives:
            request.objectives.append(name)
        arguments[name] = setting
    return arguments


def _drop_others(content: Config, section: str, name: str | None) -> None:
    """Drop the arguments that a file gives to a plugin which the request does not name.

    Another encoder keeps those that it takes as well, such as sizes and dropout; another optimiser
    those of every optimiser.
    """
    above, key = _above(content, section), section.rpartition(".")[2]
    given = above.get(key)
    if isinstance(given, dict) and given.get("name", name) != name:
        kept: Iterable[str] = ()
        if section == "model.optimizer":
            kept = OF_EVERY_OPTIMIZER
        elif section == "model.encoder" and name in installed("encoder"):
            kept = signature(load_class("encoder", name, object)).parameters
        above[key] = {"name": name, **{each: given[each] for each in given if each in kept}}


def _keep(content: Config, key: str, names: list[str]) -> None:
    """Keep only arguments of named plugins, and no empty mapping, which jsonargparse rejects."""
    model = content.get("model") or {}
    given = model.pop(key, None) or {}
    # names [mlm], {mlm: {rate: 0.2}, nsp: {}} -> {mlm: {rate: 0.2}}
    kept = {name: given[name] for name in names if given.get(name)}
    if kept:
        model[key] = kept


def _parse(value: str, key: str, example: str) -> object:
    try:
        return load_yaml(value)
    except yaml.YAMLError:
        raise ConfigError(f"{key}: cannot read {value!r}; expected {example}") from None
