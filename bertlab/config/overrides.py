"""Values that a command line or a study sets: overrides by dotted key."""

from collections.abc import Mapping
from typing import Any

from bertlab.config.yaml_files import yaml_inline
from bertlab.errors import ConfigError

Overrides = dict[str, Any]
# sections whose own keys may be nested below them; anything else keeps a mapping as its value
_SECTIONS = (
    "model",
    "model.encoder",
    "model.head",
    "model.optimizer",
    "model.optimizer.schedule",
    "data",
    "data.mixing",
    "data.objectives",
    "trainer",
    "evaluate",
)
_OF_MODEL = (
    *("encoder", "objectives", "head", "heads", "metrics", "optimizer"),
    *("init_from", "init_optimizer", "from_scratch"),
)


def as_overrides(
    given: object,
    where: str,
    taken: Mapping[str, str],
    error: type[ConfigError] = ConfigError,
) -> Overrides:
    """Return dotted keys and values; ``encoder.causal`` is short for ``model.encoder.causal``.

    Args:
        given: keys and values; sections such as ``model`` may hold their keys as a mapping.
        where: they stand, for messages.
        taken: keys that cannot be set there, and why.
        error: that is raised.

    Raises:
        ConfigError: ``error``, if it is not a mapping of keys, or one is taken.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise error(f"{where}: found {given!r}, expected config keys and values")
    overrides: Overrides = {}
    for key, value in given.items():
        if not isinstance(key, str):
            raise error(f"{where}: found the key {key!r}, expected a config key")
        prefix = "evaluate." if key.startswith("evaluate.") else ""
        name = key.removeprefix(prefix)
        if name.split(".")[0] in _OF_MODEL:
            name = f"model.{name}"
        # {"encoder": {"causal": True}} -> {"model.encoder.causal": True};
        # "evaluate.head.name" -> "evaluate.model.head.name"
        if name in _SECTIONS and isinstance(value, Mapping):
            below = {f"{prefix}{name}.{each}": more for each, more in value.items()}
            overrides |= as_overrides(below, where, taken, error)
        elif (whole := "seed" if name.startswith("seed.") else name) in taken:
            raise error(f"{where}: {key}: cannot be set here; {taken[whole]}")
        else:
            overrides[prefix + name] = value
    return overrides


def to_arguments(overrides: Mapping[str, Any]) -> list[str]:
    """Return command-line arguments."""
    return [f"--{key}={yaml_inline(value)}" for key, value in overrides.items()]
