"""One feature vector a token from several layers of the encoder (paper sec. 5.3, table 7)."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from bertlab.errors import ConfigError

Combination = Literal["concat", "sum", "mean"]


def check_layers(indices: Sequence[int], count: int, key: str) -> None:
    """Refuse layers that an encoder does not have.

    Args:
        indices: into L + 1 layers; 0 is the embeddings, -1 the last layer.
        count: L + 1.
        key: the config key to name in errors.

    Raises:
        ConfigError: if there is no index, or one is out of range.
    """
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

    Raises:
        ConfigError: if there is no index, or one is out of range.
    """
    check_layers(indices, len(layers), key)
    chosen = [layers[index] for index in indices]
    if how == "concat":
        return torch.cat(chosen, dim=-1)
    total = torch.stack(chosen).sum(0)
    return total if how == "sum" else total / len(chosen)


class WeightedSum(nn.Module):
    """Learned mix of n layers: softmax weights and a scale (Peters et al. 2018, eq. 1).

    Starts as the mean.

    Args:
        count: n, the number of layers that are mixed.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(count))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """Mix n tensors ``(T, H)`` to ``(T, H)``."""
        shares = self.scale * self.weights.softmax(0)
        return torch.einsum("n,nth->th", shares, torch.stack(list(layers)))
