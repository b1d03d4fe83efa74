"""``lora``: low-rank changes of an encoder's matrices in place of training all of it."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from bertlab import ConfigError, check_at_least
from bertlab.api import Adapter, Encoder
from bertlab.extend import layers_of

_BASE = "parametrizations.weight.original"
_CHANGE = "parametrizations.weight.0."
# what a state dict has beside the merged weight; it is enough to go on with
KEPT: dict[str, str] = {"lora_base": _BASE, "lora_a": f"{_CHANGE}a", "lora_b": f"{_CHANGE}b"}


class LowRankChange(nn.Module):
    """Adds ``scale · B A`` to a weight ``(N, M)``; A is ``(rank, M)`` and B ``(N, rank)``.

    B begins as 0, so that nothing is changed before the first step.
    """

    def __init__(self, weight: Tensor, rank: int, scale: float) -> None:
        super().__init__()
        rows, columns = weight.shape
        self.scale = scale
        # as nn.Linear begins: uniform within 1 / sqrt(M)
        self.a = nn.Parameter(weight.new_empty(rank, columns).uniform_(-1, 1) * columns**-0.5)
        self.b = nn.Parameter(weight.new_zeros(rows, rank))

    def forward(self, weight: Tensor) -> Tensor:
        """Return the changed weight."""
        return weight + self.scale * (self.b @ self.a)


class LoRA(Adapter):
    """Low-rank adaptation (Hu et al. 2022): train ``W + alpha / rank · B A`` with W as it is.

    Of the encoder, the changes of its layers' matrices are trained, and the pooler where a task
    reads it. Checkpoints have the merged weights under the encoder's own names, beside W, A and B.

    Args:
        rank: columns of B, and rows of A.
        alpha: strength; the change is multiplied by ``alpha / rank``.
        targets: parts of names of the linear layers that change, such as ``attention``; all
            linear layers of the encoder's layers if not given. Layers below
            ``model.optimizer.frozen_layers`` do not change.
    """

    def __init__(
        self, rank: int = 8, alpha: float = 16.0, targets: list[str] | None = None
    ) -> None:
        check_at_least("model.adapter.rank", rank, 1)
        self.rank, self.alpha, self.targets = rank, alpha, targets
        self.scale = alpha / rank

    def adapt(self, encoder: Encoder) -> None:
        """Freeze the encoder but its pooler, and add a change to each target."""
        adapted = dict(self._targets(encoder))  # not in layers that are frozen already
        for name, parameter in encoder.named_parameters():
            if not name.startswith("pooler."):
                parameter.requires_grad_(False)
        if not adapted:
            raise ConfigError(
                f"model.adapter.targets: found {self.targets}, but no linear layer of the encoder "
                "has such a name (as in: attention)"
            )
        for linear in adapted.values():
            change = LowRankChange(linear.weight, self.rank, self.scale)
            register_parametrization(linear, "weight", change)
        names = tuple(adapted)
        hooked: Any = encoder  # torch has no types here
        hooked.register_state_dict_post_hook(partial(_merge, names=names))
        hooked.register_load_state_dict_pre_hook(partial(_take_apart, names=names))

    def _targets(self, encoder: Encoder) -> Iterator[tuple[str, nn.Linear]]:
        inside = {id(part) for layer in layers_of(encoder) for part in layer.modules()}
        for name, module in encoder.named_modules():
            is_wanted = self.targets is None or any(each in name for each in self.targets)
            if not isinstance(module, nn.Linear) or id(module) not in inside:
                continue
            if is_wanted and module.weight.requires_grad:
                yield name, module


def _merge(
    encoder: nn.Module,
    state: dict[str, Any],
    prefix: str,
    metadata: object,
    *,
    names: tuple[str, ...],
) -> None:
    """Put the merged weight in its place, with W, A and B beside it."""
    del metadata
    for name in names:
        linear, start = encoder.get_submodule(name), f"{prefix}{name}."
        for kept, own in KEPT.items():
            state[f"{start}{kept}"] = state.pop(f"{start}{own}")
        with torch.no_grad():
            assert isinstance(linear.weight, Tensor)
            state[f"{start}weight"] = linear.weight.detach()


def _take_apart(
    encoder: nn.Module, state: dict[str, Any], prefix: str, *_: object, names: tuple[str, ...]
) -> None:
    """Give the names back that the adapted encoder has."""
    del encoder
    for name in names:
        start = f"{prefix}{name}."
        del state[f"{start}weight"]
        for kept, own in KEPT.items():
            state[f"{start}{own}"] = state.pop(f"{start}{kept}")
