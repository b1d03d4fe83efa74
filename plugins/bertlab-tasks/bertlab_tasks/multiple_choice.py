"""Choosing the right continuation among several (paper sec. 4.4)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from bertlab import Accuracy, ClassifierHead, MajorityAccuracy, classification_loss, text_ids
from bertlab.api import (
    Column,
    DataError,
    EncoderOutput,
    Example,
    Features,
    PackedBatch,
    TaskContext,
    TaskLoss,
    Tokenizer,
)
from bertlab.extend import pair_features
from bertlab_tasks.text_of_words import words_as_given


class MultipleChoice(ClassifierHead):
    """Score each choice after its context, with a softmax over the row's choices: SWAG, CODAH.

    ``classifier`` is the vector of the paper whose dot product with the pooled output is a
    choice's score (and a bias, which the softmax does not see). Rows may have different numbers of
    choices. ``stem``, if a row has it, is the beginning of every choice, as SWAG's ``sent2``.

    Args:
        dropout: dropout on the pooled output; the encoder's ``hidden_dropout_prob`` if not given.

    Raises:
        ConfigError: if the dropout is not a probability.
    """

    columns = (
        Column("context"),
        Column("choices", "texts"),
        Column("label", "label", is_truth=True),
        Column("stem", required=False),
    )
    monitor = ("accuracy", "max")
    keeps_examples_together = True
    splits_by = "context"
    huggingface = "BertForMultipleChoice"

    def add_layers(self, context: TaskContext) -> None:
        """Create the classifier, H to 1."""
        self.add_classifier(context.encoder, 1)

    def encode(self, example: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        """Return ``[CLS] context [SEP] choice [SEP]`` of each choice, cut longest first.

        The first counts 1 prediction, the others 0. Fields: ``choice``, its number in the example,
        and ``choice_label``, the number of the right one.

        Raises:
            DataError: if there are not two choices or more, a text is empty, or the label is not
                the number of a choice, from 0.
            ConfigError: if not even one token of each text fits.
        """
        choices = _choices(example)
        truth = {"choice_label": _label(example, len(choices))} if "label" in example.values else {}
        context = text_ids(example.values.get("context"), example, "context", tokenizer)
        stem = _stem_ids(example, tokenizer)
        sequences = []
        for number, choice in enumerate(choices):
            ids = stem + text_ids(choice, example, f"choices[{number}]", tokenizer)
            features = pair_features(context, ids, tokenizer, max_seq_length)
            features.fields |= {"choice": number, **truth}
            features.count = int(number == 0)
            sequences.append(features)
        return sequences

    def tokens_read(self, batch: PackedBatch) -> Tensor:
        """Return none: the pooled output is read."""
        return batch.input_ids[:0]

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return cross-entropy in nats over each row's choices, summed in float32 over the rows."""
        choice = batch.fields["choice"]
        # choice [0, 1, 2, 0, 1] -> row [0, 0, 0, 1, 1], and row 1 has -inf for the choice it lacks
        first = choice == 0
        row = first.cumsum(0) - 1
        labels = batch.fields["choice_label"][first]
        scores = self._scores(output)
        logits = scores.new_full((len(labels), int(choice.max()) + 1), -torch.inf)
        logits = logits.index_put((row, choice), scores)  # (rows, most choices)
        return classification_loss(logits, labels)

    def metrics(self) -> dict[str, Metric]:
        """Return ``accuracy``, and ``majority_accuracy``: that of the commonest place."""
        return {"accuracy": Accuracy(), "majority_accuracy": MajorityAccuracy()}

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return ``{"score": logit}`` of each choice."""
        del batch
        return [{"score": score} for score in self._scores(output).tolist()]

    def merge(self, example: Example, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return ``{"label": number, "choice": text, "scores": [probability, …]}``."""
        scores = torch.tensor([part["score"] for part in parts], dtype=torch.float64).softmax(0)
        best = int(scores.argmax())
        choices = words_as_given(example.values["choices"], example.row)
        return {"label": best, "choice": choices[best], "scores": scores.tolist()}

    def _scores(self, output: EncoderOutput) -> Tensor:
        """``(B,)`` float32 scores of the choices."""
        return self.classify(output.pooled).squeeze(-1)


def _choices(example: Example) -> Sequence[object]:
    choices = example.values.get("choices")
    if isinstance(choices, str) or not isinstance(choices, Sequence) or len(choices) < 2:
        raise DataError(
            f"{example.where}: choices: found {choices!r}, expected a list of two texts or more"
        )
    return choices


def _label(example: Example, choices: int) -> int:
    found = example.values["label"]
    for number in range(choices):
        if not isinstance(found, bool) and str(found).strip() == str(number):
            return number
    raise DataError(
        f"{example.where}: label: found {found!r}, expected the number of the right one of "
        f"{choices} choices, 0 to {choices - 1}"
    )


def _stem_ids(example: Example, tokenizer: Tokenizer) -> list[int]:
    stem = example.values.get("stem")
    # some of SWAG's and HellaSwag's examples have no stem
    return text_ids(stem, example, "stem", tokenizer) if stem not in (None, "") else []
