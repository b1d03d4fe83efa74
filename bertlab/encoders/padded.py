"""Padded batches: for exporters, which need shapes that no data decides.

Training, evaluation and prediction run over packed tokens. What is here computes the same from the
same layers, in evaluation mode, with plain matrix products. B is the number of sequences, S the
length of the longest, H the hidden size, A of heads.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertlab.encoders.attention import keys_seen

if TYPE_CHECKING:
    from bertlab.encoders.bert import BertEncoder


class PaddedBert(nn.Module):
    """A BERT without BiLSTM, see :meth:`bertlab.Encoder.padded_form`."""

    def __init__(self, encoder: "BertEncoder") -> None:
        super().__init__()
        self.encoder = encoder

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return ``(B, S, H)`` states and the ``(B, H)`` pooled output."""
        encoder = self.encoder
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        learned = encoder.position_embedding_type == "learned"
        table = encoder.position_embedding.weight if learned else encoder.sinusoidal_table
        types = token_type_ids
        if types is None or encoder.type_vocab_size == 1:
            types = torch.zeros_like(input_ids)
        hidden = encoder.token_embedding(input_ids) + encoder.token_type_embedding(types)
        hidden = encoder.embedding_norm(hidden + F.embedding(places, table))
        seen = (attention_mask[:, None, None, :] > 0) & keys_seen(places, encoder.causal)
        layers: Any = encoder.layers
        for layer in layers:
            attention = layer.attention
            attended = padded_attention(attention.qkv(hidden), seen, attention.num_attention_heads)
            hidden = layer.attention_norm(hidden + attention.output(attended))
            hidden = layer.output_norm(hidden + layer.output(F.gelu(layer.intermediate(hidden))))
        summary = padded_summary(hidden, attention_mask, encoder.causal)
        return hidden, torch.tanh(encoder.pooler(summary))


def padded_attention(qkv: Tensor, seen: Tensor, num_heads: int) -> Tensor:
    """Return ``(B, S, H)`` of ``(B, S, 3 * H)`` queries, keys and values side by side."""
    query, key, value = (
        each.view(*each.shape[:2], num_heads, -1).transpose(1, 2)  # (B, A, S, H / A)
        for each in qkv.chunk(3, -1)
    )
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    # not -inf: where a query of padding sees nothing at all, softmax would give NaN
    scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
    attended: Tensor = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
    return attended


def padded_summary(hidden: Tensor, mask: Tensor, causal: bool) -> Tensor:
    """Return the ``(B, H)`` states that the pooler reads: of the first token, or of the last."""
    if not causal:
        return hidden[:, 0]
    last = (mask.sum(1) - 1)[:, None, None]  # (B, 1, 1)
    return hidden.take_along_dim(last, 1).squeeze(1)
