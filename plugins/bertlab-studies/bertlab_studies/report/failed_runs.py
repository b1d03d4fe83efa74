"""Which runs failed to learn, decided from the runs of all variants together.

A fine-tuning on few rows sometimes ends at the majority class (Devlin et al. 2018, sec. 5.1;
Mosbach et al. 2021). Results of a variant are then in two groups, those that learned and those that
failed, and half of the runs may be in either: no median of the variant tells which is which. What
all variants share is the spread within a group, so a variant is split in two where its groups are
far apart in deviations of that common spread.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from bertlab_studies.report.seed_noise import ROUNDING
from bertlab_studies.study_scores import Measure, StudyScores

FAR = 6.0  # deviations between the means of a variant's two groups
GAP = 3.0  # deviations between the worst run that learned and the best that failed
_RUNS = 8  # below which the common spread is not known well enough
_OWN = 5  # runs of a variant from which its own spread counts as well
_LEARNED = 0.2  # share of a variant's runs that are a group by themselves, if two or more
_FREEDOM = 10  # degrees of freedom below which groups have to be further apart
_CHANCE = 0.01  # below which a variant whose runs are all low is worse, not unlucky
_QUARTILE = 0.4506  # of the difference of two standard normal numbers
_ROUNDS = 10

FloatArray = NDArray[np.float64]


def within_groups(values: FloatArray) -> FloatArray:
    """Return sums of squares within two groups of ascending values.

    Args:
        values: ``(…, runs)``.

    Returns:
        ``(…, runs)``: if the lower group has 0, 1, … runs.
    """
    # values [0, 1, 9]: 48.7 in one group; 32 with 1 below, 0.5 with 2
    own = values - values.mean(-1, keepdims=True)
    total = (own**2).sum(-1, keepdims=True)
    lower = np.arange(1, values.shape[-1])
    # the mean of k lower runs is S/k, of the others -S/(n - k), S being the sum of the lower ones
    between = own.cumsum(-1)[..., :-1] ** 2 * (1 / lower + 1 / (values.shape[-1] - lower))
    return np.asarray(np.maximum(np.concatenate([total, total - between], -1), 0.0))


@dataclass(frozen=True)
class _Runs:
    """The runs of a variant, and all ways to split them into a lower and an upper group.

    Attributes:
        values: ``(runs,)`` from worst to best.
    """

    values: FloatArray

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def within(self) -> FloatArray:
        """``(runs,)`` sums of squares within groups, if the lower has 0, 1, … runs."""
        return within_groups(self.values)

    @cached_property
    def apart(self) -> FloatArray:
        """``(runs − 1,)`` differences of the groups' means, if the lower has 1, 2, … runs."""
        lower, upper = self._counts
        sums = self.values.cumsum()
        return np.asarray((sums[-1] - sums[:-1]) / upper - sums[:-1] / lower)

    @property
    def _counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """``(runs − 1,)`` runs of the lower and of the upper group: [1, 2] and [2, 1] of three."""
        lower = np.arange(1, len(self))
        return lower, len(self) - lower

    def lower(self, scale: float) -> int:
        """Return the size of the lower group; 0 if the runs are one group.

        Args:
            scale: common deviation within a group.
        """
        if len(self) < 2:
            return 0
        spread = np.full(len(self) - 1, scale)
        if len(self) >= _OWN:  # a noisy variant is not two groups
            spread = np.maximum(spread, np.sqrt(self.within[1:] / (len(self) - 2)))
        gaps = np.diff(self.values)
        is_far = (self.apart > FAR * spread) & (gaps > GAP * spread)
        return int(np.argmax(np.where(is_far, gaps, -1.0))) + 1 if is_far.any() else 0


def failed_runs(scores: StudyScores, measure: Measure) -> dict[str, set[int]]:
    """Return the seeds of each variant that failed to learn a measure.

    Runs that are degenerate, that have no finite value, or that are in the lower of two groups. A
    pre-training is one of them if one of its fine-tunings is degenerate.
    """
    sign = 1 if measure.higher_is_better else -1
    found, kept = {}, {}
    for variant in scores.variants:
        cell = scores.cell(variant, measure)
        broken = {seed for seed, value in cell.values.items() if not math.isfinite(value)}
        found[variant] = set(cell.degenerate) | broken
        kept[variant] = {
            seed: sign * value for seed, value in cell.values.items() if seed not in found[variant]
        }
    ends = lower_ends({name: np.array(list(each.values())) for name, each in kept.items()})
    for variant, end in ends.items():
        found[variant] |= {seed for seed, value in kept[variant].items() if value <= end}
    return found


