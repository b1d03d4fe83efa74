"""Next-sentence prediction (paper sec. 3.1, task 2)."""

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torchmetrics import Metric

from bertlab.api.batch import EncoderOutput, PackedBatch, PackedSequences
from bertlab.api.task import Objective, TaskContext, TaskLoss
from bertlab.encoders.layers import initialize
from bertlab.objectives.classification import (
    Accuracy,
    MajorityAccuracy,
    classification_loss,
)

if TYPE_CHECKING:
    from bertlab.api.rng import CounterRNG


class NextSentencePrediction(Objective):
    """Tell whether segment B follows segment A in its document (label 0) or not (label 1).

    ``classifier`` is Hugging Face's ``cls.seq_relationship``.
    """

    requires_pairs = True
    classifier: nn.Linear

    def build(self, context: TaskContext) -> None:
        """Create the classifier of the pooled output."""
        self.classifier = nn.Linear(context.encoder.hidden_size, 2)
        initialize(self, context.encoder.initializer_range)

    def prepare(self, sequences: PackedSequences, rng: "CounterRNG", training: bool) -> int:
        """Return the number of sequences; the sampler wrote ``next_sentence_label`` ``(B,)``."""
        del rng, training
        return len(sequences.cu_seqlens) - 1

    def tokens_read(self, batch: PackedBatch) -> Tensor:
        """Return none: the pooled output is read."""
        return batch.input_ids[:0]

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return cross-entropy in nats, summed in float32 over the B sequences."""
        labels = batch.fields["next_sentence_label"]
        logits = self.classifier(output.pooled).float()
        return classification_loss(logits, labels)

    def metrics(self) -> dict[str, Metric]:
        """Return ``accuracy`` and ``majority_accuracy``, its baseline."""
        return {"accuracy": Accuracy(), "majority_accuracy": MajorityAccuracy()}

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return ``{"is_next_probability": p}`` of each pair, nothing of a single segment."""
        probabilities = self.classifier(output.pooled).float().softmax(-1)[:, 0].tolist()
        last = batch.token_type_ids[batch.cu_seqlens[1:].long() - 1].tolist()  # 1: has a B
        return [
            {"is_next_probability": p} if segment == 1 else {}
            for p, segment in zip(probabilities, last, strict=True)
        ]
