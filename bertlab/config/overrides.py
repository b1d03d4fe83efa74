"""Values that a command line or a study sets: overrides by dotted key."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from bertlab.config.plain_yaml import load_yaml
from bertlab.config.yaml_files import yaml_inline
from bertlab.errors import ConfigError, StudyError

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
# what a study says itself
_TAKEN = {
    "config": "the file is the base of the study, or that of an evaluation",
    "run_dir": "runs are kept in the directory of the study",
    "ckpt_path": "the study resumes its runs itself",
    "seed_everything": "give the study seeds",
    "seeds": "give the study seeds",
    "seed": "give the study seeds of parts: {weights: 3}",
    "against_scratch": "make a variant with evaluate.from_scratch: true",
    "keep_predictions": "a study keeps them",
}
_OF_MODEL = (
    *("encoder", "objectives", "head", "heads", "metrics", "optimizer"),
    *("init_from", "init_optimizer", "from_scratch"),
)


def as_overrides(
    given: object,
    where: str,
    taken: Mapping[str, str] = _TAKEN,
    error: type[ConfigError] = StudyError,
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


def parse_settings(given: Sequence[str], option: str) -> Overrides:
    """Return what ``KEY=VALUE`` arguments of an option say; values are YAML.

    Raises:
        StudyError: if one is of another form.
    """
    settings: Overrides = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not name or not equals:
            raise StudyError(f"{option}: found {each!r}, expected KEY=VALUE")
        settings[name] = parse_value(text, option)
    return as_overrides(settings, option)


def parse_value(text: str, option: str) -> Any:  # noqa: ANN401
    """Return a value that is written as YAML.

    Raises:
        StudyError: if it is not.
    """
    try:
        return load_yaml(text)
    except yaml.YAMLError:
        raise StudyError(f"{option}: cannot read {text!r} as YAML") from None
