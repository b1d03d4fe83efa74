"""Settings that a study or its command line gives to configs, by dotted key."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from bertlab import CommandError, nearest
from bertlab.api import ConfigError
from bertlab.extend import find_config, load_yaml, split_arguments
from bertlab_studies.errors import StudyError

STUDY_FILE = "study.yaml"  # in the directory of a study
PLAN = "plan.json"  # there: what is asked of it
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
# keys of `model` that may stand without it: encoder.causal
_OF_MODEL = (
    *("encoder", "objectives", "head", "heads", "metrics", "optimizer"),
    *("init_from", "init_optimizer", "from_scratch"),
)


# keys of `fit` that `ablate` and `study` take as `fit` does, by their first part
_OF_FIT = frozenset(
    (
        *_OF_MODEL,
        *("model", "data", "trainer", "checkpoint"),
        *("max_tokens", "max_words", "compile", "on_nonfinite", "keep_predictions"),
        *("run_dir", "ckpt_path", "seed_everything", "seed", "against_scratch"),
        *("stages", "evaluations", "evaluate_every", "checkpoint_words"),  # of packages
    )
)


def find_study(source: str | Path) -> Path:
    """Return the file of a study, which a file, a name or the study's directory gives.

    Raises:
        StudyError: it is another directory.
        ConfigFileError: there is none; names the nearest.
    """
    path = Path(source)
    if path.is_dir():
        if not (path / STUDY_FILE).is_file():
            raise StudyError(f"{path}: not the directory of a study (it has no {STUDY_FILE})")
        return path / STUDY_FILE
    others = [each for each in path.parent.glob("*") if (each / STUDY_FILE).is_file()]
    return find_config(path, "study file or directory", others)


def check_reused(others: str | Path | Sequence[str | Path]) -> list[Path]:
    """Return the directories of studies that ``--reuse`` gives.

    Raises:
        StudyError: one is not the directory of a study.
    """
    found = [Path(each) for each in ([others] if isinstance(others, str | Path) else others)]
    for other in found:
        if not (other / STUDY_FILE).is_file():
            beside = [each.parent.name for each in other.parent.glob(f"*/{STUDY_FILE}")]
            raise StudyError(
                f"--reuse: {other} is not the directory of a study (it has no {STUDY_FILE})"
                f"{nearest(other.name, beside)}"
            )
    return found


def as_settings(argv: Sequence[str]) -> list[str]:
    """Return arguments with ``--set KEY=VALUE`` for keys of ``fit``: ``--trainer.max_steps 9``.

    Raises:
        CommandError: if such a key has no value.
    """
    found: list[str] = []
    for key, value, tokens in split_arguments(argv):
        name = key.removeprefix("--")
        if name == key or name.partition(".")[0] not in _OF_FIT:
            found += tokens
        elif value is None:
            raise CommandError(f"{key}: expected a value after it")
        else:
            found += ["--set", f"{name}={value}"]
    return found


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
        ConfigError: ``error``, if it is not a mapping of keys, or one is taken or there twice.
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
            found = as_overrides(below, where, taken, error)
        elif (whole := "seed" if name.startswith("seed.") else name) in taken:
            raise error(f"{where}: {key}: cannot be set here; {taken[whole]}")
        else:
            found = {prefix + name: value}
        for each in found.keys() & overrides.keys():  # encoder.causal, and model.encoder.causal
            raise error(f"{where}: {each} is given twice, in two ways of writing it; keep one")
        overrides |= found
    return overrides


def read_settings(given: object, where: str) -> Overrides:
    """Return dotted keys and values; ``encoder.causal`` is short for ``model.encoder.causal``.

    Args:
        given: keys and values; sections such as ``model`` may hold their keys as a mapping.
        where: they stand, for messages.

    Raises:
        StudyError: if it is not a mapping of keys, or one is what the study itself says.
    """
    return as_overrides(given, where, _TAKEN, StudyError)


def overridden(earlier: Overrides, later: Overrides) -> Overrides:
    """Return both, the later ones behind all others: ``fit`` takes the last word on a key.

    A key that both have would stand where the earlier one does, before a key below it:
    ``objectives.mlm.rate`` behind ``objectives: {mlm: …}``, which it would change.
    """
    return {key: value for key, value in earlier.items() if key not in later} | later


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
    return read_settings(settings, option)


def parse_value(text: str, option: str) -> Any:  # noqa: ANN401
    """Return a value that is written as YAML.

    Raises:
        StudyError: if it is not.
    """
    try:
        return load_yaml(text)
    except yaml.YAMLError:
        raise StudyError(f"{option}: cannot read {text!r} as YAML") from None
