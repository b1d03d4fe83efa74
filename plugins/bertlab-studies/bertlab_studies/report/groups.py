"""Scores by group of a study's zero-shot evaluations: what their runs have left, as scores."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertlab.extend import Config, explain_damage, is_among, open_to_read, parse_json
from bertlab_pages.spreadsheets import spreadsheet_rows
from bertlab_pages.word_curves import read_word_curves
from bertlab_studies.execute.run_state import is_done
from bertlab_studies.plan.plan import Plan
from bertlab_studies.plan.study_file import StudyConfig
from bertlab_studies.plan.zero_shot import plugin_of
from bertlab_studies.study_scores import Curve, GroupCurves, GroupScores, Measure

FloatArray = NDArray[np.float64]
Runs = Mapping[tuple[str, int], Path]


def collect_groups(
    study: StudyConfig, plan: Plan, folder: Path
) -> tuple[list[GroupScores], list[GroupCurves]]:
    """Read scores by group, and their curves, from the runs of evaluations that train nothing.

    Args:
        study: what was asked.
        plan: its runs.
        folder: of the study.
    """
    groups: list[GroupScores] = []
    curves: list[GroupCurves] = []
    for evaluation in study.evaluations:
        if evaluation.zero_shot is None:
            continue
        runs = {
            (variant.name, seed): directory
            for variant in study.variants
            for seed in study.seeds
            if is_done(
                directory := plan.run_of(variant.name, evaluation.name, seed).directory(folder)
            )
        }
        name = evaluation.name
        measure = _measure(name, evaluation.zero_shot)
        groups += group_scores(measure, runs)
        by_kind = group_curves(name, runs)
        if by_kind:
            chance = plugin_of(evaluation.zero_shot).chance
            curves.append(GroupCurves(measure, chance, by_kind))
    return groups, curves


def _measure(name: str, config: Config) -> Measure:
    """Return what the rows' mean is, whichever metric the study compares variants by."""
    plugin = plugin_of(config)
    metric, mode = plugin.monitor
    return Measure(name, metric, mode == "max", is_among(metric, plugin.shares))


def group_scores(measure: Measure, runs: Runs) -> Iterator[GroupScores]:
    """Yield the means of each kind of group, over the rows that all runs scored.

    Args:
        measure: the evaluation, whose name its files have.
        runs: directory of each by variant and seed. Those of other numbers of rows than the first
            one, or without files, are left out.
    """
    scores: dict[tuple[str, int], FloatArray] = {}
    of_row: dict[str, NDArray[np.str_]] = {}
    for key, directory in runs.items():
        rows = directory / f"{measure.task}.rows.jsonl"
        table = directory / f"{measure.task}.groups.csv"
        if not rows.is_file() or not table.is_file():
            continue
        kinds = _kinds(table) if not scores else []
        found, names = _read_rows(rows, kinds)
        of_row |= names
        if not scores or len(found) == len(next(iter(scores.values()))):
            scores[key] = found
    if not scores:
        return
    scored = ~np.isnan(list(scores.values())).any(0)  # (rows,)
    for kind, of_each in of_row.items():
        # of rows b, a, b: groups [b, a], members [[1, 0, 1], [0, 1, 0]]
        groups = list(dict.fromkeys(of_each[scored].tolist()))
        members = [scored & (of_each == group) for group in groups]
        means: dict[str, dict[int, FloatArray]] = {}
        for (variant, seed), found in scores.items():
            values = np.array([found[rows].mean() for rows in members])
            means.setdefault(variant, {})[seed] = values
        yield GroupScores(measure, kind, groups, [int(rows.sum()) for rows in members], means)


def _kinds(table: Path) -> list[str]:
    """Return the kinds of groups; the first of the table is that of all rows."""
    with explain_damage(table):
        _, *kinds = dict.fromkeys(row["kind"] for row in spreadsheet_rows(table))
    return kinds


def _read_rows(path: Path, kinds: list[str]) -> tuple[FloatArray, dict[str, NDArray[np.str_]]]:
    """Return ``(rows,)`` scores, NaN of rows without one, and each row's group of each kind."""
    with explain_damage(path), open_to_read(path) as file:
        rows = [parse_json(line.decode()) for line in file]
        scores = np.array([np.nan if row["score"] is None else row["score"] for row in rows])
        names = {kind: np.array([str(row[kind]) for row in rows]) for kind in kinds}
        return scores.astype(np.float64), names


def group_curves(name: str, runs: Runs) -> dict[str, dict[str, dict[str, dict[int, Curve]]]]:
    """Return the curve of each run against words seen, by kind, group, variant and seed."""
    found: dict[str, dict[str, dict[str, dict[int, Curve]]]] = {}
    for (variant, seed), directory in runs.items():
        path = directory / f"{name}.words.csv"
        for kind, by_group in (read_word_curves(path) if path.is_file() else {}).items():
            for group, curve in by_group.items():
                of_variant = found.setdefault(kind, {}).setdefault(group, {})
                of_variant.setdefault(variant, {})[seed] = Curve(curve.words, curve.values)
    return found
