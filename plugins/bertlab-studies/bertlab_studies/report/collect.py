"""Collects what the runs of a study have found from their directories."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import numpy as np

from bertlab import nearest
from bertlab.api import Head
from bertlab.extend import (
    DEGENERATE_FILE,
    PREDICTIONS_FILE,
    build_metrics,
    end_of,
    explain_damage,
    heads_direction,
    is_among,
    read_json,
    read_results,
)
from bertlab_evaluations.domain import describe_domain, is_far
from bertlab_studies.errors import StudyError
from bertlab_studies.execute.run_state import State, is_done, read_states, read_status
from bertlab_studies.held_out_rows import HELD_OUT_ROWS, held_out_scores
from bertlab_studies.plan.measures import (
    PretrainingMeasures,
    deciding_metric,
    head_of,
    heads_of,
    pretraining_measures,
    shares_of,
    shares_of_task,
    uses_pretraining,
)
from bertlab_studies.plan.plan import Plan, PlannedRun, variant_settings
from bertlab_studies.plan.seed_parts import seed_table
from bertlab_studies.plan.study_file import BASE, Evaluation, StudyConfig
from bertlab_studies.plan.tuning import Rows
from bertlab_studies.plan.values import fine_tunes
from bertlab_studies.plan.variants import Variant
from bertlab_studies.plan.zero_shot import is_zero_shot
from bertlab_studies.report.groups import collect_groups
from bertlab_studies.report.repeats import RunResult, add_results
from bertlab_studies.report.row_scores import (
    evaluated_rows,
    keep_common_rows,
    row_clusters,
    row_scores,
)
from bertlab_studies.report.run_costs import add_costs
from bertlab_studies.report.run_curves import (
    finetune_curves,
    objective_curves,
    pretraining_curves,
)
from bertlab_studies.study_scores import LARGEST, Cell, Curve, Measure, StudyScores, VariantScores


def collect(
    study: StudyConfig, plan: Plan, folder: Path, rows: Mapping[str, Rows] | None = None
) -> StudyScores:
    """Read what the runs that are done have left.

    Args:
        study: what was asked.
        plan: its runs.
        folder: of the study.
        rows: by task, of which rows its measure is; of all if it says nothing.

    Raises:
        StudyError: if a run lacks a metric, or it is of a half of the rows, which have no scores.
    """
    pretraining = pretraining_measures(study, plan)
    measures = measures_of(study, plan, folder)
    settings = variant_settings(plan, study)
    states = read_states(plan.in_order(), folder)
    variants = {}
    for variant in study.variants:
        found = VariantScores(
            settings=settings[variant.name],
            levels=variant.levels,
            builds_on=variant.builds_on,
            control_of=variant.control_of,
        )
        for measure in measures:
            of = (rows or {}).get(measure.task, Rows.ALL)
            found.cells[measure.name] = _cell(study, plan, folder, variant, measure, of)
        add_costs(found, study, plan, folder, variant)
        if uses_pretraining(plan, variant.name):
            found.curves = pretraining_curves(study, plan, folder, variant.name)
        found.finetune_curves = finetune_curves(study, plan, folder, variant.name, measures)
        found.failures = _failures(study, plan, folder, variant.name, states)
        variants[variant.name] = found
    untrained = [each.name for each in study.evaluations if each.zero_shot is not None]
    remarks: list[str] = []
    for measure in [each for each in measures if each.task in untrained]:
        cells = [each.cells[measure.name] for each in variants.values()]
        try:
            remarks += [f"{measure.name}: {line}" for line in keep_common_rows(cells)]
        except StudyError as error:
            raise StudyError(f"study {study.name}: {measure.name}: {error}") from None
    groups, group_curves = collect_groups(study, plan, folder)
    return StudyScores(
        name=study.name,
        baseline=study.baseline,
        seeds=list(study.seeds),
        # runs that share seeds test nothing
        measures=[replace(each, is_primary=False) for each in measures]
        if study.is_crossed
        else measures,
        variants=variants,
        groups=groups,
        group_curves=group_curves,
        finetune_seeds=list(study.finetune_seeds or ()),
        checkpoints=_checkpoints(plan),
        why_described="" if study.is_crossed else pretraining.why_described,
        factors=dict(seed_table(study.factors)) if study.factors else {},
        remarks=remarks,
    )


def measures_of(study: StudyConfig, plan: Plan, folder: Path) -> list[Measure]:
    """Return the columns of a study's table.

    Args:
        study: what was asked.
        plan: its runs.
        folder: of the study, in which runs that are done add what describes only.

    Raises:
        StudyError: if a metric does not tell which end of it is better, or cannot decide.
    """
    of_pretraining = _of_pretraining(study, plan, folder, pretraining_measures(study, plan))
    return [*_primary(study, plan, folder), *of_pretraining]


def other_domains(study: StudyConfig, plan: Plan, folder: Path) -> list[str]:
    """Return a line for each evaluation whose text is of another domain than the training text."""
    lines = []
    for evaluation in study.evaluations:
        far: dict[str, list[float]] = {}
        for run in _runs(study, plan, evaluation.name):
            directory = run.directory(folder)
            results = read_results(directory) if is_done(directory) else {}
            found, natural = (
                results.get(f"{evaluation.name}/{name}_divergence")
                for name in ("unigram", "natural")
            )
            if found is not None and natural is not None and is_far(found, natural):
                far.setdefault(run.variant, [found, natural])
        if far:
            of = "" if len(far) == len(study.variants) else f" of {', '.join(far)}"
            lines.append(f"{evaluation.name}{of}: {describe_domain(*next(iter(far.values())))}")
    return lines


def without_row_scores(
    scores: StudyScores, study: StudyConfig, plan: Plan, folder: Path
) -> Iterator[str]:
    """Yield a line for each measure whose head gives no scores of the rows that it predicted."""
    for measure in scores.measures:
        evaluation = next((each for each in study.evaluations if each.name == measure.task), None)
        if evaluation is not None and (evaluation.zero_shot or evaluation.step == "best"):
            continue
        if not measure.is_primary or any(
            scores.cell(name, measure).examples for name in scores.variants
        ):
            continue
        stage = BASE if evaluation is None else evaluation.name
        heads = list(heads_of(plan.configs[study.baseline, stage]))  # none: a pre-training
        done = [each.directory(folder) for each in _runs(study, plan, stage)]
        predicted = (is_done(each) and (each / PREDICTIONS_FILE).is_file() for each in done)
        if heads and any(predicted):
            yield (
                f"{measure.name}: head {heads[0]} gives no scores of rows whose mean is "
                f"{measure.metric} (its row_scores); tests are over seeds alone, and say nothing "
                "of other rows"
            )


def _checkpoints(plan: Plan) -> list[str]:
    """Return what the base runs start from, each once, if they are fine-tunings."""
    configs = [config for (_, stage), config in plan.configs.items() if stage == BASE]
    models = [config["model"] for config in configs if fine_tunes(config)]
    found = [
        str(model["init_from"])
        for model in models
        if model.get("init_from") and not model.get("from_scratch")
    ]
    return list(dict.fromkeys(found))


def _primary(study: StudyConfig, plan: Plan, folder: Path) -> list[Measure]:
    """Return the measure of each evaluation, or of the base if that is a fine-tuning."""
    heads = heads_of(plan.configs[study.baseline, BASE]) if not study.evaluations else {}
    if len(heads) > 1:
        return _of_heads(study, plan, heads)
    if not study.evaluations:
        metric = _own_metric(study, plan, folder, BASE)
        shares = shares_of(study, plan, None)
        return [] if metric is None else [_measure(study.name, metric, shares)]
    measures = []
    for evaluation in study.evaluations:
        metric = deciding_metric(study, plan, evaluation)
        if evaluation.metric is None and evaluation.zero_shot is None:
            metric = _own_metric(study, plan, folder, evaluation.name) or metric
        shares = shares_of(study, plan, evaluation)
        measures.append(_measure(evaluation.name, metric, shares, evaluation.margin))
    return measures


def _of_heads(study: StudyConfig, plan: Plan, heads: Mapping[str, Head]) -> list[Measure]:
    """Return what each of several heads is judged by, and their mean, which describes only."""
    further = build_metrics(plan.configs[study.baseline, BASE]["model"])
    measures = [
        _measure(name, head.monitor, shares_of_task(head, further)) for name, head in heads.items()
    ]
    end = heads_direction(heads)
    # its task is the study, as that of a single head: trials of a tuned study are chosen by it
    mean = [] if end is None else [replace(_measure(study.name, ("mean", end)), is_primary=False)]
    return measures + mean


def _own_metric(study: StudyConfig, plan: Plan, folder: Path, stage: str) -> tuple[str, str] | None:
    """Return the metric that a stage's head is judged by, and its better end; None of objectives.

    A head that is built may know better: tags that are no entities have an accuracy only.
    """
    head = head_of(plan.configs[study.baseline, stage])
    if head is None:
        return None
    metric, mode = head.monitor
    for run in _runs(study, plan, stage):
        directory = run.directory(folder)
        if is_done(directory):
            ends = {name.rpartition("/")[2] for name in read_results(directory)}
            return (
                ("accuracy", "max") if metric not in ends and "accuracy" in ends else (metric, mode)
            )
    return metric, mode


def _runs(study: StudyConfig, plan: Plan, stage: str) -> Iterator[PlannedRun]:
    """Yield the runs of a stage, some twice."""
    for variant in study.variants:
        for seed in study.seeds:
            yield from plan.runs_of(variant.name, stage, seed).values()


def _measure(
    task: str,
    monitor: tuple[str, str],
    shares: Sequence[str] = (),
    margin: float | None = None,
) -> Measure:
    metric, mode = monitor
    return Measure(task, metric, mode == "max", is_among(metric, shares), margin=margin)


def _of_pretraining(
    study: StudyConfig, plan: Plan, folder: Path, known: PretrainingMeasures
) -> list[Measure]:
    """Return the held-out metrics of pre-training, those that decide first."""
    if not known.ends:  # the base is a fine-tuning
        return []
    # a set that keeps its order
    names = dict.fromkeys(name.replace(" ", "/", 1) for name in known.deciding)
    for variant in study.variants:
        for results in _base_results(study, plan, folder, variant.name).values():
            names |= dict.fromkeys(results)
    evaluations = [evaluation.name for evaluation in study.evaluations]
    measures = []
    for name in names:
        task, _, metric = name.rpartition("/")
        decides = f"{task} {metric}" in known.deciding
        if task and task not in evaluations and (decides or metric in ("accuracy", "loss")):
            higher = end_of(metric, known.ends.get(task, {"loss": "min"})) != "min"
            margin = study.margins.get(f"{task} {metric}")
            share = is_among(metric, known.shares.get(task, ()))
            measures.append(Measure(task, metric, higher, share, decides, margin))
    return measures


def _cell(
    study: StudyConfig, plan: Plan, folder: Path, variant: Variant, measure: Measure, rows: Rows
) -> Cell:
    cell = Cell()
    evaluation = next((each for each in study.evaluations if each.name == measure.task), None)
    stage = BASE if evaluation is None else evaluation.name
    of_rows = evaluation is not None or head_of(plan.configs[variant.name, BASE]) is not None
    if stage == BASE and not uses_pretraining(plan, variant.name):
        return cell
    config = plan.configs[variant.name, stage]
    heads = {} if is_zero_shot(config) else heads_of(config)
    if evaluation is None and _lacks(measure, study, heads):
        return cell
    for seed in study.seeds:
        found = {}
        for finetune, run in plan.runs_of(variant.name, stage, seed).items():
            directory = run.directory(folder)
            if not is_done(directory):
                continue
            results = _results(directory, evaluation)
            if of_rows:
                value = _value(results, measure, of_rows)
                if value is None:
                    _refuse_metric(measure, results, study)
                head = next(iter(heads.values()), None)  # of several none keeps predictions
                found[finetune] = _result_of_rows(directory, evaluation, measure, value, rows, head)
                if len(heads) > 1:
                    own = _degenerate(directory, measure, f"{measure.task}: ")
                    found[finetune] = replace(found[finetune], degenerate=own)
            elif (reached := _of_objective(directory, results, variant, measure)) is not None:
                found[finetune] = reached
        add_results(cell, seed, found, f"{variant.name}, {measure.name}")
    runs = [r for seed in study.seeds for r in plan.runs_of(variant.name, stage, seed).values()]
    name = None if of_rows else HELD_OUT_ROWS
    files = [_file_of_rows(run.directory(folder), evaluation, name) for run in runs]
    known = (row_clusters(path, rows) for path in files if cell.examples)
    # all runs have the same rows; those of before there were clusters do not say them
    cell.clusters = next((each for each in known if each is not None), None)
    return cell


def _lacks(measure: Measure, study: StudyConfig, heads: Mapping[str, Head]) -> bool:
    """Whether a measure is of one of several heads that a variant has not, or of their mean."""
    if not heads or measure.task == study.name:
        return len(heads) == 1 and measure.metric == "mean"
    return measure.task not in heads


def _of_objective(
    directory: Path, results: Mapping[str, float], variant: Variant, measure: Measure
) -> RunResult | None:
    """Return what a pre-training reached at the step that its evaluations start from."""
    if variant.from_step is not None:
        curve = objective_curves(directory).get(measure.name, Curve([], []))
        value = dict(zip(curve.steps, curve.values, strict=True)).get(variant.from_step)
    else:
        value = _value(results, measure, of_rows=False)
    if value is None:
        return None
    scores = None
    if measure.is_primary and variant.from_step is None:  # the sequences are those of the end
        scores = held_out_scores(directory, measure.task, measure.metric, value)
    return RunResult(value, _degenerate(directory, measure), scores)


def _result_of_rows(
    directory: Path,
    evaluation: Evaluation | None,
    measure: Measure,
    value: float,
    rows: Rows,
    head: Head | None,
) -> RunResult:
    """Return a run's value with what is wrong with it and its rows' scores, if it has them."""
    scores, path = None, _file_of_rows(directory, evaluation)
    if evaluation is not None and evaluation.zero_shot is not None:
        scores = evaluated_rows(path, measure.metric, value, rows)
    elif evaluation is None or evaluation.step == "last":  # predictions are those of the last step
        scores = row_scores(path, measure.metric, value, rows, head)
    if rows is not Rows.ALL and math.isfinite(value):
        if scores is None:
            raise StudyError(
                f"{directory}: keeps no scores of rows of {measure.name}, so that it is not known "
                "of half of the rows; choose by another measure (tune.by), or say tune.same_rows: "
                "true (finished runs are kept)"
            )
        value = float(np.nanmean(scores))
    return RunResult(value, _degenerate(directory, measure), scores)


def _file_of_rows(directory: Path, evaluation: Evaluation | None, name: str | None = None) -> Path:
    if name is not None:
        return directory / name
    if evaluation is not None and evaluation.zero_shot is not None:
        return directory / f"{evaluation.name}.rows.jsonl"
    return directory / PREDICTIONS_FILE


def _degenerate(directory: Path, measure: Measure, of: str = "") -> str | None:
    if not measure.is_primary or not (directory / DEGENERATE_FILE).is_file():
        return None
    with explain_damage(directory / DEGENERATE_FILE):
        lines = [str(line) for line in read_json(directory / DEGENERATE_FILE)]
        own = [line.removeprefix(of) for line in lines if line.startswith(of)]
        return "; ".join(own) or None


def _refuse_metric(measure: Measure, results: Mapping[str, float], study: StudyConfig) -> NoReturn:
    known = [name.partition("/")[2] for name in results if "/" in name]
    raise StudyError(
        f"study {study.name}: evaluate.{measure.task}.metric: found {measure.metric!r}"
        f"{nearest(measure.metric, known)} (its runs have: {', '.join(known)}); runs that are done "
        "can be kept"
    )


def _failures(
    study: StudyConfig, plan: Plan, folder: Path, variant: str, states: Mapping[str, State]
) -> list[str]:
    """Return a line for each failed run that a variant needs."""
    lines = []
    for stage in study.stages:
        for seed in study.seeds:
            for run in plan.runs_of(variant, stage, seed).values():
                if states[run.id] is State.FAILED:
                    line = read_status(run, folder, State.FAILED).last_line
                    lines.append(f"{run.id}: {line}")
    return lines


def _base_results(
    study: StudyConfig, plan: Plan, folder: Path, variant: str
) -> dict[int, dict[str, float]]:
    runs = {seed: plan.run_of(variant, BASE, seed) for seed in study.seeds}
    return {
        seed: _results(run.directory(folder), None)
        for seed, run in runs.items()
        if is_done(run.directory(folder))
    }


def _results(directory: Path, evaluation: Evaluation | None) -> dict[str, float]:
    """Return the metrics of the step that counts."""
    wants_best = evaluation is not None and evaluation.step == "best"
    # a run that kept no best step has its last one
    found = (wants_best and read_results(directory, best=True)) or read_results(directory)
    # such a run has diverged; the square of its score would be no number
    return {name: math.inf if abs(value) > LARGEST else value for name, value in found.items()}


def _value(results: Mapping[str, float], measure: Measure, of_rows: bool) -> float | None:
    """Return a metric by its name below the objective's or, of labelled rows, below the head's."""
    if not of_rows:
        return results.get(f"{measure.task}/{measure.metric}")
    if f"{measure.task}/{measure.metric}" in results:  # of one of several heads
        return results[f"{measure.task}/{measure.metric}"]
    own = {name: value for name, value in results.items() if name.startswith(f"{measure.task}/")}
    for name, value in (own or results).items():  # the first set of several decides
        if name.endswith(f"/{measure.metric}"):
            return value
    return None
