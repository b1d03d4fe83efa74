"""Reads a study: a base config, variants, seeds, and what each is evaluated on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from bertlab.config_files import Config
from bertlab.errors import ConfigError, nearest
from bertlab.seeding import seed_list
from bertlab.studies.overrides import Overrides, as_overrides

KEYS = (
    "name",
    "base",
    "settings",
    "variants",
    "axes",
    "seeds",
    "budget",
    "evaluate",
    "evaluate_settings",
    "baseline",
)
_EVALUATION_KEYS = ("config", "metric", "step", "settings")
_EVALUATE = "evaluate."
_FROM_STEP = "from_step"


@dataclass(frozen=True)
class Evaluation:
    """A fine-tuning run that each pre-trained variant is scored by.

    Attributes:
        name: of the task in tables.
        config: file of ``bertlab fit``.
        settings: overrides of it.
        metric: that variants are compared by; the head's own if None.
        step: ``last`` or ``best``: which of its evaluations counts.
    """

    name: str
    config: Path
    settings: Overrides = field(default_factory=dict)
    metric: str | None = None
    step: str = "last"


@dataclass(frozen=True)
class Variant:
    """One row of a study's table.

    Attributes:
        name: of the row.
        settings: overrides of the base config.
        evaluate: overrides of every evaluation.
        from_step: optimiser step of the pre-training whose checkpoint is evaluated; None: the last.
    """

    name: str
    settings: Overrides = field(default_factory=dict)
    evaluate: Overrides = field(default_factory=dict)
    from_step: int | None = None


@dataclass(frozen=True)
class Study:
    """What is to be run.

    Attributes:
        name: of the study and its directory.
        base: config file of ``bertlab fit``.
        settings: overrides of it for all variants.
        variants: the rows of the table, the baseline among them.
        seeds: that each variant is run with; the same for all, so that they are paired.
        evaluations: what each is fine-tuned on; none where the base itself is a fine-tuning.
        baseline: the variant that the others are compared with.
    """

    name: str
    base: Path
    settings: Overrides
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    evaluations: tuple[Evaluation, ...]
    baseline: str


def make_study(content: Config, where: str, folder: Path) -> Study:
    """Make a study of the content of its file.

    Args:
        content: keys and values.
        where: the file, for messages.
        folder: that the config files are relative to.

    Raises:
        ConfigError: if a key is unknown, missing or of another kind.
    """
    for key in content:
        if key not in KEYS:
            raise ConfigError(
                f"{where}: no key is called {key!r}{nearest(str(key), KEYS)} "
                f"(there are: {', '.join(KEYS)})"
            )
    base = _text(content.get("base"), f"{where}: base", "the config file that variants change")
    settings = as_overrides(content.get("settings"), f"{where}: settings")
    settings |= _budget(content.get("budget"), f"{where}: budget")
    variants = _variants(content, where)
    names = [variant.name for variant in variants]
    baseline = content.get("baseline", names[0])
    if baseline not in names:
        raise ConfigError(
            f"{where}: baseline: found {baseline!r}{nearest(str(baseline), names)} "
            f"(there are: {', '.join(names)})"
        )
    common = as_overrides(content.get("evaluate_settings"), f"{where}: evaluate_settings")
    return Study(
        name=_text(content.get("name"), f"{where}: name", "a name"),
        base=_file(folder, base, f"{where}: base"),
        settings=settings,
        variants=tuple(variants),
        seeds=tuple(_seeds(content.get("seeds", 3), where)),
        evaluations=tuple(_evaluations(content.get("evaluate") or {}, common, where, folder)),
        baseline=baseline,
    )


def with_absolute_paths(content: Config, study: Study) -> Config:
    """Return the content of a study file as it can be read from another folder."""
    evaluate = content.get("evaluate") or {}
    found: Config = {**content, "name": study.name, "base": str(study.base.resolve())}
    if evaluate:
        found["evaluate"] = {
            evaluation.name: {
                **(fields if isinstance(fields, dict) else {}),
                "config": str(evaluation.config.resolve()),
            }
            for evaluation, fields in zip(
                study.evaluations,
                evaluate.values() if isinstance(evaluate, dict) else evaluate,
                strict=True,
            )
        }
    return found


def _variants(content: Config, where: str) -> list[Variant]:
    """Return the named variants times the product of the axes."""
    given = content.get("variants")
    named = _mapping({"": {}} if given is None else given, f"{where}: variants")
    axes = _mapping(content.get("axes") or {}, f"{where}: axes")
    if given is None and not axes:
        raise ConfigError(f"{where}: variants: found none, expected names with overrides, or axes")
    points = [_axis(name, values, f"{where}: axes.{name}") for name, values in axes.items()]
    variants = []
    for name, overrides in named.items():
        for combination in product(*points):
            labels = [label for label, _ in combination]
            merged = as_overrides(overrides, f"{where}: variants.{name}")
            for _, more in combination:
                merged |= more
            variants.append(_variant(" ".join(filter(None, [str(name), *labels])), merged, where))
    if len(variants) < 2:
        raise ConfigError(f"{where}: variants: found one, expected two or more to compare")
    return variants


def _variant(name: str, overrides: Overrides, where: str) -> Variant:
    settings = {key: value for key, value in overrides.items() if not key.startswith(_EVALUATE)}
    evaluate = {
        key.removeprefix(_EVALUATE): value
        for key, value in overrides.items()
        if key.startswith(_EVALUATE)
    }
    step = evaluate.pop(_FROM_STEP, None)
    if step is not None and (type(step) is not int or step < 1):
        raise ConfigError(
            f"{where}: {name}: evaluate.from_step: found {step!r}, expected a number of steps"
        )
    return Variant(name, settings, as_overrides(evaluate, f"{where}: {name}: evaluate"), step)


def _axis(name: str, values: object, where: str) -> list[tuple[str, Overrides]]:
    """Return an axis' points: a config key's values, or labels with overrides."""
    if isinstance(values, Mapping) and values:
        return [(str(label), as_overrides(each, where)) for label, each in values.items()]
    if isinstance(values, list) and values:
        short = name.rsplit(".", 1)[-1]
        return [
            (f"{short}={_label(value)}", as_overrides({name: value}, where)) for value in values
        ]
    raise ConfigError(f"{where}: found {values!r}, expected a list of values, or labels with them")


def _label(value: object) -> str:
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)


def _evaluations(given: object, common: Overrides, where: str, folder: Path) -> list[Evaluation]:
    if isinstance(given, list):
        given = {Path(str(path)).stem: path for path in given}
    found = []
    for name, entry in _mapping(given, f"{where}: evaluate").items():
        place = f"{where}: evaluate.{name}"
        fields = {"config": entry} if isinstance(entry, str) else _mapping(entry, place)
        for key in fields:
            if key not in _EVALUATION_KEYS:
                raise ConfigError(
                    f"{place}: no key is called {key!r}{nearest(str(key), _EVALUATION_KEYS)} "
                    f"(there are: {', '.join(_EVALUATION_KEYS)})"
                )
        config = _text(fields.get("config"), f"{place}.config", "a config file of bertlab fit")
        step = fields.get("step", "last")
        if step not in ("last", "best"):
            raise ConfigError(f"{place}.step: found {step!r}, expected last or best")
        settings = common | as_overrides(fields.get("settings"), f"{place}.settings")
        path = _file(folder, config, place)
        found.append(Evaluation(str(name), path, settings, fields.get("metric"), step))
    return found


def _budget(given: object, where: str) -> Overrides:
    """Return what makes the pre-training of each variant equally long."""
    if given is None:
        return {}
    keys = {"steps": "trainer.max_steps", "tokens": "max_tokens", "time": "trainer.max_time"}
    budget = _mapping(given, where)
    if len(budget) != 1 or next(iter(budget)) not in keys:
        raise ConfigError(f"{where}: found {given!r}, expected one of steps, tokens, time")
    ((kind, value),) = budget.items()
    return {keys[kind]: value}


def _seeds(given: object, where: str) -> list[int]:
    try:
        return seed_list(given)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _mapping(given: object, where: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ConfigError(f"{where}: found {given!r}, expected a mapping")
    return given


def _text(given: object, where: str, expected: str) -> str:
    if not isinstance(given, str) or not given:
        raise ConfigError(f"{where}: found {given!r}, expected {expected}")
    return given


def _file(folder: Path, name: str, where: str) -> Path:
    path = folder / name
    if not path.is_file():
        near = nearest(path.name, [each.name for each in path.parent.glob("*.yaml")])
        raise ConfigError(f"{where}: {path}: no such config file{near}")
    return path
