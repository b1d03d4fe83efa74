"""How the learning rate, or another number, goes on after warm-up.

``p.share`` is the share of what follows warm-up that is done.
"""

import math
from typing import Literal

from bertlab.api.schedule import Progress, Schedule
from bertlab.errors import check_share


class Constant(Schedule):
    """1 until the end."""

    needs_end = False

    def factor(self, progress: Progress) -> float:
        """Return 1."""
        del progress
        return 1.0


class Linear(Schedule):
    """From 1 to 0 in a straight line (paper app. A.2)."""

    def factor(self, progress: Progress) -> float:
        """Return the share that is left."""
        # not 1 - share: the bits of earlier versions of bertlab
        left = progress.end - progress.done
        return max(0.0, left / max(1.0, progress.end - progress.warmup))


class Cosine(Schedule):
    """From 1 to ``final`` along half a cosine (Loshchilov and Hutter 2017, without restarts).

    Args:
        final: factor at the end.
    """

    def __init__(self, final: float = 0.0) -> None:
        check_share("schedule.final", final)
        self.final = final

    def factor(self, progress: Progress) -> float:
        """Return ``final + (1 - final) * (1 + cos(pi * share)) / 2``."""
        wave = (1 + math.cos(math.pi * progress.share)) / 2
        return self.final + (1 - self.final) * wave


class InverseSquareRoot(Schedule):
    """``sqrt(warmup / done)``, which needs no end (Vaswani et al. 2017, sec. 5.3)."""

    needs_end = False

    def factor(self, progress: Progress) -> float:
        """Return the factor; without warm-up, ``1 / sqrt(done)`` from the first step on."""
        return math.sqrt(max(1.0, progress.warmup) / max(1.0, progress.warmup, progress.done))


class WarmupStableDecay(Schedule):
    """1, and in the last part of the run down to 0 (Hu et al. 2024, Hägele et al. 2024).

    Args:
        decay_share: share of the whole run, warm-up included, that the last part takes.
        shape: of the last part: ``linear``, or ``sqrt``, ``1 - sqrt`` of the share that is done of
            it, which Hägele et al. find a little better.
    """

    def __init__(
        self, decay_share: float = 0.2, shape: Literal["linear", "sqrt"] = "linear"
    ) -> None:
        check_share("schedule.decay_share", decay_share)
        self.decay_share = decay_share
        self.shape = shape

    def factor(self, progress: Progress) -> float:
        """Return 1 or less."""
        # 100 steps, decay_share 0.2: step 80 -> 1, 90 -> 0.5, 100 -> 0
        length = min(self.decay_share * progress.end, progress.end - progress.warmup)
        left = progress.end - progress.done
        if left >= length or length <= 0:
            return 1.0
        rest = max(0.0, left) / length
        return rest if self.shape == "linear" else 1 - math.sqrt(1 - rest)
