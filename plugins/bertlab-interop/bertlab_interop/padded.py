"""Encoders on padded batches, for exporters such as ONNX: no data decides their shapes.

A padded form computes what the packed one does from the same layers, in evaluation mode, with plain
matrix products. B is the number of sequences, S the length of the longest, H the hidden size, A of
heads.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertlab import BertEncoder
from bertlab.api import Encoder
from bertlab.extend import keys_seen


def padded_form(encoder: Encoder) -> nn.Module:
    """Return a module that computes the same as an encoder on padded batches.

    It is what the encoder's own method ``padded_form()`` returns, if the class has one::

        forward(input_ids, attention_mask, token_type_ids=None) -> (states, pooled)

    ``input_ids``, ``attention_mask`` (1 for tokens, 0 for the padding behind each sequence) and
    ``token_type_ids`` (None: all 0) are ``(B, S)`` int64, ``states`` are ``(B, S, H)`` with any
    finite values in the padding, ``pooled`` is ``(B, H)``.

    Raises:
        NotImplementedError: there is no such form; the message says why.
    """
    own = getattr(encoder, "padded_form", None)
    if own is not None:
        made: nn.Module = own()
        return made
    if not isinstance(encoder, BertEncoder):
        raise NotImplementedError(f"{type(encoder).__name__} has no form for padded batches")
    if encoder.bilstm_layers:
        raise NotImplementedError("it has a BiLSTM (model.encoder.bilstm_layers)")
    return PaddedBert(encoder)


class PaddedBert(nn.Module):
    """A BERT without BiLSTM, whose layers are shared."""

    def __init__(self, encoder: BertEncoder) -> None:
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
    # not take_along_dim: torch.export takes the example's B and S for constants there
    return hidden[torch.arange(hidden.shape[0], device=hidden.device), mask.sum(1) - 1]
