"""The trials of a tuned study: an ordinary study of its own, with a variant for each trial.

The trial ``mlm trial 3`` is the variant ``mlm`` with the third settings. What a study does with its
runs (workers, resuming, SLURM, checks of configs and data) is so done with trials as well.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bertlab import nearest
from bertlab.extend import Config
from bertlab_studies.errors import StudyError
from bertlab_studies.plan.measures import head_of, held_out_differences, pretraining_measures
from bertlab_studies.plan.plan import Plan
from bertlab_studies.plan.stages import last_config
from bertlab_studies.plan.study_file import BASE, StudyConfig
from bertlab_studies.plan.tuning import Rows, Tuning
from bertlab_studies.plan.variants import Variant
from bertlab_studies.settings import Overrides, overridden

TRIALS = "tuning"  # directory of the trials in that of the study
_SHARED = ("base", "settings", "budget")
_EVALUATE = "evaluate."
_METRICS = ("accuracy", "loss")  # which the report of any study has

TrialVariants = dict[str, list[tuple[str, Overrides]]]  # name and overrides of a variant's trials


def tuning_of(study: StudyConfig) -> Tuning:
    """Return how a study is tuned, which must be."""
    assert study.tune is not None, "only asked of a study with tune"
    return study.tune


def choosing_evaluation(study: StudyConfig) -> str | None:
    """Return the evaluation whose metric chooses; None if a measure of the base run does.

    Raises:
        StudyError: if ``by`` is missing, and there are several evaluations.
    """
    names, by = [each.name for each in study.evaluations], tuning_of(study).by
    if by is None and len(names) > 1:
        raise StudyError(
            f"study {study.name}: tune.by: missing, expected the measure that chooses: one of "
            f"{', '.join(names)}, or one of pre-training, such as mlm loss"
        )
    if by is None:
        return names[0] if names else None
    return by if by in names else None


def deciding_rows(study: StudyConfig, whole_clusters: bool = True) -> dict[str, Rows]:
    """Return by task which rows decide, where that is not all of them.

    Args:
        study: that may be tuned.
        whole_clusters: rows of a cluster are in one half.
    """
    if study.tune is None or study.tune.same_rows:
        return {}
    chooses = choosing_evaluation(study)
    if chooses is None and study.evaluations:
        return {}  # a measure of pre-training chooses
    # the measure of a study without evaluations has the study's name as its task
    return {chooses or study.name: Rows.DECIDE if whole_clusters else Rows.DECIDE_SINGLY}


def choosing_rows(study: StudyConfig, whole_clusters: bool = True) -> dict[str, Rows]:
    """Return by task which rows choose, where that is not all of them; arguments as above."""
    chooses = Rows.CHOOSE if whole_clusters else Rows.CHOOSE_SINGLY
    return dict.fromkeys(deciding_rows(study), chooses)


def trial_variants(study: StudyConfig, settings: Mapping[str, list[Overrides]]) -> TrialVariants:
    """Return name and overrides of each trial, by variant.

    Trials that compute the same have one name, that of the first: two draws of a small space may be
    the same, and so are trials of variants that differ in evaluations which no trial needs.

    Args:
        study: that is tuned.
        settings: of the trials of each variant.
    """
    of_evaluations = _of_evaluations(study)
    names: dict[str, str] = {}  # by what is computed
    found: TrialVariants = {}
    for variant in study.variants:
        found[variant.name] = []
        for number, more in enumerate(settings[variant.name], 1):
            overrides = {
                key: value
                for key, value in overridden(variant.overrides, more).items()
                if not key.startswith(_EVALUATE) or key.startswith(of_evaluations)
            }
            computed = json.dumps(overrides, sort_keys=True, default=str)
            name = names.setdefault(computed, f"{variant.name} trial {number}")
            found[variant.name].append((name, overrides))
    return found


def _of_evaluations(study: StudyConfig) -> tuple[str, ...]:
    """Return how the overrides of evaluations begin that change the one which chooses."""
    chooses = choosing_evaluation(study)
    if chooses is None:
        return ()
    evaluation = next(each for each in study.evaluations if each.name == chooses)
    # what is trained has all settings; else it is only chosen which checkpoint is scored
    return (_EVALUATE,) if evaluation.zero_shot is None else (f"{_EVALUATE}from_step",)


def trials_content(content: Config, study: StudyConfig, trials: TrialVariants) -> Config:
    """Return the study file of the trials, which need no evaluation but the one that chooses.

    Args:
        content: of the study's file, its paths absolute.
        study: made of it.
        trials: as :func:`trial_variants` returns them.
    """
    found: Config = {key: content[key] for key in _SHARED if key in content}
    chooses = choosing_evaluation(study)
    if chooses is not None:
        found["evaluate"] = {chooses: content["evaluate"][chooses]}
    if _EVALUATE in _of_evaluations(study) and "evaluate_settings" in content:
        found["evaluate_settings"] = content["evaluate_settings"]
    return {
        **found,
        "name": study.name,
        "variants": {name: own for each in trials.values() for name, own in each},
        "seeds": list(tuning_of(study).seeds),
    }


def with_chosen(study: StudyConfig, chosen: Mapping[str, Overrides]) -> StudyConfig:
    """Return a study whose variants have the settings that were chosen for them.

    Args:
        study: that is tuned.
        chosen: settings of the trial that was chosen, by variant.
    """
    variants = []
    for variant in study.variants:
        own = chosen[variant.name]
        evaluate = {
            key.removeprefix(_EVALUATE): value
            for key, value in own.items()
            if key.startswith(_EVALUATE)
        }
        base = {key: value for key, value in own.items() if not key.startswith(_EVALUATE)}
        variants.append(
            replace(
                variant,
                settings=overridden(variant.settings, base),
                evaluate=overridden(variant.evaluate, evaluate),
            )
        )
    return replace(study, variants=tuple(variants))


def check_choice(
    study: StudyConfig, variants: TrialVariants, trials: StudyConfig, plan: Plan
) -> None:
    """Raise StudyError if ``by`` names no measure, or one that cannot choose.

    Args:
        study: that is tuned.
        variants: of the trials, by variant of the study.
        trials: the study of the trials.
        plan: of the trials.
    """
    by, where = tuning_of(study).by, f"study {study.name}: tune.by"
    chooses = choosing_evaluation(study)
    if chooses is not None:
        _check_evaluation(study, chooses)
        return
    if head_of(plan.configs[trials.baseline, BASE]) is not None:
        if by is not None:
            raise StudyError(f"{where}: found {by!r}, but base fine-tunes and its metric chooses")
        return
    ends = pretraining_measures(trials, plan).ends
    of_base = [
        f"{task} {each}" for task, found in ends.items() for each in _METRICS if each in found
    ]
    known = [*(each.name for each in study.evaluations), *of_base]
    if by not in of_base:
        found = "missing" if by is None else f"found {by!r}{nearest(by, known)}"
        raise StudyError(f"{where}: {found}, expected one of {', '.join(known)}")
    _check_pretraining(study, by, where)
    for variant, of_variant in variants.items():
        _check_trials(
            replace(trials, variants=_named(trials, of_variant)), plan, variant, by, where
        )


def check_rows(study: StudyConfig, deciding: Sequence[str]) -> None:
    """Raise StudyError if the measure that chooses decides on the same text.

    Args:
        study: that may be tuned.
        deciding: names of the measures that decide it.
    """
    tune = study.tune
    if tune is not None and tune.by in deciding and not tune.same_rows:
        raise StudyError(
            f"study {study.name}: tune.by: {tune.by} decides the study as well, on the same "
            "held-out text, which is optimistic; choose by another measure, or say "
            "tune.same_rows: true"
        )


def _check_evaluation(study: StudyConfig, name: str) -> None:
    evaluation = next(each for each in study.evaluations if each.name == name)
    if evaluation.step == "best" and not tuning_of(study).same_rows:
        raise StudyError(
            f"study {study.name}: evaluate.{name}.step: found best, but predictions are those of "
            f"the last step, and half of their rows choose (tune.by: {name}); expected last, or "
            "tune.same_rows: true"
        )


def _check_pretraining(study: StudyConfig, by: str, where: str) -> None:
    for key in tuning_of(study).space:
        if key.startswith(_EVALUATE):
            raise StudyError(
                f"{where}: found {by!r}, which {key} of tune.space does not change; expected an "
                "evaluation"
            )
    for variant in study.variants:
        if variant.from_step is not None:
            raise StudyError(
                f"{where}: found {by!r}, which is of the last step, but the variant "
                f"{variant.name!r} has evaluate.from_step; expected an evaluation"
            )


def _named(trials: StudyConfig, of_variant: list[tuple[str, Overrides]]) -> tuple[Variant, ...]:
    names = [name for name, _ in of_variant]
    return tuple(each for each in trials.variants if each.name in names)


def _check_trials(trials: StudyConfig, plan: Plan, variant: str, by: str, where: str) -> None:
    """Raise StudyError if a measure of pre-training is not of one thing in a variant's trials."""
    objectives = last_config(plan.configs[trials.variants[0].name, BASE])["model"]["objectives"]
    if by.partition(" ")[0] not in objectives:
        raise StudyError(
            f"{where}: found {by!r}, but the variant {variant!r} has no such objective (it has: "
            f"{', '.join(objectives)})"
        )
    differing = held_out_differences(trials, plan, by.partition(" ")[0])
    if differing:
        raise StudyError(
            f"{where}: found {by!r}, which is not of the same thing in all trials of {variant!r}: "
            f"they differ in {', '.join(differing)}; expected an evaluation"
        )
