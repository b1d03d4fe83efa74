"""``StudyConfig``: what a study file asks for, from base config and variants to evaluations."""

from dataclasses import dataclass, field
from pathlib import Path

from bertlab import nearest
from bertlab.extend import Config, to_arguments
from bertlab_studies.errors import StudyError
from bertlab_studies.plan.budget import budget_settings
from bertlab_studies.plan.seed_parts import SeedFactor, SeedTuple, read_factors, seed_table
from bertlab_studies.plan.seeds import ADDED_SEEDS, join_seeds, read_seeds
from bertlab_studies.plan.tuning import Tuning, read_tuning
from bertlab_studies.plan.values import (
    check_count,
    check_keys,
    decide_and_margins,
    file,
    folder_name,
    mapping,
    margin,
    refuse_repeated,
    text,
)
from bertlab_studies.plan.variants import Variant, read_variants
from bertlab_studies.plan.zero_shot import ZERO_SHOT_KEYS, zero_shot_config
from bertlab_studies.settings import PLAN, Overrides, overridden, read_settings

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
    "decide",
    "looks",
    "earlier_noise",
    "tune",
    ADDED_SEEDS,
)
_EVALUATION_KEYS = ("config", "metric", "margin", "step", "settings")
_BETTER = {"higher": "max", "lower": "min"}
BASE = "base"  # the stage that evaluations start from


@dataclass(frozen=True)
class Evaluation:
    """What each pre-trained variant is scored by: a fine-tuning, or an evaluation without training.

    Attributes:
        name: of the task in tables.
        config: file of ``bertlab fit``; None of an evaluation that trains nothing.
        settings: overrides of it.
        metric: that variants are compared by; the head's own if None.
        better: which end of it is better, ``min`` or ``max``; None if the metric tells.
        step: ``last`` or ``best``: which of its evaluations counts.
        zero_shot: resolved config of an evaluation that trains nothing; None of a fine-tuning.
        margin: differences below it count as none, in units of the metric; None: there is none.
    """

    name: str
    config: Path | None
    settings: Overrides = field(default_factory=dict)
    metric: str | None = None
    step: str = "last"
    zero_shot: Config | None = None
    better: str | None = None
    margin: float | None = None

    def arguments_of(self, variant: Variant) -> list[str]:
        """Return what ``bertlab fit`` is asked for a fine-tuning of a variant."""
        settings = [*to_arguments(self.settings), *to_arguments(variant.evaluate)]
        return ["--config", str(self.config), *settings]


@dataclass(frozen=True)
class StudyConfig:
    """What is to be run.

    Attributes:
        name: of the study and its directory.
        base: config file of ``bertlab fit``.
        settings: overrides of it for all variants.
        variants: the rows of the table, the baseline among them.
        seeds: that each variant is run with; the same for all, so that they are paired. Of
            pre-training, where fine-tunings have seeds of their own.
        evaluations: what each is fine-tuned on; none where the base itself is a fine-tuning.
        baseline: the variant that the others are compared with.
        finetune_seeds: that each pre-training is fine-tuned with; None: once, with its own seed.
        decide: measures of pre-training, such as ``mlm loss``, that variants are compared by.
        margins: of those of ``decide`` that have one.
        factors: parts of a run whose seeds vary, where the others stay the same; ``seeds`` are the
            numbers of their combinations then.
        tune: how the settings of each variant are chosen before; None: they are fixed.
        earlier_noise: record of earlier studies' noise; None if the study does not use it.
    """

    name: str
    base: Path
    settings: Overrides
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    evaluations: tuple[Evaluation, ...]
    baseline: str
    finetune_seeds: tuple[int, ...] | None = None
    decide: tuple[str, ...] = ()
    margins: dict[str, float] = field(default_factory=dict)
    factors: tuple[SeedFactor, ...] = ()
    tune: Tuning | None = None
    earlier_noise: Path | None = None

    @property
    def is_crossed(self) -> bool:
        """Whether runs share seeds with each other, so that they are not independent."""
        return len(self.factors) > 1

    @property
    def stages(self) -> list[str]:
        """The base run and the evaluations, by name."""
        return [BASE, *(evaluation.name for evaluation in self.evaluations)]

    def arguments_of(self, variant: Variant) -> list[str]:
        """Return what ``bertlab fit`` is asked for the base run of a variant."""
        settings = [*to_arguments(self.settings), *to_arguments(variant.settings)]
        return ["--config", str(self.base), *settings]


