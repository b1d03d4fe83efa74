"""Objectives and metrics by name, as config files and arguments give them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertlab.config.yaml_files import Config, as_arguments, parse_inline
from bertlab.errors import ConfigError

if TYPE_CHECKING:
    from bertlab.config.request import Request


def add_objectives(request: "Request", one: str | None, value: str) -> None:
    """Add all objectives, or the one of the key ``one``, which leaves the others as they are."""
    given = parse_inline(value, "model.objectives", "[mlm, nsp]")
    if one is not None:
        request.objectives_named = True  # the default ones too
        given = {one.rsplit(".", 1)[1]: given}
    for name, arguments in name_objectives(request, given, "").items():
        request.arguments += as_arguments(f"--model.objectives.{name}", arguments)


def name_metrics(request: "Request", given: object, where: str) -> Config:
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


def name_objectives(request: "Request", given: object, where: str) -> Config:
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


def keep_named(content: Config, key: str, names: list[str]) -> None:
    """Keep only arguments of named plugins, and no empty mapping, which jsonargparse rejects."""
    model = content.get("model") or {}
    given = model.pop(key, None) or {}
    # names [mlm], {mlm: {rate: 0.2}, nsp: {}} -> {mlm: {rate: 0.2}}
    kept = {name: given[name] for name in names if given.get(name)}
    if kept:
        model[key] = kept


def keep_text(path: Path, content: Config, request: "Request") -> None:
    """Keep the text of objectives that stand beside heads; that of objectives taken out goes.

    Raises:
        ConfigError: it is no mapping, or there is text without objectives, or the other way round.
    """
    data = content.get("data") or {}
    text = data.get("objectives")
    if not isinstance(text, dict | None):
        raise ConfigError(
            f"{path}: data.objectives: found {text!r}, expected their text: {{corpus: PATH}}"
        )
    if request.objectives and request.heads:
        if "corpus" in data:
            raise ConfigError(
                f"{path}: data.corpus: beside heads the text of objectives is "
                "data.objectives.corpus"
            )
    elif text and not request.objectives_named:
        raise ConfigError(
            f"{path}: data.objectives: found text of objectives, but no objectives beside heads; "
            "expected model.objectives, as in [mlm]"
        )
    elif text and not request.heads:
        raise ConfigError(f"{path}: data.objectives: without model.heads the text is data.corpus")
    if request.objectives_named and not request.objectives:  # they are taken out
        data.pop("objectives", None)
        if isinstance(mixing := data.get("mixing"), dict):
            mixing.pop("objectives", None)
            data["mixing"] = mixing or None
    elif not text:  # jsonargparse rejects an empty mapping
        data.pop("objectives", None)
