"""Whether runs end in two groups, as runs that fail do, but too close together to tell which did.

Runs of a variant that is in two groups by chance, and all of whose runs are in one of them, look
less noisy than they are. ``benchmarks/study_calibration.py`` shows how often that makes a star.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bertlab_studies.report.failed_runs import within_groups
from bertlab_studies.report.seed_noise import ROUNDING

_DRAWS = 4000  # of studies whose runs are normal, in one group

FloatArray = NDArray[np.float64]


def one_group_p(measures: Sequence[Sequence[FloatArray]]) -> float:
    """Return the chance to see two groups as clearly as this if all runs of a variant are one.

    What tells is how much of the variation within variants is left if the runs of each are split
    in two where that explains most: 18 % in normal noise of five runs, 7 % in two groups that are
    six deviations apart. Its logarithm is summed over measures, and compared with that of normal
    noise.

    Args:
        measures: ``(runs,)`` values of each variant, by measure. Variants of fewer than three runs
            say nothing, nor does a measure without spread.
    """
    found, chance = 0.0, np.zeros(_DRAWS)
    for number, variants in enumerate(measures):
        runs = [values for values in variants if len(values) > 2]
        if all(np.ptp(values) <= ROUNDING * np.abs(values).max() for values in runs):
            continue
        total, left = (sum(each) for each in zip(*map(_split, runs), strict=True))
        found += float(np.log(max(left / total, ROUNDING)))
        chance += _normal(tuple(sorted(map(len, runs))), number)
    return float(1 + (chance <= found).sum()) / (1 + _DRAWS)


def _split(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return ``(…)`` sums of squares of ``(…, runs)`` values: in one group, and at best in two."""
    within = within_groups(np.sort(values, axis=-1))
    return within[..., 0], within.min(-1)


@lru_cache(maxsize=64)
def _normal(counts: tuple[int, ...], number: int) -> FloatArray:
    """Return ``(_DRAWS,)`` logarithms of what is left in studies of so many runs of each variant.

    Args:
        counts: of runs.
        number: of the measure; each has draws of its own.
    """
    rng = np.random.default_rng([number, *counts])
    drawn = [_split(rng.standard_normal((_DRAWS, runs))) for runs in counts]
    total, left = (np.sum(each, axis=0) for each in zip(*drawn, strict=True))
    return np.asarray(np.log(left / total))
