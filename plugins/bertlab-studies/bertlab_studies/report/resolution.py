"""What each measure of a study can see at its cost, and how alike single predictions are.

A measure may be noisy and still the best to decide by, if it moves a lot. Signal to noise is told
in two ways. *Spread of variants*: the largest difference of their means, beside the deviation of a
run over seeds, and beside that of one run over its last checkpoints (Heineman et al. 2025, Signal
and noise). It favours measures in which variants happen to differ, so it describes. *Progress*: the
smallest difference that is seen, as a share of what the second half of training brings. That looks
at no difference between variants, so a measure may be chosen by it for a next study.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from bertlab_pages.tables import Grid, TitledGrid
from bertlab_studies.report.columns import NOTHING
from bertlab_studies.report.design import Question, evaluate_design, pilot_deviations
from bertlab_studies.study_scores import Cell, Curve, Measure, StudyScores

CHECKPOINTS = 5  # of a curve, from its end
_LEGEND = (
    "Sees: the smallest true difference of two variants that {seeds} seeds, and rows where they "
    "are known, show four times in five, were it the only comparison. Variants: the largest "
    "difference of their means, in deviations of a run over seeds, and of one run over its last "
    f"{CHECKPOINTS} checkpoints (its trend taken out). Of progress: what is seen, as a share of "
    "what the second half of training brings, the mean over runs. Rows: correlation of the rows' "
    "scores between two seeds of a variant, and of scores that are 0 or 1 the share of rows that "
    "get the same; seeds may agree in the mean and not in the rows."
)
_COLUMNS = (
    ("sees",),
    ("variants ÷", "seeds"),
    ("variants ÷", "checkpoints"),
    ("of", "progress"),
    ("rows", "correlate"),
    ("rows", "the same"),
)


@dataclass(frozen=True)
class Resolution:
    """What a measure can see.

    Attributes:
        measure: of the study.
        sees: smallest true difference that is shown four times in five, in the measure's units.
        over_seeds: largest difference of variants' means, in deviations of a run over seeds.
        over_checkpoints: the same in deviations of a run over its last checkpoints; None where no
            run has so many.
        of_progress: ``sees`` as a share of what the second half of training brings; None where that
            is not known, or makes the measure no better.
        correlation: of rows' scores between seeds of a variant, the mean over pairs; None without
            such scores.
        same: share of rows that get the same score with two seeds; None if scores are not 0 or 1.
    """

    measure: Measure
    sees: float
    over_seeds: float
    over_checkpoints: float | None = None
    of_progress: float | None = None
    correlation: float | None = None
    same: float | None = None


def resolutions(scores: StudyScores) -> list[Resolution]:
    """Return what each measure can see, in their order; of those with noise over seeds."""
    found = []
    for measure in scores.measures:
        deviations = pilot_deviations(scores, measure)
        cells = [scores.cell(variant, measure) for variant in scores.variants]
        finite = [[x for x in cell.values.values() if math.isfinite(x)] for cell in cells]
        compared = [each for each in finite if len(each) > 1]
        if deviations is None or len(compared) < 2:
            continue
        seeds = min(map(len, compared))
        repeats = len(scores.finetune_seeds) or 1
        question = Question(0.0, len(compared), 1, scores.looks)
        sees = evaluate_design(deviations, question, seeds, repeats).shows
        means = [fmean(each) for each in compared]
        spread = max(means) - min(means)
        curves = _curves(scores, measure)
        wobble = checkpoint_deviation(curves)
        progress = second_half(curves) * (1 if measure.higher_is_better else -1)
        correlation, same = consistency(cells)
        found.append(
            Resolution(
                measure,
                sees,
                spread / math.sqrt(deviations.over_seeds(repeats)),
                spread / wobble if wobble else None,
                sees / progress if progress > 0 else None,
                correlation,
                same,
            )
        )
    return found


def _curves(scores: StudyScores, measure: Measure) -> list[Curve]:
    """Return the measure of each run along its pre-training, where it is known."""
    found = [
        curve
        for variant in scores.variants.values()
        for curve in variant.curves.get(measure.name, {}).values()
    ]
    for each in scores.group_curves:  # an evaluation that was scored at words seen
        if each.measure.name == measure.name:
            by_variant = each.curves.get("all", {}).get("", {})
            found += [curve for by_seed in by_variant.values() for curve in by_seed.values()]
    return found


def checkpoint_deviation(curves: Iterable[Curve]) -> float:
    """Return the deviation of a run over its last checkpoints, around a line; pooled over runs.

    0 where no curve has ``CHECKPOINTS`` finite points.
    """
    variances = []
    for curve in curves:
        steps, values = curve.steps[-CHECKPOINTS:], curve.values[-CHECKPOINTS:]
        if len(values) == CHECKPOINTS and all(map(math.isfinite, values)):
            rest = np.array(values) - np.polyval(np.polyfit(steps, values, 1), steps)
            variances.append(float(rest @ rest) / (CHECKPOINTS - 2))  # a line has two parameters
    return math.sqrt(fmean(variances)) if variances else 0.0


def second_half(curves: Iterable[Curve]) -> float:
    """Return how much a measure rises from half of the training to its end, the mean over runs.

    0 where no curve has a point at half of its last step or before.
    """
    rises = []
    for curve in curves:
        points = [
            (step, value)
            for step, value in zip(curve.steps, curve.values, strict=True)
            if math.isfinite(value)
        ]
        if points:
            first = [value for step, value in points if step <= points[-1][0] / 2]
            rises += [points[-1][1] - first[-1]] if first else []
    return fmean(rises) if rises else 0.0


def consistency(cells: Sequence[Cell]) -> tuple[float | None, float | None]:
    """Return how alike rows' scores are with two seeds: correlation, and the share of equal ones.

    Means over all pairs of seeds of each variant. The second is None if scores are not 0 or 1.
    """
    pairs = [
        pair
        for cell in cells
        for pair in combinations([each for each in cell.examples.values() if len(each) > 1], 2)
    ]
    varied = [_correlation(*pair) for pair in pairs if all(np.ptp(each) > 0 for each in pair)]
    is_binary = pairs and all(np.isin(each, (0.0, 1.0)).all() for pair in pairs for each in pair)
    same = [float(np.mean(one == other)) for one, other in pairs] if is_binary else []
    return fmean(varied) if varied else None, fmean(same) if same else None


def _correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(np.corrcoef(one, other)[0, 1])


def resolution_tables(scores: StudyScores) -> list[TitledGrid]:
    """Return the table of what measures can see, and which sees the smallest part of progress."""
    found = [] if scores.is_crossed else resolutions(scores)
    if not found:
        return []
    rows = []
    for each in found:
        scale, unit = (100, " points") if each.measure.is_share else (1, "")
        rows.append(
            (
                each.measure.name + ("" if each.measure.is_primary else " (described)"),
                f"{each.sees * scale:.3g}{unit}",
                f"{each.over_seeds:.1f}",
                _or_nothing(each.over_checkpoints, "{:.1f}"),
                _or_nothing(each.of_progress, "{:.0%}"),
                _or_nothing(each.correlation, "{:.2f}"),
                _or_nothing(each.same, "{:.0%}"),
            )
        )
    legend = _LEGEND.format(seeds=len(scores.seeds))
    by_progress = [each for each in found if each.of_progress is not None]
    if len(by_progress) > 1:
        best = min(by_progress, key=lambda each: each.of_progress or 0.0)
        legend += f" A next study decides best by {best.measure.name}, of those with progress."
    headings = (("measure",), *_COLUMNS)
    grid = Grid(headings, tuple(rows), figures=len(_COLUMNS))
    return [TitledGrid("What each measure can see", grid, legend)]


def _or_nothing(value: float | None, form: str) -> str:
    return NOTHING if value is None else form.format(value).replace("-", "−").replace("%", " %")
