"""What optimisers of several parts, and those of our own, share: how a step is taken."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim import Optimizer


def loss_of(closure: Callable[[], float] | None) -> float | None:
    """Return the loss that a closure computes, with its gradients; None where there is none.

    Lightning computes the gradients of a step in there. Call it before gradients are read.
    """
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


class JoinedOptimizer(Optimizer):
    """Takes the step of each of its parts.

    Its groups are those of the parts, one part after the other, and its state is theirs: schedules,
    checkpoints and FSDP see one optimiser.

    Args:
        parts: optimisers of different parameters, at least one.
    """

    def __init__(self, parts: Sequence[Optimizer]) -> None:
        groups = [group for part in parts for group in part.param_groups]
        # no defaults: "fused" among them would mean that a step can be left out on the GPU
        super().__init__(groups, {})
        self.parts = list(parts)
        # 2 groups and 3 -> [0, 2, 5]
        self._bounds = [0]
        for part in parts:
            self._bounds.append(self._bounds[-1] + len(part.param_groups))
        self._share()

    def _share(self) -> None:
        """Let each part read and write the groups and the state of the whole."""
        for number, part in enumerate(self.parts):
            part.param_groups = self.param_groups[self._bounds[number] : self._bounds[number + 1]]
            part.state = self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what ``state_dict`` of such an optimiser returned."""
        super().load_state_dict(state_dict)  # makes new groups and a new state
        self._share()

    @torch.no_grad()
    def step(  # type: ignore[override]  # torch has one overload for each of the two cases
        self, closure: Callable[[], float] | None = None
    ) -> float | None:
        """Take a step.

        Args:
            closure: computes the gradients again and returns the loss; called once, for all parts.
        """
        loss = loss_of(closure)
        for part in self.parts:
            part.step()
        return loss
