"""The states of an averaged copy of the encoder as targets (data2vec, Baevski et al. 2022)."""

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bertlab import (
    ConfigError,
    CounterRNG,
    Encoder,
    EncoderOutput,
    Objective,
    PackedBatch,
    PackedSequences,
    TaskContext,
    TaskLoss,
)


class OwnStates(Objective):
    """Predict the states that the text has without masks, in a slowly moving copy of the encoder.

    The copy is kept in checkpoints, and follows the encoder after each step.

    Args:
        decay: share of the copy that a step keeps; from 0 to below 1.

    Raises:
        ConfigError: the share is out of range.
    """

    requires = ("mlm",)
    uses_pooled = False

    def __init__(self, decay: float = 0.999) -> None:
        super().__init__()
        if not 0 <= decay < 1:
            raise ConfigError(
                f"model.objectives.own_states.decay: found {decay}, expected 0 to below 1"
            )
        self.decay = decay
        self._encoder: tuple[Encoder, ...] = ()  # torch does not look into a tuple

    def build(self, context: TaskContext) -> None:
        """Copy the encoder, and add a layer that predicts the copy's states."""
        self._encoder = (context.encoder,)
        self.teacher = copy.deepcopy(context.encoder).requires_grad_(False)
        self.prediction = nn.Linear(context.encoder.hidden_size, context.encoder.hidden_size)

    def after_step(self, step: int) -> None:
        """Move the copy towards the encoder; after the first step it is the encoder."""
        share = 1 - (self.decay if step > 1 else 0)
        (encoder,) = self._encoder
        for mine, theirs in zip(self.teacher.parameters(), encoder.parameters(), strict=True):
            mine.lerp_(theirs, share)

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        """Return the number of tokens that ``mlm`` masked."""
        del rng, training
        return len(sequences.token_labels("mlm").positions)

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return the mean squared distance of normalised states, summed over K tokens."""
        positions, ids = batch.token_labels("mlm").positions, batch.input_ids.clone()
        ids[positions] = batch.token_labels("mlm").labels
        with torch.no_grad():
            self.teacher.eval()  # no dropout in targets
            states = self.teacher(replace(batch, input_ids=ids)).tokens[positions].float()
            targets = functional.layer_norm(states, states.shape[-1:])
        found = self.prediction(output.tokens[positions]).float()
        total = (found - targets).square().mean(-1).sum()
        return TaskLoss(total, len(positions), found.detach(), targets)

    def tokens_read(self, batch: PackedBatch) -> Tensor:
        """Return those that ``mlm`` masked; none of a batch to predict."""
        if "mlm" not in batch.counts:
            return batch.input_ids[:0]
        return batch.token_labels("mlm").positions

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return nothing of each sequence: ``mlm`` fills its masks."""
        del output
        return [{} for _ in range(len(batch))]
