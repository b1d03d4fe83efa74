"""Activations that the backward pass computes again, layer by layer, in place of keeping them.

Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost". Of a layer that is recomputed
only the input is kept; dropout is drawn as it was, so that losses and gradients stay the same.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from bertlab.api import ConfigError, TaskData
from bertlab.extend import BertModule, Passes, layers_of
from bertlab_gpu.step_graphs import StepGraphs

ALL, AUTO = "all", "auto"
Layers = int | Literal["all"] | Sequence[int]
Auto = Literal["auto"]


def recompute_layers(encoder: nn.Module, which: Layers, compiles: bool = False) -> tuple[int, ...]:
    """Let the backward pass compute layers of an encoder again, in place of keeping what they made.

    Names of weights, losses and gradients stay as they are. Nothing changes where no gradient is
    computed.

    Args:
        encoder: any whose layers are in ``nn.ModuleList``s.
        which: ``all`` layers, so many from below, or these, counted from 0.
        compiles: compile what a layer computes when it is called first.

    Returns:
        The layers, ascending.

    Raises:
        ConfigError: there are no such layers.
    """
    layers = outer_layers(encoder)
    chosen = chosen_layers(which, len(layers))
    for number in chosen:
        layer: Any = layers[number]  # torch has no type for a forward that is set
        forward = torch.compile(layer.forward, dynamic=True) if compiles else layer.forward
        layer.forward = partial(_recomputed, forward)
    return chosen


def chosen_layers(which: Layers, number: int) -> tuple[int, ...]:
    """Return which of so many layers are recomputed, ascending."""
    if which == ALL:
        return tuple(range(number))
    if isinstance(which, int):
        numbers: Sequence[int] = range(which)
        fits = 0 <= which <= number
    elif isinstance(which, str):  # "12" is no list of layers 1 and 2
        numbers, fits = (), False
    else:
        numbers = [int(each) for each in which]
        fits = all(0 <= each < number for each in numbers)
    if not fits:
        auto = f" {AUTO}," if which != AUTO else ""  # which is for a config alone
        raise ConfigError(
            f"recompute: found {which!r} in an encoder of {number} layers, expected 0 to {number} "
            f"(so many from below), {ALL},{auto} or a list of layers, which are counted from 0"
        )
    return tuple(sorted(set(numbers)))


def outer_layers(encoder: nn.Module) -> list[nn.Module]:
    """Return an encoder's layers, without those that are parts of another."""
    found = layers_of(encoder)
    inner = {part for layer in found for part in layer.modules() if part is not layer}
    return [layer for layer in found if layer not in inner]


@torch.compiler.disable  # type: ignore[untyped-decorator]  # what is within is compiled by itself
def _recomputed(forward: Callable[..., Any], *given: Any, **named: Any) -> Any:  # noqa: ANN401
    if not torch.is_grad_enabled():
        return forward(*given, **named)
    # the generators' states are kept as well: dropout is drawn again as it was
    return checkpoint(forward, *given, use_reentrant=False, **named)


class SavedBytes:
    """The bytes that autograd keeps of a forward pass in its context, by the layer they are of.

    Attributes:
        layers: of each layer.
        outside: of embeddings and tasks.
        inputs: of the input of one layer.
    """

    def __init__(self, module: BertModule) -> None:
        self._own = {each.untyped_storage().data_ptr() for each in module.state_dict().values()}
        self._layers = outer_layers(module.encoder)
        self._inside: int | None = None
        self._seen: set[int] = set()
        self.layers = [0.0] * len(self._layers)
        self.outside, self.inputs = 0.0, 0.0

    def __enter__(self) -> Self:
        self._handles = [
            each
            for number, layer in enumerate(self._layers)
            for each in (
                layer.register_forward_pre_hook(partial(self._enter, number)),
                layer.register_forward_hook(self._leave),
            )
        ]
        self._hooks = saved_tensors_hooks(self._keep, lambda tensor: tensor)
        self._hooks.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hooks.__exit__(kind, error, trace)
        for each in self._handles:
            each.remove()

    def _enter(self, number: int, layer: nn.Module, given: tuple[Any, ...]) -> None:
        del layer
        self._inside = number
        tensors = [each for each in given if isinstance(each, Tensor)]
        self.inputs = max(self.inputs, sum(each.numel() * each.element_size() for each in tensors))

    def _leave(self, *_: object) -> None:
        self._inside = None

    def _keep(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        place = storage.data_ptr()
        if place not in self._own and place not in self._seen:  # two views of one are counted once
            self._seen.add(place)
            if self._inside is None:
                self.outside += storage.nbytes()
            else:
                self.layers[self._inside] += storage.nbytes()
        return tensor

    def peak(self, recomputed: Collection[int]) -> float:
        """Return the bytes that are kept at once where these layers are recomputed."""
        return kept_at_once(self.outside, self.layers, self.inputs, recomputed)


def kept_at_once(
    outside: float, layers: Sequence[float], inputs: float, recomputed: Collection[int]
) -> float:
    """Return the most that is kept: inputs in place of layers, but for one that is recomputed."""
    # layers of 10 with inputs of 1, the lower two of three recomputed: 1 + 1 + 10, and 10 at a time
    kept = sum(inputs if n in recomputed else each for n, each in enumerate(layers))
    return outside + kept + max((layers[n] for n in recomputed), default=0.0)


class Recomputation(Callback):
    """Has the key ``recompute``, and tells the manifest which layers are recomputed.

    Args:
        asked: value of the key.
        compiles: whether layers are compiled.
    """

    def __init__(self, asked: Layers | Auto, compiles: bool) -> None:
        self.asked, self.compiles = asked, compiles
        self.layers: tuple[int, ...] = ()

    def chosen(self, encoder: nn.Module) -> tuple[int, ...] | None:
        """Return the layers that the key names; None if they are to be chosen."""
        if self.asked == "auto":
            return None
        return chosen_layers(self.asked, len(outer_layers(encoder)))

    def start(self, module: BertModule, layers: Sequence[int]) -> None:
        """Recompute layers of a module from now on."""
        self.layers = recompute_layers(module.encoder, layers, self.compiles)
        if self.layers and isinstance(module.passes, StepGraphs):
            module.passes = Passes()  # a recorded step cannot set a generator back

    def prepare(self, trainer: Trainer, data: TaskData) -> dict[str, Any]:
        """Return what the manifest says."""
        del trainer, data
        return {"recomputed_layers": list(self.layers)} if self.layers else {}
