"""Schedules beside BERT's: cosine, inverse square root, warmup-stable-decay, plateau."""

import math
from typing import Literal

from bertlab import check_at_least, check_choice, check_share
from bertlab.api import Progress, Schedule

DecayShape = Literal["linear", "sqrt"]
Mode = Literal["auto", "min", "max"]


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

    def __init__(self, decay_share: float = 0.2, shape: DecayShape = "linear") -> None:
        check_share("schedule.decay_share", decay_share)
        check_choice("schedule.shape", shape, DecayShape)
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


class Plateau(Schedule):
    """Lower where a metric of the evaluations has stopped improving, as torch's ReduceLROnPlateau.

    Args:
        monitor: the metric; ``auto``: what chooses the best checkpoint.
        mode: which end of it is better, if it does not say so itself: ``min`` or ``max``.
        reduce: what the factor is multiplied by.
        patience: evaluations without improvement before that.
        threshold: share of the best by which another has to be better.
        cooldown: evaluations after that which do not count.
        final: smallest factor.
    """

    needs_end = False

    def __init__(
        self,
        monitor: str = "auto",
        mode: Mode = "auto",
        reduce: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        cooldown: int = 0,
        final: float = 0.0,
    ) -> None:
        check_choice("model.optimizer.schedule.mode", mode, Mode)
        for name, share in (("reduce", reduce), ("threshold", threshold), ("final", final)):
            check_share(f"model.optimizer.schedule.{name}", share)
        for name, count in (("patience", patience), ("cooldown", cooldown)):
            check_at_least(f"model.optimizer.schedule.{name}", count, 0)
        self.monitor, self.mode = monitor, mode
        self.reduce, self.patience, self.threshold = reduce, patience, threshold
        self.cooldown, self.final = cooldown, final

    def factor(self, progress: Progress) -> float:
        """Return the factor after all evaluations so far."""
        # patience 1: losses 3, 2, 2, 2 -> 1, 1, 1, 0.1
        factor, bad, cooling = 1.0, 0, 0
        best = -math.inf if self.mode == "max" else math.inf
        for score in progress.scores:
            if self.mode == "max":
                improves = score > best * (1 + self.threshold)
            else:
                improves = score < best * (1 - self.threshold)
            best, bad = (score, 0) if improves else (best, bad + 1)
            if cooling > 0:
                cooling, bad = cooling - 1, 0
            if bad > self.patience:
                factor, cooling, bad = max(factor * self.reduce, self.final), self.cooldown, 0
        return factor
