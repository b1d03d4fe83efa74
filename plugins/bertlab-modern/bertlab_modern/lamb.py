"""LAMB: Adam's step, scaled for each tensor by the tensor's norm."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from bertlab.api import OptimizerRecipe, ParameterGroup
from bertlab.extend import check_betas, check_eps
from bertlab_modern.stepping import loss_of


class Lamb(OptimizerRecipe):
    """AdamW whose steps are as large as the weights of each tensor (You et al. 2020, algorithm 2).

    Made for large batches. As in the authors' code, the steps of biases and norms, which do not
    decay, are Adam's.

    Args:
        betas: decay rates of the moment estimates.
        eps: term that is added to the denominator.
        adapt_all: scale the steps of biases and norms as well, as the paper's algorithm says.
    """

    def __init__(
        self,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        adapt_all: bool = False,
    ) -> None:
        check_betas(betas)
        check_eps(eps)
        self.betas = betas
        self.eps = eps
        self.adapt_all = adapt_all

    def build(
        self, groups: Sequence[ParameterGroup], learning_rate: float, fused: bool
    ) -> Optimizer:
        """Return LAMB over the groups as they are; it has no fused kernel."""
        del fused
        settings = [
            {**group.settings(), "adapt": self.adapt_all or group.decays} for group in groups
        ]
        return LambOptimizer(settings, learning_rate, self.betas, self.eps)


class LambOptimizer(Optimizer):
    """Algorithm 2 of You et al. 2020 with the identity as phi, over all tensors of a group at once.

    Args:
        groups: with ``params``, and perhaps ``lr``, ``weight_decay`` and ``adapt``: whether steps
            are scaled.
        lr: learning rate.
        betas: decay rates of the moment estimates.
        eps: term that is added to the denominator.
        weight_decay: decoupled, a part of the step that is scaled.
    """

    def __init__(
        self,
        groups: Sequence[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(groups, {**defaults, "adapt": True})

    @torch.no_grad()
    def step(  # type: ignore[override]  # torch has one overload for each of the two cases
        self, closure: Callable[[], float] | None = None
    ) -> float | None:
        """Take a step; ``closure`` computes the gradients again and returns the loss."""
        loss = loss_of(closure)
        for group in self.param_groups:
            trained = [each for each in group["params"] if each.grad is not None]
            if trained:
                steps = self._adam_steps(group, trained)
                if group["weight_decay"]:
                    torch._foreach_add_(steps, trained, alpha=group["weight_decay"])
                if group["adapt"]:
                    torch._foreach_mul_(steps, _trust_ratios(trained, steps))
                torch._foreach_add_(trained, steps, alpha=-group["lr"])
        return loss

    def _adam_steps(self, group: dict[str, Any], trained: list[Tensor]) -> list[Tensor]:
        """Return Adam's step of each parameter, without learning rate and decay."""
        first, second = group["betas"]
        gradients = [each.grad for each in trained if each.grad is not None]
        states = [self._state(each) for each in trained]
        means = [state["exp_avg"] for state in states]
        squares = [state["exp_avg_sq"] for state in states]
        torch._foreach_lerp_(means, gradients, 1 - first)  # b m + (1 - b) g
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - second)
        # parameters may have begun to get gradients at different steps
        counts = [int(state["step"]) for state in states]
        steps = torch._foreach_div(means, [1 - first**count for count in counts])
        roots = torch._foreach_div(squares, [1 - second**count for count in counts])
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, group["eps"])
        torch._foreach_div_(steps, roots)
        return list(steps)

    def _state(self, parameter: Tensor) -> dict[str, Any]:
        """Return what is remembered of a parameter, with this step counted."""
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())  # on the CPU: it is read at each step
            state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        state["step"] += 1
        return state


def _trust_ratios(parameters: list[Tensor], steps: list[Tensor]) -> list[Tensor]:
    """Return norm of weights / norm of step for each tensor, a scalar; 1 if one of them is 0."""
    pairs = zip(torch._foreach_norm(parameters), torch._foreach_norm(steps), strict=True)
    return [torch.where((w > 0) & (u > 0), w / u, torch.ones_like(w)) for w, u in pairs]
