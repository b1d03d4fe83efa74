"""Silent corruption: whether memory and processor gave what they should, found by computing again.

On a CPU a step is a function of weights, moments, seeds and sequences, to the last bit. So a
step that is computed again from a copy has to end with the same bits. That is done every N steps,
and from the last copy on where the loss jumps or a weight leaps. Between two steps nothing may
change at all: sums over the bits of weights and moments are compared. For these and for leaps the
audit looks as often as half a percent of the time allows.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bertlab.api import Task
from bertlab.extend import free_memory, warn
from bertlab_guard.errors import CorruptionError
from bertlab_guard.loss_watch import LOSS_WINDOW, jump_above

_WATCH_SHARE = 0.005  # of the time, for sums
_LEAP = 10.0  # in learning rates a step
_SHOWN = 5  # names in a message


@dataclass(frozen=True)
class Steps:
    """How the steps of a run are computed; the same twice over.

    Attributes:
        module: with the weights.
        optimizer: with the moments.
        losses: yields the loss of each micro-batch of a step, by its number, scaled so that
            gradients add up to the step's.
        clip: clips the gradient; False if the step is not to be taken.
        after_step: what tasks move themselves after a step, counted from 1.
    """

    module: nn.Module
    optimizer: Optimizer
    losses: Callable[[int], Iterator[Tensor]]
    clip: Callable[[], bool]
    after_step: Callable[[int], None]

    def trained(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights that the optimiser moves, and their moments, with their names."""
        moved = self._moved()
        for name, weight in self.module.named_parameters():
            if id(weight) in moved:
                yield name, weight.data
                for key, moment in self.optimizer.state.get(weight, {}).items():
                    if isinstance(moment, Tensor):
                        yield f"{name}, {key}", moment

    def others(self) -> Iterator[tuple[str, Tensor]]:
        """Yield what a plugin may move itself, as an EMA teacher: other weights, and buffers."""
        moved = self._moved()
        for name, each in (*self.module.named_parameters(), *self.module.named_buffers()):
            if id(each) not in moved:
                yield name, each.data

    def _moved(self) -> set[int]:
        """Return which parameters the optimiser moves, as :func:`id` tells them apart."""
        return {id(each) for group in self.optimizer.param_groups for each in group["params"]}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield all that a step begins with."""
        yield from self.trained()
        yield from self.others()

    def kept(self) -> "_Kept":
        """Return what the optimiser keeps: tensors themselves, and copies of counts and others."""
        groups = [_numbers_copied(each) for each in self.optimizer.param_groups]
        return groups, {key: _numbers_copied(its) for key, its in self.optimizer.state.items()}

    def put_back(self, kept: "_Kept", tensors: dict[str, Tensor]) -> None:
        """Let the optimiser keep what it kept; give each tensor the content that it had."""
        groups, state = kept
        for group, its in zip(self.optimizer.param_groups, groups, strict=True):
            _refill(group, its)
        for key in [*self.optimizer.state]:
            if key not in state:
                del self.optimizer.state[key]
        for key, its in state.items():
            _refill(self.optimizer.state[key], its)
        for name, each in self.tensors():
            each.copy_(tensors[name])

    def settings(self) -> "_Settings":
        """Return what a step is taken with: rates, and whatever else changes by a schedule."""
        groups = [_numbers_copied(group) for group in self.optimizer.param_groups]
        for group in groups:
            del group["params"]
        tasks = [each for each in self.module.modules() if isinstance(each, Task)]
        scheduled = [
            (task, {name: getattr(task, name) for name in task.scheduled}) for task in tasks
        ]
        return groups, scheduled

    def take(self, step: int, settings: "_Settings") -> None:
        """Compute a step with its settings and take it."""
        groups, scheduled = settings
        for task, values in scheduled:
            for name, value in values.items():
                setattr(task, name, value)
        self.optimizer.zero_grad(set_to_none=True)
        for loss in self.losses(step):
            loss.backward()  # type: ignore[no-untyped-call]
        taken = self.clip()
        for group, its in zip(self.optimizer.param_groups, groups, strict=True):
            group.update(_numbers_copied(its))
        if taken:
            self.optimizer.step()
            self.after_step(step + 1)


# settings of each group, and what is remembered of each weight
_Kept = tuple[list[dict[str, Any]], dict[Any, dict[str, Any]]]
# of each group without its weights, and the numbers of tasks that change over a run
_Settings = tuple[list[dict[str, Any]], list[tuple[Task, dict[str, Any]]]]


def _numbers_copied(mapping: dict[str, Any]) -> dict[str, Any]:
    return {
        key: each if key == "params" or isinstance(each, Tensor) else deepcopy(each)
        for key, each in mapping.items()
    }


def _refill(mapping: dict[str, Any], kept: dict[str, Any]) -> None:
    mapping.clear()
    mapping.update(_numbers_copied(kept))


@dataclass
class _Copy:
    step: int  # the first one after it
    tensors: dict[str, Tensor]
    kept: _Kept
    replayed: bool = False  # as a whole


class StepAudit:
    """Computes steps again and compares; called at the places of a training step by name.

    Args:
        steps: that are taken.
        every: steps from one that is computed again to the next.
    """

    def __init__(self, steps: Steps, every: int) -> None:
        self.steps = steps
        self.every = every
        self.watch_every = 1  # steps between two looks at the sums
        self.is_deterministic = True
        self._copy: _Copy | None = None
        self._settings: dict[int, _Settings] = {}  # of each step since the copy
        self._losses: deque[float] = deque(maxlen=LOSS_WINDOW)
        self._sums: dict[str, int] = {}
        self._began = math.nan

    def begin(self, step: int) -> None:
        """Note where a step, counted from 0, begins; copy what it begins with if it is due."""
        self._began = time.monotonic()
        if step and step % self.every == 0 and self.is_deterministic:
            self._copy, self._settings = None, {}
            if self._has_room():
                self._copy = _Copy(step, self._clones(), self.steps.kept())

    def before_update(self, step: int) -> None:
        """Compare weights and moments with what the last step left.

        Raises:
            CorruptionError: they changed meanwhile.
        """
        if self._copy is not None:
            self._settings[step] = self.steps.settings()
        if self._sums:
            found = bit_sums(self.steps)
            changed = [name for name, value in self._sums.items() if found.get(name) != value]
            self._sums = {}
            if changed:
                raise CorruptionError(
                    f"step {step + 1}: changed in memory since the step before: {_named(changed)}"
                )

    def end(self, step: int, loss: float) -> None:
        """Compute the step again if it is the first after a copy, and all since it at a jump.

        Raises:
            CorruptionError: bits differ.
        """
        copy = self._copy
        jumped = jump_above(self._losses, loss) is not None or not math.isfinite(loss)
        self._losses.append(loss)
        watches = step % self.watch_every == 0
        if copy is not None:
            strange = jumped or (watches and self._leapt(copy))
            if copy.step == step or (strange and not copy.replayed):
                copy.replayed = strange
                self._compare(copy, step)
        if watches:
            started = time.monotonic()
            self._sums = bit_sums(self.steps)
            spent = 2 * (time.monotonic() - started)  # once more before the next update
            share = spent / max(started - self._began, 1e-9)
            self.watch_every = max(1, math.ceil(share / _WATCH_SHARE))

    def _leapt(self, copy: _Copy) -> bool:
        """Whether a weight lies further from the copy than learning rates let one think."""
        # AdamW moves a weight by about its rate a step; what is strange is computed again, so no
        # other optimiser is wronged
        rates = (max(group["lr"] for group in groups) for groups, _ in self._settings.values())
        bound = _LEAP * sum(rates)
        for name, weight in self.steps.module.named_parameters():
            if weight.requires_grad and weight.numel():
                moved = float((weight.data - copy.tensors[name]).abs().max())
                if not moved <= bound:  # NaN is not either
                    return True
        return False

    def _compare(self, copy: _Copy, step: int) -> None:
        before, kept = self._clones(), self.steps.kept()
        gradients = [each.grad for each in self.steps.module.parameters()]
        self._replay(copy, step)
        changed = self._differing(before)
        again = self._clones() if changed else {}
        if changed:
            self._replay(copy, step)
        moved = self._differing(before, self.steps.others())  # by a callback or an evaluation, say
        if changed and (moved or self._differing(again)):
            warn(
                "steps are not the same twice over (a plugin that draws from a generator of its "
                "own?); whether memory and processor are sound is not looked at: check_every"
            )
            self.is_deterministic, self._copy, changed = False, None, []
        self.steps.put_back(kept, before)
        for weight, gradient in zip(self.steps.module.parameters(), gradients, strict=True):
            weight.grad = gradient
        if changed:
            steps = f"step {step + 1}" if copy.step == step else f"steps {copy.step + 1}-{step + 1}"
            changed.sort(key=lambda name: -_distance(before[name], again[name]))
            raise CorruptionError(
                f"{steps}: computed again, other bits came out, twice the same: {_named(changed)}"
            )

    def _replay(self, copy: _Copy, last: int) -> None:
        """Compute the steps up to ``last`` again, from the copy on."""
        self.steps.put_back(copy.kept, copy.tensors)
        for step in range(copy.step, last + 1):
            self.steps.take(step, self._settings[step])

    def _clones(self) -> dict[str, Tensor]:
        return {name: each.clone() for name, each in self.steps.tensors()}

    def _has_room(self) -> bool:
        """Whether memory has room for two copies more: that to begin with, and one to compare."""
        free = free_memory(torch.device("cpu"))
        size = sum(each.nbytes for _, each in self.steps.tensors())
        return free is None or free > 3 * size  # and something is left

    def _differing(
        self, tensors: dict[str, Tensor], now: Iterator[tuple[str, Tensor]] | None = None
    ) -> list[str]:
        """Return which of the trained tensors have other bits; NaN is equal to itself."""
        pairs = ((name, each, tensors[name]) for name, each in now or self.steps.trained())
        return [name for name, each, its in pairs if not torch.equal(_bytes(each), _bytes(its))]


def bit_sums(steps: Steps) -> dict[str, int]:
    """Return a sum over the bits of each trained tensor, modulo 2^64; any one flip changes it."""
    return {name: _bit_sum(each) for name, each in steps.trained()}


def _bit_sum(tensor: Tensor) -> int:
    content = _bytes(tensor).numpy()
    whole = len(content) // 8 * 8
    # 8 bytes at a time, then what is left
    words, rest = content[:whole].view(np.uint64), content[whole:]
    return int(words.sum(dtype=np.uint64)) ^ int.from_bytes(rest.tobytes(), "little")


def _distance(one: Tensor, other: Tensor) -> float:
    """Return how far two tensors are apart, as a share of the larger one; 0 if that is no number.

    What was hit is furthest; a clipped norm spreads a little of it over all the others.
    """
    one, other = one.double(), other.double()
    share = float((one - other).abs().max() / torch.maximum(one.abs(), other.abs()).max())
    return share if math.isfinite(share) else 0.0


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().reshape(-1).view(torch.uint8)


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{'; '.join(names[:_SHOWN])}{more}"
