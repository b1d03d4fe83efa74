"""The settings that every optimiser has, and the plugins that a config names beside them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from bertlab.api.optimizer import OptimizerRecipe
from bertlab.api.schedule import Progress, Schedule
from bertlab.errors import ConfigError, UnknownPluginError, check_share, nearest
from bertlab.model.optimizers.adamw import AdamW
from bertlab.model.optimizers.torch_classes import torch_names, torch_recipe
from bertlab.objectives.changing import DEFAULT_SCHEDULE, make_schedule
from bertlab.plugins.index import installed, load_class, told_origin, where_to_get


class Constant(Schedule):
    """1 until the end."""

    needs_end = False

    def factor(self, progress: Progress) -> float:
        """Return 1."""
        del progress
        return 1.0


class Linear(Schedule):
    """From 1 to 0 in a straight line (paper app. A.2)."""

    def factor(self, progress: Progress) -> float:
        """Return the share that is left."""
        # not 1 - share: the bits of earlier versions of bertlab
        left = progress.end - progress.done
        return max(0.0, left / max(1.0, progress.end - progress.warmup))


class Cosine(Schedule):
    """From 1 to ``final`` along half a cosine (Loshchilov and Hutter 2017, without restarts).

    Args:
        final: factor at the end.
    """

    def __init__(self, final: float = 0.0) -> None:
        check_share("schedule.final", final)
        self.final = final

    def factor(self, progress: Progress) -> float:
        """Return ``final + (1 - final) * (1 + cos(pi * share)) / 2``."""
        wave = (1 + math.cos(math.pi * progress.share)) / 2
        return self.final + (1 - self.final) * wave


class InverseSquareRoot(Schedule):
    """``sqrt(warmup / done)``, which needs no end (Vaswani et al. 2017, sec. 5.3)."""

    needs_end = False

    def factor(self, progress: Progress) -> float:
        """Return the factor; without warm-up, ``1 / sqrt(done)`` from the first step on."""
        return math.sqrt(max(1.0, progress.warmup) / max(1.0, progress.warmup, progress.done))


class WarmupStableDecay(Schedule):
    """1, and in the last part of the run down to 0 (Hu et al. 2024, Hägele et al. 2024).

    Args:
        decay_share: share of the whole run, warm-up included, that the last part takes.
        shape: of the last part: ``linear``, or ``sqrt``, ``1 - sqrt`` of the share that is done of
            it, which Hägele et al. find a little better.
    """

    def __init__(
        self, decay_share: float = 0.2, shape: Literal["linear", "sqrt"] = "linear"
    ) -> None:
        check_share("schedule.decay_share", decay_share)
        self.decay_share = decay_share
        self.shape = shape

    def factor(self, progress: Progress) -> float:
        """Return 1 or less."""
        # 100 steps, decay_share 0.2: step 80 -> 1, 90 -> 0.5, 100 -> 0
        length = min(self.decay_share * progress.end, progress.end - progress.warmup)
        left = progress.end - progress.done
        if left >= length or length <= 0:
            return 1.0
        rest = max(0.0, left) / length
        return rest if self.shape == "linear" else 1 - math.sqrt(1 - rest)


DEFAULT_OPTIMIZER = "adamw"


@dataclass(frozen=True)
class OptimizerConfig:
    """An optimiser, the groups that it gets, and its learning rate over a run.

    Args:
        learning_rate: peak learning rate, reached at the end of warm-up (paper: 1e-4).
        weight_decay: decoupled weight decay; not applied to biases and norms.
        warmup_steps: optimiser steps of linear warm-up from 0; below 1, a share of all steps.
        schedule_steps: steps that the schedule is made for, if this run is a part of them (paper:
            1,000,000, of which 900,000 in the first phase); by default those of the run.
        layer_decay: factor on the learning rate from each layer of the encoder to the one below
            (Sun et al. 2019): head and pooler learn at ``learning_rate``, the top layer at
            ``learning_rate * layer_decay``, the lowest of L at ``layer_decay ** L``, embeddings at
            ``layer_decay ** (L + 1)`` times it. ELECTRA's code has one power more below the head.
        frozen_layers: what of the encoder is not trained: ``0`` the embeddings, ``n`` also the n
            lowest layers, ``all`` the whole encoder, pooler included.
        name: of the optimiser: a plugin, or a class of ``torch.optim``.
        schedule: what follows warm-up.
        recipe: the optimiser's own settings.
    """

    learning_rate: float = 1e-4
    weight_decay: float = 0.01
    warmup_steps: float = 0.01
    schedule_steps: int | None = None
    layer_decay: float = 1.0
    frozen_layers: int | Literal["all"] | None = None
    name: str = DEFAULT_OPTIMIZER
    schedule: Schedule = field(default_factory=Linear)
    recipe: OptimizerRecipe = field(default_factory=AdamW)

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(
                f"model.optimizer.learning_rate: found {self.learning_rate}, expected above 0"
            )
        if not 0 <= self.weight_decay < math.inf:
            raise ConfigError(
                f"model.optimizer.weight_decay: found {self.weight_decay}, expected 0 or more"
            )
        if self.weight_decay and not self.recipe.has_weight_decay:
            raise ConfigError(
                f"model.optimizer.weight_decay: found {self.weight_decay}, expected 0: "
                f"{self.name} has no weight decay"
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


PLUGGED_OPTIMIZER_KEYS = ("name", "schedule", "recipe")
COMMON_OPTIMIZER_KEYS = tuple(
    each.name for each in fields(OptimizerConfig) if each.name not in PLUGGED_OPTIMIZER_KEYS
)


def load_recipe(name: str) -> type[OptimizerRecipe]:
    """Return the optimiser that a config names: a plugin, or a class of ``torch.optim``."""
    plugins = installed("optimizer")
    if name in plugins:
        return load_class("optimizer", name, OptimizerRecipe)
    found = torch_recipe(name)
    if found is None:
        # torch.optim.AdamW is meant as AdamW
        hint = nearest(name.rpartition(".")[2], [*plugins, *torch_names()])
        raise UnknownPluginError(
            f"model.optimizer.name: no optimizer is called {name!r}{hint} "
            f"(installed: {', '.join(plugins)}; of torch.optim: {', '.join(torch_names())})"
            f"{told_origin('optimizer', name)}{where_to_get('optimizer', name)}"
        )
    return found


def read_optimizer(section: Mapping[str, Any]) -> OptimizerConfig:
    """Return what a config's ``model.optimizer`` section asks for."""
    arguments = dict(section)
    name = arguments.pop("name", DEFAULT_OPTIMIZER)
    recipe = load_recipe(name)
    schedule = make_schedule(arguments.pop("schedule", DEFAULT_SCHEDULE))
    common = {key: arguments.pop(key) for key in COMMON_OPTIMIZER_KEYS if key in arguments}
    return OptimizerConfig(**common, name=name, schedule=schedule, recipe=recipe(**arguments))
