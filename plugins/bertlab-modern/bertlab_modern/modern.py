"""A modern encoder: ModernBERT's layers, each of its changes to BERT an argument of its own.

Warner et al. 2024, "Smarter, Better, Faster, Longer", sec. 2.1: rotary positions, norms in front of
sub-layers, gated feed-forward, no biases, and global attention in every third layer only.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from bertlab import check_at_least, check_choice
from bertlab.api import ConfigError, Encoder, EncoderOutput, PackedBatch
from bertlab.extend import (
    Dropout,
    check_sizes,
    choose_preset,
    dtype_of_products,
    given_or,
    pad_to_multiple_of,
    rows_read,
    states_at_rows,
    summary_token,
)
from bertlab_modern.modern_form import ModernBertForm
from bertlab_modern.modern_layer import (
    FeedForward,
    LayerOptions,
    ModernLayer,
    Norm,
    NormPosition,
    PredictionHead,
    initialize_modern,
    new_norm,
)
from bertlab_modern.rotary import Rotation, rotation_of

Preset = Literal[
    "tiny", "mini", "small", "medium", "base", "large", "modernbert-base", "modernbert-large"
]
PositionEmbedding = Literal["rotary", "learned"]
Initialization = Literal["scaled", "normal"]


@dataclass(frozen=True)
class ModernSize:
    """Layers L, hidden size H, attention heads A; width of the feed-forward if it is not 8/3 H."""

    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    intermediate_size: int | None = None


# BERT's sizes, as in bertlab.encoders.bert; those of ModernBERT: Warner et al. 2024, table 4
PRESETS: dict[Preset, ModernSize] = {
    "tiny": ModernSize(2, 128, 2),
    "mini": ModernSize(4, 256, 4),
    "small": ModernSize(4, 512, 8),
    "medium": ModernSize(8, 512, 8),
    "base": ModernSize(12, 768, 12),
    "large": ModernSize(24, 1024, 16),
    "modernbert-base": ModernSize(22, 768, 12, 1152),
    "modernbert-large": ModernSize(28, 1024, 16, 2624),
}
_AT_LEAST_ONE = (
    "vocab_size",
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "global_every",
    "local_window",
)
_ABOVE_ZERO = ("layer_norm_eps", "rope_theta", "local_rope_theta")


class ModernEncoder(Encoder):
    """Token embeddings, L pre-norm Transformer layers with rotary positions, and a last norm.

    Its pooler is ModernBERT's prediction head (dense layer, GELU, LayerNorm) on the first token; on
    the last one if ``causal``.

    Args:
        vocab_size: size of the vocabulary; linked to the tokenizer in configs.
        preset: the size whose dimensions are used where none is given below: BERT's, and
            ``modernbert-base`` and ``modernbert-large``.
        num_hidden_layers: number of Transformer layers, L.
        hidden_size: width of the hidden states, H.
        num_attention_heads: number of attention heads, A; must divide ``hidden_size``.
        intermediate_size: width of the feed-forward layers. If not given, that with BERT's number
            of weights: 4 H, or about 8/3 H with a gate, a multiple of 64.
        max_position_embeddings: longest sequence in tokens; 8192 if not given, 512 of ``learned``.
        position_embedding: ``rotary`` (Su et al. 2021), or ``learned`` as BERT's.
        rope_theta: base of the rotary wavelengths in global layers; ModernBERT goes from 10,000 to
            160,000 for sequences of over 1,024 tokens.
        local_rope_theta: the same in local layers.
        global_every: layers 0, ``global_every``, 2 ``global_every``, … attend to all tokens, the
            others to a window; 1: all are global, as BERT's.
        local_window: tokens in the window, half of them on either side.
        norm: ``layer`` (LayerNorm) or ``rms`` (RMSNorm, Zhang and Sennrich 2019).
        norm_position: ``pre``: in front of each sub-layer (Xiong et al. 2020), with a last norm at
            the end; ``post``: after each is added, as BERT's.
        feed_forward: ``geglu`` or ``swiglu`` (Shazeer 2020), or ``plain``: GELU, as BERT's.
        bias: biases in linear layers and LayerNorms, as BERT's.
        attention_bias: biases in attention's linear layers; ``bias`` if not given.
        feed_forward_bias: biases in feed-forward layers; ``bias`` if not given.
        norm_bias: biases in LayerNorms; ``bias`` if not given.
        type_vocab_size: number of segments that have an embedding; 0: none, BERT: 2; 1: no token's
            segment matters.
        hidden_dropout_prob: dropout on embeddings and on each sub-layer's output; of heads too.
        attention_probs_dropout_prob: dropout on attention weights.
        layer_norm_eps: epsilon of the norms.
        initializer_range: standard deviation of the initial weights.
        initialization: ``normal``: as BERT's; ``scaled``: truncated at two deviations, and divided
            by sqrt(2 L) where a sub-layer ends, as Megatron-LM (Shoeybi et al. 2019) and
            ModernBERT.
        causal: left-to-right attention.
        pad_token_id: kept for Hugging Face's config; packed batches hold no padding.

    Raises:
        ConfigError: if the heads do not divide the hidden size, a head has no even size for rotary
            positions, a number is out of range, or a word is none of those above.
    """

    huggingface = (ModernBertForm(),)
    reads_directions = True

    def __init__(
        self,
        vocab_size: int,
        preset: Preset = "base",
        num_hidden_layers: int | None = None,
        hidden_size: int | None = None,
        num_attention_heads: int | None = None,
        intermediate_size: int | None = None,
        max_position_embeddings: int | None = None,
        position_embedding: PositionEmbedding = "rotary",
        rope_theta: float = 10_000.0,
        local_rope_theta: float = 10_000.0,
        global_every: int = 3,
        local_window: int = 128,
        norm: Norm = "layer",
        norm_position: NormPosition = "pre",
        feed_forward: FeedForward = "geglu",
        bias: bool = False,
        attention_bias: bool | None = None,
        feed_forward_bias: bool | None = None,
        norm_bias: bool | None = None,
        type_vocab_size: int = 0,
        hidden_dropout_prob: float = 0.0,
        attention_probs_dropout_prob: float = 0.0,
        layer_norm_eps: float = 1e-5,
        initializer_range: float = 0.02,
        initialization: Initialization = "scaled",
        causal: bool = False,
        pad_token_id: int = 0,
    ) -> None:
        super().__init__()
        size = choose_preset(preset, PRESETS)
        for name, found, words in (
            ("position_embedding", position_embedding, PositionEmbedding),
            ("norm", norm, Norm),
            ("norm_position", norm_position, NormPosition),
            ("feed_forward", feed_forward, FeedForward),
            ("initialization", initialization, Initialization),
        ):
            check_choice(f"model.encoder.{name}", found, words)
        self.vocab_size = vocab_size
        self.num_hidden_layers = given_or(num_hidden_layers, size.num_hidden_layers)
        self.hidden_size = width = given_or(hidden_size, size.hidden_size)
        self.num_attention_heads = given_or(num_attention_heads, size.num_attention_heads)
        usual = _usual_width(width, feed_forward)
        if hidden_size is None and feed_forward != "plain":
            usual = given_or(size.intermediate_size, usual)
        self.intermediate_size = given_or(intermediate_size, usual)
        longest = 8192 if position_embedding == "rotary" else 512
        self.max_position_embeddings = given_or(max_position_embeddings, longest)
        self.type_vocab_size = type_vocab_size
        self.position_embedding_type = position_embedding
        self.rope_theta, self.local_rope_theta = rope_theta, local_rope_theta
        self.global_every, self.local_window = global_every, local_window
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.layer_norm_eps = layer_norm_eps
        self.initializer_range = initializer_range
        self.causal = causal
        self.pad_token_id = pad_token_id
        self._check_sizes()

        self.options = LayerOptions(
            hidden_size=width,
            num_attention_heads=self.num_attention_heads,
            intermediate_size=self.intermediate_size,
            norm=norm,
            norm_position=norm_position,
            feed_forward=feed_forward,
            attention_bias=given_or(attention_bias, bias),
            feed_forward_bias=given_or(feed_forward_bias, bias),
            norm_bias=given_or(norm_bias, bias),
            hidden_dropout_prob=hidden_dropout_prob,
            attention_probs_dropout_prob=attention_probs_dropout_prob,
            layer_norm_eps=layer_norm_eps,
            causal=causal,
        )
        self.token_embedding = nn.Embedding(vocab_size, width)
        if position_embedding == "learned":
            self.position_embedding = nn.Embedding(self.max_position_embeddings, width)
        if type_vocab_size:
            self.token_type_embedding = nn.Embedding(type_vocab_size, width)
        self.embedding_norm = new_norm(self.options)
        self.dropout = Dropout(hidden_dropout_prob)
        self.layers = nn.ModuleList(
            ModernLayer(self.options, number, self._window(number))
            for number in range(self.num_hidden_layers)
        )
        is_pre = norm_position == "pre"
        self.final_norm = new_norm(self.options) if is_pre else nn.Identity()
        self.pooler = PredictionHead(width, layer_norm_eps)
        initialize_modern(self, initializer_range, initialization == "scaled")
        self._summary = partial(summary_token, causal=causal)

    def forward(self, batch: PackedBatch, all_layers: bool = False) -> EncoderOutput:
        """Encode T packed tokens into ``(T, H)`` hidden states."""
        hidden, positions = self._embed(batch), batch.position_ids
        tokens = len(hidden)
        if hidden.device.type == "cpu":
            hidden, positions = pad_to_multiple_of(hidden), pad_to_multiple_of(positions)
        dtype = dtype_of_products(hidden)
        hidden = self.dropout(self.embedding_norm(hidden))
        layers = [hidden[:tokens]]
        rotations = self._rotations(positions, batch.max_seqlen, dtype)
        read = None if all_layers else rows_read(batch, self._summary)
        for number, layer in enumerate(self.layers):
            rows = read if number + 1 == len(self.layers) else None
            hidden = layer(hidden, batch, rotations.get(self.theta(number)), rows)
            if all_layers:
                layers.append(hidden[:tokens])
        hidden = states_at_rows(self.final_norm(hidden).to(dtype), read, tokens)
        return EncoderOutput(
            tokens=hidden,
            batch=batch,
            pooler=self.pooler,
            all_layers=[*layers[:-1], hidden] if all_layers else None,
            summary=self._summary,
        )

    def padded_form(self) -> nn.Module:
        """Return the encoder on padded batches."""
        from bertlab_modern.padded import PaddedModern  # noqa: PLC0415  for exporters only

        return PaddedModern(self)

    def tokens_attended(self, sequence_length: float) -> float:
        """Return how many tokens a token attends to in all layers, fewer in local ones."""
        side = self.local_window // 2
        local = sequence_length
        if sequence_length > side + 1:
            # the first tokens lack up to side on their left, the last ones on their right: of
            # 5 tokens with 1 on either side [2, 3, 3, 3, 2] -> 3 - 1 * 2 / 5
            local = 2 * side + 1 - side * (side + 1) / sequence_length
        windows = [self._window(number) for number in range(self.num_hidden_layers)]
        return sum(sequence_length if window is None else local for window in windows)

    def _window(self, number: int) -> int | None:
        """Tokens on either side that layer ``number`` sees; None: all."""
        return self.local_window // 2 if number % self.global_every else None

    def theta(self, number: int) -> float:
        """Return the base of the rotary wavelengths in layer ``number``, counted from 0."""
        return self.local_rope_theta if number % self.global_every else self.rope_theta

    def _rotations(
        self, positions: Tensor, longest: int, dtype: torch.dtype
    ) -> dict[float, Rotation]:
        """Angles by theta; none if positions are learned."""
        if self.position_embedding_type == "learned":
            return {}
        size = self.hidden_size // self.num_attention_heads
        thetas = {self.theta(number) for number in range(self.num_hidden_layers)}
        return {theta: rotation_of(positions, longest, size, theta, dtype) for theta in thetas}

    def _embed(self, batch: PackedBatch) -> Tensor:
        hidden: Tensor = self.token_embedding(batch.input_ids)
        if self.position_embedding_type == "learned":
            hidden = hidden + self.position_embedding(batch.position_ids)
        if self.type_vocab_size:
            has_segments = self.type_vocab_size > 1
            types = batch.token_type_ids if has_segments else torch.zeros_like(batch.input_ids)
            hidden = hidden + self.token_type_embedding(types)
        return hidden

    def _check_sizes(self) -> None:
        check_sizes(self, _AT_LEAST_ONE, _ABOVE_ZERO)
        check_at_least("model.encoder.type_vocab_size", self.type_vocab_size, 0)
        size = self.hidden_size // self.num_attention_heads
        if size % 2 and self.position_embedding_type == "rotary":
            raise ConfigError(
                f"model.encoder.num_attention_heads: {self.num_attention_heads} heads of "
                f"hidden_size {self.hidden_size} are of {size} each, expected an even size, whose "
                "halves rotary positions turn; or set model.encoder.position_embedding: learned"
            )


def _usual_width(hidden_size: int, feed_forward: FeedForward) -> int:
    if feed_forward == "plain":
        return 4 * hidden_size
    # three matrices in place of two: 8/3 H; 128 -> 341 -> 320, 768 -> 2048
    return max(round(hidden_size * 8 / 3 / 64), 1) * 64
