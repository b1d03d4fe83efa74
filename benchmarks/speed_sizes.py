"""Sizes of the speed comparisons, and what a step of them needs."""

import torch

from bertlab.encoders.bert import BertEncoder
from bertlab_studies.plan.flops import encoder_flops

# layers, hidden size, attention heads
SIZES = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "6x384": (6, 384, 12),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}


def needed_flops(size: str, length: float, share_read: float) -> float:
    """Return the operations that an encoder's forward pass needs for one token.

    Args:
        size: one of :data:`SIZES`.
        length: tokens of a sequence.
        share_read: share of the tokens whose last states are read; of the last layer, all but keys
            and values is needed for these only.
    """
    layers, width, heads = SIZES[size]
    with torch.device("meta"):
        encoder = BertEncoder(
            1, num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads
        )
    unread = 2 * (2 * width * width + 2 * width * encoder.intermediate_size) + 4 * length * width
    return encoder_flops(encoder, length) - (1 - share_read) * unread
