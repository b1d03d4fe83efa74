"""How noisy a weighted sum of means is: as a study estimates it, and as others like it would.

Three seeds hardly know the noise of one variant. A study has several variants that are about as
noisy, so each variance is moderated towards that of all, as limma does for genes (Smyth 2004,
Linear models and empirical Bayes methods, Stat. Appl. Genet. Mol. Biol. 3). Two to eight variants
cannot tell how much they have in common, so the weight of the others is fixed, and a variance is
never below the variant's own: a variant that is three times as noisy as the others keeps its noise.
Where the study's other measures show that a variant is noisier than the others, it is taken to be
so in this one. Few runs against many count for little more than the few.
``benchmarks/study_calibration.py`` shows what that is worth.

Power is that of the test that these variances make: variances that a study could estimate are
drawn, and given these its power is exact. A plain noncentral t with the mean degrees of freedom
would promise too much: at three seeds it says 80 % where 66 to 73 % of simulated studies show the
effect, since moderated variances are never below a variant's own.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special
from scipy.stats import qmc

FloatArray = NDArray[np.float64]

PRIOR = 2.0  # degrees of freedom that the variance of all variants counts for, at most
_UNEQUAL = 1.5  # how much the freedom of few runs limits that of few against many
POWER = 0.8  # at which a difference counts as one that could have been shown
DRAWS = 4000  # of the variances that a study estimates
_TINY = float(np.finfo(np.float64).tiny)


def prior_freedom(variants: int, known: int, several: bool) -> float:
    """Return the degrees of freedom that the variance of all variants counts for.

    Two variants know nothing of each other: Welch's test. Of three, a noisy one would be lent too
    much by two others, unless other measures tell that it is noisy.

    Args:
        variants: that have two runs or more.
        known: degrees of freedom of the one with the fewest runs.
        several: whether the study has other measures that tell how noisy each variant is.
    """
    return max(min(PRIOR, (variants - 2) * known * (0.75 if several else 0.375)), 0.0)


def with_earlier(prior: float, freedom: float) -> float:
    """Return the same where earlier studies know as much as one more variant would."""
    return min(PRIOR, prior + freedom / 2)


def satterthwaite(parts: FloatArray, freedoms: FloatArray) -> FloatArray:
    """Return ``(…)`` the degrees of freedom of a sum of variances.

    Satterthwaite (1946), An approximate distribution of estimates of variance components.

    Args:
        parts: ``(…, parts)`` variances; one that is 0 adds nothing.
        freedoms: ``(…, parts)`` of each.
    """
    below = (parts**2 / np.maximum(freedoms, _TINY)).sum(-1)
    return np.asarray(parts.sum(-1) ** 2 / np.maximum(below, _TINY))


@dataclass(frozen=True)
class ContrastNoise:
    """Where the noise of a weighted sum of means comes from, and what a study knows of it.

    Attributes:
        variances: of single runs over seeds, as found. The first ones are of the means in the sum,
            the others only lend what they know.
        known: degrees of freedom of each.
        shares: of the first ones: squared weight over the number of runs.
        prior: degrees of freedom that the pooled variance counts for.
        rows: what the rows of each test set add to the variance of the sum, and its degrees of
            freedom; of rows in clusters, what clusters add.
        ratios: of each variance to that of the others, as other measures of the study tell it; 0 if
            they tell nothing, empty if they tell nothing of any.
    """

    variances: tuple[float, ...]
    known: tuple[float, ...]
    shares: tuple[float, ...]
    prior: float
    rows: tuple[tuple[float, float], ...] = ()
    ratios: tuple[float, ...] = ()

    def over_seeds(self, own: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ``(…)`` the variance of the sum over seeds, and its degrees of freedom.

        Args:
            own: ``(…, variances)`` that were found, or drawn.
        """
        moderated, freedoms = self._moderated(own, len(self.shares))
        parts = moderated * self.shares
        # Welch and Satterthwaite; never more than all runs of the study know
        freedom = np.minimum(satterthwaite(parts, freedoms), sum(self.known))
        fewest, few = self.few_against_many
        if few:
            freedom = np.minimum(freedom, freedoms[..., fewest] ** few * freedom ** (1 - few))
        return parts.sum(-1), freedom

    @property
    def few_against_many(self) -> tuple[int, float]:
        """Return which mean in the sum has the fewest runs, and how far its freedom is the limit.

        Welch's test of 2 or 3 runs against 10 finds too much: if the few are close by chance, it
        takes the freedom of the many. With that of the few it never does (Mickey and Brown 1966,
        Bounds on the distribution functions of the Behrens-Fisher statistic). How far that is the
        limit was found by simulation: 1 for 2 runs against 6, 0.53 for 3 against 10, 0.1 for 10
        against 25.
        """
        known = self.known[: len(self.shares)]
        fewest = known.index(min(known))
        few, many = known[fewest], max(known)
        return fewest, min(1.0, _UNEQUAL * (1 - (few + 1) / (many + 1)) / max(few, 1))

    def over_all(self, own: FloatArray, of_rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ``(…)`` the variance of the sum over seeds and rows, and its degrees of freedom.

        Args:
            own: ``(…, variances)`` that were found, or drawn.
            of_rows: ``(…, test sets)`` what their rows add.
        """
        variance, freedom = self.over_seeds(own)
        if not self.rows:
            return variance, freedom
        known = np.broadcast_to([known for _, known in self.rows], of_rows.shape)
        parts = np.concatenate([variance[..., None], of_rows], -1)
        freedoms = np.concatenate([freedom[..., None], known], -1)
        return parts.sum(-1), satterthwaite(parts, freedoms)

    @property
    def estimate(self) -> tuple[float, float]:
        """The variance of the sum and its degrees of freedom, as found."""
        variance, freedom = self.over_all(*self._found)
        return float(variance), float(freedom)

    @property
    def _found(self) -> tuple[FloatArray, FloatArray]:
        return np.array(self.variances), np.array([part for part, _ in self.rows])

    def _moderated(self, own: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
        """Return ``(…, count)`` the first variances moderated, and their degrees of freedom."""
        known, prior = np.array(self.known), self.prior
        total, runs = (own @ known)[..., None], known.sum()
        own, known = own[..., :count], known[:count]
        expected = total / runs  # as noisy as all
        if self.ratios:
            others = (total - known * own) / np.maximum(runs - known, 1)
            expected = np.maximum(expected, self.ratios[:count] * others)
        moderated = np.maximum(own, (known * own + prior * expected) / (known + prior))
        # the others lend less to one that is noisier than expected
        lent = expected / np.maximum(np.maximum(own, expected), _TINY)
        return moderated, known + prior * lent

    def drawn(self) -> tuple[FloatArray, FloatArray]:
        """Return what others like the study would estimate, were its own estimates true.

        Returns:
            ``(DRAWS,)`` variances of the sum, and their degrees of freedom.
        """
        own, of_rows = self._found
        count = len(self.known)
        true = np.maximum(self._moderated(own, count)[0], 0)
        drawn = _draws((*self.known, *(known for _, known in self.rows)))
        return self.over_all(true * drawn[:, :count], of_rows * drawn[:, count:])


@dataclass(frozen=True)
class DrawnTest:
    """The test of a weighted sum of means, as it could turn out.

    Attributes:
        error: true standard error of the sum.
        critical: ``(DRAWS,)`` sums that are just significant.
    """

    error: float
    critical: FloatArray

    def power(self, effect: float) -> float:
        """Return the chance to show a true sum, with its sign."""
        return float(special.ndtr((effect - self.critical) / self.error).mean())

    @cached_property
    def detectable(self) -> float:
        """The true sum that is shown with power ``POWER``."""
        top = float(self.critical.max()) / self.error + 10
        # in standard errors: brentq's tolerance is absolute
        found = optimize.brentq(lambda effect: self.power(effect * self.error) - POWER, 0.0, top)
        return float(found) * self.error


@lru_cache(maxsize=256)
def draw_test(noise: ContrastNoise, level: float) -> DrawnTest:
    """Return the two-sided test at a level as it could turn out, were the estimates true."""
    variance, freedom = noise.drawn()
    critical = -special.stdtrit(freedom, level / 2) * np.sqrt(variance)
    return DrawnTest(math.sqrt(noise.estimate[0]), critical)


@lru_cache(maxsize=16)
def _draws(known: tuple[float, ...]) -> FloatArray:
    """Return ``(DRAWS, variances)`` estimates of variances of 1, by their degrees of freedom.

    The same for all, so that they can be compared, and spread evenly: by a Latin hypercube.
    """
    levels = qmc.LatinHypercube(len(known), scramble=False, rng=0).random(DRAWS)
    return np.asarray(special.chdtri(known, levels) / np.array(known))
