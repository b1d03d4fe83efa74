"""Language models in both directions at once (Peters et al. 2018, sec. 3.1)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from bertlab import (
    EncoderOutput,
    PackedBatch,
    PackedSequences,
    TaskContext,
    TaskLoss,
    TokenPrediction,
    classification_loss,
    initialize,
)

if TYPE_CHECKING:
    from bertlab import CounterRNG


class BidirectionalLM(TokenPrediction):
    """Predict each token of the text from those before it, and again from those behind it.

    Both directions share one softmax layer, as in the paper; its weights are those of the token
    embedding. Special tokens are read but never predicted. The loss is the mean over both
    directions, so ``perplexity`` is the geometric mean of theirs. Not beside an objective that
    corrupts the input, such as mlm: the text that is predicted would be the corrupted one.
    """

    name = "bilm"
    requires_encoder: ClassVar[Mapping[str, object]] = {"keeps_directions_apart": True}  # as elmo

    def build(self, context: TaskContext) -> None:
        """Create the head, which reads the states of one direction."""
        encoder = context.encoder
        super().build(context)
        self.dense = nn.Linear(encoder.hidden_size // 2, encoder.hidden_size)  # from one direction
        initialize(self, encoder.initializer_range)

    def prepare(self, sequences: PackedSequences, rng: "CounterRNG", training: bool) -> int:
        """Write ``bilm_positions`` of the tokens to predict, and ``bilm_labels``, ``(K,)`` int64.

        Args:
            sequences: ``fields`` are written to.
            rng: not used.
            training: not used.

        Returns:
            2 K, as each of the K text tokens between two others is predicted in both directions.
        """
        del rng, training
        predicted = self.classes.countable(sequences)
        predicted[sequences.cu_seqlens[:-1]] = False
        predicted[sequences.cu_seqlens[1:] - 1] = False
        targets = np.flatnonzero(predicted)
        return 2 * self.write_labels(sequences, targets, sequences.input_ids[targets])

    def tokens_read(self, batch: PackedBatch) -> None:
        """Return None: the neighbours of what is predicted are read, nearly all tokens."""
        del batch

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return cross-entropy in nats, summed in float32 over the K tokens in both directions."""
        predicted = batch.token_labels("bilm")
        logits = self.logits(neighbors(output.tokens, predicted.positions))
        return classification_loss(logits, predicted.labels.repeat(2))

    def derived_metrics(self, values: dict[str, float]) -> dict[str, float]:
        """Return ``perplexity`` and, where the training text is known, ``unigram_perplexity``."""
        derived = super().derived_metrics(values)
        if "unigram_loss" in values:
            unigram = super().derived_metrics({"loss": values["unigram_loss"]})
            derived["unigram_perplexity"] = unigram["perplexity"]
        return derived

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return what each language model expects at its end of the text, best first.

        ``{"next": [{"token", "probability"}, …], "previous": […]}``: what follows the last token
        that is not special, and what comes before the first; of a text without any, what follows
        the first token and what comes before the last.
        """
        special = torch.from_numpy(self.classes.special).to(batch.input_ids.device)
        is_special = special[batch.input_ids]
        starts, sequence = batch.cu_seqlens[:-1].long(), torch.repeat_interleave(batch.lengths)
        ends = (batch.lengths - 1)[sequence]
        # a special token takes the place that loses: 0 where the last is sought, the end where the
        # first is: [CLS] a b [SEP] has last [0, 1, 2, 0] -> 2 and first [3, 1, 2, 3] -> 1
        last = batch.position_ids.masked_fill(is_special, 0)
        first = torch.where(is_special, ends, batch.position_ids)
        final = starts.scatter_reduce(0, sequence, last, "amax", include_self=False)
        initial = starts.scatter_reduce(0, sequence, first, "amin", include_self=False)
        forward, backward = output.tokens.chunk(2, dim=-1)
        expected = zip(
            self.most_probable(forward[starts + final]),
            self.most_probable(backward[starts + initial]),
            strict=True,
        )
        return [{"next": following, "previous": before} for following, before in expected]


def neighbors(tokens: Tensor, positions: Tensor) -> Tensor:
    """Return what either direction has read when it comes to a token.

    Args:
        tokens: ``(T, H)`` forward and backward states, side by side.
        positions: ``(K,)`` int64 flat positions, none at the border of a sequence.

    Returns:
        ``(2 K, H / 2)``: the forward states of the tokens before, then the backward states of those
        behind.
    """
    forward, backward = tokens.chunk(2, dim=-1)
    # the token at 1 is predicted from the forward state at 0 and from the backward state at 2
    return torch.cat([forward[positions - 1], backward[positions + 1]])
