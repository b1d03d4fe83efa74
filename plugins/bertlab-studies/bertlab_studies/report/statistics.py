"""Whether variants differ: a test over seeds and rows together, corrected for many comparisons.

A study has two sources of chance. Another seed would train another model, and another test set
would hold other rows; a difference to build on survives both. Its variance is the sum of the two
(:mod:`~bertlab_studies.report.seed_noise`, :mod:`~bertlab_studies.report.row_noise`), and Student's
t with the degrees of freedom of Satterthwaite decides.

Reference: Holm (1979), A simple sequentially rejective multiple test procedure.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from bertlab.api import DataError
from bertlab_studies.report.comparison import (
    LEVEL,
    Comparison,
    effect_size,
    with_margin,
)
from bertlab_studies.report.failed_runs import failed_runs
from bertlab_studies.report.failures import compare_failures, is_established, without
from bertlab_studies.report.multibootstrap import MultiBootstrap, multibootstrap
from bertlab_studies.report.row_noise import RowNoise, clusters_of_cells, row_noise
from bertlab_studies.report.seed_noise import (
    ROUNDING,
    EarlierNoise,
    SeedNoise,
    Weights,
    noise_ratios,
    seed_noise,
)
from bertlab_studies.study_scores import Cell, Measure, StudyScores

DRAWS = 1000  # of the Multi-Bootstrap
Comparisons = dict[tuple[str, str], Comparison]  # by variant, or what is compared, and measure


@dataclass(frozen=True)
class Known:
    """What all measures of a study tell of each.

    Attributes:
        failed: seeds that failed, by name of the measure and variant.
        ratios: how much noisier than the others a variant is, by name of the primary measure and
            variant, as the other primary measures tell it; empty if there is one only.
        earlier: what earlier studies of the same kind know, by name of the measure.
    """

    failed: Mapping[str, Mapping[str, set[int]]]
    ratios: Mapping[str, Mapping[str, float]]
    earlier: Mapping[str, EarlierNoise] = field(default_factory=dict)


@dataclass(frozen=True)
class Summary:
    """Values of one measure over seeds.

    Attributes:
        n: finite values.
        mean: of them; None if there are none.
        deviation: sample deviation (n − 1); None with fewer than two values.
        low: lower end of the mean's t interval; None with fewer than two values or no spread.
        high: upper end of it.
        unusable: values that were NaN or infinite and are left out.
    """

    n: int
    mean: float | None
    deviation: float | None
    low: float | None
    high: float | None
    unusable: int = 0


def summarize(values: Iterable[float], confidence: float = 1 - LEVEL) -> Summary:
    """Return mean, sample deviation and t interval of one measure over seeds.

    Args:
        values: one for each seed; NaN and infinite ones are counted and left out.
        confidence: of the interval.
    """
    given = np.array(list(values), dtype=np.float64)
    finite = given[np.isfinite(given)]
    n, unusable = len(finite), len(given) - len(finite)
    mean = float(finite.mean()) if n else None
    deviation = _deviation(finite, scale=np.abs(finite).max()) if n > 1 else None
    low = high = None
    if deviation:
        # Student's t with n - 1 degrees of freedom; scale is the standard error of the mean
        low, high = stats.t.interval(confidence, n - 1, loc=mean, scale=deviation / n**0.5)
        low, high = float(low), float(high)
    return Summary(n, mean, deviation, low, high, unusable)


def compare(
    noise: SeedNoise, cells: Mapping[str, Cell], one: str, other: str, draws: int = DRAWS
) -> Comparison:
    """Compare two variants in one measure: ``other`` − ``one``; see :func:`contrast`."""
    return contrast(noise, {one: -1, other: 1}, cells, draws=draws)


def contrast(
    noise: SeedNoise, weights: Weights, *tasks: Mapping[str, Cell], draws: int = 0
) -> Comparison:
    """Test whether a weighted sum of the means of variants is 0.

    Args:
        noise: of the measure, from all variants.
        weights: by variant; they add up to 0. ``{"a": -1, "b": 1}`` is the difference b − a.
        *tasks: cells of the measure by variant; of a mean over tasks, those of each task. The
            scores of rows are read where all variants of the sum have them.
        draws: of the Multi-Bootstrap beside it, for two variants in one task.

    Returns:
        Not corrected for many comparisons. ``runs`` are of the variants with a weight below 0, and
        of those with one above 0.

    Raises:
        DataError: predictions of the variants are of different rows.
    """
    found = noise.contrast(weights)
    comparison = Comparison(
        found.runs, found.value, paired=noise.paired, correlation=noise.correlation
    )
    if found.value is None or found.variance is None or found.noise is None:
        return comparison
    parts = tuple(_row_parts(weights, tasks, noise.paired))
    over_all = replace(found.noise, rows=tuple((each.variance, each.freedom) for each in parts))
    variance, freedom = over_all.estimate
    if variance == 0:
        p, family = found.p_constant, 0 if found.p_constant is None else 1
        return replace(comparison, error=0.0, p=p, p_adjusted=p, family=family)
    error = math.sqrt(variance)
    half = error * float(-special.stdtrit(freedom, LEVEL / 2))  # Student's t, as stats.t.isf
    p = 2 * float(special.stdtr(freedom, -abs(found.value) / error))
    p = max(p, found.p_constant or 0.0)  # few runs that are the same show little
    comparison = replace(
        comparison,
        error=error,
        freedom=freedom,
        low=found.value - half,
        high=found.value + half,
        p=p,
        p_adjusted=p,
        family=1,
        rows=sum(each.rows for each in parts) or None,
        clusters=sum(each.clusters for each in parts) or None,
        cluster=_kind(parts),
        row_share=sum(each.variance for each in parts) / variance if parts else None,
        noise=over_all,
    )
    if len(weights) > 2:
        return comparison
    own = [tasks[0][variant] for variant in weights]
    return replace(
        comparison,
        effect_size=effect_size(found.value, found.variance, found.runs, found.freedom),
        bootstrap=_bootstrap(own, noise.paired, draws) if parts and draws else None,
    )


def _row_parts(
    weights: Weights, tasks: Sequence[Mapping[str, Cell]], paired: bool
) -> Iterator[RowNoise]:
    """Yield what the rows of each task add to the variance of the mean over tasks."""
    for cells in tasks:
        own = [cells[variant] for variant in weights]
        sides, signed = [cell.examples for cell in own], list(weights.values())
        if not all(sides):
            continue
        found = row_noise(sides, signed, paired, clusters_of_cells(own))
        if found is not None:
            yield found._replace(variance=found.variance / len(tasks) ** 2)


def _kind(parts: Sequence[RowNoise]) -> str:
    """Return what clusters are; ``cluster`` if tasks have several kinds, empty if all are rows."""
    kinds = {each.kind for each in parts}
    return kinds.pop() if len(kinds) == 1 else "cluster" if kinds else ""


def compare_study(scores: StudyScores, draws: int = DRAWS) -> dict[tuple[str, str], Comparison]:
    """Compare every variant but the baseline with it, in every measure.

    Holm's correction is over all comparisons of primary measures that can be tested; it holds
    whatever the dependence between them, and all share the baseline's runs.

    Args:
        scores: what was found.
        draws: of the Multi-Bootstrap beside each comparison over rows; 0: none.

    Returns:
        By (variant, name of the measure), in the order of the study.

    Raises:
        DataError: predictions of a variant and of the baseline are of different rows.
    """
    others = [variant for variant in scores.variants if variant != scores.baseline]
    known = known_of(scores)
    by_measure = {
        measure.name: _compare_measure(scores, measure, draws, others, known)
        for measure in scores.measures
    }
    found = {
        (variant, measure.name): by_measure[measure.name][variant]
        for variant in others
        for measure in scores.measures
    }
    if scores.is_crossed:  # an interval would take runs that share seeds for independent ones
        return {key: Comparison(one.runs, one.difference) for key, one in found.items()}
    primary = {measure.name for measure in scores.measures if measure.is_primary}
    described = {
        key: _described(one) for key, one in found.items() if key[1] not in primary or one.p is None
    }
    tested = [key for key in found if key not in described]
    found |= described | after_holm({key: found[key] for key in tested})
    rates = holm([each.p if (each := found[key].failures) else 1.0 for key in tested])
    for key, p in zip(tested, rates, strict=True):
        failures = found[key].failures
        if failures is not None:
            found[key] = replace(found[key], failures=replace(failures, p_adjusted=p))
    return found


def _described(one: Comparison) -> Comparison:
    """Return a comparison that decides nothing."""
    rest = None if one.without_failed is None else _described(one.without_failed)
    return replace(
        one, p_adjusted=None, family=0, margin=None, p_equivalent=None, without_failed=rest
    )


def compare_pair(scores: StudyScores, one: str, other: str) -> dict[str, Comparison]:
    """Compare any two variants in each primary measure: ``other`` − ``one``, each test on its own.

    Args:
        scores: what was found; the noise is estimated from all variants.
        one: a variant, in the place of the baseline.
        other: another.

    Returns:
        By name of the measure, not corrected for many comparisons.

    Raises:
        DataError: predictions of the two are of different rows.
    """
    seen_from_one, known = replace(scores, baseline=one), known_of(scores)
    return {
        measure.name: _compare_measure(seen_from_one, measure, DRAWS, [other], known)[other]
        for measure in scores.measures
        if measure.is_primary
    }


def known_of(scores: StudyScores) -> Known:
    """Return what all measures of a study, and earlier studies, tell of each."""
    failed = {measure.name: failed_runs(scores, measure) for measure in scores.measures}
    learned = {
        measure.name: {
            variant: without(scores.cell(variant, measure), failed[measure.name][variant]).values
            for variant in scores.variants
        }
        for measure in scores.measures
        if measure.is_primary
    }
    return Known(failed, noise_ratios(learned), scores.earlier)


def _compare_measure(
    scores: StudyScores, measure: Measure, draws: int, others: Iterable[str], known: Known
) -> dict[str, Comparison]:
    """Return the comparisons of one measure by variant, none corrected for many."""
    wanted = {variant: {scores.baseline: -1, variant: 1} for variant in others}
    failed = known.failed[measure.name]
    return {
        variant: replace(one, failures=compare_failures(failed, scores, measure, variant))
        for variant, one in compare_contrasts(scores, measure, wanted, draws, known).items()
    }


def compare_contrasts(
    scores: StudyScores,
    measure: Measure,
    wanted: Mapping[str, Weights],
    draws: int = 0,
    known: Known | None = None,
) -> dict[str, Comparison]:
    """Test weighted sums of variants' means in one measure, with and without failed runs.

    Args:
        scores: what was found.
        measure: of the study.
        wanted: weights by variant, as :func:`contrast` takes them, by name of the sum.
        draws: of the Multi-Bootstrap.
        known: as :func:`known_of` gives it, which is called if it is None.

    Returns:
        By name of the sum, none corrected for many comparisons.

    Raises:
        DataError: predictions of variants are of different rows.
    """
    known = known_of(scores) if known is None else known
    failed = known.failed[measure.name]
    cells = {variant: scores.cell(variant, measure) for variant in scores.variants}
    hurt = {key: each for key, each in wanted.items() if any(failed[variant] for variant in each)}
    whole = {key: each for key, each in wanted.items() if key not in hurt}
    # a variant whose runs fail tells nothing of the noise of two that learn
    learned = {variant: without(cell, failed[variant]) for variant, cell in cells.items()}
    found = _contrasts(learned, whole, measure, known, draws)
    found |= _contrasts(cells, hurt, measure, known, draws)
    for key, rest in _contrasts(learned, hurt, measure, known, draws=0).items():
        established = is_established(failed, scores, measure, hurt[key])
        found[key] = replace(found[key], without_failed=rest, of_learned=established)
    return {key: found[key] for key in wanted}


def _contrasts(
    cells: Mapping[str, Cell],
    wanted: Mapping[str, Weights],
    measure: Measure,
    known: Known,
    draws: int,
) -> dict[str, Comparison]:
    if not wanted:
        return {}
    noise = seed_noise(
        {variant: cell.values for variant, cell in cells.items()},
        known.ratios.get(measure.name),
        known.earlier.get(measure.name),
    )
    found = {}
    for key, weights in wanted.items():
        try:
            comparison = contrast(noise, weights, cells, draws=draws)
        except DataError as error:
            raise DataError(f"{key}, {measure.name}: {error}") from error
        found[key] = with_margin(comparison, measure.margin)
    return found


def after_holm(tested: Mapping[tuple[str, str], Comparison]) -> Comparisons:
    """Return comparisons with Holm's p-values over all of them; of runs that did not fail too.

    Those of equivalence are corrected over all comparisons that have a margin.
    """
    family = len(tested)
    adjusted = holm([one.p or 0.0 for one in tested.values()])
    rest = {key: one.without_failed or one for key, one in tested.items()}
    rest_adjusted = holm([1.0 if one.p is None else one.p for one in rest.values()])
    found = {}
    for (key, one), p, p_rest in zip(tested.items(), adjusted, rest_adjusted, strict=True):
        found[key] = replace(one, p_adjusted=p, family=family)
        if one.without_failed is not None:
            left = one.without_failed
            p_left = None if left.p is None else p_rest
            found[key] = replace(
                found[key], without_failed=replace(left, p_adjusted=p_left, family=family)
            )
    margins = [key for key, one in found.items() if one.decided.p_equivalent is not None]
    equivalent = holm([found[key].decided.p_equivalent or 0.0 for key in margins])
    for key, p in zip(margins, equivalent, strict=True):
        found[key] = found[key].with_equivalent(p)
    return found


def after_holm_and_looks(comparisons: Comparisons, looks: int) -> Comparisons:
    """Return a family of comparisons of which those that can be tested are corrected.

    Args:
        comparisons: of a table of its own.
        looks: that are planned at the study.
    """
    tested = {key: one for key, one in comparisons.items() if one.p is not None}
    return comparisons | with_looks(after_holm(tested), looks)


def with_looks(comparisons: Comparisons, looks: int) -> Comparisons:
    """Return comparisons that are tested at 5 % / looks: p-values times the looks (Bonferroni)."""
    return {key: _times(one, looks) for key, one in comparisons.items()}


def _times(one: Comparison, looks: int) -> Comparison:
    def times(p: float | None) -> float | None:
        return None if p is None else min(1.0, p * looks)

    rest = one.without_failed
    return replace(
        one,
        p_adjusted=times(one.p_adjusted),
        p_equivalent=times(one.p_equivalent),
        family=one.family * looks,  # what could be shown is that of the same level
        without_failed=None if rest is None else _times(rest, looks),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values, in the order given (Holm 1979)."""
    p = np.array(p_values, dtype=np.float64)
    order = np.argsort(p)
    # p [0.04, 0.01, 0.03] -> sorted × (3, 2, 1): [0.03, 0.06, 0.04] -> rising: [0.03, 0.06, 0.06]
    # -> in the order given: [0.06, 0.03, 0.06]
    stepwise = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepwise, 1)
    return [float(value) for value in adjusted]


def _bootstrap(cells: Sequence[Cell], paired: bool, draws: int) -> MultiBootstrap | None:
    before, after = (cell.examples for cell in cells)
    if paired:
        seeds = sorted(before.keys() & after.keys())
        chosen = [[side[seed] for seed in seeds] for side in (before, after)]
    else:
        chosen = [[side[seed] for seed in sorted(side)] for side in (before, after)]
    if min(map(len, chosen)) < 2:
        return None
    sides, clusters = [np.array(each) for each in chosen], clusters_of_cells(cells)
    return multibootstrap(sides[0], sides[1], paired, draws, clusters=clusters)


def _deviation(values: NDArray[np.float64], scale: float) -> float:
    """Return the sample deviation; exactly 0 if the spread is rounding of numbers of this scale."""
    # ddof=1: n - 1 degrees of freedom
    return 0.0 if np.ptp(values) <= ROUNDING * scale else float(values.std(ddof=1))
