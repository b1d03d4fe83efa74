"""Pictures of a study: learning curves, differences with intervals, score against compute, groups.

The same study gives the same bytes. Variants keep color, marker and line style through all of them,
so that print without color can be read too.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bertlab.api.study_scores import Curve, StudyScores
from bertlab.studies.report.comparison import Comparison
from bertlab.studies.report.group_report import group_figures
from bertlab.studies.report.statistics import summarize
from bertlab.studies.report.tuning_report import CAPTION, tuning_figure
from bertlab.training.report.pictures import Picture, file_names, svg_of
from bertlab.training.report.plot_axes import (
    GRAY,
    INK,
    SETTINGS,
    add_legend,
    label_of,
    log_axis,
    panels_of,
    percent_axis,
    printable,
    style_of,
)
from bertlab.training.results import is_share

Comparisons = Mapping[tuple[str, str], Comparison]


def pictures(scores: StudyScores, comparisons: Comparisons) -> list[Picture]:
    """Return those pictures of the study for which there is something to draw."""
    with mpl.rc_context(SETTINGS):
        drawn = (
            (
                "differences",
                "Difference to the baseline, with its 95 % interval over seeds and rows. Filled: "
                "shown after Holm's correction. Gray: too small to be shown by this many seeds, "
                "four times in five; cut off where it is much wider than the intervals.",
                differences(scores, comparisons),
            ),
            (
                "learning_curves",
                "Held-out metrics while pre-training: mean over the seeds, and a band from the "
                "lowest to the highest seed.",
                learning_curves(scores),
            ),
            (
                "score_against_compute",
                "Mean over the seeds and its standard deviation, against what a run costs.",
                score_against_compute(scores),
            ),
            ("expected_best", CAPTION, tuning_figure(scores)),
        )
        found = [(name, caption, svg_of(figure)) for name, caption, figure in drawn if figure]
        by_group = list(group_figures(scores))
        names = file_names([name for name, _, _ in by_group])
        found += [
            (name, caption, svg_of(figure))
            for name, (_, caption, figure) in zip(names, by_group, strict=True)
        ]
        return [Picture(*each) for each in found]


def learning_curves(scores: StudyScores) -> Figure | None:
    """Draw held-out metrics against steps: mean over seeds, band from lowest to highest."""
    every = (found.curves.items() for found in scores.variants.values())
    names = dict.fromkeys(
        name for curves in every for name, by_seed in curves if any(_by_step(by_seed))
    )
    if not names:
        return None
    figure, panels = panels_of(len(names), height=2.4)
    for axes, name in zip(panels, names, strict=True):
        for variant, found in scores.variants.items():
            steps, rows = _by_step(found.curves.get(name, {}))
            if steps:
                style = _style(scores, variant)
                mean = [float(np.mean(row)) for row in rows]
                axes.plot(steps, mean, label=label_of(variant), markevery=_some(steps), **style)
                low, high = [min(row) for row in rows], [max(row) for row in rows]
                color = style["color"]
                axes.fill_between(steps, low, high, color=color, alpha=0.2, linewidth=0)
        axes.set_title(printable(name))
        axes.set_xlabel("optimizer steps")
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.grid(visible=True)
        if is_share(name):
            percent_axis(axes.yaxis)
    add_legend(figure, panels)
    return figure


def differences(scores: StudyScores, comparisons: Comparisons) -> Figure | None:
    """Draw each variant's difference to the baseline, a panel for each primary measure."""
    others = [name for name in scores.variants if name != scores.baseline]
    measures = [
        measure
        for measure in scores.measures
        if measure.is_primary
        and any(comparisons[name, measure.name].difference is not None for name in others)
    ]
    if not measures:
        return None
    names = [label_of(name) for name in others]
    lines = sum(1.5 + name.count("\n") for name in names)
    figure, panels = panels_of(len(measures), height=0.9 + 0.2 * lines, shared_y=True)
    for axes, measure in zip(panels, measures, strict=True):
        scale = 100 if measure.is_share else 1
        found = [comparisons[name, measure.name] for name in others]
        axes.axvline(0, color=INK, linewidth=0.8)
        for row, (name, one) in enumerate(zip(others, found, strict=True)):
            _interval(axes, row, one, scale, _style(scores, name))
        axes.set_xlim(*_view(found, scale))
        axes.set_title(printable(measure.name))
        unit = "percentage points" if measure.is_share else "difference"
        axes.set_xlabel(f"{unit} ({'→' if measure.higher_is_better else '←'} better)")
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.grid(visible=True, axis="x")
        axes.set_yticks(range(len(others)), names)
        axes.set_ylim(len(others) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
    return figure


def score_against_compute(scores: StudyScores) -> Figure | None:
    """Draw means against FLOPs, tokens or seconds: the first that is known of most variants.

    There is nothing to draw where the cost is the same for all variants, within 1 %.
    """
    label, costs = _costs(scores)
    # about the same: nothing to see
    if len(costs) < 2 or max(costs.values()) < 1.01 * min(costs.values()):
        return None
    summaries = {
        (name, measure.name): summarize(scores.cell(name, measure).values.values())
        for name in costs
        for measure in scores.measures
        if measure.is_primary
    }
    measures = [
        measure
        for measure in scores.measures
        if measure.is_primary and any(summaries[name, measure.name].n for name in costs)
    ]
    if not measures:
        return None
    figure, panels = panels_of(len(measures), height=2.4)
    for axes, measure in zip(panels, measures, strict=True):
        for name, cost in costs.items():
            found = summaries[name, measure.name]
            if found.mean is not None:
                style = _style(scores, name) | {"linestyle": "", "label": label_of(name)}
                axes.errorbar(cost, found.mean, yerr=found.deviation, capsize=2, **style)
        axes.set_title(printable(measure.name))
        axes.set_xlabel(label)
        log_axis(axes, min(costs.values()), max(costs.values()))
        axes.grid(visible=True)
        if measure.is_share:
            percent_axis(axes.yaxis)
    add_legend(figure, panels)
    return figure


def _style(scores: StudyScores, variant: str) -> dict[str, Any]:
    return style_of(list(scores.variants).index(variant))


def _interval(axes: Axes, row: int, found: Comparison, scale: int, style: dict[str, Any]) -> None:
    if found.difference is None:
        axes.annotate("not compared", (0, row), (4, 0), textcoords="offset points", va="center")
        return
    if found.detectable is not None:
        reach = scale * found.detectable
        axes.barh(row, 2 * reach, left=-reach, height=0.6, color=GRAY, alpha=0.3, linewidth=0)
    if found.low is not None and found.high is not None:
        axes.hlines(row, scale * found.low, scale * found.high, color=style["color"])
    face = style["color"] if found.significant else "none"
    axes.plot(scale * found.difference, row, **style | {"linestyle": "", "mfc": face})


def _view(found: Sequence[Comparison], scale: int) -> tuple[float, float]:
    """Return limits that hold all intervals, and what is detectable as far as it leaves room."""
    ends = [0.0, *(end for c in found for end in (c.difference, c.low, c.high) if end is not None)]
    reach = max(c.detectable or 0.0 for c in found)
    low, high = min(ends), max(ends)
    room = high - low
    # what is detectable widens each side by the intervals' width at most
    low, high = min(low, max(-reach, low - room)), max(high, min(reach, high + room))
    margin = 0.06 * (high - low) or 0.5 / scale  # all ends are 0
    return scale * (low - margin), scale * (high + margin)


def _by_step(curves: Mapping[int, Curve]) -> tuple[list[int], list[list[float]]]:
    """Return steps, and each step's finite values over the seeds that have it."""
    points: dict[int, list[float]] = {}
    for curve in curves.values():
        for step, value in zip(curve.steps, curve.values, strict=True):
            if math.isfinite(value):
                points.setdefault(step, []).append(value)
    steps = sorted(points)
    return steps, [points[step] for step in steps]


def _some(steps: Sequence[int]) -> int:
    return max(1, len(steps) // 8)  # markers would hide a long curve


def _costs(scores: StudyScores) -> tuple[str, dict[str, float]]:
    """Return the label of an axis and a cost by variant, for those that have it."""
    seconds = {name: summarize(v.seconds.values()).mean for name, v in scores.variants.items()}
    kinds = {
        "FLOPs of a run": {name: v.flops for name, v in scores.variants.items()},
        "tokens read in pre-training": {name: v.tokens for name, v in scores.variants.items()},
        "seconds of a run": seconds,
    }
    known = {
        label: {name: cost for name, cost in costs.items() if cost}
        for label, costs in kinds.items()
    }
    return max(known.items(), key=lambda kind: len(kind[1]))  # the first of the most complete
