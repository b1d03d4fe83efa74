"""Evaluations of a study that train nothing: runs of ``bertlab evaluate``."""

from collections.abc import Mapping
from typing import Any

from bertlab.api import BertlabError
from bertlab.api import Evaluation as EvaluationPlugin
from bertlab.extend import Config, load_class, yaml_inline
from bertlab_evaluations.entries import read_entries
from bertlab_studies.errors import StudyError

ENTRY_KEYS = ("evaluation", "data", "format", "split", "columns", "cluster", "settings")
ZERO_SHOT_KEYS = (*ENTRY_KEYS, "metric", "margin", "words_checkpoints")
SECTION = "evaluation"


def zero_shot_config(name: str, fields: Mapping[str, Any], where: str) -> Config:
    """Return the resolved config of an evaluation, all of its settings among it.

    Args:
        name: of the evaluation in the study.
        fields: of its entry in the study file.
        where: the file and key, for messages.

    Raises:
        StudyError: a key, value or plugin is wrong.
    """
    asked = {key: value for key, value in fields.items() if key in ENTRY_KEYS}
    settings = asked.get("settings")
    if isinstance(settings, Mapping):
        # of --evaluate_set blimp.settings.method=original
        asked["settings"] = {key.removeprefix("settings."): v for key, v in settings.items()}
    try:
        (entry,) = read_entries({name: asked}, where.removesuffix(f".{name}"))
    except BertlabError as error:
        text = str(error)
        raise StudyError(text if text.startswith(where) else f"{where}: {text}") from None
    along = fields.get("words_checkpoints", False)
    if not isinstance(along, bool):
        raise StudyError(f"{where}.words_checkpoints: found {along!r}, expected true or false")
    # only where it is asked for, so that other evaluations keep their runs
    return {SECTION: entry.plain() | ({"words_checkpoints": True} if along else {})}


def is_zero_shot(config: Config) -> bool:
    """Whether a stage's config is that of an evaluation that trains nothing."""
    return SECTION in config


def zero_shot_arguments(name: str, config: Config, weights: str) -> list[str]:
    """Return the arguments of ``bertlab evaluate``, but for its output.

    Args:
        name: of the evaluation in the study.
        config: as :func:`zero_shot_config` returns it.
        weights: run directory or checkpoint.
    """
    asked = config[SECTION]
    keys = ("data", "format", "split", "columns", "cluster", "words_checkpoints")
    given = {key: asked[key] for key in keys if asked.get(key) not in (None, {})}
    given |= {f"settings.{key}": value for key, value in asked["settings"].items()}
    return [
        f"--ckpt_path={weights}",
        f"--evaluation={asked['evaluation']}",
        f"--name={name}",
        *(f"--{key}={yaml_inline(value)}" for key, value in given.items()),
    ]


def plugin_of(config: Config) -> type[EvaluationPlugin]:
    """Return the class of an evaluation."""
    plugin: type[EvaluationPlugin] = load_class(
        "evaluation", config[SECTION]["evaluation"], EvaluationPlugin
    )
    return plugin
