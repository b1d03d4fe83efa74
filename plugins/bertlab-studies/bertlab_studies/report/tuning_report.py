"""The trials of a tuned study in its report: what was chosen, and the expected best of n trials.

The second is the expected validation performance of Dodge et al. 2019 (Show your work, section 3):
the best value that n trials of random search reach on average. It takes trials for independent
draws from one distribution, which those of a grid are not.
"""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from scipy.special import comb

from bertlab.extend import yaml_inline
from bertlab_pages.plot_axes import (
    add_legend,
    label_of,
    panels_of,
    percent_axis,
    printable,
    style_of,
)
from bertlab_pages.spreadsheets import spreadsheet_csv
from bertlab_pages.tables import TitledGrid, plain_grid
from bertlab_studies.plan.tuning import RANDOM, Rows
from bertlab_studies.report.columns import NOTHING, Column, digits_of
from bertlab_studies.report.statistics import summarize
from bertlab_studies.study_scores import StudyScores, TuningScores

FloatArray = NDArray[np.float64]
CAPTION = (
    "Expected best value of n trials of random search on the rows that choose (Dodge et al. 2019), "
    "and a band of its standard deviation on each side."
)


def expected_best(
    values: FloatArray, higher_is_better: bool = True, replacement: bool = True
) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation of the best of n = 1 … N draws from N values.

    Args:
        values: ``(N,)``.
        higher_is_better: whether the largest is the best.
        replacement: draw with replacement, as Dodge et al. 2019 do, which is a little
            pessimistic; without, the mean is unbiased (Tang et al. 2020, Showing your work
            doesn't always work).

    Returns:
        Two ``(N,)`` float64.
    """
    sign = 1.0 if higher_is_better else -1.0
    ordered = np.sort(sign * np.asarray(values, np.float64))
    count = len(ordered)
    draws, rank = np.arange(1, count + 1)[:, None], np.arange(1, count + 1)[None, :]
    # (n, rank): the chance that all n draws are among the `rank` lowest values
    below = (rank / count) ** draws if replacement else comb(rank, draws) / comb(count, draws)
    chance = np.diff(below, axis=1, prepend=0.0)  # that the best is the value of this rank
    mean = chance @ ordered  # (n,)
    variance = (chance * (ordered - mean[:, None]) ** 2).sum(1)
    return sign * mean, np.sqrt(variance)


def curves_of(tuning: TuningScores, replacement: bool = True) -> dict[str, list[FloatArray]]:
    """Return mean and deviation of the best of n trials by variant; none before all are over.

    A trial that failed counts as the worst value that any trial of the study has.
    """
    if not tuning.chosen or tuning.search != RANDOM:
        return {}
    higher = tuning.measure.higher_is_better
    known = [each.value for trials in tuning.trials.values() for each in trials]
    worst = (min if higher else max)(value for value in known if value is not None)
    return {
        variant: list(
            expected_best(
                np.array([worst if each.value is None else each.value for each in trials]),
                higher,
                replacement,
            )
        )
        for variant, trials in tuning.trials.items()
    }


def tuning_tables(study: StudyScores) -> list[TitledGrid]:
    """Return what was chosen and, of random search, the expected best of n trials."""
    tuning = study.tuning
    if tuning is None:
        return []
    summaries = [
        summarize(each.value for each in trials if each.value is not None)
        for trials in tuning.trials.values()
    ]
    column = Column(tuning.measure, digits_of(tuning.measure, summaries))
    curves = curves_of(tuning)
    return [_chosen(tuning, column), *([_expected(curves, column)] if curves else [])]


def _chosen(tuning: TuningScores, column: Column) -> TitledGrid:
    rows = []
    for variant, trials in tuning.trials.items():
        done = [each for each in trials if each.value is not None]
        number = tuning.chosen.get(variant)
        if number is None:
            found = [NOTHING] * (2 + len(trials[0].settings))
        else:
            value = trials[number].value
            settings = map(yaml_inline, trials[number].settings.values())
            shown = NOTHING if value is None else column.number(value)
            found = [str(number + 1), *settings, shown]
        rows.append((variant, *found, str(len(trials)), str(len(trials) - len(done))))
    first = next(iter(tuning.trials.values()))
    headings = ("variant", "trial", *first[0].settings, " ".join(column.heading), "trials")
    grid = plain_grid((*headings, "without value"), rows, figures=3)
    return TitledGrid("Chosen settings", grid, _legend(tuning, len(first)))


def _legend(tuning: TuningScores, trials: int) -> str:
    how = {RANDOM: "random search"}.get(tuning.search, f"{tuning.search} search")
    seeds = ", ".join(map(str, tuning.seeds))
    rows = f", {tuning.rows}; the other half decides" if tuning.rows is not Rows.ALL else ""
    return (
        f"Each variant had {trials} trials ({how}, seeds {seeds}, which decide nothing). Its best "
        f"one is chosen by {tuning.measure.name}{rows}. The value is that of the best of several, "
        "and so too good; the tables above have other seeds. A trial that failed counts as one."
    )


def _expected(curves: dict[str, list[FloatArray]], column: Column) -> TitledGrid:
    count = len(next(iter(curves.values()))[0])
    # 1, 2, 4 … and all of them
    shown = [*(2**power for power in range(20) if 2**power < count), count]
    rows = [
        (
            str(trials),
            *(
                f"{column.number(mean[trials - 1])} ± {column.number(deviation[trials - 1])}"
                for mean, deviation in curves.values()
            ),
        )
        for trials in shown
    ]
    legend = (
        "Expected validation performance (Dodge et al. 2019): mean ± standard deviation of the "
        f"best {' '.join(column.heading)} of so many trials of random search, on the rows that "
        "choose. Where curves cross, which variant looks best depends on how much it is tuned. A "
        "trial that failed counts as the worst value of all."
    )
    return TitledGrid(
        "Expected best of n trials",
        plain_grid(("trials", *curves), rows, figures=len(curves)),
        legend,
    )


def tuning_figure(study: StudyScores) -> Figure | None:
    """Draw the expected best of n trials against n, a curve for each variant."""
    curves = {} if study.tuning is None else curves_of(study.tuning)
    if study.tuning is None or not curves:
        return None
    measure = study.tuning.measure
    figure, (axes, *_) = panels_of(1, height=2.6)
    for number, (variant, (mean, deviation)) in enumerate(curves.items()):
        style = style_of(number)
        trials = np.arange(1, len(mean) + 1)
        axes.plot(trials, mean, label=label_of(variant), markevery=max(1, len(mean) // 8), **style)
        low, high = mean - deviation, mean + deviation
        axes.fill_between(trials, low, high, color=style["color"], alpha=0.2, linewidth=0)
    axes.set_title(printable(measure.name))
    axes.set_xlabel("trials")
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.grid(visible=True)
    if measure.is_share:
        percent_axis(axes.yaxis)
    add_legend(figure, [axes])
    return figure


def tuning_csv_files(study: StudyScores) -> dict[str, str]:
    """Return ``tuning_trials.csv`` and, of random search, ``expected_best.csv``.

    A line of the first is a trial: its settings, ``value`` (the mean over seeds; empty if it
    failed), the value of each seed, and whether it was chosen. A line of the second is a variant
    and a number of trials: ``expected`` and ``deviation`` of the best, drawn with replacement, and
    ``unbiased``, the mean if drawn without. Shares are in 0 … 1.
    """
    tuning = study.tuning
    if tuning is None:
        return {}
    keys = list(next(iter(tuning.trials.values()))[0].settings)
    seeds = [f"seed {seed}" for seed in tuning.seeds]
    lines = [
        (
            variant,
            number + 1,
            *(yaml_inline(each.settings[key]) for key in keys),
            each.value,
            *(each.values.get(seed) for seed in tuning.seeds),
            tuning.chosen.get(variant) == number,
        )
        for variant, trials in tuning.trials.items()
        for number, each in enumerate(trials)
    ]
    files = {
        "tuning_trials.csv": spreadsheet_csv(
            ("variant", "trial", *keys, "value", *seeds, "chosen"), lines
        )
    }
    curves, unbiased = curves_of(tuning), curves_of(tuning, replacement=False)
    if curves:
        files["expected_best.csv"] = spreadsheet_csv(
            ("variant", "trials", "expected", "deviation", "unbiased"),
            (
                (variant, trials, *map(float, figures))
                for variant, both in curves.items()
                for trials, figures in enumerate(zip(*both, unbiased[variant][0], strict=True), 1)
            ),
        )
    return files
