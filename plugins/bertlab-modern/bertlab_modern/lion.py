"""Lion: the sign of a momentum."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from bertlab.api import OptimizerRecipe, ParameterGroup
from bertlab.extend import check_betas
from bertlab_modern.stepping import loss_of


class Lion(OptimizerRecipe):
    """Steps of one size for every weight, in the direction of a momentum (Chen et al. 2023).

    It wants a learning rate 3 to 10 times smaller than AdamW's, and a weight decay larger by as
    much (Chen et al. 2023, sec. 5).

    Args:
        betas: share of the momentum in the direction of a step, and decay rate of the momentum.
    """

    def __init__(self, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        check_betas(betas)
        self.betas = betas

    def build(
        self, groups: Sequence[ParameterGroup], learning_rate: float, fused: bool
    ) -> Optimizer:
        """Return Lion over the groups as they are; it has no fused kernel."""
        del fused
        settings = [group.settings() for group in groups]
        return LionOptimizer(settings, learning_rate, self.betas)


class LionOptimizer(Optimizer):
    """Algorithm 2 of Chen et al. 2023, over all tensors of a group at once.

    Args:
        groups: with ``params``, and perhaps ``lr`` and ``weight_decay``.
        lr: learning rate.
        betas: as in :class:`Lion`.
        weight_decay: decoupled.
    """

    def __init__(
        self,
        groups: Sequence[dict[str, object]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(  # type: ignore[override]  # torch has one overload for each of the two cases
        self, closure: Callable[[], float] | None = None
    ) -> float | None:
        """Take a step; ``closure`` computes the gradients again and returns the loss."""
        loss = loss_of(closure)
        for group in self.param_groups:
            trained: list[Tensor] = [each for each in group["params"] if each.grad is not None]
            if not trained:
                continue
            gradients = [each.grad for each in trained if each.grad is not None]
            momenta = [self._momentum(each) for each in trained]
            rate, (direction, memory) = group["lr"], group["betas"]
            # lerp(m, g, 1 - b) = b m + (1 - b) g
            steps = torch._foreach_lerp(momenta, gradients, 1 - direction)
            torch._foreach_sign_(steps)
            torch._foreach_mul_(trained, 1 - rate * group["weight_decay"])
            torch._foreach_add_(trained, steps, alpha=-rate)
            torch._foreach_lerp_(momenta, gradients, 1 - memory)
        return loss

    def _momentum(self, parameter: Tensor) -> Tensor:
        """Return the momentum of a parameter, ``exp_avg`` in checkpoints; 0 at first."""
        state = self.state[parameter]
        if not state:
            state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        momentum: Tensor = state["exp_avg"]
        return momentum
