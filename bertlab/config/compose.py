"""What config files and command-line arguments ask for, before any plugin is imported.

Objectives are a mapping from entry-point name to arguments. Config files may also write a list
(``objectives: [mlm, nsp]``), and a later file or argument may take one out with ``nsp: null``.
This module brings all of that to the one form that jsonargparse parses.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bertlab.config.yaml_files import Config, needs_value, read_config, split_arguments, yaml_inline
from bertlab.errors import ConfigError

DEFAULT_OBJECTIVES = ("mlm", "nsp")


@dataclass
class Composition:
    """Config files and arguments of one command, normalised.

    Attributes:
        files: each config file's path and content, in the order given.
        arguments: command-line arguments that override them.
        encoder: entry-point name of the encoder.
        encoder_named: whether a file or argument named it; else it is the default one.
        objectives: entry-point names of the objectives, in order.
        objectives_named: whether a file or argument named them; else they are the default ones.
        metrics: entry-point names of further metrics.
        head: entry-point name of the head, for fine-tuning; there are no objectives then.
        init_from: ``model.init_from``, if given anywhere.
        init_optimizer: ``model.init_optimizer``.
        ckpt_path: ``--ckpt_path``, if given.
        run_dir: ``run_dir``, if given anywhere.
    """

    files: list[tuple[Path, Config]] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    encoder: str = "bert"
    encoder_named: bool = False
    objectives: list[str] = field(default_factory=lambda: list(DEFAULT_OBJECTIVES))
    objectives_named: bool = False
    metrics: list[str] = field(default_factory=list)
    head: str | None = None
    init_from: str | None = None
    init_optimizer: bool = False
    ckpt_path: str | None = None
    run_dir: str | None = None

    @property
    def run_name(self) -> str:
        """What a run is called by default: its config's name; ``finetune-…`` with a head."""
        name = self.files[-1][0].stem if self.files else "run"
        return name if self.head is None else f"finetune-{name}"


def compose(argv: Sequence[str], base: Config | None = None) -> Composition:
    """Read the config files that ``argv`` names and say which plugins they ask for.

    Args:
        argv: arguments after the subcommand.
        base: a config to start from, for example that of a checkpoint.
    """
    plan = Composition()
    if base is not None:
        _add_content(plan, Path("the checkpoint's config"), deepcopy(base))
    overrides = []
    for key, value, tokens in split_arguments(argv):
        if key in ("--config", "-c"):
            path = Path(needs_value(key, value))
            _add_content(plan, path, read_config(path))
        else:
            overrides.append((key, value, tokens))
    for key, value, tokens in overrides:
        _add_argument(plan, key, value, tokens)
    if plan.head is not None:
        if plan.objectives_named and plan.objectives:
            raise ConfigError(
                f"model.head and model.objectives: found {plan.head} and "
                f"{', '.join(plan.objectives)}, expected one of the two keys"
            )
        plan.objectives = []
    for _, content in plan.files:
        _drop_others(content, "head", plan.head)
        _drop_others(content, "encoder", plan.encoder)
        _keep(content, "objectives", plan.objectives)
        _keep(content, "metrics", plan.metrics)
    return plan


def _add_content(plan: Composition, path: Path, content: Config) -> None:
    model = content.get("model") or {}
    if not isinstance(model, dict):
        raise ConfigError(f"{path}: model: found {model!r}, expected a mapping")
    _name_encoder(plan, _named_plugin(path, model, "encoder"))
    plan.head = _named_plugin(path, model, "head") or plan.head
    if model.get("objectives") is not None:
        model["objectives"] = _name_objectives(plan, model["objectives"], f"{path}: ")
    if model.get("metrics") is not None:
        model["metrics"] = _name_metrics(plan, model["metrics"], f"{path}: ")
    plan.init_from = model.get("init_from", plan.init_from)
    plan.init_optimizer = model.get("init_optimizer", plan.init_optimizer) is True
    plan.run_dir = content.get("run_dir", plan.run_dir)
    plan.files.append((path, content))


def _named_plugin(path: Path, model: Config, key: str) -> str | None:
    """Return the name in a section of ``model``, which may be nothing but that name."""
    if isinstance(model.get(key), str):
        model[key] = {"name": model[key]}
    if not isinstance(model.get(key), dict):
        return None
    name = model[key].get("name")
    if name is not None and not isinstance(name, str):
        raise ConfigError(f"{path}: model.{key}.name: found {name!r}, expected a name")
    return name


