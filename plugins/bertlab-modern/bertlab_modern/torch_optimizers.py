"""The classes of ``torch.optim`` as optimisers that a config can name, with their own arguments."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

import torch.optim
from torch import Tensor
from torch.optim import Optimizer

from bertlab.api import ConfigError, OptimizerRecipe, ParameterGroup

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


class TorchOptimizers(Mapping[str, type[OptimizerRecipe]]):
    """The recipes of the classes that can be used, by name; each is made when it is asked for."""

    def __iter__(self) -> Iterator[str]:
        found = inspect.getmembers(torch.optim, inspect.isclass)
        for name, each in found:
            if issubclass(each, Optimizer) and each is not Optimizer and name not in _REFUSED:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> type[OptimizerRecipe]:
        """Return a recipe.

        Raises:
            ConfigError: the class cannot be used in a run.
            KeyError: ``torch.optim`` has no such class.
        """
        if name in _REFUSED:
            raise ConfigError(f"model.optimizer.name: found {name!r}: it {_REFUSED[name]}")
        if name not in list(self):
            raise KeyError(name)
        return _recipe(name)


TORCH_OPTIMIZERS = TorchOptimizers()


@cache
def _recipe(name: str) -> type[TorchRecipe]:
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
