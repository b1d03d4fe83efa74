"""Schedule-free AdamW: an average of the steps in place of a decaying rate."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.optim import Optimizer

from bertlab.api import ConfigError, OptimizerRecipe, ParameterGroup
from bertlab.extend import BertModule, check_betas, check_eps
from bertlab_modern.modes import OptimizerModes
from bertlab_modern.scheduled_values import ScheduledValues
from bertlab_modern.stepping import loss_of

_BETAS = ("optimizer", "betas")  # in schedules


class ScheduleFree(OptimizerRecipe):
    """AdamW that needs no end of the run (Defazio et al. 2024, algorithm 1).

    Gradients are taken at ``y``, between the steps ``z`` and their average ``x``, which is
    evaluated, saved and exported. With ``schedule: constant`` and ``warmup_steps`` of choice; the
    paper's rates are 1 to 10 times those of AdamW.

    Args:
        betas: how near ``y`` is to ``x``, and the decay rate of the squared gradients.
        eps: term that is added to the denominator.
    """

    def __init__(self, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8) -> None:
        check_betas(betas)
        check_eps(eps)
        if betas[0] == 0:
            raise ConfigError("model.optimizer.betas: found 0 first, expected above 0")
        self.betas = betas
        self.eps = eps

    def build(
        self, groups: Sequence[ParameterGroup], learning_rate: float, fused: bool
    ) -> Optimizer:
        """Return the optimiser over the groups as they are; it has no fused kernel."""
        del fused
        settings = [group.settings() for group in groups]
        return ScheduleFreeAdamW(settings, learning_rate, self.betas, self.eps)

    def callbacks(self) -> Sequence[Callback]:
        """Return what goes from the weights that are trained to those that are evaluated."""
        return [_ConstantRate()]


class _ConstantRate(OptimizerModes):
    """The modes, of a run whose rate does not decay, and with one share of ``x`` in ``y``."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if isinstance(pl_module, BertModule) and pl_module.optimizer_config.schedule.needs_end:
            raise ConfigError(
                "model.optimizer.schedule: expected constant with schedule_free, whose average of "
                "the steps takes the place of a rate that decays"
            )
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        for each in callbacks:
            betas = each.numbers.get(_BETAS) if isinstance(each, ScheduledValues) else None
            if betas and betas[0].start != betas[0].end:
                raise ConfigError(
                    f"schedules.optimizer.betas: found {betas[0].start} to {betas[0].end} first, "
                    "expected one value with schedule_free, whose average is computed by it"
                )


class ScheduleFreeAdamW(Optimizer):
    """Algorithm 1 of Defazio et al. 2024; parameters are ``y`` in ``train()``, ``x`` in ``eval()``.

    Args:
        groups: with ``params``, and perhaps ``lr`` and ``weight_decay``.
        lr: learning rate.
        betas: share of ``x`` in ``y``, and decay rate of the squared gradients.
        eps: term that is added to the denominator.
        weight_decay: decoupled, at ``y``.
    """

    def __init__(
        self,
        groups: Sequence[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(groups, {**defaults, "train_mode": True})

    @torch.no_grad()
    def train(self) -> None:
        """Go to the weights that are trained."""
        for group, each in self._moved(False):
            # x = 3, z = 5, beta 0.9 -> y = 0.9 * 3 + 0.1 * 5 = 3.2
            each.lerp_(self.state[each]["z"], 1 - group["betas"][0])

    @torch.no_grad()
    def eval(self) -> None:
        """Go to the weights that are evaluated."""
        for group, each in self._moved(True):
            # y = 3.2, z = 5 -> x = 3.2 + (5 - 3.2) * (1 - 1 / 0.9) = 3
            each.lerp_(self.state[each]["z"], 1 - 1 / group["betas"][0])

    def _moved(self, train_mode: bool) -> list[tuple[dict[str, Any], Tensor]]:
        """Return what has moved in the groups of a mode, which go to the other."""
        groups = [group for group in self.param_groups if group["train_mode"] == train_mode]
        for group in groups:
            group["train_mode"] = not train_mode
        return [(group, each) for group in groups for each in group["params"] if self.state[each]]

    @torch.no_grad()
    def step(  # type: ignore[override]  # torch has one overload for each of the two cases
        self, closure: Callable[[], float] | None = None
    ) -> float | None:
        """Take a step; ``closure`` computes the gradients again and returns the loss."""
        loss = loss_of(closure)
        for group in self.param_groups:
            if not group["train_mode"]:
                raise RuntimeError("a step of weights in eval(); call train() before")
            for each in group["params"]:
                if each.grad is not None:
                    self._move(group, each, each.grad)
        return loss

    def _move(self, group: dict[str, Any], weight: Tensor, gradient: Tensor) -> None:
        state: dict[str, Any] = self.state[weight]
        if not state:
            # numbers, as load_state_dict rounds tensors to the type of the weights
            state.update(steps=0, weights=0.0)
            state["z"] = weight.detach().clone()
            state["exp_avg_sq"] = torch.zeros_like(weight)
        (near, second), rate = group["betas"], group["lr"]
        state["steps"] += 1
        state["weights"] += rate**2
        share = rate**2 / state["weights"] if state["weights"] else 0.0
        squares, z = state["exp_avg_sq"], state["z"]
        squares.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        correction = math.sqrt(1 - second ** state["steps"])
        move = gradient / (squares.sqrt().div_(correction).add_(group["eps"]))
        move.add_(weight, alpha=group["weight_decay"])
        # x' = (1 - c) x + c z' and y' = b x' + (1 - b) z', without x
        weight.lerp_(z, share)
        weight.add_(move, alpha=rate * (near * (1 - share) - 1))
        z.sub_(move, alpha=rate)
