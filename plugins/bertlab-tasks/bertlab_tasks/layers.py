"""Combinations of an encoder's layers (paper sec. 5.3), for heads and for vectors of texts."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from bertlab.api import ConfigError

Combination = Literal["concat", "sum", "mean"]


def check_layers(indices: Sequence[int], count: int, key: str) -> None:
    """Refuse layers that an encoder does not have."""
    if not indices:
        raise ConfigError(f"{key}: found no layer, expected at least one, for example [-1]")
    for index in indices:
        if not -count <= index < count:
            raise ConfigError(
                f"{key}: found {index}, but the encoder has {count - 1} layers; expected 0 "
                f"(embeddings) to {count - 1} (last), or -1 (last) to {-count} (embeddings)"
            )


def combine_layers(
    layers: Sequence[Tensor], indices: Sequence[int], how: Combination, key: str = "layers"
) -> Tensor:
    """Combine hidden states of several layers.

    Args:
        layers: L + 1 tensors ``(T, H)``, embeddings first, as ``EncoderOutput.all_layers``.
        indices: n indices into ``layers``, negative ones from the last.
        how: ``concat`` in the order of ``indices``, ``sum`` or ``mean``.
        key: the config key of ``indices``, to name in errors.

    Returns:
        ``(T, n H)`` for ``concat``, else ``(T, H)``.
    """
    check_layers(indices, len(layers), key)
    chosen = [layers[index] for index in indices]
    if how == "concat":
        return torch.cat(chosen, dim=-1)
    total = torch.stack(chosen).sum(0)
    return total if how == "sum" else total / len(chosen)
