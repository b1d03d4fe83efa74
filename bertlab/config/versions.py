"""Configs that an earlier or a later bertlab stored: which keys they lack, renamed or have besides.

A checkpoint says which version its config has (``CONFIG_VERSION``) and which bertlab wrote it. A
key that came later is taken with its default, so a default has to compute what was computed before
there was the key; where it cannot, ``MEANT_BEFORE`` says what its absence means. Who renames a key
or changes what one means raises the version and adds a line to a table here.
"""

from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Any

from jsonargparse import ArgumentParser

from bertlab import __version__
from bertlab.config.computation import decides
from bertlab.config.unknown_keys import keys_of
from bertlab.config.yaml_files import Config
from bertlab.errors import CheckpointError, DamagedCheckpointError, warn

CONFIG_VERSION = 2  # 1: of checkpoints that do not say
# (version since when, before, now)
RENAMED: tuple[tuple[int, str, str], ...] = ()
# (version since when, key, value): what it means that a config of before lacks the key
MEANT_BEFORE: tuple[tuple[int, str, Any], ...] = ()


def check_version(found: object, writer: object, source: str) -> int:
    """Return the version of a stored config."""
    if found is None:
        return 1
    if type(found) is not int or found < 1:
        raise DamagedCheckpointError(
            f"{source}: a damaged bertlab checkpoint: the version of its config is "
            f"{str(found)[:80]!r}, expected a whole number"
        )
    if found > CONFIG_VERSION:
        raise CheckpointError(
            f"{source}: its config has version {found}, and this bertlab, {__version__}, reads up "
            f"to {CONFIG_VERSION}; {install(writer)}"
        )
    return found


def install(writer: object) -> str:
    """Return what to do about a checkpoint with keys that are not known here."""
    if writer == __version__:
        return "this bertlab wrote it, so install the plugins that it had"
    named = f"bertlab {writer[:40]}" if isinstance(writer, str) else "the bertlab that wrote it"
    return f"install {named} or a later one"


def migrate(config: Config, version: int) -> Config:
    """Return a stored config with the keys of today, as a copy."""
    config = deepcopy(config)
    for since, before, now in RENAMED:
        section, _, name = before.rpartition(".")
        above = _section(config, section)
        if version < since and above is not None and name in above:
            value = above.pop(name)
            _set(config, now, value)
    for since, key, value in MEANT_BEFORE:
        section, _, name = key.rpartition(".")
        above = _section(config, section)
        if version < since and above is not None:
            above.setdefault(name, value)
    return config


def complete(stored: Config, config: Config, defaults: Config) -> Config:
    """Return a stored config with the default of each key that ``config`` has and it lacks."""
    found = dict(stored)
    for key, value in config.items():
        default = defaults.get(key)
        if key not in found:
            if key in defaults:
                found[key] = default
        elif isinstance(found[key], dict) and isinstance(value, dict):
            below = default if isinstance(default, dict) else {}
            found[key] = complete(found[key], value, below)
    return found


def unknown_keys(stored: Config, parser: ArgumentParser) -> dict[str, Any]:
    """Return the keys of a stored config that no argument has, with their values."""
    # without KEY.help, by which a key that takes a mapping, as {from: 4, to: 8}, were a section
    known = keys_of(parser)
    sections = {dest[:place] for dest in known for place, sign in enumerate(dest) if sign == "."}
    return dict(_unknown(stored, known, sections, ""))


def _unknown(
    content: Mapping[str, Any], known: set[str], sections: set[str], prefix: str
) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in content.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and key in sections:
            found += _unknown(value, known, sections, f"{key}.")
        elif key not in known and key not in sections:
            found.append((key, value))
    return found


def leave_out_unknown(
    stored: Config, parser: ArgumentParser, source: str, command: str
) -> list[str]:
    """Return the keys of a stored config that are of a later bertlab and decide nothing."""
    found = unknown_keys(stored, parser)
    refuse_unknown(found, source, command)
    return list(found)


def refuse_unknown(found: Mapping[str, Any], source: str, command: str) -> None:
    """Refuse values by keys that no argument has, if they decide something; else warn."""
    fits = command == "fit"
    # what is null asks for nothing
    unknown = {key: value for key, value in found.items() if value is not None}
    deciding = [key for key in unknown if decides(key) and (fits or key.startswith("model."))]
    if deciding:
        given = [f"{key}: {str(unknown[key])[:80]}" for key in deciding]
        raise CheckpointError(_unknown_words(source, given))
    if unknown and fits:
        warn(
            f"{source}: left out of its config what this bertlab, {__version__}, does not know: "
            f"{', '.join(unknown)}"
        )


def without(config: Config, key: str) -> Config:
    """Return a config without a dotted key, as a copy."""
    kept = deepcopy(config)
    section, _, name = key.rpartition(".")
    above = _section(kept, section)
    if above is not None:
        above.pop(name, None)
    return kept


def drop_empty_arguments(
    arguments: Config, known: Collection[str], key: str, source: str, writer: str | None
) -> None:
    """Take out of a plugin's stored arguments those of a later bertlab that are null."""
    later = {name: value for name, value in arguments.items() if name not in known}
    given = [
        f"{key}.{name}: {str(value)[:80]}" for name, value in later.items() if value is not None
    ]
    if given:
        raise CheckpointError(_unknown_words(source, given, writer))
    for name in later:
        del arguments[name]


def _unknown_words(source: str, given: list[str], writer: str | None = None) -> str:
    return (
        f"{source}: its config has keys that this bertlab, {__version__}, does not know, and that "
        f"decide what is computed: {', '.join(given[:10])}; {install(writer)}"
    )


def _section(config: Config, key: str) -> Config | None:
    """Return the mapping at a dotted key, the config itself at ""; None if there is none."""
    found: object = config
    for part in filter(None, key.split(".")):
        found = found.get(part) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _set(config: Config, key: str, value: object) -> None:
    *above, name = key.split(".")
    for part in above:
        config = config.setdefault(part, {})
    config.setdefault(name, value)
