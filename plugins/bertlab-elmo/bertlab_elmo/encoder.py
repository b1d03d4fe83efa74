"""Two LSTM stacks that read a text from either end (Peters et al. 2018; BERT's figure 3, right)."""

import torch
from torch import Tensor, nn

from bertlab import (
    ConfigError,
    Encoder,
    EncoderOutput,
    PackedBatch,
    check_at_least,
    check_share,
    first_token,
    initialize,
    last_token,
    packed_lstm,
)

_SIZES = ("vocab_size", "num_hidden_layers", "hidden_size", "max_position_embeddings")


class ElmoEncoder(Encoder):
    """Left-to-right and right-to-left LSTMs that share nothing but the token embeddings.

    Hidden states are the forward state in the first half of H and the backward state in the second.
    No layer mixes the two, so the forward half knows nothing of what is to its right. A residual
    connection leads around every layer but the first (Peters et al. 2018, sec. 3.4).

    Word pieces are embedded, where ELMo composes words of their characters; ``token_projection``
    takes the place of its linear layer from there to the width of one direction. Segments are not
    embedded. What stands for a sequence, which the pooler reads as well, is what either direction
    gives once it has read all of it: the forward state of the last token, the backward state of
    the first.

    Args:
        vocab_size: size of the vocabulary; linked to the tokenizer in configs.
        num_hidden_layers: LSTM layers in each direction, L.
        hidden_size: width of both directions together, H.
        cell_size: units of each LSTM, whose output is projected to H / 2; without projection, which
            null stands for, H / 2.
        max_position_embeddings: longest sequence in tokens; nothing is embedded for positions.
        hidden_dropout_prob: dropout on what each layer reads.
        layer_norm_eps: epsilon of the tasks' LayerNorms; the encoder has none.
        initializer_range: standard deviation of the initial embeddings and of the tasks' weights.

    Raises:
        ConfigError: if a size is out of range, or ``hidden_size`` is odd.
    """

    keeps_directions_apart = True  # what bilm requires

    def __init__(
        self,
        vocab_size: int,
        num_hidden_layers: int = 2,
        hidden_size: int = 1024,
        cell_size: int | None = 4096,
        max_position_embeddings: int = 512,
        hidden_dropout_prob: float = 0.1,
        layer_norm_eps: float = 1e-12,
        initializer_range: float = 0.02,
    ) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.num_hidden_layers = num_hidden_layers
        self.hidden_size = hidden_size
        self.cell_size = cell_size
        self.max_position_embeddings = max_position_embeddings
        self.causal = False
        self.hidden_dropout_prob = hidden_dropout_prob
        self.layer_norm_eps = layer_norm_eps
        self.initializer_range = initializer_range
        self._check_sizes()

        width = hidden_size // 2
        self.token_embedding = nn.Embedding(vocab_size, hidden_size)
        self.pooler = nn.Linear(hidden_size, hidden_size)
        initialize(self, initializer_range)
        # not N(0, 0.02): torch's range goes with the width, and there is no LayerNorm to mend it
        self.token_projection = nn.Linear(hidden_size, width)
        self.dropout = nn.Dropout(hidden_dropout_prob)
        self.layers = nn.ModuleList(ElmoLayer(width, cell_size) for _ in range(num_hidden_layers))

    def forward(self, batch: PackedBatch, all_layers: bool = False) -> EncoderOutput:
        """Encode T packed tokens into ``(T, H)`` hidden states.

        Layer 0 of ``all_layers`` is the projected embedding twice, as ELMo's mix has it (sec. 3.2).
        """
        embedded = self.token_projection(self.token_embedding(batch.input_ids))
        states = embedded, embedded  # (T, H / 2) of either direction
        layers = [torch.cat(states, dim=-1)]
        reversal = reversal_of(batch)
        for number, layer in enumerate(self.layers):
            forward, backward = layer(
                self.dropout(states[0]), self.dropout(states[1]), batch.lengths, reversal
            )
            states = (states[0] + forward, states[1] + backward) if number else (forward, backward)
            layers.append(torch.cat(states, dim=-1))
        return EncoderOutput(
            tokens=layers[-1],
            batch=batch,
            pooler=self._pool,
            all_layers=layers if all_layers else None,
            summary=self._summarize,
        )

    def _summarize(self, tokens: Tensor, batch: PackedBatch) -> Tensor:
        """Return ``(B, n H)`` of ``(T, n H)``: n layers may stand side by side, as features do."""
        # (T, n, direction, H / 2): each layer has a forward half and a backward half
        layers = tokens.view(len(tokens), -1, 2, self.hidden_size // 2)
        ends = last_token(layers[:, :, 0], batch), first_token(layers[:, :, 1], batch)
        return torch.stack(ends, dim=2).flatten(1)  # (B, n, 2, H / 2) -> (B, n H)

    def _pool(self, summary: Tensor) -> Tensor:
        return torch.tanh(self.pooler(summary))

    def _check_sizes(self) -> None:
        for name in _SIZES:
            check_at_least(f"model.encoder.{name}", getattr(self, name), 1)
        if self.hidden_size % 2:
            raise ConfigError(
                f"model.encoder.hidden_size: found {self.hidden_size}, expected an even number, as "
                "each direction has half of it"
            )
        if self.cell_size is not None and self.cell_size <= self.hidden_size // 2:
            raise ConfigError(
                f"model.encoder.cell_size: found {self.cell_size}, expected more than "
                f"{self.hidden_size // 2}, half of hidden_size, which it is projected to; or null "
                "for LSTMs of that size without projection"
            )
        check_share("model.encoder.hidden_dropout_prob", self.hidden_dropout_prob)


class ElmoLayer(nn.Module):
    """An LSTM for each direction.

    Args:
        width: of the states of one direction, H / 2.
        cell_size: units of each LSTM, projected to ``width``; None for ``width`` units.
    """

    def __init__(self, width: int, cell_size: int | None) -> None:
        super().__init__()
        units, projected = (width, 0) if cell_size is None else (cell_size, width)
        self.forward_lstm = nn.LSTM(width, units, proj_size=projected)
        self.backward_lstm = nn.LSTM(width, units, proj_size=projected)

    def forward(
        self, forward: Tensor, backward: Tensor, lengths: Tensor, reversal: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Map the ``(T, H / 2)`` states of both directions to those of the layer above.

        Args:
            forward: states of the left-to-right stack.
            backward: states of the right-to-left stack, in the order of the text.
            lengths: ``(B,)`` int64 lengths of the sequences.
            reversal: ``(T,)`` as :func:`reversal_of` has it.
        """
        read_backward = packed_lstm(self.backward_lstm, backward[reversal], lengths)
        return packed_lstm(self.forward_lstm, forward, lengths), read_backward[reversal]


def reversal_of(batch: PackedBatch) -> Tensor:
    """Return ``(T,)`` int64 order that reverses each sequence in its place; twice, it is undone."""
    first, last = batch.cu_seqlens[:-1].long(), batch.cu_seqlens[1:].long() - 1
    total = len(batch.input_ids)
    # lengths [2, 3]: first + last [1, 6] -> [1, 0, 4, 3, 2], as place i goes to first + last - i
    mirror = torch.repeat_interleave(first + last, batch.lengths, output_size=total)
    return mirror - torch.arange(total, device=mirror.device)