def _add_argument(plan: Composition, key: str, value: str | None, tokens: list[str]) -> None:
    one_objective = key.startswith("--model.objectives.") and key.count(".") == 2
    if key == "--model.objectives" or one_objective:
        _add_objectives(plan, key if one_objective else None, needs_value(key, value))
    elif key == "--model.metrics":
        given = _parse(needs_value(key, value), "model.metrics", "[NAME, …]")
        for name, arguments in _name_metrics(plan, given, "").items():
            plan.arguments += _as_arguments(f"--model.metrics.{name}", arguments)
    elif key in ("--model.encoder", "--model.encoder.name"):
        _name_encoder(plan, needs_value(key, value))
    elif key in ("--model.head", "--model.head.name"):
        plan.head = needs_value(key, value)
    elif key == "--ckpt_path":
        plan.ckpt_path = needs_value(key, value)
    else:
        if key == "--model.init_from":
            plan.init_from = None if value == "null" else value
        elif key == "--model.init_optimizer":
            plan.init_optimizer = (value or "").lower() == "true"
        elif key == "--run_dir":
            plan.run_dir = value
        plan.arguments += tokens


def _name_encoder(plan: Composition, name: str | None) -> None:
    if name is not None:
        plan.encoder, plan.encoder_named = name, True


def _add_objectives(plan: Composition, one: str | None, value: str) -> None:
    """Add all objectives, or the one of the key ``one``, which leaves the others as they are."""
    given = _parse(value, "model.objectives", "[mlm, nsp]")
    if one is not None:
        plan.objectives_named = True  # the default ones too
        given = {one.rsplit(".", 1)[1]: given}
    for name, arguments in _name_objectives(plan, given, "").items():
        plan.arguments += _as_arguments(f"--model.objectives.{name}", arguments)


def _as_arguments(prefix: str, settings: Config | None) -> list[str]:
    return [f"{prefix}.{key}={yaml_inline(value)}" for key, value in (settings or {}).items()]


def _name_metrics(plan: Composition, given: object, where: str) -> Config:
    """Set the plan's metrics; return their arguments by name."""
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
    plan.metrics = list(found)
    return {name: settings or {} for name, settings in found.items()}


def _name_objectives(plan: Composition, given: object, where: str) -> Config:
    """Update the plan's objectives; return their arguments by name."""
    if isinstance(given, list):
        if not given:
            raise ConfigError(f"{where}model.objectives: found none, expected names: [mlm, nsp]")
        plan.objectives = []
        items: list[tuple[object, object]] = []
        for entry in given:
            pairs = list(entry.items()) if isinstance(entry, dict) else [(entry, {})]
            items += pairs
    elif isinstance(given, dict):
        if not plan.objectives_named and any(each is not None for each in given.values()):
            plan.objectives = []
        items = list(given.items())
    else:
        raise ConfigError(f"{where}model.objectives: found {given!r}, expected names: [mlm, nsp]")
    plan.objectives_named = True
    arguments: Config = {}
    for name, setting in items:
        if not isinstance(name, str) or not isinstance(setting, dict | None):
            raise ConfigError(
                f"{where}model.objectives: found {name!r}: {setting!r}, expected a name and its "
                "arguments, as in {mlm: {rate: 0.15}}, or null to take it out"
            )
        if setting is None:
            plan.objectives = [other for other in plan.objectives if other != name]
        elif name not in plan.objectives:
            plan.objectives.append(name)
        arguments[name] = setting
    return arguments


def _drop_others(content: Config, key: str, name: str | None) -> None:
    """Drop the arguments that a file gives to a head or encoder which is not the plan's."""
    section = (content.get("model") or {}).get(key)
    if isinstance(section, dict) and section.get("name", name) != name:
        content["model"][key] = {"name": name}


def _keep(content: Config, key: str, names: list[str]) -> None:
    """Drop what the plan does not use, and empty arguments, which jsonargparse has no key for."""
    model = content.get("model") or {}
    given = model.pop(key, None) or {}
    kept = {name: given[name] for name in names if given.get(name)}
    if kept:
        model[key] = kept


def _parse(value: str, key: str, example: str) -> object:
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError:
        raise ConfigError(f"{key}: cannot read {value!r}; expected {example}") from None
