"""The settings that every optimiser has, and the plugins that a config names beside them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from bertlab.api.optimizer import OptimizerRecipe
from bertlab.api.schedule import Schedule
from bertlab.errors import ConfigError, UnknownPluginError, nearest
from bertlab.model.optimizers.adamw import AdamW
from bertlab.model.optimizers.torch_classes import torch_names, torch_recipe
from bertlab.model.schedules import Linear
from bertlab.objectives.changing import DEFAULT_SCHEDULE, make_schedule
from bertlab.plugins.first_party import where_to_get
from bertlab.plugins.index import installed, load_class, told_origin

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
