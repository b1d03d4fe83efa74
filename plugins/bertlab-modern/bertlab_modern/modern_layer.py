"""A layer of the modern encoder: self-attention and a feed-forward network, with their norms."""

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from bertlab.api import PackedBatch
from bertlab.extend import Dropout, SelfAttention, pad_to_multiple_of
from bertlab_modern.rotary import Rotation, rotate
from bertlab_modern.windowed import windowed_attention

Norm = Literal["layer", "rms"]
NormPosition = Literal["pre", "post"]
FeedForward = Literal["geglu", "swiglu", "plain"]

_ROWS = 16  # a multiple of which the last layer computes where it leaves out some


@dataclass(frozen=True)
class LayerOptions:
    """What all layers of an encoder share; see :class:`bertlab_modern.modern.ModernEncoder`."""

    hidden_size: int
    num_attention_heads: int
    intermediate_size: int
    norm: Norm
    norm_position: NormPosition
    feed_forward: FeedForward
    attention_bias: bool
    feed_forward_bias: bool
    norm_bias: bool
    hidden_dropout_prob: float
    attention_probs_dropout_prob: float
    layer_norm_eps: float
    causal: bool


class RMSNorm(nn.RMSNorm):
    """``nn.RMSNorm`` in its weight's dtype: in autocast float32, as LayerNorm."""

    def forward(self, x: Tensor) -> Tensor:
        """Scale ``(T, H)`` to a root mean square of 1, then by the weight."""
        return super().forward(x.to(self.weight.dtype))


def new_norm(options: LayerOptions) -> nn.Module:
    """Return a norm of the hidden states; an RMSNorm has no bias."""
    if options.norm == "rms":
        return RMSNorm(options.hidden_size, eps=options.layer_norm_eps)
    return nn.LayerNorm(options.hidden_size, options.layer_norm_eps, bias=options.norm_bias)


