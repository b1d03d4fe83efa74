"""Schedules beside BERT's: half a cosine, inverse square root, warmup-stable-decay."""

import math
from typing import Literal

from bertlab import check_share
from bertlab.api import Progress, Schedule


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
