"""Held-out metrics along the pre-trainings and fine-tunings of a study, from their logs."""

from collections.abc import Sequence
from pathlib import Path

from bertlab.extend import read_curves
from bertlab_studies.plan.measures import head_of
from bertlab_studies.plan.plan import Plan
from bertlab_studies.plan.study_file import BASE, StudyConfig
from bertlab_studies.plan.zero_shot import is_zero_shot
from bertlab_studies.study_scores import Curve, Measure


def pretraining_curves(
    study: StudyConfig, plan: Plan, folder: Path, variant: str
) -> dict[str, dict[int, Curve]]:
    """Return the curves of a variant's pre-trainings, by name of the metric and seed."""
    found: dict[str, dict[int, Curve]] = {}
    if _fine_tunes(plan, variant, BASE):
        return found
    for seed in study.seeds:
        directory = plan.run_of(variant, BASE, seed).directory(folder)
        for metric, curve in objective_curves(directory).items():
            found.setdefault(metric, {})[seed] = curve
    return found


def objective_curves(directory: Path) -> dict[str, Curve]:
    """Return the evaluations of objectives in a run's logs, such as ``mlm loss``, by name."""
    curves = {}
    for name, (steps, values) in read_curves(directory).items():
        task, _, metric = name.removeprefix("val/").rpartition("/")
        if name.startswith("val/") and task and metric in ("accuracy", "loss"):
            curves[f"{task} {metric}"] = _curve(steps, values)
    return curves


def finetune_curves(
    study: StudyConfig, plan: Plan, folder: Path, variant: str, measures: Sequence[Measure]
) -> dict[str, dict[tuple[int, int | None], Curve]]:
    """Return the curves of a variant's fine-tunings, by measure, then seed and fine-tuning seed.

    Args:
        study: what was asked.
        plan: its runs.
        folder: of the study.
        variant: whose runs are read.
        measures: of the study; those that describe only, or train nothing, are left out.
    """
    names = [evaluation.name for evaluation in study.evaluations]
    found: dict[str, dict[tuple[int, int | None], Curve]] = {}
    for measure in measures:
        stage = measure.task if measure.task in names else BASE
        if not measure.is_primary or not _fine_tunes(plan, variant, stage):
            continue
        for seed in study.seeds:
            for finetune, run in plan.runs_of(variant, stage, seed).items():
                curve = _curve_of(run.directory(folder), measure)
                if curve is not None:
                    found.setdefault(measure.name, {})[seed, finetune] = curve
    return found


def _fine_tunes(plan: Plan, variant: str, stage: str) -> bool:
    config = plan.configs[variant, stage]
    return not is_zero_shot(config) and head_of(config) is not None


def _curve_of(directory: Path, measure: Measure) -> Curve | None:
    """Return a run's curve of a metric of its head; of several sets, the first one decides."""
    curves = read_curves(directory)
    # of several heads the one that the measure is of
    own = {name: each for name, each in curves.items() if name.startswith(f"val/{measure.task}/")}
    for name, (steps, values) in (own or curves).items():
        if name.startswith("val/") and name.endswith(f"/{measure.metric}"):
            return _curve(steps, values)
    return None


def _curve(steps: Sequence[int], values: list[float]) -> Curve:
    return Curve([step + 1 for step in steps], values)  # logs count from 0