class ModernLayer(nn.Module):
    """Self-attention, then a feed-forward network, each with a norm before or after it.

    Args:
        options: of all layers.
        number: of the layer. The first one's attention has no norm before it, as the embeddings'
            norm stands there.
        window: tokens on either side that a token sees; None: all.
    """

    def __init__(self, options: LayerOptions, number: int, window: int | None) -> None:
        super().__init__()
        self.is_pre_norm = options.norm_position == "pre"
        is_bare = self.is_pre_norm and number == 0
        self.attention_norm = nn.Identity() if is_bare else new_norm(options)
        self.attention = RotaryAttention(
            options.hidden_size,
            options.num_attention_heads,
            options.attention_probs_dropout_prob,
            options.causal,
            options.attention_bias,
            window,
        )
        self.feed_forward_norm = new_norm(options)
        width, has_gate = options.intermediate_size, options.feed_forward != "plain"
        bias = options.feed_forward_bias
        self.intermediate = nn.Linear(options.hidden_size, width * (1 + has_gate), bias=bias)
        self.output = nn.Linear(width, options.hidden_size, bias=bias)
        self.has_gate = has_gate
        self.activation = F.silu if options.feed_forward == "swiglu" else F.gelu  # exact, with erf
        self.dropout = Dropout(options.hidden_dropout_prob)

    def forward(
        self,
        hidden: Tensor,
        batch: PackedBatch,
        rotation: Rotation | None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """Map ``(T, H)`` to ``(T, H)``; with ``(N,)`` ascending ``rows``, to those of these.

        On a CPU more rows follow. In autocast, what is added up between pre-norms is float32.
        """
        before = self.attention_norm(hidden) if self.is_pre_norm else hidden
        attended = self.dropout(self.attention(before, batch, rows, rotation))
        if rows is not None:
            hidden = pad_to_multiple_of(hidden.index_select(0, rows), _ROWS)
        hidden = hidden + attended
        output: Tensor
        if self.is_pre_norm:
            output = self.dropout(self.feed_forward(self.feed_forward_norm(hidden)))
            return hidden + output
        # what is kept between post-norms has products' dtype, as in BertLayer
        hidden = self.attention_norm(hidden).to(attended.dtype)
        output = self.dropout(self.feed_forward(hidden))
        normed: Tensor = self.feed_forward_norm(hidden + output)
        return normed.to(output.dtype)

    def feed_forward(self, hidden: Tensor) -> Tensor:
        """Map ``(…, H)`` to ``(…, H)``, each position on its own."""
        expanded = self.intermediate(hidden)
        if self.has_gate:
            activated, gate = expanded.chunk(2, -1)  # (T, 2 I) -> (T, I) twice
            expanded = self.activation(activated) * gate
        else:
            expanded = self.activation(expanded)
        output: Tensor = self.output(expanded)
        return output


class RotaryAttention(SelfAttention):
    """Self-attention whose queries and keys turn with their place.

    Args:
        hidden_size: as of :class:`bertlab.extend.SelfAttention`, like the next four.
        num_attention_heads: A.
        dropout: on attention weights.
        causal: a token sees itself and what is to its left.
        bias: biases in both linear layers.
        window: tokens on either side that a token sees; None: all of its sequence.
    """

    def __init__(
        self,
        hidden_size: int,
        num_attention_heads: int,
        dropout: float,
        causal: bool,
        bias: bool,
        window: int | None,
    ) -> None:
        super().__init__(hidden_size, num_attention_heads, dropout, causal, bias)
        self.window = window

    def queries_keys_values(self, hidden: Tensor, positions: Rotation | None = None) -> Tensor:
        """Return ``(T, 3 * H)``, turned by ``positions``; as they are if that is None."""
        qkv: Tensor = self.qkv(hidden)
        return qkv if positions is None else rotate(qkv, positions, self.num_attention_heads)

    def attend(self, qkv: Tensor, batch: PackedBatch, rows: Tensor | None = None) -> Tensor:
        """Return what the tokens, or those at rows, attend to within the window."""
        if self.window is None:
            return super().attend(qkv, batch, rows)
        dropout, heads = self.dropout if self.training else 0.0, self.num_attention_heads
        return windowed_attention(qkv, batch, heads, dropout, self.causal, rows, self.window)

    def keys_seen(self, places: Tensor) -> Tensor:
        """Return which keys each query of a sequence sees, ``(S, S)`` bool."""
        seen: Tensor = super().keys_seen(places)
        near = (places[:, None] - places).abs() <= (
            len(places) if self.window is None else self.window
        )
        return seen & near


class PredictionHead(nn.Module):
    """ModernBERT's head in front of a classifier: dense layer, GELU, LayerNorm.

    It has biases, as bertlab's masked-LM head does; where a model has none, they are zero.
    """

    def __init__(self, hidden_size: int, layer_norm_eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)

    def forward(self, cls: Tensor) -> Tensor:
        """Map the ``(B, H)`` states that stand for sequences to the pooled output ``(B, H)``."""
        pooled: Tensor = self.norm(F.gelu(self.dense(cls)))
        return pooled


def initialize_modern(encoder: nn.Module, std: float, scaled: bool) -> None:
    """Initialise linear layers and embeddings in place; norms stay 1, biases become 0.

    Args:
        encoder: its ``layers`` are the L layers.
        std: standard deviation of the normal.
        scaled: truncate it at two deviations, and divide it by sqrt(2 L) for the last matrix of
            each sub-layer, so that the sum over all sub-layers does not grow with L.
    """
    layers = [each for each in encoder.modules() if isinstance(each, ModernLayer)]
    ends = {each for layer in layers for each in (layer.attention.output, layer.output)}
    for layer in encoder.modules():
        if not isinstance(layer, nn.Linear | nn.Embedding):
            continue
        if scaled:
            own = std / math.sqrt(2 * len(layers)) if layer in ends else std
            nn.init.trunc_normal_(layer.weight, std=own, a=-2 * own, b=2 * own)
        else:
            nn.init.normal_(layer.weight, std=std)
        if isinstance(layer, nn.Linear) and layer.bias is not None:
            nn.init.zeros_(layer.bias)
