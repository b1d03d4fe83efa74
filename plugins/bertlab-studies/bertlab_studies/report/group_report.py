"""Scores by group in a study's report: heat maps, curves against words seen, tables, a CSV file."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bertlab_pages.charts import (
    FEWEST,
    MOST,
    HeatMap,
    heat_maps,
    word_curves,
    word_panels,
)
from bertlab_pages.pictures import file_names
from bertlab_pages.spreadsheets import spreadsheet_csv
from bertlab_pages.tables import Grid, TitledGrid
from bertlab_pages.word_curves import WordCurve
from bertlab_studies.report.columns import Column, label_of
from bertlab_studies.report.findings import signed
from bertlab_studies.study_scores import Curve, GroupCurves, GroupScores, Measure, StudyScores

FloatArray = NDArray[np.float64]

LEGEND = (
    "Mean over the seeds of each group's mean, on the rows that all runs scored; in brackets the "
    "difference to the baseline, over the seeds that both have{unit}. Groups are described, not "
    "tested: of many, some differ by chance."
)


def group_tables(study: StudyScores) -> list[TitledGrid]:
    """Return a table for each heat map, with the same numbers."""
    return [_table(study, groups) for groups in study.groups if _is_drawn(groups)]


def _is_drawn(groups: GroupScores) -> bool:
    return FEWEST <= len(groups.groups) <= MOST


def mean_of(groups: GroupScores, variant: str) -> FloatArray:
    """Return ``(G,)`` means over the seeds; NaN if the variant has none."""
    found = list(groups.means.get(variant, {}).values())
    return np.mean(found, axis=0) if found else np.full(len(groups.groups), np.nan)


def difference_of(groups: GroupScores, variant: str, baseline: str) -> FloatArray:
    """Return ``(G,)`` mean differences over the seeds that both have; NaN if there are none."""
    one, other = groups.means.get(variant, {}), groups.means.get(baseline, {})
    found = [one[seed] - other[seed] for seed in one.keys() & other.keys()]
    return np.mean(found, axis=0) if found else np.full(len(groups.groups), np.nan)


def _table(study: StudyScores, groups: GroupScores) -> TitledGrid:
    measure = groups.measure
    cells = {
        variant: _cells(groups, variant, study.baseline, measure) for variant in study.variants
    }
    unit = f" (percentage points of {measure.metric})" if measure.is_share else ""
    rows = tuple(
        (group, str(groups.rows[place]), *(cells[variant][place] for variant in study.variants))
        for place, group in enumerate(groups.groups)
    )
    headings = (
        (groups.kind,),
        ("rows",),
        *((label_of(study, variant),) for variant in study.variants),
    )
    grid = Grid(headings, rows, figures=1 + len(study.variants))
    title = f"{measure.task} by {groups.kind}"
    return TitledGrid(title, grid, LEGEND.format(unit=unit))


def _cells(groups: GroupScores, variant: str, baseline: str, measure: Measure) -> list[str]:
    number, change = _number(measure), _change(measure)
    means = mean_of(groups, variant).tolist()
    cells = ["–" if np.isnan(mean) else number(mean) for mean in means]
    if variant == baseline:
        return cells
    differences = difference_of(groups, variant, baseline).tolist()
    return [
        cell if np.isnan(each) else f"{cell} ({change(each)})"
        for cell, each in zip(cells, differences, strict=True)
    ]


def _number(measure: Measure) -> Callable[[float], str]:
    return Column(measure, _digits(measure)).number


def _change(measure: Measure) -> Callable[[float], str]:
    return partial(signed, measure=measure, digits=_digits(measure))


def _digits(measure: Measure) -> int:
    return 1 if measure.is_share else 3


_HEADINGS = ("kind", "group", "rows", "variant", "seeds", "mean", "lowest", "highest", "difference")


def group_csv_files(study: StudyScores) -> dict[str, str]:
    """Return ``groups_EVALUATION.csv`` for each evaluation that has groups: all kinds of them.

    A line is a group and a variant: ``mean`` over the ``seeds`` of the group's mean, its ``lowest``
    and ``highest`` seed, and ``difference``, to the baseline over the seeds that both have.
    Shares are in 0 … 1.
    """
    tasks = list(dict.fromkeys(groups.measure.task for groups in study.groups))
    return {
        f"groups_{file}.csv": spreadsheet_csv(
            _HEADINGS,
            (
                line
                for groups in study.groups
                if groups.measure.task == task
                for line in _lines(study, groups)
            ),
        )
        for task, file in zip(tasks, file_names(tasks), strict=True)
    }


def _lines(study: StudyScores, groups: GroupScores) -> Iterator[tuple[object, ...]]:
    for variant in study.variants:
        seeds = np.array(list(groups.means.get(variant, {}).values()))  # (seeds, G)
        if not len(seeds):
            continue
        differences = difference_of(groups, variant, study.baseline).tolist()
        means, lowest, highest = seeds.mean(0), seeds.min(0), seeds.max(0)
        for place, group in enumerate(groups.groups):
            figures = (float(each[place]) for each in (means, lowest, highest))
            change = differences[place]
            difference = None if variant == study.baseline or np.isnan(change) else change
            line = (groups.kind, group, groups.rows[place], variant, len(seeds))
            yield (*line, *figures, difference)


def group_figures(study: StudyScores) -> Iterator[tuple[str, str, Figure]]:
    """Yield name, caption and figure of each heat map and of each picture of curves."""
    drawn = [groups for groups in study.groups if _is_drawn(groups)]
    for groups in drawn:
        task, kind = groups.measure.task, groups.kind
        yield f"heat_map {task} {kind}", _map_caption(study, groups), _heat_map(study, groups)
    for curves in study.group_curves:
        yield from _curves(study, curves)


def _map_caption(study: StudyScores, groups: GroupScores) -> str:
    measure = groups.measure
    unit = ", in percent" if measure.is_share else ""
    caption = (
        f"{measure.task}: mean {measure.metric}{unit}, by {groups.kind}, over the seeds and the "
        "rows that all runs scored."
    )
    if len(study.variants) == 1:
        return caption
    points = " in percentage points" if measure.is_share else ""
    return (
        f"{caption} Below, the difference to {study.baseline}{points}: blue is better, red worse. "
        "Groups are described, not tested: of many, some differ by chance."
    )


def _heat_map(study: StudyScores, groups: GroupScores) -> Figure:
    measure = groups.measure
    names = list(study.variants)
    means = np.array([mean_of(groups, name) for name in names])
    title = f"{measure.metric}, %" if measure.is_share else measure.metric

    def hint(row: int, column: int) -> str:
        seeds = groups.means[names[row]].items()
        values = (f"seed {seed} {_number(measure)(float(each[column]))}" for seed, each in seeds)
        return f"{names[row]}, {groups.groups[column]}: {', '.join(values)}"

    maps = [HeatMap(title, names, groups.groups, means, _number(measure), hint=hint)]
    others = [name for name in names if name != study.baseline]
    if others:
        changes = np.array([difference_of(groups, name, study.baseline) for name in others])
        better = 1 if measure.higher_is_better else -1
        title = f"difference to {study.baseline}"
        maps.append(HeatMap(title, others, groups.groups, changes, _change(measure), better))
    return heat_maps(maps)


def _curves(study: StudyScores, found: GroupCurves) -> Iterator[tuple[str, str, Figure]]:
    measure = found.measure
    chance = f"{100 * found.chance:g} %" if measure.is_share and found.chance else found.chance
    dotted = "" if chance is None else f" Dotted: chance, {chance}."
    for said, panels in word_panels(found.curves).items():
        banded = {
            group: {
                variant: _over_seeds(by_seed)
                for variant in study.variants  # in their order, for the legend
                if (by_seed := by_variant.get(variant))
            }
            for group, by_variant in panels.items()
        }
        figure = word_curves(banded, list(study.variants), measure.is_share, found.chance)
        if figure is not None:
            caption = (
                f"{measure.task}: {measure.metric} against words seen{said}: mean over the seeds, "
                f"a band from the lowest to the highest, and a thin line for each.{dotted}"
            )
            yield f"words {measure.task} {said.removeprefix(', by ')}", caption, figure


def _over_seeds(curves: Mapping[int, Curve]) -> WordCurve:
    """Return the mean over the seeds, and a band from the lowest to the highest."""
    points: dict[int, list[float]] = {}
    for curve in curves.values():
        for words, value in zip(curve.steps, curve.values, strict=True):
            points.setdefault(words, []).append(value)
    every = sorted(points)
    rows = [points[each] for each in every]
    mean = [float(np.mean(row)) for row in rows]
    low, high = [min(row) for row in rows], [max(row) for row in rows]
    runs = {f"seed {seed}": (curve.steps, curve.values) for seed, curve in curves.items()}
    return WordCurve(every, mean, low, high, runs)
