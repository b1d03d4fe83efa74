"""Unsupervised SimCSE (Gao et al. 2021, sec. 3): two views of a text through dropout."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric

from bertlab import (
    Accuracy,
    ConfigError,
    CounterRNG,
    Encoder,
    EncoderOutput,
    Objective,
    PackedBatch,
    PackedSequences,
    TaskContext,
    TaskLoss,
    classification_loss,
)


class SimCSE(Objective):
    """Find each sequence again among those of the step, by its second pass through the encoder.

    Dropout makes the two passes differ. It is off in evaluation, where the loss says how far apart
    different sequences are.

    Args:
        temperature: that cosines are divided by; above 0.
    """

    compares_sequences = True

    def __init__(self, temperature: float = 0.05) -> None:
        super().__init__()
        if not temperature > 0:
            raise ConfigError(
                f"model.objectives.simcse.temperature: found {temperature}, expected above 0"
            )
        self.temperature = temperature

    def build(self, context: TaskContext) -> None:
        """Create nothing: the pooler is the projection."""

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        """Return the number of sequences."""
        del rng, training
        return len(sequences.lengths)

    def tokens_read(self, batch: PackedBatch) -> Tensor:
        """Return none: the pooled output is read."""
        return batch.input_ids[:0]

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return cross-entropy in nats, summed in float32, of B sequences among B."""
        first, second = output.pooled, output.encode(output.batch).pooled
        cosines = F.normalize(first.float()) @ F.normalize(second.float()).T  # (B, B)
        return classification_loss(
            cosines / self.temperature, torch.arange(len(batch), device=cosines.device)
        )

    def flops_per_token(self, encoder: Encoder, sequence_length: float, steps: float) -> float:
        """Return the operations of the second pass, for studies."""
        from bertlab import encoder_flops  # noqa: PLC0415  of bertlab-studies, which asks

        del steps
        found: float = encoder_flops(encoder, sequence_length)
        return found

    def metrics(self) -> dict[str, Metric]:
        """Return ``accuracy``: the share that is found again."""
        return {"accuracy": Accuracy()}

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return nothing of each sequence; ``bertlab embed`` gives its vector."""
        del output
        return [{} for _ in range(len(batch))]
