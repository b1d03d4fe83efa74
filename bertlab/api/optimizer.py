"""The contracts of an optimiser, and of a schedule: how a number, such as its rate, changes."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch import nn
from torch.optim import Optimizer

from bertlab.errors import PluginError

if TYPE_CHECKING:  # slow
    from lightning.pytorch import Callback

ParameterKind = Literal["embedding", "matrix", "vector", "head"]


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that learn at one rate and decay alike; bertlab makes them for every optimiser.

    Attributes:
        parameters: that are trained; there may be none.
        kinds: of each of them. ``embedding``: a table of vectors. ``matrix``: of the encoder, two
            dimensions, neither embedding nor bias. ``head``: the same of a task. ``vector``: all
            others: biases, weights of norms, what has another number of dimensions.
        learning_rate: peak; after ``layer_decay`` it differs from the optimiser's.
        weight_decay: 0 for biases and norms.
        decays: whether weight decay is meant for it: False for biases and norms, whatever
            :attr:`weight_decay` is.
        names: of each of the parameters in the module, such as ``encoder.layers.0.norm.weight``.
    """

    parameters: Sequence[nn.Parameter]
    kinds: Sequence[ParameterKind]
    learning_rate: float
    weight_decay: float
    decays: bool = True
    names: Sequence[str] = ()

    def of_kinds(self, *kinds: ParameterKind) -> "ParameterGroup":
        """Return the group with its parameters of some kinds only."""
        kept = [place for place, kind in enumerate(self.kinds) if kind in kinds]
        return replace(
            self,
            parameters=[self.parameters[place] for place in kept],
            kinds=[self.kinds[place] for place in kept],
            names=[self.names[place] for place in kept if self.names],
        )

    def settings(self) -> dict[str, Any]:
        """Return the group as ``torch.optim`` takes it."""
        return {
            "params": list(self.parameters),
            "weight_decay": self.weight_decay,
            "lr": self.learning_rate,
        }


class OptimizerRecipe(ABC):
    """Settings of an optimiser, and how it is made of them.

    The arguments of ``__init__`` are the user's settings. They become config keys beside those
    that every optimiser has (``learning_rate``, ``weight_decay``, ``layer_decay`` …), so that none
    of them may be called as one of those.

    Attributes:
        has_weight_decay: the optimiser reads ``weight_decay`` of its groups; where it does not, a
            config that asks for weight decay is refused.
        needs_closure: ``step(closure)`` calls the closure more than once, to have the gradient at
            other weights too (SAM). The closure clears, computes and clips it, with the same
            dropout if torch's generators are set back. A step is then one micro-batch, and fp16
            is refused.
    """

    has_weight_decay: ClassVar[bool] = True
    needs_closure: ClassVar[bool] = False

    @abstractmethod
    def build(
        self, groups: Sequence[ParameterGroup], learning_rate: float, fused: bool
    ) -> Optimizer:
        """Return an optimiser of all parameters of the groups.

        Its ``param_groups`` have the rates of the given groups: schedules multiply them. All that
        it remembers is in its ``state_dict``. A parameter without a gradient stays as it is: steps
        whose gradient is not finite are taken that way.

        Args:
            groups: all that is trained.
            learning_rate: the peak that ``model.optimizer.learning_rate`` gives.
            fused: whether a fused kernel can be used, if there is one; False under fp16.

        Raises:
            ConfigError: the settings do not suit the parameters.
        """

    def callbacks(self) -> "Sequence[Callback]":
        """Return Lightning callbacks that every run with this optimiser gets; none by default.

        ``bertlab_modern.modes.OptimizerModes()`` is for optimisers that evaluate other weights than
        they train, and have ``train()`` and ``eval()`` to go from these to those (schedule-free).
        """
        return ()


@dataclass(frozen=True)
class Progress:
    """How far a run is, in optimiser steps; in seconds where a time ends the run.

    Attributes:
        done: steps that are done.
        end: steps of the whole run; infinite if nothing is known to end it.
        warmup: steps of warm-up, which are a part of it.
        scores: what ``monitor`` of the schedule was at each evaluation so far, in order.
    """

    done: float
    end: float
    warmup: float = 0.0
    scores: Sequence[float] = ()

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
        monitor: the metric of evaluations that the factor goes by, from ``__init__`` on, or
            ``auto`` for the one that chooses the best checkpoint; None: it goes by steps alone.
        mode: which end of that is better, ``min`` or ``max``; ``auto``: what the metric says,
            which is then there instead.
    """

    needs_end: ClassVar[bool] = True
    monitor: str | None = None
    mode: str = "auto"

    @abstractmethod
    def factor(self, progress: Progress) -> float:
        """Return the factor, finite and 0 or more; a function of ``progress`` alone.

        Args:
            progress: after warm-up, and perhaps after the end; with ``scores`` of an evaluation
                from the next step on.
        """


def factor_at(schedule: Schedule, progress: Progress) -> float:
    """Return the factor at any moment: during warm-up, it rises linearly from 0 to 1."""
    # warm-up 10 of 100, linear decay: step 5 -> 0.5, 10 -> 1.0, 55 -> 0.5, 100 -> 0.0
    if progress.done < progress.warmup:
        return progress.done / progress.warmup
    factor = schedule.factor(progress)
    if factor is None or not 0 <= factor < math.inf:
        told = f"{type(schedule).__name__}.factor(): found {factor} at step {progress.done}"
        raise PluginError(f"{told}, expected a number of 0 or more")
    return factor
