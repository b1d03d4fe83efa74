"""Sharpness-aware minimisation: the gradient of the worst weights nearby."""

from collections.abc import Callable, Sequence

import torch
from torch.optim import AdamW, Optimizer

from bertlab import check_at_least
from bertlab.api import OptimizerRecipe, ParameterGroup
from bertlab.extend import check_betas, check_eps
from bertlab_modern.stepping import JoinedOptimizer, loss_of


class Sam(OptimizerRecipe):
    """AdamW with the gradient at ``w + rho g / |g|`` (Foret et al. 2021), of the same dropout.

    A step takes two passes. The loss that is logged is that of the second.

    Args:
        rho: how far the weights are moved for the gradient.
        betas: decay rates of the moment estimates.
        eps: term that is added to the denominator.
    """

    needs_closure = True

    def __init__(
        self, rho: float = 0.05, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6
    ) -> None:
        check_at_least("model.optimizer.rho", rho, 0)
        check_betas(betas)
        check_eps(eps)
        self.rho = rho
        self.betas = betas
        self.eps = eps

    def build(
        self, groups: Sequence[ParameterGroup], learning_rate: float, fused: bool
    ) -> Optimizer:
        """Return SAM around AdamW over the groups as they are."""
        del fused  # a kernel that leaves out steps would leave out the second pass alone
        settings = [group.settings() for group in groups]
        return SamOptimizer(AdamW(settings, learning_rate, self.betas, self.eps), self.rho)


class SamOptimizer(JoinedOptimizer):
    """Takes the steps of another optimiser with SAM's gradient; without a closure, with its own.

    Args:
        base: that takes the steps.
        rho: how far the weights are moved for the gradient.
    """

    def __init__(self, base: Optimizer, rho: float) -> None:
        super().__init__([base])
        self.rho = rho

    @torch.no_grad()
    def step(  # type: ignore[override]  # torch has one overload for each of the two cases
        self, closure: Callable[[], float] | None = None
    ) -> float | None:
        """Take a step; ``closure`` computes the gradients, here at two places."""
        if closure is None:
            return super().step()
        generators = torch.get_rng_state(), torch.cuda.get_rng_state_all()
        loss = loss_of(closure)
        trained = [each for group in self.param_groups for each in group["params"]]
        trained = [each for each in trained if each.grad is not None]
        if not trained:  # the gradient was not finite
            return loss
        gradients = [each.grad for each in trained]
        norm = torch.nn.utils.get_total_norm(gradients)
        before = [each.clone() for each in trained]
        torch._foreach_add_(trained, torch._foreach_mul(gradients, self.rho / (norm + 1e-12)))
        torch.set_rng_state(generators[0])
        torch.cuda.set_rng_state_all(generators[1])
        loss_of(closure)
        torch._foreach_copy_(trained, before)
        super().step()
        return loss
