"""AdamW and the learning-rate schedule of the paper (app. A.2)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from bertlab.errors import ConfigError


@dataclass(frozen=True)
class AdamWConfig:
    """AdamW with linear warm-up, then linear decay.

    Args:
        learning_rate: peak learning rate, reached at the end of warm-up (paper: 1e-4).
        betas: decay rates of the moment estimates.
        eps: term that is added to the denominator (BERT's code: 1e-6).
        weight_decay: decoupled weight decay; not applied to biases and LayerNorms.
        warmup_steps: optimiser steps of linear warm-up from 0; below 1, a share of all steps.
        schedule: what follows warm-up: ``linear`` decay to 0 at the last step, or ``constant``.
    """

    learning_rate: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    weight_decay: float = 0.01
    warmup_steps: float = 0.01
    schedule: Literal["linear", "constant"] = "linear"

    def __post_init__(self) -> None:
        if not self.learning_rate > 0:
            raise ConfigError(
                f"model.optimizer.learning_rate: found {self.learning_rate}, expected above 0"
            )
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(
                f"model.optimizer.betas: found {list(self.betas)}, expected each in [0, 1)"
            )
        whole = self.warmup_steps < 1 or self.warmup_steps == int(self.warmup_steps)
        if self.warmup_steps < 0 or not whole:
            raise ConfigError(
                f"model.optimizer.warmup_steps: found {self.warmup_steps}, expected a whole number "
                "of steps, or a share of all steps below 1"
            )


def build_optimizer(config: AdamWConfig, module: nn.Module, fused: bool = True) -> AdamW:
    """Return AdamW over the trainable parameters of ``module``, in two groups by weight decay."""
    decayed, plain = split_by_weight_decay(module)
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=config.learning_rate, betas=config.betas, eps=config.eps, fused=fused)


def split_by_weight_decay(
    module: nn.Module,
) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the trainable parameters that decay, and those that do not (biases, LayerNorms)."""
    plain = {
        id(parameter)
        for layer in module.modules()
        for name, parameter in layer.named_parameters(recurse=False)
        if isinstance(layer, nn.LayerNorm) or name == "bias" or name.endswith("_bias")
    }
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return (
        [parameter for parameter in trainable if id(parameter) not in plain],
        [parameter for parameter in trainable if id(parameter) in plain],
    )


def check_schedule(config: AdamWConfig, endless: bool) -> None:
    """Raise ConfigError if the schedule needs an end and the run has none."""
    if endless and (config.schedule == "linear" or 0 < config.warmup_steps < 1):
        raise ConfigError(
            "model.optimizer.schedule: linear decay and a warm-up share need the number of steps; "
            "set trainer.max_steps or trainer.max_epochs, or schedule: constant with whole "
            "warmup_steps"
        )


def build_schedule(config: AdamWConfig, optimizer: AdamW, total_steps: float) -> LambdaLR:
    """Return the schedule, to be stepped once an optimiser step.

    Args:
        config: peak, warm-up and shape.
        optimizer: whose learning rate it sets.
        total_steps: steps of the whole run; infinite only if the schedule is constant.

    Raises:
        ConfigError: if the schedule needs an end and the run has none.
    """
    endless = total_steps == float("inf") or total_steps < 0
    check_schedule(config, endless)
    warmup = config.warmup_steps
    if warmup < 1:
        warmup = 0 if endless else round(warmup * total_steps)
    factor: Callable[[int], float] = partial(
        learning_rate_factor,
        warmup_steps=int(warmup),
        total_steps=total_steps,
        decay=config.schedule == "linear",
    )
    return LambdaLR(optimizer, factor)


def learning_rate_factor(step: int, warmup_steps: int, total_steps: float, decay: bool) -> float:
    """Return the share of the peak at an optimiser step counted from 0, as Hugging Face does."""
    if step < warmup_steps:
        return step / warmup_steps
    if not decay:
        return 1.0
    return max(0.0, (total_steps - step) / max(1.0, total_steps - warmup_steps))
