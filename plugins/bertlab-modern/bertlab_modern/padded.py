"""The modern encoder on padded batches: for exporters, see ``bertlab_interop.padded``.

It computes what the packed one does from the same layers, in evaluation mode. B is the number of
sequences, S the length of the longest, H the hidden size, A of heads.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from bertlab import padded_attention, padded_summary  # of bertlab-interop, which asks for the form
from bertlab_modern.modern_layer import ModernLayer
from bertlab_modern.rotary import Rotation, rotation_of

if TYPE_CHECKING:
    from bertlab_modern.modern import ModernEncoder


class PaddedModern(nn.Module):
    """A modern encoder whose layers are shared."""

    def __init__(self, encoder: "ModernEncoder") -> None:
        super().__init__()
        self.encoder = encoder

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return ``(B, S, H)`` states and the ``(B, H)`` pooled output."""
        encoder = self.encoder
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        hidden = encoder.token_embedding(input_ids)
        if encoder.position_embedding_type == "learned":
            hidden = hidden + encoder.position_embedding(places)
        if encoder.type_vocab_size:
            types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
            hidden = hidden + encoder.token_type_embedding(types)
        hidden = encoder.embedding_norm(hidden)
        head_size = encoder.hidden_size // encoder.num_attention_heads
        for number, layer in enumerate(encoder.layers):
            assert isinstance(layer, ModernLayer)
            rotation = None
            if encoder.position_embedding_type == "rotary":
                longest, theta = input_ids.shape[1], encoder.theta(number)
                rotation = rotation_of(places, longest, head_size, theta, hidden.dtype)
            # (B, 1, S, S), of a (B, S) mask
            seen = (attention_mask[:, None, None, :] > 0) & layer.attention.keys_seen(places)
            hidden = _layer(layer, hidden, seen, rotation)
        states: Tensor = encoder.final_norm(hidden)
        pooled: Tensor = encoder.pooler(padded_summary(states, attention_mask, encoder.causal))
        return states, pooled


def _layer(layer: ModernLayer, hidden: Tensor, seen: Tensor, rotation: Rotation | None) -> Tensor:
    attention, is_pre = layer.attention, layer.is_pre_norm
    qkv = attention.qkv(layer.attention_norm(hidden) if is_pre else hidden)
    if rotation is not None:
        qkv = _rotated(qkv, rotation, attention.num_attention_heads)
    attended = attention.output(padded_attention(qkv, seen, attention.num_attention_heads))
    if is_pre:
        hidden = hidden + attended
        return hidden + layer.feed_forward(layer.feed_forward_norm(hidden))
    hidden = layer.attention_norm(hidden + attended)
    normed: Tensor = layer.feed_forward_norm(hidden + layer.feed_forward(hidden))
    return normed


def _rotated(qkv: Tensor, rotation: Rotation, num_heads: int) -> Tensor:
    """Return ``(B, S, 3 * H)`` with its queries and keys turned, as :func:`.rotary.rotate`."""
    parts = qkv.view(*qkv.shape[:2], 3, num_heads, 2, -1)  # (B, S, 3, A, 2, d / 2)
    first, second = parts[:, :, :2].unbind(4)  # (B, S, 2, A, d / 2) each
    cos, sin = rotation.cos, rotation.sin  # (S, 1, 1, d / 2)
    turned = torch.stack([first * cos - second * sin, second * cos + first * sin], 4)
    return torch.cat([turned, parts[:, :, 2:]], 2).flatten(2)
