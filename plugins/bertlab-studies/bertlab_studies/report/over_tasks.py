"""One figure over all tasks of a study: mean, interquartile mean and probability of improvement.

The mean is compared as a measure is: a seed's mean over the tasks is its value. The other two are
those of Agarwal et al. (2021), Deep reinforcement learning at the edge of the statistical
precipice, arXiv 2108.13264, section 4, with draws equal to those of their program ``rliable`` for
the same ``numpy.random.RandomState``.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bertlab_pages.tables import Grid, TitledGrid
from bertlab_studies.report.columns import NOTHING, Column, digits_of, label_of
from bertlab_studies.report.comparison import Comparison
from bertlab_studies.report.difference_table import DIFFERENCE, figures
from bertlab_studies.report.seed_noise import seed_noise
from bertlab_studies.report.statistics import Summary, contrast, summarize
from bertlab_studies.study_scores import Cell, Measure, StudyScores

FloatArray = NDArray[np.float64]

DRAWS = 5000
TRIM = 0.25  # share of the scores that the interquartile mean leaves out at each end
_PERCENTILES = (2.5, 97.5)
_MEAN = Measure("all tasks", "mean")

_LEGEND = (
    "Over {tasks}. Mean: of each seed's mean over the tasks, ± standard deviation over seeds. "
    "Difference to the baseline with its 95 % interval: in points, over seeds and, where rows have "
    "scores, over rows or clusters of them. Other tasks: its interval over seeds and tasks, for "
    "other tasks of the kind; wide of few. Interquartile mean: of all runs and tasks, without the "
    "lowest and the highest quarter. Better than the baseline: how often a run of the variant "
    "beats one of the baseline, the mean over tasks; 0.5 is as good. Both with 95 % intervals by a "
    "bootstrap that draws the seeds of each task apart; with few seeds these are too narrow. The "
    "table describes: nothing in it is tested, and Holm's correction leaves it out."
)


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % interval by the bootstrap; None with fewer than two runs of a side."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class OverTasks:
    """What a variant reaches over all tasks. Seeds that lack a task are left out.

    Attributes:
        mean: over the seeds, of a seed's mean over the tasks.
        comparison: of it with the baseline's, which is not corrected for many comparisons; None of
            the baseline.
        other_tasks: the same, over seeds and tasks: other tasks of the kind are to those at hand
            what other rows are; None of the baseline.
        interquartile: mean over runs and tasks without the lowest and highest quarter; None if
            there are no runs.
        improvement: probability that a run is better than one of the baseline; None of the
            baseline.
    """

    mean: Summary
    comparison: Comparison | None
    other_tasks: Comparison | None
    interquartile: Estimate | None
    improvement: Estimate | None


def interquartile_mean(scores: FloatArray) -> FloatArray:
    """Return ``(…)`` means of ``(…, runs, tasks)`` scores, without a quarter at each end."""
    flat = scores.reshape(*scores.shape[:-2], -1)
    found: FloatArray = np.asarray(stats.trim_mean(flat, TRIM, axis=-1))
    return found


def probability_of_improvement(variant: FloatArray, baseline: FloatArray) -> FloatArray:
    """Return ``(…)`` probabilities that a run beats one of the baseline, the mean over tasks.

    Args:
        variant: ``(…, runs, tasks)`` scores.
        baseline: the same; its runs may be of another number.
    """
    # Mann and Whitney's U over the number of pairs: a tie is half a win
    pairs = variant[..., :, None, :], baseline[..., None, :, :]
    wins = (pairs[0] > pairs[1]) + 0.5 * (pairs[0] == pairs[1])  # (…, runs, runs, tasks)
    found: FloatArray = np.asarray(wins.mean((-3, -2, -1)))
    return found


def draw_runs(sides: Sequence[FloatArray], draws: int, seed: int = 0) -> list[FloatArray]:
    """Resample the runs of each task apart.

    Args:
        sides: ``(runs, tasks)`` scores of each side.
        draws: to make.
        seed: of the resampling.

    Returns:
        ``(draws, runs, tasks)`` of each side.
    """
    rng = np.random.RandomState(seed)
    if len({side.shape for side in sides}) == 1:  # all at once: the same numbers, as they come
        drawn = rng.choice(len(sides[0]), (draws, len(sides), *sides[0].shape))
        chosen = [*drawn.swapaxes(0, 1)]
    else:
        apart = [[rng.choice(len(side), side.shape) for side in sides] for _ in range(draws)]
        chosen = [np.array(rows) for rows in zip(*apart, strict=True)]
    return [
        np.take_along_axis(side[None], rows, axis=1)
        for side, rows in zip(sides, chosen, strict=True)
    ]


def over_tasks(scores: StudyScores, draws: int = DRAWS) -> dict[str, OverTasks]:
    """Return what each variant reaches over the tasks whose values can be averaged.

    These are primary measures that are shares and better if higher.

    Args:
        scores: what was found.
        draws: of the bootstrap.

    Returns:
        By variant; empty if there are fewer than two such tasks.

    Raises:
        DataError: predictions of variants are of different rows.
    """
    measures = _tasks(scores)
    if len(measures) < 2:
        return {}
    tasks = [_complete(scores, measures, measure) for measure in measures]
    # (seeds with all tasks, tasks)
    tables = {
        name: np.array([list(cells[name].values.values()) for cells in tasks]).T
        for name in scores.variants
    }
    means = {
        name: dict(zip(tasks[0][name].values, table.mean(1).tolist(), strict=True))
        for name, table in tables.items()
    }
    noise = seed_noise(means)
    # a task is to other tasks what a row, or a cluster of rows, is to other rows
    as_rows = {
        name: Cell(means[name], examples=dict(zip(means[name], table, strict=True)))
        for name, table in tables.items()
    }
    found = {}
    for name, table in tables.items():
        comparison = other_tasks = improvement = None
        if name != scores.baseline:
            weights = {scores.baseline: -1, name: 1}
            # family 0: it is not one of those that decide
            comparison = replace(contrast(noise, weights, *tasks), p_adjusted=None, family=0)
            other_tasks = contrast(noise, weights, as_rows)
            both = [table, tables[scores.baseline]]
            improvement = _estimate(probability_of_improvement, both, draws)
        iqm = _estimate(interquartile_mean, [table], draws)
        mean = summarize(means[name].values())
        found[name] = OverTasks(mean, comparison, other_tasks, iqm, improvement)
    return found


def over_tasks_tables(scores: StudyScores) -> list[TitledGrid]:
    """Return the table over all tasks, if there are two or more and any seed has all of them."""
    found = over_tasks(scores)
    if not any(each.mean.n for each in found.values()):
        return []
    column = Column(_MEAN, digits_of(_MEAN, [each.mean for each in found.values()]))
    rows = tuple(
        (label_of(scores, name, against_baseline=True), *_cells(each, column))
        for name, each in found.items()
    )
    headings = (
        ("variant",),
        ("mean, %",),
        *DIFFERENCE[2:4],
        ("95 %,", "other tasks"),
        ("interquartile", "mean, %"),
        ("better than", "the baseline"),
        ("seeds",),
    )
    names = ", ".join(measure.name for measure in _tasks(scores))
    grid = Grid(headings, rows, len(headings) - 1)
    return [TitledGrid("Over all tasks", grid, _LEGEND.format(tasks=names))]


def _tasks(scores: StudyScores) -> list[Measure]:
    return [
        each
        for each in scores.measures
        if each.is_primary and each.is_share and each.higher_is_better
    ]


def _complete(
    scores: StudyScores, measures: Iterable[Measure], measure: Measure
) -> dict[str, Cell]:
    """Return the cells of a measure with the seeds that have a finite value of all measures."""
    found = {}
    for variant in scores.variants:
        values = [scores.cell(variant, each).values for each in measures]
        seeds = [
            seed for seed in scores.seeds if all(np.isfinite(v.get(seed, np.nan)) for v in values)
        ]
        cell = scores.cell(variant, measure)
        found[variant] = Cell(
            values={seed: cell.values[seed] for seed in seeds},
            examples={seed: cell.examples[seed] for seed in seeds if seed in cell.examples},
            clusters=cell.clusters,
        )
    return found


def _estimate(
    figure: Callable[..., FloatArray], sides: Sequence[FloatArray], draws: int
) -> Estimate | None:
    """Return a figure of ``(runs, tasks)`` scores with the percentiles of its draws."""
    runs = min(map(len, sides))
    if not runs:
        return None
    value = float(figure(*sides))
    if runs < 2:
        return Estimate(value, None, None)
    low, high = np.percentile(figure(*draw_runs(sides, draws)), _PERCENTILES)
    return Estimate(value, float(low), float(high))


def _cells(found: OverTasks, column: Column) -> tuple[str, ...]:
    spread = "" if found.mean.deviation is None else f" ± {column.number(found.mean.deviation)}"
    compared, others = found.comparison, found.other_tasks
    return (
        NOTHING if found.mean.mean is None else column.number(found.mean.mean) + spread,
        *((NOTHING, NOTHING) if compared is None else figures(compared, _MEAN)[:2]),
        NOTHING if others is None else figures(others, _MEAN)[1],
        _with_interval(found.interquartile, column.number),
        _with_interval(found.improvement, "{:.2f}".format),
        str(found.mean.n),
    )


def _with_interval(found: Estimate | None, number: Callable[[float], str]) -> str:
    if found is None:
        return NOTHING
    if found.low is None or found.high is None:
        return number(found.value)
    return f"{number(found.value)} ({number(found.low)} … {number(found.high)})"
