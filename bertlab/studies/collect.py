"""From the directories of a study's runs to what it has found."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bertlab.callbacks.loss_curve import read_curves
from bertlab.checkpoints.run_checkpoint import BEST
from bertlab.config_files import read_config
from bertlab.heads.base import Head
from bertlab.model_building import build_tasks
from bertlab.results import is_share
from bertlab.run_directory import COMPLAINTS, MANIFEST, PREDICTIONS, RESULTS
from bertlab.studies.cost import Cost, measured_cost, pretraining_cost
from bertlab.studies.plan import BASE, Plan, PlannedRun, variant_settings
from bertlab.studies.row_scores import row_scores
from bertlab.studies.run_state import State, is_done, read_status
from bertlab.studies.scores import Cell, Curve, Measure, StudyScores, VariantScores
from bertlab.studies.study_file import Evaluation, Study


def collect(study: Study, plan: Plan, folder: Path) -> StudyScores:
    """Read what the runs that are done have left.

    Args:
        study: what was asked.
        plan: its runs.
        folder: of the study.
    """
    measures = [*_deciding(study, plan), *_describing(study, plan, folder)]
    settings = variant_settings(plan, study)
    variants = {}
    for variant in study.variants:
        found = VariantScores(settings=settings[variant.name])
        for measure in measures:
            found.cells[measure.name] = _cell(study, plan, folder, variant.name, measure)
        _add_runs(found, study, plan, folder, variant.name)
        variants[variant.name] = found
    return StudyScores(
        name=study.name,
        baseline=study.baseline,
        seeds=list(study.seeds),
        measures=measures,
        variants=variants,
    )


def main_result(
    run: PlannedRun, study: Study, plan: Plan, folder: Path
) -> tuple[str, float] | None:
    """Return name and value of the figure that a finished run is about; None if it is not done."""
    if not is_done(run.directory(folder)):
        return None
    results = _read(run.directory(folder) / RESULTS)
    for measure in _deciding(study, plan):
        if run.stage in (measure.task, BASE):
            value = _value(results, measure)
            if value is not None:
                return measure.name, value
    return "loss", results.get("loss", math.nan)


def _deciding(study: Study, plan: Plan) -> list[Measure]:
    """Return the measure of each evaluation, or of the base if that is a fine-tuning."""
    first = study.baseline
    if not study.evaluations:
        head = _head(plan.configs[first, BASE])
        return [] if head is None else [_measure(study.name, head[1].monitor)]
    measures = []
    for evaluation in study.evaluations:
        head = _head(plan.configs[first, evaluation.name])
        assert head is not None
        metric, mode = head[1].monitor
        if evaluation.metric is not None:
            metric, mode = evaluation.metric, "min" if evaluation.metric == "loss" else "max"
        measures.append(_measure(evaluation.name, (metric, mode)))
    return measures


def _measure(task: str, monitor: tuple[str, str]) -> Measure:
    metric, mode = monitor
    return Measure(task, metric, mode == "max", is_share(metric))


def _describing(study: Study, plan: Plan, folder: Path) -> list[Measure]:
    """Return the metrics of pre-training, which describe: variants optimise different things."""
    if _head(plan.configs[study.baseline, BASE]) is not None:
        return []
    names: dict[str, None] = {}
    for variant in study.variants:
        for results in _base_results(study, plan, folder, variant.name).values():
            names |= dict.fromkeys(results)
    measures = []
    for name in names:
        task, _, metric = name.rpartition("/")
        if task and metric in ("accuracy", "loss"):
            measures.append(Measure(task, metric, metric != "loss", is_share(metric), False))
    return measures


def _cell(study: Study, plan: Plan, folder: Path, variant: str, measure: Measure) -> Cell:
    cell = Cell()
    evaluation = next((each for each in study.evaluations if each.name == measure.task), None)
    stage = BASE if evaluation is None else evaluation.name
    for seed in study.seeds:
        run = plan.runs[plan.cells[variant, stage, seed]]
        if not is_done(run.directory(folder)):
            continue
        directory = run.directory(folder)
        results = _results(directory, evaluation)
        value = _value(results, measure)
        if value is None:
            continue
        cell.values[seed] = value
        if measure.decides and (directory / COMPLAINTS).is_file():
            cell.complaints[seed] = "; ".join(json.loads((directory / COMPLAINTS).read_text()))
        if evaluation is not None and evaluation.step == "last":
            scores = row_scores(directory / PREDICTIONS, measure.metric, value)
            if scores is not None:
                cell.examples[seed] = scores
    return cell


def _add_runs(found: VariantScores, study: Study, plan: Plan, folder: Path, variant: str) -> None:
    """Add costs, times, curves and failures of a variant's runs."""
    stages = [BASE, *(evaluation.name for evaluation in study.evaluations)]
    for seed in study.seeds:
        runs = [plan.runs[plan.cells[variant, stage, seed]] for stage in stages]
        if all(is_done(run.directory(folder)) for run in runs):
            found.seconds[seed] = sum(read_status(run, folder, State.DONE).seconds for run in runs)
        for metric, curve in _curves(runs[0].directory(folder)).items():
            found.curves.setdefault(metric, {})[seed] = curve
    costs = [_cost(plan, folder, variant, stage, study.seeds) for stage in stages]
    found.tokens = None if costs[0] is None else costs[0].tokens
    known = [cost.flops for cost in costs if cost is not None]
    found.flops = sum(known) if len(known) == len(costs) else None


