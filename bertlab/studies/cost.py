"""What a run costs, in tokens and floating-point operations, before it is run.

A multiplication and an addition are two operations; only matrix products count, which is all but a
percent. The backward pass needs twice what the forward pass does (Kaplan et al., 2020, sec. 2.1).
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bertlab.encoders.base import Encoder
from bertlab.model_building import build_encoder

_PASSES = 3  # forward, and twice that backward
_VOCABULARY = 30_522  # where none is known yet


@dataclass(frozen=True)
class Cost:
    """Of a training run; of one that is not begun at most, as if all sequences were full.

    Attributes:
        tokens: that the encoder reads.
        flops: floating-point operations that the algorithm needs for them.
    """

    tokens: float
    flops: float


def pretraining_cost(config: dict[str, Any]) -> Cost | None:
    """Return the cost of a pre-training; None if its config does not say how long or large it is.

    That of a fine-tuning does not: its model is another run's.
    """
    if config["model"].get("head") or config["model"].get("init_from"):
        return None
    steps, data = config["trainer"]["max_steps"], config["data"]
    if config.get("max_tokens"):
        tokens = float(config["max_tokens"])
    elif steps is not None and steps > 0:
        length = data["max_seq_length"]
        tokens = float(steps) * (data["batch_tokens"] or (data["batch_size"] or 256) * length)
    else:
        return None
    return cost_of(config, tokens, data["max_seq_length"])


def measured_cost(config: dict[str, Any], manifest: dict[str, Any]) -> Cost:
    """Return the cost of a run by its config, with all sizes, and its manifest."""
    return cost_of(config, manifest["training_tokens"], manifest["mean_sequence_length"])


def cost_of(config: dict[str, Any], tokens: float, sequence_length: float) -> Cost:
    """Return the cost of training on ``tokens`` in sequences of about one length."""
    vocab_size = config["data"].get("vocab_size") or _VOCABULARY
    encoder = meta_encoder(config, vocab_size)
    forward = encoder_flops(encoder, sequence_length)
    for name, objective in (config["model"].get("objectives") or {}).items():
        forward += _predicted_share(name, objective) * _language_model_flops(encoder)
    return Cost(tokens, tokens * _PASSES * forward)


def meta_encoder(config: dict[str, Any], vocab_size: int = _VOCABULARY) -> Encoder:
    """Return the encoder of a config without memory for its weights."""
    with torch.device("meta"):
        return build_encoder(config["model"]["encoder"], vocab_size)


def encoder_flops(encoder: Encoder, sequence_length: float) -> float:
    """Return the operations of a forward pass for one of the tokens of a sequence."""
    attention = 4 * sequence_length * encoder.hidden_size * encoder.num_hidden_layers
    return 2 * (_weights(encoder) - _weights(encoder.pooler)) + attention


def _language_model_flops(encoder: Encoder) -> float:
    """Of the transform and the projection on the vocabulary, for one predicted token."""
    width = encoder.hidden_size
    return 2.0 * width * (width + encoder.vocab_size)


def _predicted_share(name: str, objective: dict[str, Any]) -> float:
    """Share of tokens that an objective predicts; other objectives' heads cost next to nothing."""
    shares = {"mlm": objective.get("rate", 0.15), "clm": 1.0}
    return float(shares.get(name, 0.0))


def _weights(module: nn.Module) -> int:
    """Number of weights that each token is multiplied with: of linear and recurrent layers."""
    return sum(
        parameter.numel()
        for layer in module.modules()
        if isinstance(layer, nn.Linear | nn.RNNBase)
        for parameter in layer.parameters(recurse=False)
        if parameter.dim() > 1
    )
