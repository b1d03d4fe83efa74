"""Sizes of an encoder: those of a preset, what replaces them, and which are refused.

The encoders ``bert`` and ``modern`` share this: they give the same messages for the same mistakes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from bertlab.errors import ConfigError, check_at_least, check_share

Size = TypeVar("Size")
Value = TypeVar("Value", int, bool)


def choose_preset(preset: str, presets: Mapping[Any, Size]) -> Size:
    """Return the sizes of a preset."""
    if preset not in presets:
        raise ConfigError(
            f"model.encoder.preset: found {preset!r}, expected one of {list(presets)}"
        )
    return presets[preset]


def given_or(value: Value | None, default: Value) -> Value:
    """Return what the user gave, or the default if that is None."""
    return default if value is None else value


def check_sizes(encoder: Any, at_least_one: Sequence[str], above_zero: Sequence[str]) -> None:  # noqa: ANN401
    """Check what all Transformer encoders have: sizes, dropout, initial weights, heads."""
    for name in at_least_one:
        check_at_least(f"model.encoder.{name}", getattr(encoder, name), 1)
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        check_share(f"model.encoder.{name}", getattr(encoder, name))
    for name in above_zero:
        if not 0 < getattr(encoder, name) < math.inf:
            raise ConfigError(
                f"model.encoder.{name}: found {getattr(encoder, name)}, expected above 0"
            )
    if not 0 <= encoder.initializer_range < math.inf:
        raise ConfigError(
            f"model.encoder.initializer_range: found {encoder.initializer_range}, expected a "
            "standard deviation of 0 or more"
        )
    if encoder.hidden_size % encoder.num_attention_heads:
        raise ConfigError(
            f"model.encoder.num_attention_heads: {encoder.num_attention_heads} heads do not "
            f"divide hidden_size {encoder.hidden_size}"
        )
