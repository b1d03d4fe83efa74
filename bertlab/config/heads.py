"""Several heads at once: ``model.heads`` by name, and the data of each in ``data.heads``."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertlab.config.yaml_files import Config, as_arguments, needs_value, parse_inline
from bertlab.errors import ConfigError, nearest
from bertlab.plugins.index import installed

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# of what is logged beside the figures of heads: val/loss, val/heads/mean, train/objectives
_TAKEN = ("loss", "heads", "objectives", "auto")
# keys of data that hold keys, beside those of heads
_EXAMPLES = {"mixing": "{temperature: 2}", "objectives": "{corpus: PATH}"}
OBJECTIVES_SHARE = 0.5  # of all steps are of objectives beside heads, if data.mixing does not say
_EXPECTED = "expected the name of a head, or {name: NAME, …}; null takes it out"


@dataclass
class NamedHeads:
    """The heads that config files and arguments name one after the other.

    Attributes:
        plugins: entry-point name of each head, by the name that the user gives it, in order; None
            until it is said.
        taken_out: names that a later file or argument took out.
    """

    plugins: dict[str, str | None] = field(default_factory=dict)
    taken_out: set[str] = field(default_factory=set)

    def add(self, given: object, where: str) -> Config:
        """Take in ``model.heads`` of a file or an argument; return it in one form.

        Args:
            given: heads by name.
            where: it stands, for messages.

        Raises:
            ConfigError: if it is no such mapping, or a name cannot be one.
        """
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            raise ConfigError(
                f"{where}model.heads: found {given!r}, expected heads by name: "
                "{topic: {name: single_sentence}, …}"
            )
        return {name: self._add_one(name, each, where) for name, each in given.items()}

    def _add_one(self, name: object, given: object, where: str) -> Config | None:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _TAKEN:
            raise ConfigError(
                f"{where}model.heads: found the name {name!r}, expected letters, digits and _, and "
                f"none of {', '.join(_TAKEN)}"
            )
        if given is None:
            self.plugins.pop(name, None)
            self.taken_out.add(name)
            return None
        settings = {"name": given} if isinstance(given, str) else given
        if not isinstance(settings, Mapping):
            raise ConfigError(f"{where}model.heads.{name}: found {given!r}, {_EXPECTED}")
        plugin = settings.get("name", self.plugins.get(name))
        if plugin is not None and not isinstance(plugin, str):
            raise ConfigError(f"{where}model.heads.{name}.name: found {plugin!r}, expected a name")
        self.plugins[name] = plugin
        self.taken_out.discard(name)
        return dict(settings)

    def arguments(self, key: str, value: str | None) -> list[str] | None:
        """Take in an argument that gives heads, or data of heads, as a mapping.

        Returns:
            Arguments with one key each; None if it is none of these keys.

        Raises:
            ConfigError: if it is no such mapping, or a name cannot be one.
        """
        section, _, below = key.removeprefix("--").partition(".")
        parts = below.split(".")
        if section == "data" and below in _EXAMPLES:
            return as_arguments(key, _mapping(key, value, _EXAMPLES[below]))
        if section not in ("model", "data") or parts[0] != "heads":
            return None
        if section == "model" and len(parts) == 3 and parts[2] == "name":
            self.add({parts[1]: {"name": value}}, "")
            return [f"{key}={value}"]
        if len(parts) > 2:
            return None
        given = _parsed(key, value) if len(parts) == 1 else {parts[1]: _parsed(key, value)}
        if section == "model":
            given = self.add(given, "")
        else:
            _check_mappings(given, "")
        assert isinstance(given, Mapping)
        each = (as_arguments(f"--{section}.heads.{name}", more) for name, more in given.items())
        return [argument for arguments in each for argument in arguments]

    def resolved(self) -> dict[str, str]:
        """Return the plugin of each head.

        Raises:
            ConfigError: if one has none.
        """
        for name, plugin in self.plugins.items():
            if plugin is None:
                raise ConfigError(
                    f"model.heads.{name}.name: found none, expected the name of a head "
                    f"({', '.join(installed('head'))})"
                )
        return {name: plugin for name, plugin in self.plugins.items() if plugin is not None}

    def keep_own(self, path: Path, content: Config) -> None:
        """Keep of a file what is of the heads that there are, with settings of their plugins.

        Raises:
            ConfigError: if the file has data of a head that nothing names.
        """
        model, data = content.get("model") or {}, content.get("data") or {}
        for name, given in list((model.get("heads") or {}).items()):
            if name not in self.plugins or not given:
                del model["heads"][name]
            elif given.get("name", self.plugins[name]) != self.plugins[name]:
                model["heads"][name] = {"name": self.plugins[name]}
        self.check_data(data.get("heads"), f"{path}: ")
        for name, given in list((data.get("heads") or {}).items()):
            if name not in self.plugins or not given:
                del data["heads"][name]
        for section in (model, data):
            if "heads" in section and not section["heads"]:  # jsonargparse rejects an empty one
                del section["heads"]

    def check_data(self, given: Config | None, where: str) -> None:
        """Raise ConfigError if ``data.heads`` is no mapping, or has a head that there is not."""
        _check_mappings(given, where)
        known = self.plugins
        for name in given or ():
            if name not in known and name not in self.taken_out:
                there = f"it has: {', '.join(known)}" if known else "there is none"
                raise ConfigError(
                    f"{where}data.heads.{name}: model.heads has no {name}"
                    f"{nearest(str(name), known)} ({there})"
                )


def _check_mappings(given: object, where: str) -> None:
    """Raise ConfigError if ``data.heads`` is no mapping of mappings."""
    if not isinstance(given, Mapping | None):
        raise ConfigError(f"{where}data.heads: found {given!r}, expected data of heads by name")
    for name, each in (given or {}).items():
        if not isinstance(each, Mapping | None):
            raise ConfigError(
                f"{where}data.heads.{name}: found {each!r}, expected where its rows are: "
                "{source: …}"
            )


def _mapping(key: str, value: str | None, example: str) -> Config:
    found = _parsed(key, value)
    if not isinstance(found, dict):
        raise ConfigError(f"{key[2:]}: found {found!r}, expected {example}")
    return found


def _parsed(key: str, value: str | None) -> object:
    return parse_inline(needs_value(key, value), key.removeprefix("--"), "{NAME: {…}, …}")


def check_one_kind(head: str | None, heads: Iterable[str], objectives: Iterable[str]) -> None:
    """Raise ConfigError if a run has a single head, and heads by name or objectives as well."""
    for key, names in (("heads", [*heads]), ("objectives", [*objectives])):
        if head is not None and names:
            beside = "" if key == "heads" else "; beside objectives a head is model.heads.NAME"
            raise ConfigError(
                f"model.head and model.{key}: found {head} and {', '.join(names)}, expected one of "
                f"the two keys{beside}"
            )


def one_head_config(config: Config, name: str) -> Config:
    """Return the config of a run with several heads as if it had this one alone.

    Args:
        config: resolved.
        name: of the head.
    """
    model, data = dict(config["model"]), dict(config["data"])
    head = model.pop("heads")[name]
    own = data.pop("heads")[name]
    model.pop("objectives", None)
    for key in ("mixing", "objectives"):
        data.pop(key, None)
    return {**config, "model": {**model, "head": head}, "data": {**data, **own}}


def fine_tunes(config: Config) -> bool:
    """Whether a resolved config has a head, or several."""
    return bool(config["model"].get("head") or config["model"].get("heads"))


def heads_by_name(section: Mapping[str, Any]) -> dict[str, Config]:
    """Return the heads of a resolved ``model`` section, a single one by its plugin's name."""
    heads: dict[str, Config] = dict(section.get("heads") or {})
    single = section.get("head")
    return {single["name"]: single} if single else heads
