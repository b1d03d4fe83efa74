"""AdamW as the paper sets it (app. A.2), and what fine-tuning may vary.

``OptimizerState`` carries the moments of a first phase of pre-training to a second one
(``model.init_optimizer``).
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn
from torch.optim import AdamW, Optimizer

from bertlab.errors import CheckpointError, ConfigError
from bertlab.model.fsdp import load_optimizer_state

_LAYER = re.compile(r"layers\.(\d+)\.")  # layers.11.attention.qkv.weight -> 11


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
        schedule_steps: steps that the schedule is made for, if this run is a part of them (paper:
            1,000,000, of which 900,000 in the first phase); by default those of the run.
        layer_decay: factor on the learning rate from each layer of the encoder to the one below
            (Sun et al. 2019): head and pooler learn at ``learning_rate``, the top layer at
            ``learning_rate * layer_decay``, the lowest of L at ``layer_decay ** L``, embeddings at
            ``layer_decay ** (L + 1)`` times it. ELECTRA's code has one power more below the head.
        frozen_layers: what of the encoder is not trained: ``0`` the embeddings, ``n`` also the n
            lowest layers, ``all`` the whole encoder, pooler included.
    """

    learning_rate: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    weight_decay: float = 0.01
    warmup_steps: float = 0.01
    schedule: Literal["linear", "constant"] = "linear"
    schedule_steps: int | None = None
    layer_decay: float = 1.0
    frozen_layers: int | Literal["all"] | None = None

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(
                f"model.optimizer.learning_rate: found {self.learning_rate}, expected above 0"
            )
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(
                f"model.optimizer.betas: found {list(self.betas)}, expected each in [0, 1)"
            )
        if not self.eps >= 0:
            raise ConfigError(f"model.optimizer.eps: found {self.eps}, expected 0 or more")
        if not 0 <= self.weight_decay < math.inf:
            raise ConfigError(
                f"model.optimizer.weight_decay: found {self.weight_decay}, expected 0 or more"
            )
        share = 0 <= self.warmup_steps < 1
        if not share and not (self.warmup_steps >= 1 and float(self.warmup_steps).is_integer()):
            raise ConfigError(
                f"model.optimizer.warmup_steps: found {self.warmup_steps}, expected a whole number "
                "of steps, or a share of all steps below 1"
            )
        if self.schedule_steps is not None and self.schedule_steps < 1:
            raise ConfigError(
                f"model.optimizer.schedule_steps: found {self.schedule_steps}, expected 1 or more"
            )
        if not 0 < self.layer_decay <= 1:
            raise ConfigError(
                f"model.optimizer.layer_decay: found {self.layer_decay}, expected above 0 and at "
                "most 1 (1: the same learning rate everywhere)"
            )


def build_optimizer(config: AdamWConfig, module: nn.Module, fused: bool = True) -> AdamW:
    """Freeze what the config says and return AdamW over the parameters that are left to train.

    Groups are two by weight decay, for each learning rate; the head's come first. A parameter that
    two modules share is in one group, and the encoder's place counts.

    Args:
        config: AdamW's settings.
        module: its ``encoder`` is what ``layer_decay`` and ``frozen_layers`` speak of.
        fused: PyTorch's fused kernel.

    Raises:
        ConfigError: if ``layer_decay`` or ``frozen_layers`` does not fit the encoder.
    """
    freeze_layers(config, module)
    depths: dict[nn.Parameter, int] = {}
    if config.layer_decay != 1:
        depths = parameter_depths(module.get_submodule("encoder"), "layer_decay")
    decayed, plain = split_by_weight_decay(module)
    groups = []
    for depth in sorted({0, *depths.values()}):
        for trained, weight_decay in ((decayed, config.weight_decay), (plain, 0.0)):
            parameters = [p for p in trained if depths.get(p, 0) == depth]
            if parameters or depth == 0:
                rate = config.learning_rate * config.layer_decay**depth  # 0.9, depth 2: 0.81
                groups.append({"params": parameters, "weight_decay": weight_decay, "lr": rate})
    return AdamW(groups, lr=config.learning_rate, betas=config.betas, eps=config.eps, fused=fused)


def freeze_layers(config: AdamWConfig, module: nn.Module) -> None:
    """Set ``requires_grad`` to False in the part of ``module.encoder`` that is not trained.

    Call it before the module is wrapped for several devices: DDP waits for the gradient of every
    parameter that required one then. To call it again changes nothing.

    Raises:
        ConfigError: if the encoder has no numbered layers, or too few.
    """
    if config.frozen_layers is None:
        return
    encoder = module.get_submodule("encoder")
    if config.frozen_layers == "all":
        encoder.requires_grad_(False)
        return
    depths = parameter_depths(encoder, "frozen_layers")
    embeddings = max(depths.values())
    if not 0 <= config.frozen_layers < embeddings - 1:
        raise ConfigError(
            f"model.optimizer.frozen_layers: found {config.frozen_layers}, expected 0 (embeddings) "
            f"to {embeddings - 2}, as the encoder has {embeddings - 1} layers, or all"
        )
    # 12 layers: embeddings 13, layers.0 12, …; frozen_layers 2 -> depths 11 to 13
    for parameter, depth in depths.items():
        if depth >= embeddings - config.frozen_layers:
            parameter.requires_grad_(False)


