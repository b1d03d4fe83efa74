"""Optimisers and schedules that a config can name, and the settings that all of them have."""

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import torch.optim
from torch import Tensor
from torch.optim import AdamW as TorchAdamW
from torch.optim import Optimizer

from bertlab.api.optimizer import OptimizerRecipe, ParameterGroup, Progress, Schedule
from bertlab.errors import ConfigError, UnknownPluginError, nearest
from bertlab.objectives.changing import DEFAULT_SCHEDULE, make_schedule
from bertlab.plugins.index import installed, load_class, told_origin, where_to_get

_SHARED = ("self", "params", "lr", "weight_decay")  # of every optimiser
_REFUSED = {
    "LBFGS": "computes the loss several times a step, by a closure, which a run cannot repeat",
    "SparseAdam": "is for sparse gradients, and those of an encoder are dense",
    "Muon": "trains matrices only; use muon, which leaves the rest to AdamW",
}


@dataclass(frozen=True)
class TorchRecipe(OptimizerRecipe):
    """A class of ``torch.optim``; a subclass has that class' arguments as its fields.

    Attributes:
        torch_class: what is made.
    """

    torch_class: ClassVar[Any]

    def build(
        self, groups: Sequence[ParameterGroup], learning_rate: float, fused: bool
    ) -> Optimizer:
        """Return an optimiser over the groups as they are; whether it is fused is a setting."""
        del fused
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        settings = [group.settings() for group in groups]
        for group in settings:
            if not self.has_weight_decay:
                del group["weight_decay"]
        try:
            made: Optimizer = self.torch_class(settings, lr=learning_rate, **given)
        except (ValueError, RuntimeError) as error:
            name = self.torch_class.__name__
            raise ConfigError(f"model.optimizer: torch.optim.{name}: {error}") from error
        return made


def torch_names() -> list[str]:
    """Return the names of the classes that can be used."""
    found = inspect.getmembers(torch.optim, inspect.isclass)
    classes = [each for _, each in found if issubclass(each, Optimizer) and each is not Optimizer]
    return [each.__name__ for each in classes if each.__name__ not in _REFUSED]


@cache
def torch_recipe(name: str) -> type[TorchRecipe] | None:
    """Return the recipe of a class of ``torch.optim``; None if there is none of that name."""
    if name in _REFUSED:
        raise ConfigError(f"model.optimizer.name: found {name!r}: it {_REFUSED[name]}")
    if name not in torch_names():
        return None
    found: type[Optimizer] = getattr(torch.optim, name)
    hints = get_type_hints(found.__init__)
    parameters = inspect.signature(found.__init__).parameters
    arguments = [
        (each.name, _without_tensor(hints.get(each.name, Any)), field(default=each.default))
        for each in parameters.values()
        if each.name not in _SHARED
    ]
    made = make_dataclass(
        name,
        arguments,
        bases=(TorchRecipe,),
        frozen=True,
        namespace={
            "__doc__": f"``torch.optim.{name}``, see PyTorch's documentation.",
            "torch_class": found,
            "has_weight_decay": "weight_decay" in parameters,
        },
    )
    assert issubclass(made, TorchRecipe)
    return made


def _without_tensor(hint: Any) -> Any:  # noqa: ANN401  a type, or a form of one
    """Return a type without the tensors that may stand for its numbers.

    ``tuple[float | Tensor, float | Tensor]`` becomes ``tuple[float, float]``.
    """
    parts = [_without_tensor(each) for each in get_args(hint) if each is not Tensor]
    if get_origin(hint) in (Union, UnionType):
        return reduce(or_, parts)
    return tuple[tuple(parts)] if get_origin(hint) is tuple else hint  # type: ignore[misc]


def check_betas(betas: tuple[float, float]) -> None:
    """Raise ConfigError unless both decay rates are in [0, 1)."""
    if not all(0 <= beta < 1 for beta in betas):
        raise ConfigError(f"model.optimizer.betas: found {list(betas)}, expected each in [0, 1)")


def check_eps(eps: float) -> None:
    """Raise ConfigError if the term of the denominator is below 0, or no number."""
    if not eps >= 0:
        raise ConfigError(f"model.optimizer.eps: found {eps}, expected 0 or more")


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
        """Return AdamW over the groups as they are.

        Args:
            groups: all that is trained.
            learning_rate: the default of its groups, each of which has its own.
            fused: PyTorch's fused kernel.
        """
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
