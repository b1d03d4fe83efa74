"""Sentence-order prediction (ALBERT, Lan et al. 2019, sec. 3.1)."""

from typing import Any

import numpy as np
from torch import Tensor, nn
from torchmetrics import Metric

from bertlab import (
    Accuracy,
    CounterRNG,
    EncoderOutput,
    IntArray,
    MajorityAccuracy,
    Objective,
    PackedBatch,
    PackedSequences,
    TaskContext,
    TaskLoss,
    classification_loss,
    initialize,
)
from bertlab_sop.swapping import swap_segments, text_lengths

IN_ORDER, SWAPPED, NOT_A_PAIR = 0, 1, -100
SENTENCE_ENDS = frozenset(".!?:;…。！？")


class SentenceOrder(Objective):
    """Tell whether two neighbouring segments stand in their order (label 0) or swapped (1).

    Half of the pairs are swapped. A pair whose B is random (``next_sentence_label`` 1) has no
    order: it is left as it is and not counted. ``data.random_pair_share: 0`` makes none.
    """

    requires_pairs = True
    rearranges_input = True
    shares = ("accuracy", "rule_accuracy")
    classifier: nn.Linear

    def build(self, context: TaskContext) -> None:
        """Create the classifier of the pooled output."""
        self.classifier = nn.Linear(context.encoder.hidden_size, 2)
        initialize(self, context.encoder.initializer_range)
        tokenizer = context.tokenizer
        self.ends_sentence = np.array(
            [tokenizer.token(number) in SENTENCE_ENDS for number in range(tokenizer.vocab_size)]
        )

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        """Swap pairs; write ``sentence_order_label`` and ``sentence_order_rule``, both ``(B,)``.

        The label is 0 in order, 1 swapped, -100 for a pair with a random B. The rule is the answer
        of :class:`RuleAccuracy`. ``next_sentence_label`` stays: a swapped pair counts as one whose
        segments are neighbours.

        Args:
            sequences: written to: text, segments and ``fields``.
            rng: keyed by epoch and sequence, in evaluation by the sequence only.
            training: False swaps the same pairs in every epoch.

        Returns:
            The number of pairs whose segments are neighbours in the corpus.
        """
        neighbours = sequences.fields["next_sentence_label"] == 0
        key = (sequences.epochs, sequences.indices) if training else (sequences.indices,)
        swapped = neighbours & (rng.child("swap").uniform(*key) < 0.5)
        swap_segments(sequences, swapped)
        label = np.where(swapped, SWAPPED, IN_ORDER)
        sequences.fields["sentence_order_label"] = np.where(neighbours, label, NOT_A_PAIR)
        sequences.fields["sentence_order_rule"] = self._rule(sequences)
        return int(neighbours.sum())

    def tokens_read(self, batch: PackedBatch) -> Tensor:
        """Return none: the pooled output is read."""
        return batch.input_ids[:0]

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return cross-entropy in nats, summed in float32 over the K neighbouring pairs.

        The extra ``rule`` is the rule's answer, ``(K,)``.
        """
        labels = batch.fields["sentence_order_label"]
        counted = labels != NOT_A_PAIR
        rule = batch.fields["sentence_order_rule"][counted]
        return classification_loss(
            self._logits(output)[counted], labels[counted], extras={"rule": rule}
        )

    def metrics(self) -> dict[str, Metric]:
        """Return ``accuracy`` and its baselines ``majority_accuracy`` and ``rule_accuracy``."""
        return {
            "accuracy": Accuracy(),
            "majority_accuracy": MajorityAccuracy(),
            "rule_accuracy": RuleAccuracy(),
        }

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return ``{"in_order_probability": p}`` of each pair, nothing of a single segment."""
        probabilities = self._logits(output).softmax(-1)[:, IN_ORDER].tolist()
        last = batch.token_type_ids[batch.cu_seqlens[1:].long() - 1].tolist()
        return [
            {"in_order_probability": p} if segment == 1 else {}
            for p, segment in zip(probabilities, last, strict=True)
        ]

    def _logits(self, output: EncoderOutput) -> Tensor:
        logits: Tensor = self.classifier(output.pooled)
        return logits.float()

    def _rule(self, sequences: PackedSequences) -> IntArray:
        first_length, _ = text_lengths(sequences)
        last_token = sequences.input_ids[sequences.cu_seqlens[:-1] + first_length]  # [CLS] is at 0
        return np.where(self.ends_sentence[last_token], IN_ORDER, SWAPPED)


class RuleAccuracy(Accuracy):
    """Share that this rule judges right: in order if the first segment ends with a full stop.

    Where a sampler cuts the end of B, the rule alone finds the order: a baseline. The full stop may
    be any of ``SENTENCE_ENDS``.
    """

    def update(self, preds: Tensor, target: Tensor, rule: Tensor) -> None:  # type: ignore[override]
        """Count the rule's ``(K,)`` answers against ``(K,)`` labels."""
        del preds
        super().update(rule, target)
