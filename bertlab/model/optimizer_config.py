"""Optimisers and schedules that a config can name, and the settings that all of them have."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any, Literal, cast

from torch.optim import AdamW as TorchAdamW
from torch.optim import Optimizer

from bertlab.api.optimizer import OptimizerRecipe, ParameterGroup, Progress, Schedule
from bertlab.errors import ConfigError, UnknownPluginError, check_at_least, nearest
from bertlab.objectives.changing import DEFAULT_SCHEDULE, make_schedule
from bertlab.plugins.index import (
    added_name,
    installed,
    load_class,
    of_package,
    told_origin,
    where_to_get,
)


def check_betas(betas: tuple[float, float]) -> None:
    """Raise ConfigError unless both decay rates are in [0, 1)."""
    if not all(0 <= beta < 1 for beta in betas):
        raise ConfigError(f"model.optimizer.betas: found {list(betas)}, expected each in [0, 1)")


def check_eps(eps: float) -> None:
    """Raise ConfigError if the term of the denominator is below 0, or no number."""
    check_at_least("model.optimizer.eps", eps, 0)


class AdamW(OptimizerRecipe):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    Args:
        betas: decay rates of the moment estimates.
        eps: term that is added to the denominator (BERT's code: 1e-6).
    """

    def __init__(self, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6) -> None:
        check_betas(betas)
        check_eps(eps)
        self.betas = betas
        self.eps = eps

    def build(
        self, groups: Sequence[ParameterGroup], learning_rate: float, fused: bool
    ) -> Optimizer:
        """Return AdamW over the groups as they are."""
        return TorchAdamW(
            [group.settings() for group in groups],
            lr=learning_rate,
            betas=self.betas,
            eps=self.eps,
            fused=fused,
        )


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
            raise self._refusal("learning_rate", "above 0")
        if not 0 <= self.weight_decay < math.inf:
            raise self._refusal("weight_decay", "0 or more")
        if self.weight_decay and not self.recipe.has_weight_decay:
            raise self._refusal("weight_decay", f"0: {self.name} has no weight decay")
        share = 0 <= self.warmup_steps < 1
        if not share and not (self.warmup_steps >= 1 and float(self.warmup_steps).is_integer()):
            whole = "a whole number of steps, or a share of all steps below 1"
            raise self._refusal("warmup_steps", whole)
        check_at_least("model.optimizer.schedule_steps", self.schedule_steps, 1)
        if not 0 < self.layer_decay <= 1:
            same = "above 0 and at most 1 (1: the same learning rate everywhere)"
            raise self._refusal("layer_decay", same)
        if self.layer_decay != 1:
            of_package("parameter_depths", ConfigError, "model.optimizer.layer_decay")

    def _refusal(self, key: str, expected: str) -> ConfigError:
        found = getattr(self, key)
        return ConfigError(f"model.optimizer.{key}: found {found}, expected {expected}")


PLUGGED_OPTIMIZER_KEYS = ("name", "schedule", "recipe")
COMMON_OPTIMIZER_KEYS = tuple(
    each.name for each in fields(OptimizerConfig) if each.name not in PLUGGED_OPTIMIZER_KEYS
)


def load_recipe(name: str) -> type[OptimizerRecipe]:
    """Return the optimiser that a config names: a plugin, or a class of ``torch.optim``."""
    plugins = installed("optimizer")
    if name in plugins:
        return load_class("optimizer", name, OptimizerRecipe)
    of_torch: Mapping[str, type[OptimizerRecipe]] = {}
    with suppress(ImportError):  # bertlab-modern adds them
        of_torch = cast("Any", added_name("bertlab.model", "torch_optimizers"))
    if name in of_torch:
        return of_torch[name]
    # torch.optim.AdamW is meant as AdamW
    hint = nearest(name.rpartition(".")[2], [*plugins, *of_torch])
    raise UnknownPluginError(
        f"model.optimizer.name: no optimizer is called {name!r}{hint} "
        f"(installed: {', '.join(plugins)}; of torch.optim: "
        f"{', '.join(of_torch) or 'none, they come with bertlab-modern'})"
        f"{told_origin('optimizer', name)}{where_to_get('optimizer', name)}"
    )


def read_optimizer(section: Mapping[str, Any]) -> OptimizerConfig:
    """Return what a config's ``model.optimizer`` section asks for."""
    arguments = dict(section)
    name = arguments.pop("name", DEFAULT_OPTIMIZER)
    recipe = load_recipe(name)
    schedule = make_schedule(arguments.pop("schedule", DEFAULT_SCHEDULE))
    common = {key: arguments.pop(key) for key in COMMON_OPTIMIZER_KEYS if key in arguments}
    return OptimizerConfig(**common, name=name, schedule=schedule, recipe=recipe(**arguments))
