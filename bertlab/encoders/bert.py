"""A layer of the paper's encoder: post-LN self-attention and feed-forward over packed tokens.

The paper's encoder (Devlin et al. 2018, sec. 3): a post-LN Transformer over packed tokens.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertlab.api.batch import EncoderOutput, PackedBatch, pad_to_multiple_of
from bertlab.api.encoder import Encoder
from bertlab.encoders.attention import dtype_of_products, keys_seen, packed_attention
from bertlab.encoders.bert_form import SIZES, BertForm
from bertlab.encoders.layers import (
    Dropout,
    check_sizes,
    choose_preset,
    final_states,
    given_or,
    initialize,
    packed_lstm,
    rows_read,
    states_at_rows,
    summary_token,
)
from bertlab.errors import ConfigError, check_at_least, check_choice

_ROWS = 16  # a multiple of which the last layer computes where it leaves out some


class BertLayer(nn.Module):
    """Self-attention, then a feed-forward network, each followed by add and LayerNorm."""

    def __init__(
        self,
        hidden_size: int,
        num_attention_heads: int,
        intermediate_size: int,
        hidden_dropout_prob: float,
        attention_probs_dropout_prob: float,
        layer_norm_eps: float,
        causal: bool,
    ) -> None:
        super().__init__()
        self.attention = SelfAttention(
            hidden_size, num_attention_heads, attention_probs_dropout_prob, causal
        )
        self.attention_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.intermediate = nn.Linear(hidden_size, intermediate_size)
        self.output = nn.Linear(intermediate_size, hidden_size)
        self.output_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.dropout = Dropout(hidden_dropout_prob)

    def forward(self, hidden: Tensor, batch: PackedBatch, rows: Tensor | None = None) -> Tensor:
        """Map ``(T, H)`` to ``(T, H)``; with ``(N,)`` ascending ``rows``, to those of these.

        On a CPU more rows follow, as bf16 products are compiled anew for each shape.
        """
        attended = self.dropout(self.attention(hidden, batch, rows))
        if rows is not None:
            hidden = pad_to_multiple_of(hidden.index_select(0, rows), _ROWS)
        # in autocast, norms compute in float32; what is kept between them has products' dtype
        hidden = self.attention_norm(hidden + attended).to(attended.dtype)
        expanded = F.gelu(self.intermediate(hidden))  # exact, with erf, as BERT's code
        output = self.dropout(self.output(expanded))
        normed: Tensor = self.output_norm(hidden + output)
        return normed.to(output.dtype)


class SelfAttention(nn.Module):
    """Multi-head self-attention; queries, keys and values from one matrix product.

    The attention of an encoder can be shown and measured if all its layers of attention are of this
    class. A subclass may change :meth:`queries_keys_values`, and with :meth:`attend` also
    :meth:`keys_seen`, but not :meth:`forward`.

    Args:
        hidden_size: H.
        num_attention_heads: A.
        dropout: probability of dropping an attention weight in training.
        causal: a token sees itself and what is to its left.
        bias: biases in both linear layers.
    """

    def __init__(
        self,
        hidden_size: int,
        num_attention_heads: int,
        dropout: float,
        causal: bool,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size, bias=bias)
        self.output = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.num_attention_heads = num_attention_heads
        self.dropout = dropout
        self.causal = causal

    def queries_keys_values(self, hidden: Tensor, positions: Any = None) -> Tensor:  # noqa: ANN401
        """Return what attention is computed of, ``(T, 3 * H)`` side by side.

        Args:
            hidden: ``(T, H)`` states; on a CPU more rows may follow.
            positions: what a subclass needs besides, such as rotary angles.
        """
        del positions
        found: Tensor = self.qkv(hidden)
        return found

    def attend(self, qkv: Tensor, batch: PackedBatch, rows: Tensor | None = None) -> Tensor:
        """Return what the tokens, or those at ``(N,)`` ascending rows, attend to, ``(T, H)``."""
        dropout = self.dropout if self.training else 0.0
        return packed_attention(qkv, batch, self.num_attention_heads, dropout, self.causal, rows)

    def keys_seen(self, places: Tensor) -> Tensor:
        """Return which keys each query of a sequence sees, ``(S, S)`` bool."""
        return keys_seen(places, self.causal)

    def forward(
        self,
        hidden: Tensor,
        batch: PackedBatch,
        rows: Tensor | None = None,
        positions: Any = None,  # noqa: ANN401
    ) -> Tensor:
        """As :meth:`BertLayer.forward`; ``positions`` are for :meth:`queries_keys_values`."""
        attended = self.attend(self.queries_keys_values(hidden, positions), batch, rows)
        if rows is not None:
            attended = pad_to_multiple_of(attended, _ROWS)
        output: Tensor = self.output(attended)
        return output


Preset = Literal["tiny", "mini", "small", "medium", "base", "large"]
PositionEmbedding = Literal["learned", "sinusoidal"]


@dataclass(frozen=True)
class BertSize:
    """Layers L, hidden size H and attention heads A."""

    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int


# base and large: the paper, sec. 3; the small ones: Turc et al. 2019, "Well-Read Students"
PRESETS: dict[Preset, BertSize] = {
    "tiny": BertSize(2, 128, 2),
    "mini": BertSize(4, 256, 4),
    "small": BertSize(4, 512, 8),
    "medium": BertSize(8, 512, 8),
    "base": BertSize(12, 768, 12),
    "large": BertSize(24, 1024, 16),
}


class BertEncoder(Encoder):
    """Token, segment and position embeddings, L Transformer layers, and a pooler.

    The pooler reads the first token, ``[CLS]``; with ``causal`` the last, the only one that has
    seen the whole text; of a BiLSTM the final state of either direction, side by side.

    Args:
        vocab_size: size of the vocabulary; linked to the tokenizer in configs.
        preset: the size whose dimensions are used where none is given below.
        num_hidden_layers: number of Transformer layers, L.
        hidden_size: width of the hidden states, H.
        num_attention_heads: number of attention heads, A; must divide ``hidden_size``.
        intermediate_size: width of the feed-forward layers; 4 H if not given.
        max_position_embeddings: longest sequence in tokens.
        type_vocab_size: number of segments; 1: no token's segment matters, as in RoBERTa.
        hidden_dropout_prob: dropout on embeddings and on each sub-layer's output.
        attention_probs_dropout_prob: dropout on attention weights.
        layer_norm_eps: epsilon of the LayerNorms.
        initializer_range: standard deviation of the initial weights.
        causal: left-to-right attention, for the paper's LTR ablation (sec. 5.1).
        bilstm_layers: layers of a randomly initialised bidirectional LSTM on top of the last layer,
            which fine-tuning trains with the rest (sec. 5.1, "LTR & No NSP + BiLSTM"); ``tokens``
            and ``pooled`` of the output are then made from it, ``all_layers`` is not. As a position
            sees both sides, the attribute ``causal`` is then False.
        position_embedding: learned (BERT) or sinusoidal (Vaswani et al. 2017, sec. 3.5).
        pad_token_id: kept for Hugging Face's config; packed batches hold no padding.

    Raises:
        ConfigError: if the heads do not divide the hidden size, a size is out of range, or the
            hidden size cannot be halved for the two directions of a BiLSTM.
    """

    huggingface = (BertForm(),)
    sinusoidal_table: Tensor

    def __init__(
        self,
        vocab_size: int,
        preset: Preset = "base",
        num_hidden_layers: int | None = None,
        hidden_size: int | None = None,
        num_attention_heads: int | None = None,
        intermediate_size: int | None = None,
        max_position_embeddings: int = 512,
        type_vocab_size: int = 2,
        hidden_dropout_prob: float = 0.1,
        attention_probs_dropout_prob: float = 0.1,
        layer_norm_eps: float = 1e-12,  # BERT's code; torch has 1e-5
        initializer_range: float = 0.02,
        causal: bool = False,
        position_embedding: PositionEmbedding = "learned",
        pad_token_id: int = 0,
        bilstm_layers: int = 0,
    ) -> None:
        super().__init__()
        size = choose_preset(preset, PRESETS)
        self.vocab_size = vocab_size
        self.num_hidden_layers = given_or(num_hidden_layers, size.num_hidden_layers)
        self.hidden_size = given_or(hidden_size, size.hidden_size)
        self.num_attention_heads = given_or(num_attention_heads, size.num_attention_heads)
        self.intermediate_size = given_or(intermediate_size, 4 * self.hidden_size)
        self.max_position_embeddings = max_position_embeddings
        self.type_vocab_size = type_vocab_size
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.layer_norm_eps = layer_norm_eps
        self.initializer_range = initializer_range
        self.causal = causal and not bilstm_layers
        self.reads_directions = not bilstm_layers
        self.bilstm_layers = bilstm_layers
        self.position_embedding_type = position_embedding
        self.pad_token_id = pad_token_id
        self._check_sizes()

        width = self.hidden_size
        self.token_embedding = nn.Embedding(vocab_size, width)
        check_choice("model.encoder.position_embedding", position_embedding, PositionEmbedding)
        if position_embedding == "learned":
            self.position_embedding = nn.Embedding(max_position_embeddings, width)
        else:
            table = sinusoidal_positions(max_position_embeddings, width)
            self.register_buffer("sinusoidal_table", table, persistent=False)
        self.token_type_embedding = nn.Embedding(type_vocab_size, width)
        self.embedding_norm = nn.LayerNorm(width, eps=layer_norm_eps)
        self.dropout = Dropout(hidden_dropout_prob)
        self.layers = nn.ModuleList(
            BertLayer(
                hidden_size=width,
                num_attention_heads=self.num_attention_heads,
                intermediate_size=self.intermediate_size,
                hidden_dropout_prob=hidden_dropout_prob,
                attention_probs_dropout_prob=attention_probs_dropout_prob,
                layer_norm_eps=layer_norm_eps,
                causal=causal,
            )
            for _ in range(self.num_hidden_layers)
        )
        self.pooler = nn.Linear(width, width)
        initialize(self, initializer_range)
        one_token = partial(summary_token, causal=causal)
        self._summary = final_states if bilstm_layers else one_token
        if bilstm_layers:
            # not N(0, 0.02): torch's range goes with the width, and no residual bypasses the gates
            self.bilstm = nn.LSTM(
                width,
                width // 2,
                num_layers=bilstm_layers,
                dropout=hidden_dropout_prob if bilstm_layers > 1 else 0.0,
                bidirectional=True,
            )

    def forward(self, batch: PackedBatch, all_layers: bool = False) -> EncoderOutput:
        """Encode T packed tokens into ``(T, H)`` hidden states."""
        hidden = self._embed(batch)
        tokens = len(hidden)
        if hidden.device.type == "cpu":
            hidden = pad_to_multiple_of(hidden)
        hidden = self.dropout(self.embedding_norm(hidden)).to(dtype_of_products(hidden))
        layers = [hidden[:tokens]]
        # a BiLSTM reads the states of all tokens, and all_layers returns them
        read = None if all_layers or self.bilstm_layers else rows_read(batch, self._summary)
        for number, layer in enumerate(self.layers, 1):
            hidden = layer(hidden, batch, read if number == len(self.layers) else None)
            if all_layers:
                layers.append(hidden[:tokens])
        hidden = states_at_rows(hidden, read, tokens)
        if self.bilstm_layers:
            hidden = packed_lstm(self.bilstm, hidden, batch.lengths)
        return EncoderOutput(
            tokens=hidden,
            batch=batch,
            pooler=self._pool,
            all_layers=layers if all_layers else None,
            summary=self._summary,
        )

    def _embed(self, batch: PackedBatch) -> Tensor:
        tokens: Tensor = self.token_embedding(batch.input_ids)
        has_segments = self.type_vocab_size > 1
        types = batch.token_type_ids if has_segments else torch.zeros_like(batch.token_type_ids)
        segments: Tensor = self.token_type_embedding(types)
        if self.position_embedding_type == "learned":
            positions: Tensor = self.position_embedding(batch.position_ids)
        else:
            positions = self.sinusoidal_table[batch.position_ids]
        return tokens + segments + positions

    def _pool(self, cls: Tensor) -> Tensor:
        return torch.tanh(self.pooler(cls))

    def _check_sizes(self) -> None:
        check_sizes(self, (*SIZES,), ("layer_norm_eps",))
        check_at_least("model.encoder.bilstm_layers", self.bilstm_layers, 0)
        if self.bilstm_layers and self.hidden_size % 2:
            raise ConfigError(
                f"model.encoder.hidden_size: found {self.hidden_size}, expected an even number, as "
                "the two directions of the BiLSTM have half of it each; or set "
                "model.encoder.bilstm_layers: 0"
            )


def sinusoidal_positions(length: int, width: int) -> Tensor:
    """Fixed positions of Vaswani et al. 2017, sec. 3.5.

    Returns:
        ``(length, width)`` float32: sine at even and cosine at odd dimensions, with wavelengths
        from 2π to 10000 · 2π.
    """
    position = torch.arange(length, dtype=torch.float32)[:, None]
    even = torch.arange(0, width, 2, dtype=torch.float32)
    # position / 10000 ** (even / width)
    angle = position * torch.exp(even * (-math.log(10000.0) / width))
    # length 2, width 4: [[0, 1, 0, 1], [0.8415, 0.5403, 0.0100, 0.9999]]
    table = torch.zeros(length, width)
    table[:, 0::2] = torch.sin(angle)
    table[:, 1::2] = torch.cos(angle[:, : width // 2])  # an odd width has a cosine less
    return table
