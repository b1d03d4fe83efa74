"""Steps whose gradient is not finite are skipped; the run stops or warns."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from bertlab.errors import NumericalError, warn


class NumericalGuard:
    """Looks at the norm of each step's gradient before the optimiser does.

    On a GPU the optimiser itself leaves the step out, and the norm is read one step later: to read
    it at once would let the GPU idle until the next step has been launched.

    Attributes:
        policy: ``stop`` raises an error, ``skip`` warns.
    """

    def __init__(self) -> None:
        self.policy: Literal["stop", "skip"] = "stop"
        self._pending: Callable[[], None] | None = None  # judges the last step

    def check(self, norm: Tensor, optimizer: Optimizer, words: Callable[[float], str]) -> None:
        """Let a step be taken only if its gradient is finite."""
        self.finish()  # first the step before, whose norm has arrived by now
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
