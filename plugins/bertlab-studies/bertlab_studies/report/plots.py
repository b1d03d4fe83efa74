"""Pictures of a study: learning curves, differences with intervals, score against compute, groups.

The same study gives the same bytes. Variants keep color, marker and line style through all of them,
so that print without color can be read too.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import offset_copy

from bertlab.extend import shown_figure
from bertlab_pages.pictures import Picture, file_names, hover, pdf_of, svg_of
from bertlab_pages.plot_axes import (
    GRAY,
    INK,
    SETTINGS,
    add_legend,
    label_of,
    log_axis,
    panels_of,
    percent_axis,
    point_style,
    printable,
    style_of,
)
from bertlab_studies.report.comparison import Comparison
from bertlab_studies.report.curve_plots import finetuning_curves, learning_curves, run_name
from bertlab_studies.report.findings import signed
from bertlab_studies.report.group_report import group_figures
from bertlab_studies.report.statistics import summarize
from bertlab_studies.report.tuning_report import CAPTION, tuning_figure
from bertlab_studies.study_scores import Measure, StudyScores

_MOST_VARIANTS = 60  # in a picture

Comparisons = Mapping[tuple[str, str], Comparison]


def pictures(scores: StudyScores, comparisons: Comparisons) -> list[Picture]:
    """Return those pictures of the study for which there is something to draw."""
    study, scores = scores, _few_variants(scores)
    shown, count = len(scores.variants), len(study.variants)
    note = f" Drawn are the first {shown} of {count} variants." * (shown < count)
    with mpl.rc_context(SETTINGS):
        drawn = (
            (
                "differences",
                "Difference to the baseline, with its 95 % interval, as tested. Filled: "
                "shown (after Holm's correction, if several are tested). Gray: too small to be "
                "shown by this many seeds, four times in five; cut off where it is much wider "
                "than the intervals. Small points: each seed's value minus the baseline's mean "
                "or, where variants are compared seed by seed, minus the baseline's value of that "
                "seed.",
                differences(scores, comparisons),
            ),
            (
                "learning_curves",
                "Held-out metrics while pre-training: mean over the seeds, a band from the "
                "lowest to the highest, and a thin line for each.",
                learning_curves(scores),
            ),
            (
                "finetuning_curves",
                "Held-out metrics while fine-tuning: mean over the runs, a band from the lowest to "
                "the highest, and a thin line for each.",
                finetuning_curves(scores),
            ),
            (
                "score_against_compute",
                "Mean over the seeds and their standard deviation, against what a run costs. Small "
                "points: the seeds.",
                score_against_compute(scores),
            ),
            ("expected_best", CAPTION, tuning_figure(study)),
        )
        by_group = list(group_figures(scores))
        names = file_names([name for name, _, _ in by_group])
        found = [
            *drawn,
            *(
                (name, caption, figure)
                for name, (_, caption, figure) in zip(names, by_group, strict=True)
            ),
        ]
        return [
            Picture(name, caption + note, svg_of(figure), pdf_of(figure))
            for name, caption, figure in found
            if figure is not None
        ]


def _few_variants(scores: StudyScores) -> StudyScores:
    """Return the study with so many of its first variants as a picture can show."""
    first = [name for name in scores.variants if name != scores.baseline][: _MOST_VARIANTS - 1]
    few = {n: v for n, v in scores.variants.items() if n == scores.baseline or n in first}
    return replace(scores, variants=few)


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
    # compared seed by seed, the baseline itself is at 0
    seed_by_seed = {m.name: any(comparisons[o, m.name].paired for o in others) for m in measures}
    shown = others if all(seed_by_seed.values()) else [scores.baseline, *others]
    names = [label_of(name) for name in shown]
    lines = sum(1.5 + name.count("\n") for name in names)
    figure, panels = panels_of(len(measures), height=0.9 + 0.2 * lines, shared_y=True)
    for axes, measure in zip(panels, measures, strict=True):
        scale = 100 if measure.is_share else 1
        found = [comparisons[name, measure.name] for name in others]
        axes.axvline(0, color=INK, linewidth=0.8)
        for name, one in zip(others, found, strict=True):
            _interval(axes, shown.index(name), one, scale, _style(scores, name))
        points = {
            name: _seed_differences(scores, measure, name, seed_by_seed[measure.name])
            for name in shown
        }
        _seed_points(axes, scores, measure, points)
        axes.set_xlim(*_view(found, [x for each in points.values() for x in each.values()], scale))
        axes.set_title(printable(measure.name))
        unit = "percentage points" if measure.is_share else "difference"
        axes.set_xlabel(f"{unit} ({'→' if measure.higher_is_better else '←'} better)")
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.grid(visible=True, axis="x")
        axes.set_yticks(range(len(shown)), names)
        axes.set_ylim(len(shown) - 0.5, -0.5)
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
                beside = offset_copy(axes.transData, figure, x=7, units="points")
                points = point_style(_number(scores, name)) | {"transform": beside}
                for seed, value in scores.cell(name, measure).values.items():
                    (point,) = axes.plot(cost, value, **points)
                    if math.isfinite(value):  # a moved point widens no axis by itself
                        axes.update_datalim([(cost, value)])
                    hover(point, f"{name}, {run_name(seed)}: {_figure(measure, value)}")
        axes.set_title(printable(measure.name))
        axes.set_xlabel(label)
        log_axis(axes, min(costs.values()), max(costs.values()))
        axes.grid(visible=True)
        if measure.is_share:
            percent_axis(axes.yaxis)
    add_legend(figure, panels)
    return figure


def _style(scores: StudyScores, variant: str) -> dict[str, Any]:
    return style_of(_number(scores, variant))


def _number(scores: StudyScores, variant: str) -> int:
    return list(scores.variants).index(variant)


def _interval(axes: Axes, row: int, found: Comparison, scale: int, style: dict[str, Any]) -> None:
    face = style["color"] if found.significant else "none"
    found = found.decided
    if found.difference is None:
        axes.annotate("not compared", (0, row), (4, 0), textcoords="offset points", va="center")
        return
    if found.detectable is not None:
        reach = scale * found.detectable
        axes.barh(row, 2 * reach, left=-reach, height=0.6, color=GRAY, alpha=0.3, linewidth=0)
    if found.low is not None and found.high is not None:
        axes.hlines(row, scale * found.low, scale * found.high, color=style["color"])
    axes.plot(scale * found.difference, row, **style | {"linestyle": "", "mfc": face})


def _figure(measure: Measure, value: float) -> str:
    return shown_figure(measure.metric, value, measure.is_share)


def _seed_differences(
    scores: StudyScores, measure: Measure, variant: str, seed_by_seed: bool
) -> dict[int, float]:
    """Return each seed's finite difference to the baseline's same seed, or to its mean."""
    against = scores.cell(scores.baseline, measure).values
    mean = summarize(against.values()).mean
    if mean is None or (seed_by_seed and variant == scores.baseline):
        return {}
    values = scores.cell(variant, measure).values
    found = {
        seed: value - (against.get(seed, math.nan) if seed_by_seed else mean)
        for seed, value in values.items()
    }
    return {seed: difference for seed, difference in found.items() if math.isfinite(difference)}


def _seed_points(
    axes: Axes, scores: StudyScores, measure: Measure, points: Mapping[str, Mapping[int, float]]
) -> None:
    """Draw the points of each variant below its interval."""
    scale = 100 if measure.is_share else 1
    for row, (variant, by_seed) in enumerate(points.items()):
        style = point_style(_number(scores, variant))
        for seed, value in by_seed.items():
            (point,) = axes.plot(scale * value, row + 0.28, **style)
            hover(point, f"{variant}, {run_name(seed)}: {signed(value, measure, 2)}")


def _view(found: Sequence[Comparison], points: list[float], scale: int) -> tuple[float, float]:
    """Return limits that hold intervals and points, and what is detectable if there is room."""
    ends = [
        0.0,
        *points,
        *(end for c in found for end in (c.difference, c.low, c.high) if end is not None),
    ]
    reach = max(c.detectable or 0.0 for c in found)
    low, high = min(ends), max(ends)
    room = high - low
    # what is detectable widens each side by the intervals' width at most
    low, high = min(low, max(-reach, low - room)), max(high, min(reach, high + room))
    margin = 0.06 * (high - low) or 0.5 / scale  # all ends are 0
    return scale * (low - margin), scale * (high + margin)


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
