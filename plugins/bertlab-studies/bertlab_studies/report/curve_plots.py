"""Pictures of held-out metrics against steps: while pre-training, and while fine-tuning.

A panel for each metric, a curve for each variant: the mean over its runs, in a band from the lowest
to the highest, with a thin line for each run.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bertlab.extend import shown_figure
from bertlab_pages.pictures import hover
from bertlab_pages.plot_axes import (
    add_legend,
    label_of,
    panels_of,
    percent_axis,
    printable,
    style_of,
    thin_line,
)
from bertlab_studies.study_scores import Curve, StudyScores

# by variant, then by name of the metric, then by what the run is called: "seed 3"
CurvesOfRuns = Mapping[str, Mapping[str, Mapping[str, Curve]]]


def learning_curves(scores: StudyScores) -> Figure | None:
    """Draw held-out metrics of pre-trainings; None if there are none."""
    return _panels(
        {
            variant: {
                name: {f"seed {seed}": curve for seed, curve in by_seed.items()}
                for name, by_seed in found.curves.items()
            }
            for variant, found in scores.variants.items()
        },
        scores,
    )


def finetuning_curves(scores: StudyScores) -> Figure | None:
    """Draw the metrics of fine-tunings that variants are compared by; None if there are none."""
    return _panels(
        {
            variant: {
                name: {run_name(*seeds): curve for seeds, curve in by_run.items()}
                for name, by_run in found.finetune_curves.items()
            }
            for variant, found in scores.variants.items()
        },
        scores,
    )


def run_name(seed: int, finetune: int | None = None) -> str:
    """Return ``seed 3``, or ``seed 3, fine-tuning 2``."""
    return f"seed {seed}" if finetune is None else f"seed {seed}, fine-tuning {finetune}"


def _panels(variants: CurvesOfRuns, scores: StudyScores) -> Figure | None:
    shares = {measure.name: measure.is_share for measure in scores.measures}
    names = dict.fromkeys(
        name
        for curves in variants.values()
        for name, runs in curves.items()
        if len(_by_step(runs.values())[0]) > 1  # one point is no curve
    )
    if not names:
        return None
    figure, panels = panels_of(len(names), height=2.4)
    for axes, name in zip(panels, names, strict=True):
        share = shares.get(name, name.endswith(" accuracy"))  # of a task that says nothing else
        for number, (variant, curves) in enumerate(variants.items()):
            _draw_variant(axes, (name, share), variant, number, curves.get(name, {}))
        axes.set_title(printable(name))
        axes.set_xlabel("optimizer steps")
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.grid(visible=True)
        if share:
            percent_axis(axes.yaxis)
    add_legend(figure, panels)
    return figure


def _draw_variant(
    axes: Axes, measure: tuple[str, bool], variant: str, number: int, runs: Mapping[str, Curve]
) -> None:
    steps, rows = _by_step(runs.values())
    name, share = measure
    if not steps:
        return
    style = style_of(number)
    for run, curve in runs.items():
        if len(runs) > 1 and curve.steps:
            (line,) = axes.plot(curve.steps, curve.values, **thin_line(number))
            last = f"{shown_figure(name, curve.values[-1], share)} at step {curve.steps[-1]:,}"
            hover(line, f"{variant}, {run}: {last}")
    mean = [float(np.mean(row)) for row in rows]
    every = max(1, len(steps) // 8)  # markers would hide a long curve
    (line,) = axes.plot(steps, mean, label=label_of(variant), markevery=every, **style)
    hover(line, f"{variant}, mean: {shown_figure(name, mean[-1], share)} at step {steps[-1]:,}")
    low, high = [min(row) for row in rows], [max(row) for row in rows]
    axes.fill_between(steps, low, high, color=style["color"], alpha=0.15, linewidth=0)


def _by_step(curves: Iterable[Curve]) -> tuple[list[int], Sequence[list[float]]]:
    """Return steps, and each step's finite values over the runs that have it.

    Steps that half of the runs or fewer have, such as each run's last one, are left out: the mean
    would jump there from all runs to a few.
    """
    points: dict[int, list[float]] = {}
    runs = [curve for curve in curves if curve.steps]
    for curve in runs:
        for step, value in zip(curve.steps, curve.values, strict=True):
            if math.isfinite(value):
                points.setdefault(step, []).append(value)
    shared = [step for step, values in points.items() if 2 * len(values) > len(runs)]
    steps = sorted(shared or points)
    return steps, [points[step] for step in steps]