def make_study(content: Config, where: str, folder: Path) -> StudyConfig:
    """Make a study of the content of its file.

    Args:
        content: keys and values.
        where: the file, for messages.
        folder: that the config files are relative to.

    Raises:
        StudyError: if a key is unknown, missing or of another kind.
    """
    check_keys(content, KEYS, where)
    base = text(content.get("base"), f"{where}: base", "the config file that variants change")
    settings = read_settings(content.get("settings"), f"{where}: settings")
    budget = budget_settings(content.get("budget"), f"{where}: budget")
    for key in settings.keys() & budget.keys():
        raise StudyError(
            f"{where}: settings: found {key} beside budget, expected one of them "
            "(on the command line: --set budget.steps=N)"
        )
    settings |= budget
    variants = read_variants(content, where)
    names = [variant.name for variant in variants]
    baseline = str(content.get("baseline", names[0]))
    if baseline not in names:
        raise StudyError(
            f"{where}: baseline: found {baseline!r}{nearest(baseline, names)} "
            f"(there are: {', '.join(names)})"
        )
    control = next((each for each in variants if each.control_of == baseline), None)
    if control is not None:
        raise StudyError(
            f"{where}: variants.{control.name}.control_of: found {baseline!r}, the baseline, which "
            "has no effect to explain"
        )
    common = read_settings(content.get("evaluate_settings"), f"{where}: evaluate_settings")
    evaluations = _evaluations(content.get("evaluate") or {}, common, where, folder)
    # a study that was begun keeps what changed nothing
    trains = (folder / PLAN).is_file() or any(each.zero_shot is None for each in evaluations)
    if common and not trains:
        named = " (that of one: evaluate.NAME.settings, or --evaluate_set NAME.KEY=VALUE)"
        raise StudyError(
            f"{where}: evaluate_settings: found {', '.join(common)}, but no evaluation is trained"
            f"{named if evaluations else ''}; take it out"
        )
    factors = read_factors(content.get("seeds"), f"{where}: seeds")
    seeds, finetune_seeds = _seeds(content, factors, where)
    if finetune_seeds is not None and not (evaluations and trains):
        none = "no evaluation is trained" if evaluations else "there is no evaluate"
        raise StudyError(
            f"{where}: seeds.finetune: found {list(finetune_seeds)}, but {none}: no training "
            f"starts from another run; expected seeds: {len(seeds)}, those of the base run"
        )
    nested = len(finetune_seeds or (1,)) * max(1, len(evaluations))
    check_count(len(variants) * len(seeds) * nested, "runs (variants times seeds)", where)
    decide, margins = decide_and_margins(content.get("decide"), f"{where}: decide")
    if decide and len(factors) > 1:
        raise StudyError(
            f"{where}: decide: found {', '.join(decide)}, but seeds are crossed: runs that share "
            "seeds test nothing; leave it out, or expected seeds: N"
        )
    return StudyConfig(
        name=folder_name(content.get("name"), f"{where}: name"),
        base=file(folder, base, f"{where}: base"),
        settings=settings,
        variants=tuple(variants),
        seeds=seeds,
        evaluations=tuple(evaluations),
        baseline=baseline,
        finetune_seeds=finetune_seeds,
        decide=decide,
        margins=margins,
        factors=factors,
        tune=read_tuning(
            content.get("tune"),
            f"{where}: tune",
            {variant.name: variant.overrides for variant in variants},
            seeds,
        ),
        earlier_noise=_record(content.get("earlier_noise"), where, folder),
    )