def lower_ends(values: Mapping[str, FloatArray]) -> dict[str, float]:
    """Return the best value of each variant's lower group, of the variants that have one.

    1. The deviation within a group is common to all variants: at first from the closest quarter of
       all pairs of unequal values of one variant (as Qn of Rousseeuw and Croux 1993), then from the
       groups, until both agree.
    2. A variant is split where its groups are ``FAR`` apart with a ``GAP`` between them.
    3. An upper group of one run, or of less than ``_LEARNED``, may be luck. It is one if another
       variant is split at the same height, or if the other variants' runs are at its height.
    4. A variant whose runs are all below the height where others are split has failed in all, if
       at the others' rate of failures that is no wonder.

    Args:
        values: by variant, ``(runs,)``; higher is better.
    """
    runs = {name: _Runs(np.sort(each)) for name, each in values.items() if len(each)}
    if sum(map(len, runs.values())) < _RUNS:
        return {}
    scale, below = _common_groups(list(runs.values()))
    if not scale:
        return {}
    split = dict(zip(runs, below, strict=True))
    bounds = {name: _bounds(runs[name], n) for name, n in split.items() if n}
    found = {
        name: bound
        for name, bound in bounds.items()
        if _is_group(runs[name], split[name]) or _as_others(name, bound, runs, split, scale)
    }
    if len(bounds) > 1 and _height(bounds) is not None:  # all are split at one height
        found = bounds
    ends = {name: worst for name, (worst, _) in found.items()}
    height = _height(found)
    if height is None:
        return ends
    failed = sum(split[name] for name in found)
    for name, each in runs.items():
        if name not in found and each.values[-1] < height:
            rate = (failed + 1) / (sum(map(len, runs.values())) - len(each) + 2)
            if rate ** len(each) > _CHANCE:
                ends[name] = float(each.values[-1])
    return ends


def _common_groups(runs: Sequence[_Runs]) -> tuple[float, list[int]]:
    """Return the deviation within groups, and the size of each variant's lower group."""
    # runs that give one class for every row have one value, which says nothing of the spread
    pairs = np.concatenate([pdist(np.unique(each.values)[:, None]) for each in runs])
    below, known = [0] * len(runs), sum(len(each) - 1 for each in runs)
    if known < 1 or not len(pairs):
        return 0.0, below
    largest = max(float(np.abs(each.values).max()) for each in runs)
    few = max(1.0, _FREEDOM / known)
    # if half of the runs fail, half of the pairs are of one group: twice the deviation
    scale = float(np.quantile(pairs, 0.25)) / _QUARTILE / 2
    for _ in range(_ROUNDS):
        if scale <= ROUNDING * largest:
            return 0.0, below
        last, below = below, [each.lower(few * scale) for each in runs]
        freedom = sum(len(each) - (2 if n else 1) for each, n in zip(runs, below, strict=True))
        if freedom < 1:
            return 0.0, below
        squares = sum(float(each.within[n]) for each, n in zip(runs, below, strict=True))
        scale = math.sqrt(squares / freedom)
        if below == last:
            break
    return scale, below


def _bounds(runs: _Runs, below: int) -> tuple[float, float]:
    """Return the best run of the lower group and the worst of the upper one."""
    return float(runs.values[below - 1]), float(runs.values[below])


def _is_group(runs: _Runs, below: int) -> bool:
    """Whether the upper runs are a group by themselves."""
    return len(runs) - below >= max(2, _LEARNED * len(runs))


def _as_others(
    name: str,
    bound: tuple[float, float],
    runs: Mapping[str, _Runs],
    split: Mapping[str, int],
    scale: float,
) -> bool:
    """Whether the upper runs are where the other variants' runs are, and the lower ones below."""
    others = [float(runs[other].values[split[other]]) for other in runs if other != name]
    worst = min(others, default=math.inf) - GAP * scale
    return bound[0] < worst < bound[1]


def _height(bounds: Mapping[str, tuple[float, float]]) -> float | None:
    """Return where all splits are; None if there is none, or they are at different heights."""
    if not bounds:
        return None
    worst = max(low for low, _ in bounds.values())
    best = min(high for _, high in bounds.values())
    return (worst + best) / 2 if worst < best else None
