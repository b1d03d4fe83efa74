"""``lora``: low-rank changes of an encoder's matrices in place of training all of it."""

import re
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from bertlab import ConfigError, check_at_least, nearest
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
            ``model.optimizer.frozen_layers`` do not change. A part of no such name is refused.
    """

    def __init__(
        self, rank: int = 8, alpha: float = 16.0, targets: list[str] | None = None
    ) -> None:
        check_at_least("model.adapter.rank", rank, 1)
        if isinstance(targets, str):  # whose items are its letters
            raise ConfigError(f"model.adapter.targets: found {targets!r}, expected a list of names")
        self.rank, self.alpha, self.targets = rank, alpha, targets
        self.scale = alpha / rank

    def adapt(self, encoder: Encoder) -> None:
        """Freeze the encoder but its pooler, and add a change to each target."""
        linears = dict(_trained_linears(encoder))
        _check_targets(self.targets, linears)
        targets = [""] if self.targets is None else self.targets  # "" is part of every name
        adapted = {n: each for n, each in linears.items() if any(part in n for part in targets)}
        for name, parameter in encoder.named_parameters():
            if not name.startswith("pooler."):
                parameter.requires_grad_(False)
        for linear in adapted.values():
            change = LowRankChange(linear.weight, self.rank, self.scale)
            register_parametrization(linear, "weight", change)
        names = tuple(adapted)
        hooked: Any = encoder  # torch has no types here
        hooked.register_state_dict_post_hook(partial(_merge, names=names))
        hooked.register_load_state_dict_pre_hook(partial(_take_apart, names=names))


def _trained_linears(encoder: Encoder) -> Iterator[tuple[str, nn.Linear]]:
    """Yield the linear layers within the encoder's layers, not those that are frozen already."""
    inside = {id(part) for layer in layers_of(encoder) for part in layer.modules()}
    for name, module in encoder.named_modules():
        is_linear = isinstance(module, nn.Linear) and id(module) in inside
        if is_linear and module.weight.requires_grad:
            yield name, module


def _check_targets(targets: list[str] | None, names: Collection[str]) -> None:
    """Refuse what is part of no name, and where nothing would change."""
    unknown = [each for each in targets or () if not any(each in name for name in names)]
    if names and targets != [] and not unknown:
        return
    # layers.11.attention.qkv -> attention.qkv
    ends = dict.fromkeys(re.sub(r"^.*?\.\d+\.", "", name) for name in names)
    parts = {part for end in ends for part in (end, *end.split("."))}
    hint = nearest(unknown[0], sorted(parts)) if unknown else ""
    raise ConfigError(
        f"model.adapter.targets: found {unknown or targets}, but no linear layer of the encoder "
        f"that is trained has such a name, expected parts of {', '.join(ends) or 'one'}{hint}"
    )


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