def _cost(plan: Plan, folder: Path, variant: str, stage: str, seeds: Iterable[int]) -> Cost | None:
    """Return what a stage cost by the record of a run, or will by its config."""
    for seed in seeds:
        directory = plan.runs[plan.cells[variant, stage, seed]].directory(folder)
        if (directory / MANIFEST).is_file() and (directory / "config.yaml").is_file():
            manifest = _read(directory / MANIFEST)
            if "training_tokens" in manifest:
                return measured_cost(read_config(directory / "config.yaml"), manifest)
    config = plan.configs[variant, stage]
    return pretraining_cost(config) if _head(config) is None else None


def _base_results(
    study: Study, plan: Plan, folder: Path, variant: str
) -> dict[int, dict[str, float]]:
    runs = {seed: plan.runs[plan.cells[variant, BASE, seed]] for seed in study.seeds}
    return {
        seed: _results(run.directory(folder), None)
        for seed, run in runs.items()
        if is_done(run.directory(folder))
    }


def _results(directory: Path, evaluation: Evaluation | None) -> dict[str, float]:
    """Return the metrics of the step that counts."""
    if evaluation is not None and evaluation.step == "best" and (directory / BEST).is_file():
        best: dict[str, float] = _read(directory / BEST)["results"]
        return best
    return _read(directory / RESULTS)


def _value(results: Mapping[str, float], measure: Measure) -> float | None:
    """Return a metric by its name below the task's or, of labelled rows, below the head's."""
    if not measure.decides:
        return results.get(f"{measure.task}/{measure.metric}")
    for name, value in results.items():  # the first set of several decides
        if name.rpartition("/")[2] == measure.metric and "/" in name:
            return value
    return None


def _curves(directory: Path) -> dict[str, Curve]:
    """Return the evaluations in a run's logs."""
    curves = {}
    for name, (steps, values) in read_curves(directory).items():
        task, _, metric = name.removeprefix("val/").rpartition("/")
        if name.startswith("val/") and task and metric in ("accuracy", "loss"):
            curves[f"{task} {metric}"] = Curve([step + 1 for step in steps], values)
    return curves


def _head(config: dict[str, Any]) -> tuple[str, Head] | None:
    for name, task in build_tasks(config["model"]).items():
        if isinstance(task, Head):
            return name, task
    return None


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content
