"""The span-boundary objective (SpanBERT, Joshi et al. 2020, sec. 3.2)."""

from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from bertlab import (
    Accuracy,
    CounterRNG,
    EncoderOutput,
    MaskedLM,
    Objective,
    PackedBatch,
    PackedSequences,
    TaskContext,
    TaskLoss,
    classification_loss,
    initialize,
)

LONGEST = 256  # tokens of a span that have a place of their own


class SpanBoundary(Objective):
    """Predict each token of a masked span from the states at its ends and the token's place in it.

    ``mlm`` masks the spans (``unit: span``), and scores the vocabulary as it does for its own.
    """

    requires = ("mlm",)
    uses_pooled = False

    def build(self, context: TaskContext) -> None:
        """Create the place embedding and the two layers."""
        encoder = context.encoder
        width = encoder.hidden_size
        self.place = nn.Embedding(LONGEST, width)
        layers: list[nn.Module] = []
        for inputs in (3 * width, width):
            norm = nn.LayerNorm(width, eps=encoder.layer_norm_eps)
            layers += [nn.Linear(inputs, width), nn.GELU(), norm]
        self.layers = nn.Sequential(*layers)
        initialize(self, encoder.initializer_range)

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        """Return the number of tokens that ``mlm`` masked."""
        del rng, training
        return len(sequences.token_labels("mlm").positions)

    def tokens_read(self, batch: PackedBatch) -> Tensor:
        """Return the tokens at the ends of spans; none of a batch to predict."""
        return torch.cat(spans(batch)[:2]) if "mlm" in batch.counts else batch.input_ids[:0]

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return cross-entropy in nats, summed in float32 over the K masked tokens."""
        before, behind, place = spans(batch)
        ends = [output.tokens.index_select(0, each) for each in (before, behind)]
        states = self.layers(torch.cat([*ends, self.place(place)], -1))  # (K, 3H) -> (K, H)
        masked_lm = self.required["mlm"]
        assert isinstance(masked_lm, MaskedLM)
        return classification_loss(masked_lm.logits(states), batch.token_labels("mlm").labels)

    def metrics(self) -> dict[str, Metric]:
        """Return ``accuracy``."""
        return {"accuracy": Accuracy()}

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return nothing of each sequence: ``mlm`` fills its masks."""
        del output
        return [{} for _ in range(len(batch))]


def spans(batch: PackedBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Return for each masked token the place before its span, behind it, and its own in it.

    A span is a run of masked neighbours; ``[CLS]`` and ``[SEP]`` are never masked, so that there is
    a token on either side. All three are ``(K,)`` int64.
    """
    positions = batch.token_labels("mlm").positions
    number = torch.arange(len(positions), device=positions.device)
    # positions [3, 4, 5, 9] - [0, 1, 2, 3] = [3, 3, 3, 6]: one value for each run
    _, run, lengths = torch.unique_consecutive(
        positions - number, return_inverse=True, return_counts=True
    )
    place = number - (lengths.cumsum(0) - lengths)[run]  # [0, 1, 2, 0]
    first = positions - place
    return first - 1, first + lengths[run], place.clamp(max=LONGEST - 1)
