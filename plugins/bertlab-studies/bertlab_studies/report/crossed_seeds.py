"""How much of the spread of results each part of a run brings, where seeds of parts are crossed.

A result is μ + a + b + … + e: the mean of its variant, what the seed of each part adds, and the
rest: how parts act together, and what varies beside. Variances are taken for the same in all
variants and estimated by the balanced analysis of variance with random effects, one run for each
combination (Searle, Casella and McCulloch 1992, Variance components, section 4.7). Dodge et al.
2020 cross weights and order of fine-tunings so.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertlab_pages.tables import Grid, TitledGrid
from bertlab_studies.report.columns import NOTHING, Column, columns_of
from bertlab_studies.report.seed_noise import ROUNDING
from bertlab_studies.study_scores import Cell, StudyScores

_NEGATIVE = "§"
_REST = "rest"
_LEGEND = (
    "The share of the variance of a single result that is due to the seed of each part, by a "
    "random-effects analysis of variance pooled over variants; in brackets the standard deviation. "
    "Rest: what parts do together and not apart. What no part names has one seed in all runs: its "
    "noise is not in here. Degrees of freedom: of each column in this order; shares that rest on "
    "few are rough. Variants that lack a run are left out."
)
_NEGATIVE_LEGEND = f" {_NEGATIVE} the estimate is below 0 and taken for 0."

Table = NDArray[np.float64]


@dataclass(frozen=True)
class CrossedShares:
    """Variances of a measure, in its squared units.

    Attributes:
        variances: due to the seed of each part, then ``rest``; 0 if the estimate is negative.
        freedom: degrees of freedom of each.
        negative: parts whose estimate was below 0.
    """

    variances: dict[str, float]
    freedom: dict[str, int]
    negative: frozenset[str]

    @property
    def total(self) -> float:
        """Variance of a single result over all seeds."""
        return sum(self.variances.values())


def crossed_shares(
    cells: Iterable[Cell], factors: Mapping[int, Mapping[str, int]]
) -> CrossedShares | None:
    """Estimate the variances of one measure.

    Args:
        cells: of the variants.
        factors: seed of each part by the number of the run, all combinations.

    Returns:
        None if no variant has a finite value of all combinations, or too few parts vary to tell
        them from the rest.
    """
    names = list(next(iter(factors.values())))
    levels = [list(dict.fromkeys(each[name] for each in factors.values())) for name in names]
    shape = tuple(map(len, levels))
    # runs were numbered with the last part running fastest, as a table of this shape is laid out
    values = [[cell.values.get(number, np.nan) for number in factors] for cell in cells]
    tables = [np.array(each).reshape(shape) for each in values if np.isfinite(each).all()]
    freedom = {name: len(tables) * (count - 1) for name, count in zip(names, shape, strict=True)}
    freedom[_REST] = len(tables) * (int(np.prod(shape)) - 1) - sum(freedom.values())
    if min(freedom.values()) < 1:
        return None
    squares = dict.fromkeys(freedom, 0.0)
    for table in tables:
        within = [float(((of - table.mean()) ** 2).sum()) for of in _spread(table)]
        squares[_REST] += float(((table - table.mean()) ** 2).sum()) - sum(within)
        for name, each in zip(names, within, strict=True):
            squares[name] += each
    return _estimate(squares, freedom, shape, max(float(np.abs(each).max()) for each in tables))


def _spread(table: Table) -> Iterator[Table]:
    """Yield, for each axis, the table with every value replaced by the mean of its level."""
    for axis in range(table.ndim):
        others = tuple(each for each in range(table.ndim) if each != axis)
        yield np.broadcast_to(table.mean(axis=others, keepdims=True), table.shape)


def _estimate(
    squares: Mapping[str, float], freedom: Mapping[str, int], shape: Sequence[int], scale: float
) -> CrossedShares:
    """Return the variances that sums of squares stand for."""
    smallest = (ROUNDING * scale) ** 2
    means = {name: squares[name] / freedom[name] for name in squares}
    found = {_REST: means[_REST]}
    runs = int(np.prod(shape))
    for name, count in zip((each for each in squares if each != _REST), shape, strict=True):
        # E(mean square) = rest + runs of a level · variance: of 3 × 4 runs, 4 have each weights
        found[name] = (means[name] - means[_REST]) / (runs // count)
    return CrossedShares(
        variances={name: found[name] if found[name] > smallest else 0.0 for name in squares},
        freedom=dict(freedom),
        negative=frozenset(name for name, each in found.items() if each < -smallest),
    )


def crossed_tables(study: StudyScores) -> list[TitledGrid]:
    """Return the table of shares, if the seeds of parts are crossed and a variant has all runs."""
    if not study.is_crossed:
        return []
    found = [
        (column, shares)
        for column in columns_of(study)
        if (shares := crossed_shares(_cells(study, column), study.factors)) is not None
    ]
    if not found:
        return []
    names = list(found[0][1].variances)
    headings = (("measure",), *((name,) for name in names), ("degrees of", "freedom"))
    rows = tuple(tuple(_row(column, shares)) for column, shares in found)
    legend = _LEGEND + _NEGATIVE_LEGEND * any(shares.negative for _, shares in found)
    return [TitledGrid("Variance shares", Grid(headings, rows, len(headings) - 1), legend)]


def _cells(study: StudyScores, column: Column) -> list[Cell]:
    return [study.cell(variant, column.measure) for variant in study.variants]


def _row(column: Column, shares: CrossedShares) -> Iterator[str]:
    yield column.measure.name + (", points" if column.measure.is_share else "")
    for name, variance in shares.variances.items():
        mark = _NEGATIVE * (name in shares.negative)
        if shares.total:
            share = 100 * variance / shares.total
            yield f"{share:.0f} % ({column.number(variance**0.5)}){mark}"
        else:
            yield NOTHING
    yield ", ".join(map(str, shares.freedom.values()))
