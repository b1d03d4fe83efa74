"""The contract of a schedule: how a number, such as the learning rate, changes over a run."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Progress:
    """How far a run is, in optimiser steps; in seconds where a time ends the run.

    Attributes:
        done: steps that are done.
        end: steps of the whole run; infinite if nothing is known to end it.
        warmup: steps of warm-up, which are a part of it.
    """

    done: float
    end: float
    warmup: float = 0.0

    @property
    def share(self) -> float:
        """Share of what follows warm-up that is done, from 0 to 1; 0 in an endless run."""
        # warm-up 10 of 110: step 5 -> 0, 35 -> 0.25, 110 and later -> 1
        past = max(0.0, self.done - self.warmup)
        if past == 0 or math.isinf(self.end):
            return 0.0
        # a run that is all warm-up: not 0/0
        return min(1.0, past / max(1.0, self.end - self.warmup))


class Schedule(ABC):
    """A factor over a run: 1 where warm-up ends, then what the schedule makes of it.

    The arguments of ``__init__`` are the user's settings and become config keys. A schedule keeps
    no state: a run that is resumed asks for the same factors.

    Attributes:
        needs_end: the factor depends on where the run ends; a run without an end is then refused.
    """

    needs_end: ClassVar[bool] = True

    @abstractmethod
    def factor(self, progress: Progress) -> float:
        """Return the factor, finite and 0 or more; a function of ``progress`` alone.

        Args:
            progress: after warm-up, and perhaps after the end.
        """


def factor_at(schedule: Schedule, progress: Progress) -> float:
    """Return the factor at any moment: during warm-up, it rises linearly from 0 to 1."""
    # warm-up 10 of 100, linear decay: step 5 -> 0.5, 10 -> 1.0, 55 -> 0.5, 100 -> 0.0
    if progress.done < progress.warmup:
        return progress.done / progress.warmup
    return schedule.factor(progress)
