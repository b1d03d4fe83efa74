"""How much a measure varies over seeds: one estimate from all variants of a study.

What that makes of a difference, and of any weighted sum of means, is
:mod:`~bertlab_studies.report.contrast_noise`'s.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from bertlab_studies.report.contrast_noise import (
    PRIOR,
    ContrastNoise,
    prior_freedom,
    with_earlier,
)

PAIRING_LEVEL = 0.02  # of the test that seeds move all variants together
_SURE = 0.85  # chance that a ratio of variances as others have it stays below the quantile
ROUNDING = 1e-12  # spread below this share of the values is that of floating point

Values = Mapping[int, float]  # of one measure, by seed
Weights = Mapping[str, float]  # of variants, by name


@dataclass(frozen=True)
class SeedContrast:
    """A weighted sum of variants' means, such as a difference, and how much other seeds move it.

    Attributes:
        runs: that count, of the variants with a weight below 0, and of those with one above 0.
        value: the sum; None if a variant has no run.
        variance: of ``value`` over seeds; None with fewer than two runs of a variant, 0 if all runs
            of each variant (or the sums of all seeds) are the same.
        freedom: degrees of freedom of ``variance``.
        noise: where ``variance`` comes from; None if it is None.
        p_constant: where ``variance`` is 0: the p of the permutation (or, paired, the sign) test;
            None of more than two variants that are not paired.
    """

    runs: tuple[int, int]
    value: float | None = None
    variance: float | None = None
    freedom: float = 0.0
    noise: ContrastNoise | None = None
    p_constant: float | None = None


@dataclass(frozen=True)
class EarlierNoise:
    """What earlier studies of the same kind know of a measure's noise.

    Attributes:
        variance: of a run over seeds.
        freedom: degrees of freedom that it counts for: those of the earlier studies, or less where
            they are not quite of the same kind.
        studies: how many they are.
    """

    variance: float
    freedom: float
    studies: int = 1


@dataclass(frozen=True)
class SeedNoise:
    """The noise of one measure.

    Attributes:
        values: finite values by variant and seed.
        correlation: of variants over the seeds that all have (intraclass, ICC(3,1) of Shrout and
            Fleiss 1979); None with fewer than two such seeds or variants.
        paired: variants are compared seed by seed, because they move together: the test of the
            correlation is significant at ``PAIRING_LEVEL``.
        variances: of a single run, by variant with two runs or more.
        ratios: of a variant's variance to that of the others, as the study's other measures tell it
            (:func:`noise_ratios`); None if there are no others.
        earlier: what earlier studies know; None if nothing.
    """

    values: Mapping[str, Values]
    correlation: float | None = None
    paired: bool = False
    variances: Mapping[str, float] = field(default_factory=dict)
    ratios: Mapping[str, float] | None = None
    earlier: EarlierNoise | None = None
    _residual: float = 0.0  # mean square after variants' and seeds' means are taken out
    _residual_freedom: int = 0

    def contrast(self, weights: Weights) -> SeedContrast:
        """Return a weighted sum of the means of variants.

        Args:
            weights: by variant; they add up to 0. ``{"a": -1, "b": 1}`` is the difference b − a.
        """
        sides = [self.values[variant] for variant in weights]
        signed = np.array(list(weights.values()))
        if self.paired:
            seeds = sorted(set.intersection(*(set(side) for side in sides)))
            return self._paired(np.array([[side[s] for s in seeds] for side in sides]), signed)
        counts = np.array([len(side) for side in sides])
        runs = _of_both_sides(counts, signed)
        if not counts.all():
            return SeedContrast(runs)
        means = np.array([np.mean(list(side.values())) for side in sides])
        value = float(signed @ means)
        if counts.min() < 2:
            return SeedContrast(runs, value)
        noise = self._unpaired(weights)
        variance, freedom = noise.estimate
        p = None
        if variance == 0 and len(sides) == 2:
            # of all ways to deal the runs to two sides, two are as extreme: 3 and 3 -> 2 of 20
            p = _unless_same(2 / float(special.comb(sum(runs), runs[0])), value, means)
        return SeedContrast(runs, value, variance, freedom, noise, p)

    def _unpaired(self, weights: Weights) -> ContrastNoise:
        """Return the noise of a sum of variants that have two runs or more."""
        known = {name: len(self.values[name]) - 1 for name in self.variances}
        # those of the sum first; variants that are alike may change places, which moves no figure
        names = sorted(
            known,
            key=lambda name: (
                name not in weights,
                self.variances[name],
                known[name],
                weights.get(name, 0.0) ** 2,
            ),
        )
        prior = prior_freedom(len(names), min(known.values()), self.ratios is not None)
        noise = ContrastNoise(
            tuple(self.variances[name] for name in names),
            tuple(known[name] for name in names),
            tuple(weights[name] ** 2 / (known[name] + 1) for name in names[: len(weights)]),
            prior,
            ratios=tuple(self.ratios.get(name, 0.0) for name in names) if self.ratios else (),
        )
        if self.earlier is None or self.earlier.freedom <= 0:
            return noise
        return replace(  # as one more variant that is in no sum
            noise,
            variances=(*noise.variances, self.earlier.variance),
            known=(*noise.known, self.earlier.freedom),
            prior=with_earlier(prior, self.earlier.freedom),
            ratios=(*noise.ratios, 0.0) if noise.ratios else (),
        )

    def _paired(self, sides: NDArray[np.float64], weights: NDArray[np.float64]) -> SeedContrast:
        pairs = sides.shape[1]
        runs = _of_both_sides(np.full(len(sides), pairs), weights)
        if not pairs:
            return SeedContrast(runs)
        sums = weights @ sides  # (S,)
        value = float(sums.mean())
        if pairs < 2:
            return SeedContrast(runs, value)
        own, known = _variance(sums, np.abs(sides).max()), pairs - 1
        noise = ContrastNoise((own,), (known,), (1 / pairs,), 0)
        # what the residual knows beyond this sum; seeds that not all variants have may be more
        rest = self._residual_freedom - known
        if rest > 0:
            others = float(weights @ weights) * self._residual
            lent = (self._residual_freedom * others - known * own) / rest
            noise = ContrastNoise((own, lent), (known, rest), (1 / pairs,), min(PRIOR, rest))
        variance, freedom = noise.estimate
        # sign test: n sums of one sign; two-sided 2 * (1/2)^n
        p = None if variance else _unless_same(2.0 ** (1 - pairs), value, sides)
        return SeedContrast(runs, value, variance, freedom, noise, p)


def _of_both_sides(counts: NDArray[np.int64], weights: NDArray[np.float64]) -> tuple[int, int]:
    return int(counts[weights < 0].sum()), int(counts[weights > 0].sum())


def seed_noise(
    values: Mapping[str, Values],
    ratios: Mapping[str, float] | None = None,
    earlier: EarlierNoise | None = None,
) -> SeedNoise:
    """Estimate the noise of one measure.

    Args:
        values: by variant and seed; NaN and infinite ones are left out.
        ratios: as :func:`noise_ratios` gives them for the measure; None of a measure on its own.
        earlier: what earlier studies of the same kind know, which counts as another variant does.
    """
    finite = _finite(values)
    several = {name: np.array(list(v.values())) for name, v in finite.items() if len(v) > 1}
    if not several:
        return SeedNoise(finite)
    scale = max(float(np.abs(each).max()) for each in several.values())
    correlation, p, residual, freedom = _agreement(finite, scale)
    return SeedNoise(
        values=finite,
        correlation=correlation,
        paired=p is not None and p <= PAIRING_LEVEL,
        variances={name: _variance(each, scale) for name, each in several.items()},
        ratios=ratios,
        earlier=earlier,
        _residual=residual,
        _residual_freedom=freedom,
    )


def noise_ratios(measures: Mapping[str, Mapping[str, Values]]) -> dict[str, dict[str, float]]:
    """Return how much noisier than the others each variant is for sure, by what other measures say.

    A recipe that is noisy is noisy in most measures. Three seeds of one measure cannot tell that,
    those of several can: the ratio of a variant's variance to that of the others, the mean over
    the other measures, is divided by the F quantile (``_SURE``) that it reaches by chance.

    Args:
        measures: values by variant and seed, by name of the measure.

    Returns:
        Ratios by variant with two runs or more in other measures, by name of the measure; empty if
        there is one measure only.
    """
    if len(measures) < 2:
        return {}
    found = {name: _against_others(values) for name, values in measures.items()}
    ratios: dict[str, dict[str, float]] = {}
    for name, values in measures.items():
        ratios[name] = {}
        for variant in values:
            others = [
                each[variant] for key, each in found.items() if key != name and variant in each
            ]
            known, of_others = sum(each[1] for each in others), sum(each[2] for each in others)
            if known:
                mean = sum(each[0] * each[1] for each in others) / known
                ratios[name][variant] = mean / float(special.fdtri(known, of_others, _SURE))
    return ratios


def _against_others(values: Mapping[str, Values]) -> dict[str, tuple[float, int, int]]:
    """Return each variant's variance over that of the others, and the freedom of both."""
    noise = seed_noise(values)
    known = {name: len(noise.values[name]) - 1 for name in noise.variances}
    squares = {name: known[name] * each for name, each in noise.variances.items()}
    found = {}
    for name, variance in noise.variances.items():
        rest, of_others = sum(squares.values()) - squares[name], sum(known.values()) - known[name]
        if of_others and rest > 0:
            found[name] = variance / (rest / of_others), known[name], of_others
    return found


