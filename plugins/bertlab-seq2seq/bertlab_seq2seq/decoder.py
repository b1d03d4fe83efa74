"""The Transformer's decoder (Vaswani et al. 2017, sec. 3.1), post-LN, which keeps keys and values.

B is the number of source texts, S the length of the longest, R the number of target texts (B, or
more while several hypotheses of each are searched), U their length, A the number of heads.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

KeysValues = tuple[Tensor, Tensor]  # each (rows, A, length, H / A)


@dataclass
class DecoderState:
    """What the decoder reads beside the tokens that are new to it.

    Attributes:
        memory: keys and values of the source text, for each layer.
        is_token: ``(R, 1, 1, S)`` bool, where the source has a token.
        past: keys and values of the target's tokens so far, for each layer.
        length: number of these tokens.
    """

    memory: list[KeysValues]
    is_token: Tensor
    past: list[KeysValues] = field(default_factory=list)
    length: int = 0

    def repeat(self, times: int) -> "DecoderState":
        """Return the state of so many targets of each source text, before their first token."""
        memory = [
            (keys.repeat_interleave(times, 0), values.repeat_interleave(times, 0))
            for keys, values in self.memory
        ]
        return DecoderState(memory, self.is_token.repeat_interleave(times, 0))

    def reorder(self, rows: Tensor) -> None:
        """Go on from ``rows`` ``(R,)`` int64, each a target of the same source text."""
        self.past = [(keys[rows], values[rows]) for keys, values in self.past]


class Decoder(nn.Module):
    """L layers of masked self-attention, attention to the source, and feed-forward network.

    Args:
        num_hidden_layers: L.
        hidden_size: width H, that of the encoder's states as well.
        num_attention_heads: A; divides ``hidden_size``.
        intermediate_size: width of the feed-forward networks.
        dropout: on the output of each sub-layer.
        layer_norm_eps: epsilon of the LayerNorms.
    """

    def __init__(
        self,
        num_hidden_layers: int,
        hidden_size: int,
        num_attention_heads: int,
        intermediate_size: int,
        dropout: float,
        layer_norm_eps: float,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            DecoderLayer(
                hidden_size, num_attention_heads, intermediate_size, dropout, layer_norm_eps
            )
            for _ in range(num_hidden_layers)
        )

    def start(self, encoded: Tensor, is_token: Tensor) -> DecoderState:
        """Return the state before the first token.

        Args:
            encoded: ``(B, S, H)`` hidden states of the encoder.
            is_token: ``(B, S)`` bool, which of them are of a token.
        """
        memory = [layer.source_attention.keys_values(encoded) for layer in self._layers()]
        return DecoderState(memory, is_token[:, None, None, :])

    def forward(self, hidden: Tensor, state: DecoderState) -> Tensor:
        """Map the next U tokens' ``(R, U, H)`` embeddings to hidden states, and keep them in mind.

        Args:
            hidden: embeddings; padding at the end of a row is seen by padding only.
            state: takes up the keys and values of these tokens. U is 1 unless it has none.
        """
        past: list[KeysValues] = []
        for number, layer in enumerate(self._layers()):
            keys, values = layer.self_attention.keys_values(hidden)
            if state.past:
                before = state.past[number]
                keys, values = torch.cat([before[0], keys], 2), torch.cat([before[1], values], 2)
            past.append((keys, values))
            hidden = layer(hidden, past[number], state.memory[number], state.is_token)
        state.past = past
        state.length += hidden.shape[1]
        return hidden

    def _layers(self) -> list["DecoderLayer"]:
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]


class DecoderLayer(nn.Module):
    """Three sub-layers, each followed by dropout, add and LayerNorm."""

    def __init__(
        self,
        hidden_size: int,
        num_attention_heads: int,
        intermediate_size: int,
        dropout: float,
        layer_norm_eps: float,
    ) -> None:
        super().__init__()
        self.self_attention = Attention(hidden_size, num_attention_heads)
        self.self_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.source_attention = Attention(hidden_size, num_attention_heads)
        self.source_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.intermediate = nn.Linear(hidden_size, intermediate_size)
        self.output = nn.Linear(intermediate_size, hidden_size)
        self.output_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, hidden: Tensor, target: KeysValues, source: KeysValues, is_token: Tensor
    ) -> Tensor:
        """Map ``(R, U, H)`` to ``(R, U, H)``; the last of the target's keys are these U tokens'."""
        # a new token sees all keys; is_causal counts queries from key 0 and would leave it that one
        attended = self.self_attention(hidden, *target, is_causal=hidden.shape[1] > 1)
        hidden = self.self_norm(hidden + self.dropout(attended))
        attended = self.source_attention(hidden, *source, mask=is_token)
        hidden = self.source_norm(hidden + self.dropout(attended))
        expanded = F.relu(self.intermediate(hidden))  # ReLU as in sec. 3.3, not BERT's GELU
        normed: Tensor = self.output_norm(hidden + self.dropout(self.output(expanded)))
        return normed


class Attention(nn.Module):
    """Multi-head attention without biases, as sec. 3.2.2 has it."""

    def __init__(self, hidden_size: int, num_attention_heads: int) -> None:
        super().__init__()
        self.query = nn.Linear(hidden_size, hidden_size, bias=False)
        self.key = nn.Linear(hidden_size, hidden_size, bias=False)
        self.value = nn.Linear(hidden_size, hidden_size, bias=False)
        self.output = nn.Linear(hidden_size, hidden_size, bias=False)
        self.num_attention_heads = num_attention_heads

    def keys_values(self, states: Tensor) -> KeysValues:
        """Return what queries are compared with, and what they take, of ``(rows, N, H)`` states."""
        return self._heads(self.key(states)), self._heads(self.value(states))

    def forward(
        self,
        hidden: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Map ``(R, U, H)`` states that ask to ``(R, U, H)``.

        Args:
            hidden: of the tokens that ask.
            keys: as :meth:`keys_values` gives them.
            values: the same.
            mask: bool, False where a token must not be seen.
            is_causal: query i sees keys 0 … i.
        """
        query = self._heads(self.query(hidden))
        attended = F.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, is_causal=is_causal
        )
        # (R, A, U, H / A) -> (R, U, H)
        output: Tensor = self.output(attended.transpose(1, 2).flatten(2))
        return output

    def _heads(self, states: Tensor) -> Tensor:
        rows, length, width = states.shape
        heads = self.num_attention_heads
        # (rows, N, H) -> (rows, A, N, H / A)
        return states.view(rows, length, heads, width // heads).transpose(1, 2)