def _record(given: object, where: str, folder: Path) -> Path | None:
    """Return the record of earlier noise, which need not be there once the analysis is frozen."""
    if given is None:
        return None
    name = text(given, f"{where}: earlier_noise", "a file of `bertlab study report --record FILE`")
    return (folder / name).resolve()


def _seeds(
    content: Config, factors: tuple[SeedFactor, ...], where: str
) -> tuple[SeedTuple, SeedTuple | None]:
    """Return the seeds of pre-trainings, and of the fine-tunings of each, with those added."""
    added = content.get(ADDED_SEEDS)
    if factors:
        if added is not None:
            raise StudyError(
                f"{where}: {ADDED_SEEDS}: found {added!r} beside seeds of parts of a run; expected "
                "all seeds in seeds"
            )
        return tuple(seed_table(factors)), None
    seeds = read_seeds(content.get("seeds", 3), f"{where}: seeds")
    if added is None:
        return seeds
    return join_seeds(seeds, read_seeds(added, f"{where}: {ADDED_SEEDS}"))


def with_absolute_paths(content: Config, study: StudyConfig) -> Config:
    """Return the content of a study file as it can be read from another folder."""
    evaluate = content.get("evaluate") or {}
    found: Config = {**content, "name": study.name, "base": str(study.base.resolve())}
    if study.earlier_noise is not None:
        found["earlier_noise"] = str(study.earlier_noise)
    if evaluate:
        found["evaluate"] = {
            evaluation.name: fields
            if evaluation.config is None
            else {
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


def _evaluations(given: object, common: Overrides, where: str, folder: Path) -> list[Evaluation]:
    place = f"{where}: evaluate"
    if isinstance(given, list) and all(isinstance(path, str) for path in given):
        named = [(Path(path).stem, path) for path in given]
    elif isinstance(given, dict):
        named = [(str(name), entry) for name, entry in given.items()]
    else:
        raise StudyError(f"{place}: found {given!r}, expected config files, or names with them")
    names = [name for name, _ in named]
    refuse_repeated(names, place)
    if BASE in names:
        raise StudyError(f"{place}: {BASE!r} is the name of the pre-training; choose another")
    return [_evaluation(name, entry, common, f"{place}.{name}", folder) for name, entry in named]


def _evaluation(
    name: str, entry: object, common: Overrides, where: str, folder: Path
) -> Evaluation:
    fields = {"config": entry} if isinstance(entry, str) else mapping(entry, where)
    step = fields.get("step", "last")
    metric, better = _metric(fields.get("metric"), f"{where}.metric")
    least = margin(fields.get("margin"), f"{where}.margin")
    if "evaluation" in fields:
        check_keys(fields, ZERO_SHOT_KEYS, where)
        zero_shot = zero_shot_config(name, fields, where)
        return Evaluation(
            name, None, metric=metric, zero_shot=zero_shot, better=better, margin=least
        )
    check_keys(fields, _EVALUATION_KEYS, where)
    config = text(
        fields.get("config"), f"{where}.config", "a config file of bertlab fit, or evaluation: NAME"
    )
    if step not in ("last", "best"):
        raise StudyError(f"{where}.step: found {step!r}, expected last or best")
    settings = overridden(common, read_settings(fields.get("settings"), f"{where}.settings"))
    path = file(folder, config, where)
    return Evaluation(name, path, settings, metric, step, better=better, margin=least)


def _metric(given: object, where: str) -> tuple[str | None, str | None]:
    """Return the name of a metric and its better end, each None if it is not said."""
    if given is None or isinstance(given, str):
        return (None if given is None else text(given, where, "the name of a metric")), None
    expected = "the name of a metric, or {name: NAME, better: higher} (or lower)"
    if not isinstance(given, dict) or given.keys() != {"name", "better"}:
        raise StudyError(f"{where}: found {given!r}, expected {expected}")
    if given["better"] not in _BETTER:
        raise StudyError(f"{where}.better: found {given['better']!r}, expected higher or lower")
    return text(given["name"], f"{where}.name", "the name of a metric"), _BETTER[given["better"]]
