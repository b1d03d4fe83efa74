"""The encoders once more, on padded batches: for exporters, which need shapes that no data decides.

Training, evaluation and prediction run over packed tokens (:mod:`bertlab.encoders.bert`). What is
here computes the same from the same layers, in evaluation mode, with plain matrix products. B is
the number of sequences, S the length of the longest, H the hidden size, A of heads.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertlab.api.encoder import Encoder
from bertlab.encoders.attention import keys_seen
from bertlab.encoders.bert import BertEncoder, BertLayer
from bertlab_modern.modern import ModernEncoder
from bertlab_modern.modern_layer import ModernLayer
from bertlab_modern.rotary import Rotation, rotation_of


def lacks_padded_form(encoder: Encoder) -> str | None:
    """Say why an encoder cannot run on padded batches; None if it can."""
    if not isinstance(encoder, BertEncoder | ModernEncoder):
        return f"{type(encoder).__name__} is another encoder than bert and modern"
    if isinstance(encoder, BertEncoder) and encoder.bilstm_layers:
        return "it has a BiLSTM (model.encoder.bilstm_layers)"
    return None


class PaddedEncoder(nn.Module):
    """An encoder of packed tokens, on padded ones.

    Args:
        encoder: of which :func:`lacks_padded_form` says None; its layers are shared.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        reason = lacks_padded_form(encoder)
        if reason is not None:
            raise ValueError(reason)
        self.encoder = encoder

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Encode ``(B, S)`` ids.

        Args:
            input_ids: ``(B, S)`` int64; padding stands behind each sequence.
            attention_mask: ``(B, S)`` int64, 1 for tokens and 0 for padding.
            token_type_ids: ``(B, S)`` int64 segments; None: all are of segment A.

        Returns:
            ``(B, S, H)`` hidden states, any finite values in the padding; and the ``(B, H)`` pooled
            output.
        """
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        encoder = self.encoder
        if isinstance(encoder, BertEncoder):
            hidden = _bert_states(encoder, input_ids, types, attention_mask)
        else:
            assert isinstance(encoder, ModernEncoder)
            hidden = _modern_states(encoder, input_ids, types, attention_mask)
        summary = hidden[:, 0]
        if encoder.causal:
            last = (attention_mask.sum(1) - 1)[:, None, None]  # (B, 1, 1)
            summary = hidden.take_along_dim(last, 1).squeeze(1)
        pooled: Tensor = encoder.pooler(summary)
        return hidden, torch.tanh(pooled) if isinstance(encoder, BertEncoder) else pooled


def _bert_states(encoder: BertEncoder, ids: Tensor, types: Tensor, mask: Tensor) -> Tensor:
    places = torch.arange(ids.shape[1], device=ids.device)
    learned = encoder.position_embedding_type == "learned"
    table = encoder.position_embedding.weight if learned else encoder.sinusoidal_table
    types = types if encoder.type_vocab_size > 1 else torch.zeros_like(types)
    hidden = encoder.token_embedding(ids) + encoder.token_type_embedding(types)
    hidden = encoder.embedding_norm(hidden + F.embedding(places, table))
    seen = _seen(mask, encoder.causal, None)
    for layer in encoder.layers:
        assert isinstance(layer, BertLayer)
        attention = layer.attention
        attended = _attention(attention.qkv(hidden), seen, attention.num_attention_heads)
        hidden = layer.attention_norm(hidden + attention.output(attended))
        hidden = layer.output_norm(hidden + layer.output(F.gelu(layer.intermediate(hidden))))
    states: Tensor = hidden
    return states


def _modern_states(encoder: ModernEncoder, ids: Tensor, types: Tensor, mask: Tensor) -> Tensor:
    places = torch.arange(ids.shape[1], device=ids.device)
    hidden = encoder.token_embedding(ids)
    if encoder.position_embedding_type == "learned":
        hidden = hidden + encoder.position_embedding(places)
    if encoder.type_vocab_size:
        hidden = hidden + encoder.token_type_embedding(types)
    hidden = encoder.embedding_norm(hidden)
    head_size = encoder.hidden_size // encoder.num_attention_heads
    for number, layer in enumerate(encoder.layers):
        assert isinstance(layer, ModernLayer)
        rotation = None
        if encoder.position_embedding_type == "rotary":
            longest, theta = ids.shape[1], encoder.theta(number)
            rotation = rotation_of(places, longest, head_size, theta, hidden.dtype)
        seen = _seen(mask, encoder.causal, layer.attention.window)
        hidden = _modern_layer(layer, hidden, seen, rotation)
    states: Tensor = encoder.final_norm(hidden)
    return states


def _modern_layer(
    layer: ModernLayer, hidden: Tensor, seen: Tensor, rotation: Rotation | None
) -> Tensor:
    attention, is_pre = layer.attention, layer.is_pre_norm
    qkv = attention.qkv(layer.attention_norm(hidden) if is_pre else hidden)
    if rotation is not None:
        qkv = _rotated(qkv, rotation, attention.num_attention_heads)
    attended = attention.output(_attention(qkv, seen, attention.num_attention_heads))
    if is_pre:
        hidden = hidden + attended
        return hidden + layer.feed_forward(layer.feed_forward_norm(hidden))
    hidden = layer.attention_norm(hidden + attended)
    normed: Tensor = layer.feed_forward_norm(hidden + layer.feed_forward(hidden))
    return normed


def _seen(mask: Tensor, causal: bool, window: int | None) -> Tensor:
    """Return which keys each query sees, ``(B, 1, S, S)`` bool."""
    places = torch.arange(mask.shape[1], device=mask.device)
    return (mask[:, None, None, :] > 0) & keys_seen(places, causal, window)


def _attention(qkv: Tensor, seen: Tensor, num_heads: int) -> Tensor:
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


def _rotated(qkv: Tensor, rotation: Rotation, num_heads: int) -> Tensor:
    """Return ``(B, S, 3 * H)`` with its queries and keys turned, as :func:`.rotary.rotate`."""
    parts = qkv.view(*qkv.shape[:2], 3, num_heads, 2, -1)  # (B, S, 3, A, 2, d / 2)
    first, second = parts[:, :, :2].unbind(4)  # (B, S, 2, A, d / 2) each
    cos, sin = rotation.cos, rotation.sin  # (S, 1, 1, d / 2)
    turned = torch.stack([first * cos - second * sin, second * cos + first * sin], 4)
    return torch.cat([turned, parts[:, :, 2:]], 2).flatten(2)
