"""What an evaluation found as tables of text, for the screen and for its page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bertlab.extend import is_share, shown_figure
from bertlab_evaluations.contract import EvaluationResult, ScoreGrid
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
    name: str, metric: str, result: EvaluationResult, groups: Sequence[GroupScore]
) -> list[TitledGrid]:
    """Return groups, grids and figures: what the command prints, the figures last.

    Args:
        name: of the evaluation.
        metric: that decides.
        result: what was found.
        groups: all rows first, then the groups of each kind.
    """
    return [
        *(
            TitledGrid(f"{name} by {kind}", group_table(metric, kind, chosen))
            for kind, chosen in kinds_of(groups, MOST_GROUPS).items()
        ),
        *(
            TitledGrid(f"{name}: {each.title}", score_table(each))
            for each in result.grids
            if len(each.columns) <= MOST_COLUMNS
        ),
        TitledGrid(f"{name}: {groups[0].rows:,} rows", figures_table(metric, result, groups[0])),
    ]


def kinds_of(groups: Sequence[GroupScore], most: int) -> dict[str, list[GroupScore]]:
    """Return the groups of each kind that has at least two, and at most ``most``."""
    kinds = [each.kind for each in groups[1:]]
    return {
        kind: [each for each in groups[1:] if each.kind == kind]
        for kind in dict.fromkeys(kinds)
        if 1 < kinds.count(kind) <= most
    }


def group_table(metric: str, kind: str, groups: Sequence[GroupScore]) -> Grid:
    """Return the groups of a kind with their means and intervals."""
    rows = [
        (each.group, str(each.rows), shown_figure(metric, each.mean), interval(metric, each))
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


def figures_table(metric: str, result: EvaluationResult, all_rows: GroupScore) -> Grid:
    """Return the metrics over all rows, with the interval of the one that decides."""
    rows = [
        (each, _show(each, metric, value), interval(metric, all_rows) if each == metric else "")
        for each, value in result.metrics.items()
    ]
    return plain_grid(("metric", "value", "95 %"), rows, figures=2)


def interval(metric: str, group: GroupScore) -> str:
    """Return an interval as people read it: ``50.1% to 53.9%``."""
    return f"{shown_figure(metric, group.low)} to {shown_figure(metric, group.high)}"


def _show(name: str, monitor: str, value: float) -> str:
    # ties is a share as the accuracy is
    return f"{value:.1%}" if is_share(monitor) and name == "ties" else shown_figure(name, value)
