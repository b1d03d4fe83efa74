"""BERT's initialisation: N(0, 0.02) weights, zero biases, identity LayerNorm."""

from torch import nn


def initialize(module: nn.Module, std: float) -> None:
    """Initialise every layer below ``module`` in place, as BERT's code does.

    Args:
        module: Linear and Embedding weights become N(0, ``std``); biases become 0; LayerNorm
            weights 1. The normal is not truncated, as in Hugging Face's port.
        std: standard deviation, ``initializer_range`` in configs.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Embedding):
            nn.init.normal_(layer.weight, std=std)
        if isinstance(layer, nn.LayerNorm):
            nn.init.ones_(layer.weight)
        if isinstance(layer, nn.Linear | nn.LayerNorm) and layer.bias is not None:
            nn.init.zeros_(layer.bias)
