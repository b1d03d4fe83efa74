"""``DeviceWatch`` finds tensors that would be left on the CPU, without needing a GPU.

All tensors are on the CPU. Those that a factory such as ``torch.arange`` makes without ``device``
are remembered, with everything computed from them alone; a GPU would refuse to compute with them
and the batch together.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from bertlab_conformance.check import ConformanceFailure

_FACTORIES = {
    *("arange", "as_tensor", "empty", "eye", "full", "linspace", "logspace", "ones", "rand"),
    *("randint", "randn", "randperm", "tensor", "tril_indices", "triu_indices", "zeros"),
}
# functions that take one argument from the CPU
_MIXERS = {"__getitem__", "__setitem__", "index", "index_put", "index_put_", "_index_put_impl_"}
_MIXERS |= {"lstm", "gru", "rnn_tanh", "rnn_relu", "_pack_padded_sequence", "_pad_packed_sequence"}
_MIXERS |= {"copy_", "__get__", "__set__"}


class DeviceWatch(TorchFunctionMode):
    """Raises ConformanceFailure where the batch meets a tensor that no device was named for."""

    def __init__(self) -> None:
        super().__init__()
        # by id(), as == of tensors is elementwise; the tensor is kept, so that its id stays taken
        self._made: dict[int, tuple[Tensor, str]] = {}  # what is on the CPU, and what made it

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,  # noqa: ANN401  torch's signature
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Compute, and remember where the result would be."""
        del types
        named = kwargs or {}
        name = getattr(func, "__name__", "")
        inputs = [each for each in tree_leaves((args, named)) if isinstance(each, Tensor)]
        found = func(*args, **named)
        # torch.tensor(5), not torch.as_tensor(a_tensor)
        if name in _FACTORIES and not inputs:
            if named.get("device") is None:
                self._remember(found, f"torch.{name}(…)")
        # loss.cpu() + hidden: works here, fails on a GPU
        elif name in ("cpu", "numpy"):
            found = self._on_the_cpu(found)
        elif name in ("to", "cuda", "type_as"):
            found = self._moved(found, args, named, name)
        else:
            self._computed(found, inputs, name)
        return found

    def _computed(self, found: object, inputs: list[Tensor], name: str) -> None:
        here = [self._made[id(each)] for each in inputs if id(each) in self._made]
        if not here:
            return
        if len(here) == len(inputs):
            # torch.arange(3) * 2 is as much on the CPU as torch.arange(3)
            self._remember(found, here[0][1])
            return
        large = [made for tensor, made in here if tensor.dim()]  # a GPU takes single numbers
        if large and name not in _MIXERS:
            raise ConformanceFailure(
                f"{name}() computes with the batch and with what {large[0]} made, which has no "
                "device and would be on the CPU while the batch is on a GPU",
                "name the device, torch.arange(n, device=batch.input_ids.device), or make it from "
                "another tensor: values.new_zeros(…); constants are buffers",
            )

    def _moved(
        self, found: Tensor, args: tuple[Any, ...], named: dict[str, Any], name: str
    ) -> Tensor:
        """Return a tensor that was moved; as all is on the CPU, it may be the same one."""
        given = [*args[1:], *named.values()]
        to_device = name != "to" or any(
            isinstance(each, torch.device | str | Tensor) for each in given
        )
        made = self._made.get(id(args[0]))
        if made is None:
            return found
        if to_device:
            # x.to(batch.input_ids.device) is x itself here; a view is an object of its own
            return found.view(found.shape) if found is args[0] else found
        self._remember(found, made[1])
        return found

    def _on_the_cpu(self, found: object) -> object:
        if not isinstance(found, Tensor):
            return found
        apart = found.view(found.shape)  # the original stays where it is
        self._remember(apart, ".cpu()")
        return apart

    def _remember(self, found: object, made: str) -> None:
        for each in tree_leaves(found):
            if isinstance(each, Tensor):
                self._made[id(each)] = (each, made)
