"""What an evaluation found as tables of text, for the screen and for its page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bertlab.extend import is_among, shown_figure
from bertlab_evaluations.contract import Evaluation, EvaluationResult, ScoreGrid
from bertlab_evaluations.evaluation_scores import GroupScore
from bertlab_pages.tables import Grid, plain_grid

# shown on the screen; the files have all
MOST_GROUPS = 20
MOST_COLUMNS = 8  # of a grid; 80 characters hold no more


@dataclass(frozen=True)
class TitledGrid:
    """A table and the line above it."""

    title: str
    grid: Grid


def tables_of(
    name: str, evaluation: Evaluation, result: EvaluationResult, groups: Sequence[GroupScore]
) -> list[TitledGrid]:
    """Return groups, grids and figures: what the command prints, the figures last.

    Args:
        name: of the evaluation.
        evaluation: that found it.
        result: what was found.
        groups: all rows first, then the groups of each kind.
    """
    return [
        *(
            TitledGrid(f"{name} by {kind}", group_table(evaluation, kind, chosen))
            for kind, chosen in kinds_of(groups, MOST_GROUPS).items()
        ),
        *(
            TitledGrid(f"{name}: {each.title}", score_table(each))
            for each in result.grids
            if len(each.columns) <= MOST_COLUMNS
        ),
        TitledGrid(
            f"{name}: {groups[0].rows:,} rows", figures_table(evaluation, result, groups[0])
        ),
    ]


def kinds_of(groups: Sequence[GroupScore], most: int) -> dict[str, list[GroupScore]]:
    """Return the groups of each kind that has at least two, and at most ``most``."""
    kinds = [each.kind for each in groups[1:]]
    return {
        kind: [each for each in groups[1:] if each.kind == kind]
        for kind in dict.fromkeys(kinds)
        if 1 < kinds.count(kind) <= most
    }


def group_table(evaluation: Evaluation, kind: str, groups: Sequence[GroupScore]) -> Grid:
    """Return the groups of a kind with their means and intervals."""
    metric, _ = evaluation.monitor
    rows = [
        (
            *(each.group, str(each.rows), shown(evaluation, metric, each.mean)),
            interval(evaluation, each),
        )
        for each in groups
    ]
    return plain_grid((kind, "rows", metric, "95 %"), rows, figures=3)


def score_table(grid: ScoreGrid) -> Grid:
    """Return a grid of scores; cells without one are empty."""

    def cell(value: float) -> str:
        if math.isnan(value):
            return ""
        return f"{value:.1%}" if grid.share else f"{value:.3f}"

    rows = [
        (row, *(cell(value) for value in values))
        for row, values in zip(grid.rows, grid.values.tolist(), strict=True)
    ]
    return plain_grid(("", *grid.columns), rows, figures=len(grid.columns))


def figures_table(evaluation: Evaluation, result: EvaluationResult, all_rows: GroupScore) -> Grid:
    """Return the metrics over all rows, with the interval of the one that decides."""
    decides, _ = evaluation.monitor
    rows = [
        (
            *(each, shown(evaluation, each, value)),
            interval(evaluation, all_rows) if each == decides else "",
        )
        for each, value in result.metrics.items()
    ]
    return plain_grid(("metric", "value", "95 %"), rows, figures=2)


def interval(evaluation: Evaluation, group: GroupScore) -> str:
    """Return an interval as people read it: ``50.1% to 53.9%``."""
    low, high = (shown(evaluation, evaluation.monitor[0], x) for x in (group.low, group.high))
    return f"{low} to {high}"


def shown(evaluation: Evaluation, metric: str, value: float) -> str:
    """Return a metric's value as people read it: in percent if the evaluation declares a share."""
    return shown_figure(metric, value, is_among(metric, evaluation.shares))