def parameter_depths(encoder: nn.Module, option: str) -> dict[nn.Parameter, int]:
    """Return how far below the head each parameter of an encoder with L layers is.

    The names of parameters tell: ``layers.N.*`` is ``L - N``, what is registered before them is the
    embeddings, ``L + 1``, and what comes after them (pooler, last LayerNorm) is 0. ``pooler.*`` is
    0 and ``token_embedding.*`` is ``L + 1`` in any order.

    Args:
        encoder: any; need not be ``bert``.
        option: key of ``model.optimizer`` that asks, for the message.

    Raises:
        ConfigError: if no parameter is called ``layers.N.*``.
    """
    names = [name for name, _ in encoder.named_parameters()]
    numbers = [int(match[1]) for name in names if (match := _LAYER.match(name))]
    if not numbers:
        raise ConfigError(
            f"model.optimizer.{option}: the encoder {type(encoder).__name__} has no parameters "
            "called layers.0.*, layers.1.*, …, so its layers are not known; leave the option out"
        )
    # of two layers: token_embedding 3, layers.0 2, layers.1 1, pooler 0
    top = max(numbers) + 1
    depths: dict[nn.Parameter, int] = {}
    reached_layers = False
    for name, parameter in encoder.named_parameters():
        match = _LAYER.match(name)
        reached_layers = reached_layers or match is not None
        if match:
            depths[parameter] = top - int(match[1])
        elif name.startswith("token_embedding."):
            depths[parameter] = top + 1
        else:
            above = reached_layers or name.startswith("pooler.")
            depths[parameter] = 0 if above else top + 1
    return depths


def split_by_weight_decay(
    module: nn.Module,
) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the trainable parameters that decay, and those that do not (biases, LayerNorms)."""
    plain = {
        id(parameter)
        for layer in module.modules()
        for name, parameter in layer.named_parameters(recurse=False)
        # without decay: bias, an LSTM's bias_ih_l0, attention_bias
        if isinstance(layer, nn.LayerNorm | nn.RMSNorm)
        or name.startswith("bias")
        or name.endswith("_bias")
    }
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return (
        [parameter for parameter in trainable if id(parameter) not in plain],
        [parameter for parameter in trainable if id(parameter) in plain],
    )


@dataclass(frozen=True)
class OptimizerState:
    """Moments of AdamW at the end of a run, and the steps that its schedule had done.

    Attributes:
        source: the run's checkpoint, for messages.
        tensors: names of all of the model's tensors, in its order.
        content: the optimiser's ``state_dict``.
        steps: that the schedule has done.
    """

    source: str
    tensors: Sequence[str]
    content: dict[str, Any]
    steps: int

    @classmethod
    def of_checkpoint(cls, source: str, content: dict[str, Any]) -> "OptimizerState":
        """Return that of the content of a Lightning checkpoint.

        Raises:
            CheckpointError: if it has no optimiser, or more than one.
        """
        optimizers, schedules = content.get("optimizer_states"), content.get("lr_schedulers")
        if not optimizers or not schedules or len(optimizers) != 1:
            raise CheckpointError(
                f"model.init_optimizer: {source} has no optimiser's state (it was saved as weights "
                "only); take the key out"
            )
        names = list(content["state_dict"])
        return cls(source, names, optimizers[0], int(schedules[0]["last_epoch"]))

    def check(self, module: nn.Module, optimizer: AdamW) -> None:
        """Raise CheckpointError unless it is of a module and an optimiser like these."""
        ours = [
            parameter.shape for group in optimizer.param_groups for parameter in group["params"]
        ]
        # torch numbers parameters through all groups: of 2 and 3 -> [0, 1] and [2, 3, 4]
        numbers = [number for group in self.content["param_groups"] for number in group["params"]]
        moments = [self.content["state"].get(number) for number in numbers]
        theirs = [None if each is None else each["exp_avg"].shape for each in moments]
        if list(self.tensors) != list(module.state_dict()) or ours != theirs:
            raise CheckpointError(
                f"model.init_optimizer: {self.source} trained other tensors than this run "
                f"({len(theirs)} there, {len(ours)} here); give it the same encoder, objectives "
                "and frozen_layers, or take the key out"
            )

    def load(self, module: nn.Module, optimizer: Optimizer) -> None:
        """Give an optimiser these moments; its own settings (``betas``, …) stay."""
        groups = optimizer.state_dict()["param_groups"]  # this run's learning rates
        load_optimizer_state(module, optimizer, {**self.content, "param_groups": groups})
