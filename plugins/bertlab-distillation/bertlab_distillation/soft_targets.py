"""Soft targets (Hinton et al. 2015; for masked LM, DistilBERT, Sanh et al. 2019)."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from bertlab import (
    Accuracy,
    ConfigError,
    CounterRNG,
    EncoderOutput,
    MaskedLM,
    Objective,
    PackedBatch,
    PackedSequences,
    PretrainedModel,
    TaskContext,
    TaskLoss,
    load,
)


class SoftTargets(Objective):
    """Predict what a teacher predicts for the masked tokens, beside ``mlm``.

    The teacher is neither trained nor saved, and is not loaded for prediction and export.

    Args:
        teacher: run directory, checkpoint or Hugging Face folder with a masked LM.
        temperature: that both distributions are softened with; above 0.

    Raises:
        ConfigError: the teacher has no masked LM or another vocabulary, or an argument is out of
            range.
    """

    requires = ("mlm",)
    uses_pooled = False

    def __init__(self, teacher: str, temperature: float = 2.0) -> None:
        super().__init__()
        if not temperature > 0:
            raise ConfigError(
                f"model.objectives.distillation.temperature: found {temperature}, expected above 0"
            )
        self.teacher = teacher
        self.temperature = temperature
        self._loaded: tuple[PretrainedModel, ...] = ()  # torch does not look into a tuple

    def build(self, context: TaskContext) -> None:
        """Load the teacher, where there is text to train on."""
        if context.token_counts is None:
            return
        model = load(self.teacher)
        key = "model.objectives.distillation.teacher"
        if not isinstance(model.tasks.get("mlm"), MaskedLM):
            raise ConfigError(f"{key}: {self.teacher} has no masked LM (mlm)")
        if model.tokenizer.fingerprint != context.tokenizer.fingerprint:
            raise ConfigError(
                f"{key}: {self.teacher} has another vocabulary than this run; set data.tokenizer "
                "to the teacher's"
            )
        self._loaded = (model,)

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        """Return the number of tokens that ``mlm`` masked."""
        del rng, training
        return len(sequences.token_labels("mlm").positions)

    def tokens_read(self, batch: PackedBatch) -> Tensor:
        """Return those that ``mlm`` masked; none of a batch to predict."""
        if "mlm" not in batch.counts:
            return batch.input_ids[:0]
        return batch.token_labels("mlm").positions

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return the divergence in nats from the teacher, summed in float32 over K tokens.

        It is multiplied by the temperature squared, which keeps the size of its gradient
        (Hinton et al. 2015, sec. 2). Metrics compare with the teacher's first choice.
        """
        positions = batch.token_labels("mlm").positions
        own = self._scores(self.required["mlm"], output.tokens, positions)
        (teacher,) = self._loaded
        encoder = teacher.encoder.to(own.device)
        with torch.no_grad():
            head = teacher.tasks["mlm"].to(own.device)
            theirs = self._scores(head, encoder(batch).tokens, positions)
        divergence = theirs.exp() * (theirs - own)  # (K, V)
        total = divergence.sum() * self.temperature**2
        return TaskLoss(total, len(positions), own.detach().argmax(-1), theirs.argmax(-1))

    def _scores(self, masked_lm: torch.nn.Module, states: Tensor, positions: Tensor) -> Tensor:
        assert isinstance(masked_lm, MaskedLM)
        logits = masked_lm.logits(states.index_select(0, positions))
        return (logits / self.temperature).log_softmax(-1)

    def metrics(self) -> dict[str, Metric]:
        """Return ``accuracy``: how often the teacher's first choice is the student's too."""
        return {"accuracy": Accuracy()}

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return nothing of each sequence: ``mlm`` fills its masks."""
        del output
        return [{} for _ in range(len(batch))]