def _finite(values: Mapping[str, Values]) -> dict[str, Values]:
    return {
        variant: {seed: value for seed, value in by_seed.items() if np.isfinite(value)}
        for variant, by_seed in values.items()
    }


def _unless_same(p: float, difference: float, values: ArrayLike) -> float:
    """Return the p, but 1 if the difference is rounding of numbers of this scale."""
    return 1.0 if abs(difference) <= ROUNDING * float(np.abs(values).max()) else p


def _variance(values: NDArray[np.float64], scale: float) -> float:
    """Return the sample variance; exactly 0 if the spread is rounding of numbers of this scale."""
    return 0.0 if np.ptp(values) <= ROUNDING * scale else float(values.var(ddof=1))


def _agreement(
    values: Mapping[str, Values], scale: float
) -> tuple[float | None, float | None, float, int]:
    """Return correlation over seeds, its p (one-sided), the residual mean square and its freedom.

    A two-way analysis of variance over the seeds that all variants with values have.
    """
    sides = [by_seed for by_seed in values.values() if by_seed]
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in sides)))
    variants, count = len(sides), len(seeds)
    if variants < 2 or count < 2:
        return None, None, 0.0, 0
    table = np.array([[by_seed[seed] for seed in seeds] for by_seed in sides])  # (V, S)
    centered = table - table.mean(1, keepdims=True)
    together = centered.mean(0)  # (S,) what a seed does to all
    rest = centered - together
    freedom = (variants - 1) * (count - 1)
    residual = 0.0 if np.ptp(rest) <= ROUNDING * scale else float((rest**2).sum()) / freedom
    between = variants * float((together**2).sum()) / (count - 1)
    if residual == 0:
        constant = bool(np.ptp(together) <= ROUNDING * scale)
        return (None, None, 0.0, freedom) if constant else (1.0, 0.0, 0.0, freedom)
    correlation = (between - residual) / (between + (variants - 1) * residual)
    p = float(special.fdtrc(count - 1, freedom, between / residual))
    return correlation, p, residual, freedom
