"""A layer of the paper's encoder: post-LN self-attention and feed-forward over packed tokens."""

from torch import Tensor, nn
from torch.nn import functional as F

from bertlab.encoders.attention import packed_attention
from bertlab.encoders.dropout import Dropout
from bertlab.packed_batch import PackedBatch, filled

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
            hidden = filled(hidden.index_select(0, rows), _ROWS)
        # in autocast, norms compute in float32; what is kept between them has products' dtype
        hidden = self.attention_norm(hidden + attended).to(attended.dtype)
        expanded = F.gelu(self.intermediate(hidden))  # exact, with erf, as BERT's code
        output = self.dropout(self.output(expanded))
        normed: Tensor = self.output_norm(hidden + output)
        return normed.to(output.dtype)


class SelfAttention(nn.Module):
    """Multi-head self-attention; queries, keys and values from one matrix product."""

    def __init__(
        self, hidden_size: int, num_attention_heads: int, dropout: float, causal: bool
    ) -> None:
        super().__init__()
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)
        self.num_attention_heads = num_attention_heads
        self.dropout = dropout
        self.causal = causal

    def forward(self, hidden: Tensor, batch: PackedBatch, rows: Tensor | None = None) -> Tensor:
        """As :meth:`BertLayer.forward`."""
        dropout = self.dropout if self.training else 0.0
        attended = packed_attention(
            self.qkv(hidden), batch, self.num_attention_heads, dropout, self.causal, rows
        )
        if rows is not None:
            attended = filled(attended, _ROWS)
        output: Tensor = self.output(attended)
        return output
