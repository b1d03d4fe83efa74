"""The layers of an encoder that an evaluation reads, and means of their states."""

from typing import Literal

import torch
from torch import Tensor

from bertlab.api import ConfigError, PackedBatch
from bertlab_tasks.layers import check_layers

Layers = Literal["all"] | list[int]


def chosen_layers(layers: str | list[int], count: int, key: str = "settings.layers") -> list[int]:
    """Return the places of the layers that a user asks for, each once.

    Args:
        layers: ``all``, or indices; negative ones count from the last.
        count: L + 1, the layers that the encoder gives, embeddings included.
        key: the config key to name in errors.

    Raises:
        ConfigError: there is none, one is out of range, or it is another word than ``all``.
    """
    if layers == "all":
        return list(range(count))
    if isinstance(layers, str):
        raise ConfigError(f"{key}: found {layers!r}, expected all or a list such as [0, -1]")
    check_layers(layers, count, key)
    return list(dict.fromkeys(index % count for index in layers))  # 13 layers: -1 -> 12


def mean_by_sequence(tokens: Tensor, batch: PackedBatch) -> Tensor:
    """Return the ``(B, H)`` means over the tokens of each sequence, special tokens included."""
    # lengths [2, 3] -> sequence [0, 0, 1, 1, 1]
    sequence = torch.repeat_interleave(
        torch.arange(len(batch), device=tokens.device), batch.lengths
    )
    total = tokens.new_zeros(len(batch), tokens.shape[1]).index_add_(0, sequence, tokens)
    return total / batch.lengths[:, None]
