"""The loss of an optimiser step, how it is computed, and what happens where it is not finite.

A step's loss is each task's mean over its predictions in all of its batches. 8 sequences, mlm and
nsp: sums of 40 and 8 losses, divided by the counts of the whole step (120 and 24 in a window of
three such batches): the shares of the three batches add up to the step's mean.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from bertlab.api.batch import PackedBatch
from bertlab.api.task import TaskLoss
from bertlab.errors import NumericalError, warn

if TYPE_CHECKING:
    from bertlab.model.module import BertModule


class Passes:
    """Forward and backward pass over a micro-batch of training, one operation after the other.

    A package may set ``BertModule.passes`` to a subclass that computes the same otherwise.
    """

    def begin(self, module: "BertModule") -> None:
        """Take note that a training begins; the module is on its device."""

    def shares(self, module: "BertModule", batch: PackedBatch, batch_idx: int) -> list[Tensor]:
        """Return the batch's share of each task's mean loss in its step, scalars."""
        del batch_idx
        return module.shares(batch)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of the scaled sum of the shares to that of the step."""
        loss.backward()  # type: ignore[no-untyped-call]

    def zero_gradients(self, optimizer: Optimizer) -> None:
        """Forget the gradient of the last step."""
        optimizer.zero_grad(set_to_none=True)


class NumericalGuard:
    """Looks at the norm of each step's gradient before the optimiser does.

    On a GPU the optimiser itself leaves the step out, and the norm is read one step later: to read
    it at once would let the GPU idle until the next step has been launched.
    """

    def __init__(self) -> None:
        self.policy: Literal["stop", "skip"] = "stop"  # raise an error, or warn
        self.was_taken = True  # the last step, once finish() has judged it
        self._pending: Callable[[], None] | None = None  # judges the last step

    def check(self, norm: Tensor, optimizer: Optimizer, words: Callable[[float], str]) -> None:
        """Let a step be taken only if its gradient is finite."""
        self.finish()  # first the step before, whose norm has arrived by now
        self.was_taken = True
        if not _reads_later(norm, optimizer):
            if not norm.isfinite():
                self._judge(float(norm), words)
                optimizer.zero_grad(set_to_none=True)  # AdamW passes over what has no gradient
            return
        # fused AdamW reads this on the GPU: 1.0 leaves weights, moments and step count as they are
        optimizer.found_inf = (~norm.isfinite()).float()  # type: ignore[attr-defined]  # AdamW's
        read = _read_later(norm)
        self._pending = lambda: self._judge(read(), words)

    def finish(self) -> None:
        """Judge the last step, before what it left is saved, evaluated or gone on from."""
        # taken out before it may raise: who asks again does not hear of it twice
        judge, self._pending = self._pending, None
        if judge is not None:
            judge()

    def _judge(self, norm: float, words: Callable[[float], str]) -> None:
        if math.isfinite(norm):
            return
        self.was_taken = False
        if self.policy == "stop":
            raise NumericalError(f"{words(norm)}; the step was not taken")
        warn(f"{words(norm)}; skipped")


def _reads_later(norm: Tensor, optimizer: Optimizer) -> bool:
    """Whether an optimiser can leave a step out by itself, and reading its norm would wait."""
    # under FSDP it is a DTensor: its value is spread over the processes and has to be gathered
    return type(norm) is Tensor and norm.is_cuda and bool(optimizer.defaults.get("fused"))


def _read_later(norm: Tensor) -> Callable[[], float]:
    """Start to copy a GPU's scalar; return what waits for that alone, and returns the number."""
    copied = torch.empty_like(norm, device="cpu", pin_memory=True)  # unpinned, the copy waits
    copied.copy_(norm, non_blocking=True)
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record()  # behind the copy in the GPU's queue

    def read() -> float:
        arrived.synchronize()
        return float(copied)

    return read


def shares_of(losses: Sequence[TaskLoss], counts: Tensor) -> list[Tensor]:
    """Return the losses of a batch over the ``(tasks,)`` counts of the step, float32 scalars."""
    return [
        loss.sum.float() / count.clamp(min=1)  # nothing to predict: 0 / 1, not NaN
        for loss, count in zip(losses, counts, strict=True)
    ]


def global_counts(
    batch: PackedBatch, names: Sequence[str], device: torch.device, world_size: int
) -> Tensor:
    """Return ``(tasks,)`` int64 predictions of each task in the step, over all devices."""
    counts = torch.tensor([batch.window_counts[name] for name in names])
    if device.type == "cuda":
        counts = counts.pin_memory()  # so that nothing waits for the copy
    counts = counts.to(device, non_blocking=True)
    if world_size > 1:
        torch.distributed.all_reduce(counts)  # here 40, there 44: 84 on both
    return counts


class StepLoss:
    """Adds up the shares of a step's batches, by task."""

    def __init__(self) -> None:
        self.by_task: dict[str, Tensor] = {}

    def add(self, names: Sequence[str], shares: Sequence[Tensor], is_first: bool) -> None:
        """Add a batch's shares; the first of a step begins anew."""
        if is_first:
            self.by_task = {}
        for name, share in zip(names, shares, strict=True):
            self.by_task[name] = self.by_task.get(name, 0) + share.detach()

    def over_devices(self, world_size: int) -> Tensor:
        """Return the ``(tasks,)`` losses of a step that is whole."""
        values = torch.stack(list(self.by_task.values()))  # (tasks,): one exchange for all
        if world_size > 1:
            torch.distributed.all_reduce(values)
        return values

    def total(self) -> float:
        """Return the loss of the last step, in this process."""
        return float(sum(self.by_task.values()))
