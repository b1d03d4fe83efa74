"""Depths of an encoder's layers: for rates that fall from layer to layer, and layers that stay.

``model.optimizer.layer_decay`` and ``frozen_layers`` of a config, with any optimizer.
"""

import re
from typing import Literal

from torch import nn

from bertlab.api import ConfigError, Encoder


def freeze_layers(encoder: nn.Module, frozen: int | Literal["all"]) -> None:
    """Set ``requires_grad`` to False in the part of an encoder that is not trained.

    Args:
        encoder: any; need not be ``bert``.
        frozen: 0 the embeddings, n also the n lowest layers, ``all`` the encoder with its pooler.

    Raises:
        ConfigError: there are not so many layers.
    """
    if frozen == "all":
        encoder.requires_grad_(False)
        return
    depths = parameter_depths(encoder, "frozen_layers")
    embeddings = max(depths.values())
    if not 0 <= frozen < embeddings - 1:
        raise ConfigError(
            f"model.optimizer.frozen_layers: found {frozen}, expected 0 (embeddings) "
            f"to {embeddings - 2}, as the encoder has {embeddings - 1} layers, or all"
        )
    # 12 layers: embeddings 13, layers.0 12, …; frozen 2 -> depths 11 to 13
    for parameter, depth in depths.items():
        if depth >= embeddings - frozen:
            parameter.requires_grad_(False)


def parameter_depths(encoder: nn.Module, option: str) -> dict[nn.Parameter, int]:
    """Return how far below the head each parameter of an encoder with L layers is.

    The names of parameters tell: ``layers.N.*`` is ``L - N`` (or as ``layer_lists`` calls them),
    what is registered before them is the embeddings, ``L + 1``, and what comes after them (pooler,
    last LayerNorm) is 0. ``pooler.*`` is 0 and ``token_embedding.*`` is ``L + 1`` in any order.

    Args:
        encoder: any; need not be ``bert``.
        option: key of ``model.optimizer`` that asks, for the message.

    Raises:
        ConfigError: if no parameter is called ``layers.N.*``.
    """
    lists = getattr(encoder, "layer_lists", Encoder.layer_lists)
    layer = re.compile(rf"(?:{'|'.join(map(re.escape, lists))})\.(\d+)\.")  # layers.11.qkv -> 11
    names = [name for name, _ in encoder.named_parameters()]
    numbers = [int(match[1]) for name in names if (match := layer.match(name))]
    if not numbers:
        raise ConfigError(
            f"model.optimizer.{option}: the encoder {type(encoder).__name__} has no parameters "
            f"called {lists[0]}.0.*, {lists[0]}.1.*, …, so its layers are not known; leave the "
            "option out"
        )
    # of two layers: token_embedding 3, layers.0 2, layers.1 1, pooler 0
    top = max(numbers) + 1
    depths: dict[nn.Parameter, int] = {}
    reached_layers = False
    for name, parameter in encoder.named_parameters():
        match = layer.match(name)
        reached_layers = reached_layers or match is not None
        if match:
            depths[parameter] = top - int(match[1])
        elif name.startswith("token_embedding."):
            depths[parameter] = top + 1
        else:
            above = reached_layers or name.startswith("pooler.")
            depths[parameter] = 0 if above else top + 1
    return depths
