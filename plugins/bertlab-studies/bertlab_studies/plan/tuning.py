"""The tuning of a study: how many trials each variant gets, what varies in them, and what chooses.

All variants get the same number of trials with the same settings, on seeds that the study does not
use. A trial is drawn by a counter-based generator, so that it depends on its number alone: more
trials leave the first ones as they are.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertlab import nearest
from bertlab.api import CounterRNG
from bertlab_evaluations.clusters import clusters_of
from bertlab_studies.errors import StudyError
from bertlab_studies.plan.seed_parts import SeedTuple
from bertlab_studies.plan.seeds import read_seeds
from bertlab_studies.plan.values import check_count, check_keys, first_repeated, mapping, text
from bertlab_studies.settings import Overrides, read_settings

KEYS = ("trials", "space", "search", "by", "seeds", "same_rows")
RANDOM, GRID = "random", "grid"
SEARCHES = (RANDOM, GRID)
_SEEDS = [0]  # a study's own begin with 1
_SCALES = ("log", "uniform")
_DIGITS = 3  # of a number that is drawn: 0.00123


class Rows(StrEnum):
    """Which rows of an evaluation a value is of."""

    ALL = "all rows"
    CHOOSE = "the half of the rows that chooses"
    DECIDE = "the half of the rows that decides"
    # of studies that were tuned before clusters stayed whole
    CHOOSE_SINGLY = "the half of the rows that chooses, which shares clusters with the other"
    DECIDE_SINGLY = "the half of the rows that decides, which shares clusters with the other"

    def of(self, clusters: Sequence[str]) -> NDArray[np.bool_]:
        """Return ``(rows,)`` bool: whether a row is one of these.

        Numbers of rows and clusters alone say in which half a row is, so that it is the same in all
        runs. Rows of a cluster are in one half: a setting that suits a passage by chance would suit
        the half that decides as well.

        Args:
            clusters: of each row, ``KIND:ID``, or empty.
        """
        if self is Rows.ALL:
            return np.ones(len(clusters), np.bool_)
        draws = CounterRNG(0, "tune/rows").uniform(np.arange(len(clusters)))
        singly = self in (Rows.CHOOSE_SINGLY, Rows.DECIDE_SINGLY)
        found = None if singly else clusters_of(clusters)
        if found is None or found.are_rows:
            chooses = draws < 0.5
        else:
            _, first = np.unique(found.numbers, return_index=True)
            order = np.argsort(draws[first])  # of the clusters
            # sizes [3, 1, 4, 2] in this order, 10 rows: 2 clusters of 4 rows are nearest to 5
            rows = np.cumsum(found.sizes[order])[:-1]
            chooses = np.isin(
                found.numbers, order[: 1 + np.argmin(np.abs(rows - len(clusters) / 2))]
            )
        return chooses if self in (Rows.CHOOSE, Rows.CHOOSE_SINGLY) else ~chooses


@dataclass(frozen=True)
class Range:
    """The numbers from ``low`` to ``high``.

    Attributes:
        low: the least.
        high: the largest.
        is_log: whether the logarithm is drawn evenly, not the number.
    """

    low: float
    high: float
    is_log: bool

    def at(self, share: float) -> float:
        """Return the number at a share of the range, in 0 … 1, with three digits."""
        if self.is_log:
            found = self.low * (self.high / self.low) ** share
        else:
            found = self.low + share * (self.high - self.low)
        return min(max(float(f"{found:.{_DIGITS}g}"), self.low), self.high)


Space = dict[str, Range | tuple[object, ...]]  # by config key


@dataclass(frozen=True)
class Tuning:
    """How the variants of a study are tuned.

    Attributes:
        trials: of each variant.
        space: what varies, by config key as in overrides: a range, or the values.
        search: ``random`` or ``grid``.
        by: the measure that chooses: an evaluation, or one such as ``mlm loss``; None if the study
            has only one.
        seeds: of the trials; none of the study's own.
        same_rows: whether the rows that choose may decide as well.
    """

    trials: int
    space: Space
    search: str
    by: str | None
    seeds: SeedTuple
    same_rows: bool

    def settings(self) -> list[Overrides]:
        """Return the overrides of each trial; two may be the same where a space is small."""
        if self.search == GRID:
            lists = [values for values in self.space.values() if not isinstance(values, Range)]
            return [dict(zip(self.space, point, strict=True)) for point in product(*lists)]
        return [
            {key: self._drawn(key, number) for key in self.space} for number in range(self.trials)
        ]

    def _drawn(self, key: str, number: int) -> object:
        share = float(CounterRNG(self.seeds[0], f"tune/{key}").uniform(number))
        values = self.space[key]
        if isinstance(values, Range):
            return values.at(share)
        return values[int(share * len(values))]

    def plain(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        space = {
            key: {"log" if each.is_log else "uniform": [each.low, each.high]}
            if isinstance(each, Range)
            else list(each)
            for key, each in self.space.items()
        }
        return {
            "trials": self.trials,
            "space": space,
            "search": self.search,
            "by": self.by,
            "seeds": list(self.seeds),
            "same_rows": self.same_rows,
        }


def read_tuning(
    given: object, where: str, variants: Mapping[str, Overrides], seeds: Sequence[int]
) -> Tuning | None:
    """Return what ``tune`` of a study file says; None if it is not there.

    Args:
        given: its value.
        where: file and key, for messages.
        variants: overrides of each, those of evaluations with ``evaluate.`` before them.
        seeds: of the study, which trials must not have.

    Raises:
        StudyError: if a key is unknown or its value wrong, or a variant sets what is tuned.
    """
    if given is None:
        return None
    found = mapping(given, where)
    check_keys(found, KEYS, where)
    search = found.get("search", RANDOM)
    if search not in SEARCHES:
        near = nearest(str(search), SEARCHES)
        raise StudyError(f"{where}.search: found {search!r}{near}, expected random or grid")
    space = _space(found.get("space"), f"{where}.space")
    _refuse_set(space, f"{where}.space", variants)
    same_rows = found.get("same_rows", False)
    if not isinstance(same_rows, bool):
        raise StudyError(f"{where}.same_rows: found {same_rows!r}, expected true or false")
    by = found.get("by")
    return Tuning(
        trials=_trials(found.get("trials"), f"{where}.trials", search, space),
        space=space,
        search=search,
        by=None if by is None else text(by, f"{where}.by", "a measure"),
        seeds=_own_seeds(found.get("seeds", _SEEDS), f"{where}.seeds", seeds),
        same_rows=same_rows,
    )


def _trials(given: object, where: str, search: str, space: Space) -> int:
    if search == GRID:
        ranges = [key for key, values in space.items() if isinstance(values, Range)]
        if ranges:
            raise StudyError(
                f"{where.removesuffix('trials')}space.{ranges[0]}: found a range, but search: grid "
                "tries all values; expected a list of them, or search: random"
            )
        points = math.prod(len(values) for values in space.values() if isinstance(values, tuple))
        if given not in (None, points):
            raise StudyError(
                f"{where}: found {given!r}, but the grid has {points} points; expected {points}, "
                "no trials, or search: random"
            )
        given = points
        check_count(points, "points of the grid", where)
    # type(): to isinstance(), True is an int
    if type(given) is not int or given < 2:
        raise StudyError(
            f"{where}: found {given!r}, expected a whole number above 1, of trials for each variant"
        )
    check_count(given, "trials", where)
    return given


def _own_seeds(given: object, where: str, taken: Sequence[int]) -> SeedTuple:
    if isinstance(given, dict):
        raise StudyError(f"{where}: found {given!r}, expected a number of seeds or a list: [0]")
    found, _ = read_seeds(given, where)
    common = [seed for seed in found if seed in taken]
    if common:
        raise StudyError(
            f"{where}: {common[0]} is a seed of the study as well; expected others, such as "
            f"[{next(seed for seed in range(2**32) if seed not in taken)}], because runs that "
            "chose the settings must not decide"
        )
    return found


def _space(given: object, where: str) -> Space:
    if not isinstance(given, dict) or not given:
        raise StudyError(
            f"{where}: found {given!r}, expected config keys with a list of values or a range: "
            "{optimizer.learning_rate: {log: [1.0e-4, 1.0e-2]}}"
        )
    found = read_settings(given, where)
    if "evaluate.from_step" in found:
        raise StudyError(
            f"{where}: evaluate.from_step: cannot be tuned; make variants that differ in it"
        )
    return {key: _values(each, f"{where}.{key}") for key, each in found.items()}


def _values(given: object, where: str) -> Range | tuple[object, ...]:
    if isinstance(given, list) and given:
        twice = first_repeated(given)
        if twice is not None:
            raise StudyError(f"{where}: {twice!r} is there twice; expected values that differ")
        return tuple(given)
    if isinstance(given, dict) and len(given) == 1 and next(iter(given)) in _SCALES:
        ((scale, ends),) = given.items()
        return _range(scale, ends, f"{where}.{scale}")
    raise StudyError(
        f"{where}: found {given!r}, expected a list of values, or a range as "
        "{log: [low, high]} or {uniform: [low, high]}"
    )


def _range(scale: str, given: object, where: str) -> Range:
    try:
        # YAML reads 1e-4 as a text
        ends = [float(each) for each in given] if isinstance(given, list) else []
    except (TypeError, ValueError):
        ends = []
    low, high = ends if len(ends) == 2 else (math.nan, math.nan)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise StudyError(f"{where}: found {given!r}, expected two numbers, the lower one first")
    if scale == "log" and low <= 0:
        raise StudyError(
            f"{where}: found {given!r}, expected numbers above 0, which have a logarithm; or "
            "uniform"
        )
    return Range(low, high, scale == "log")


def _refuse_set(space: Space, where: str, variants: Mapping[str, Overrides]) -> None:
    """Raise StudyError if a variant sets a key of the space, or one below it."""
    for name, overrides in variants.items():
        for key in _flat_keys(overrides):
            tuned = next((each for each in space if f"{key}.".startswith(f"{each}.")), None)
            if tuned is not None:
                raise StudyError(
                    f"{where}.{tuned}: the variant {name!r} sets {key} itself, so that it cannot "
                    "be tuned; take it out of the variant or out of the space"
                )


def _flat_keys(overrides: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    # {"model.objectives.mlm": {"rate": 0.3}} -> "model.objectives.mlm.rate"
    for key, value in overrides.items():
        if isinstance(value, Mapping) and value:
            yield from _flat_keys(value, f"{prefix}{key}.")
        else:
            yield prefix + key
