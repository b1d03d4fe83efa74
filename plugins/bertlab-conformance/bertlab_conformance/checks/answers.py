"""A check of what an objective's predictions can see: never the true token itself."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from bertlab import IntArray
from bertlab.api import EncoderOutput, PackedSequences
from bertlab_conformance.cases import SEED
from bertlab_conformance.check import ConformanceFailure, NotApplicable, check
from bertlab_conformance.comparisons import SAME_STATE
from bertlab_conformance.stack import Stack, seeded
from bertlab_conformance.task_cases import ObjectiveCase

_TRIALS = 4  # predictions of each sequence
_MOST = 0.5  # of the predictions; BERT leaves a tenth of the tokens as they are


@check("objective", after=("prepare_repeats", "decodes", "loss_is_a_finite_scalar"))
def the_answer_is_hidden(case: ObjectiveCase) -> None:
    """What predicts a token of the text does not change with that token.

    A share of the tokens may stay, as a tenth of BERT's does.
    """
    stack = case.stack()
    for training in (True, False):
        seen = list(_seen(case, stack, training))
        # caught: labels without a mask; what the encoder reads is then the answer
        if seen and np.mean(seen) > _MOST:
            words = "training" if training else "evaluation"
            raise ConformanceFailure(
                f"in {words}, {np.mean(seen):.0%} of {len(seen)} predictions of a token change "
                "where that token is another",
                "mask what is predicted (corrupts_input = True), or require a left-to-right "
                "encoder (requires_causal = True) and write the position before each token",
            )


def _seen(case: ObjectiveCase, stack: Stack, training: bool) -> Iterator[bool]:
    """Yield, for some predictions, whether the loss of it alone changes with what stood there."""
    words = np.asarray(case.language.ids_of_words)
    before = case.sequences(case.units)
    found = _Predictions(case, stack, before, training)
    for rows in found.of_trials():
        # the next word of the vocabulary's: never the same
        ids = (np.searchsorted(words, found.labels[rows]) + 1) % len(words)
        other = replace(before, input_ids=before.input_ids.copy())
        other.input_ids[found.answers[rows]] = words[ids]
        changed = _Predictions(case, stack, other, training)
        for row in rows:
            # an objective may choose by the text: another word is then not predicted
            if found.positions[row] in changed.positions:
                one, two = (found.loss(row, each.output) for each in (found, changed))
                yield abs(one - two) > SAME_STATE * max(1.0, abs(one))


class _Predictions:
    """What an objective predicts of sequences: words of the text, none special.

    Attributes:
        positions: ``(K,)`` that it writes.
        answers: ``(K,)`` where the words stand: there, or one behind.
        labels: ``(K,)`` ids of the words.
        output: what the encoder makes of the input that it reads.
    """

    def __init__(
        self, case: ObjectiveCase, stack: Stack, sequences: PackedSequences, training: bool
    ) -> None:
        text, given = sequences.input_ids.copy(), set(sequences.fields)
        copied = replace(sequences, input_ids=text.copy(), fields=dict(sequences.fields))
        copied.counts = dict(sequences.counts)
        read = case.prepare(stack.task, copied, training)
        self.task, self.name = stack.task, ""
        for name in sorted(read.fields.keys() - given):
            stem = name.removesuffix("_labels")
            if stem == name or f"{stem}_positions" not in read.fields:
                continue
            written = read.token_labels(stem)
            for offset in (0, 1):  # the label of a position is its token, or the next one
                places = (written.positions + offset) % len(text)
                if len(places) and np.array_equal(text[places], written.labels):
                    self.name = stem
                    self.rows = np.isin(written.labels, case.language.ids_of_words)
                    self.positions, self.labels = written.positions, written.labels
                    self.answers, self.owner = places, read.sequence_of_token[places]
        if not self.name:
            raise NotApplicable("it predicts no tokens of its text")
        with torch.no_grad(), seeded(SEED):
            self.batch = stack.rewritten(read.to_batch())
            self.output = stack.output(self.batch)

    def of_trials(self) -> Iterator[IntArray]:
        """Yield rows of predictions, at most one of each sequence: these do not see each other."""
        words = np.flatnonzero(self.rows)
        # owners [0, 0, 2] of words [3, 5, 8] -> [3, 8], then [5]
        each = [words[self.owner[words] == owner] for owner in np.unique(self.owner[words])]
        for trial in range(_TRIALS):
            yield np.array([rows[trial] for rows in each if len(rows) > trial], np.int64)

    def loss(self, row: int, output: EncoderOutput) -> float:
        """Return the loss of one prediction from states."""
        fields, count = dict(self.batch.fields), len(self.positions)
        for name, values in fields.items():
            if name.startswith(f"{self.name}_") and values.shape[:1] == (count,):
                fields[name] = values[row : row + 1]
        try:
            with torch.no_grad():
                return float(self.task.loss(output, replace(self.batch, fields=fields)).sum)
        except (RuntimeError, IndexError, ValueError):
            raise NotApplicable("its loss takes no single prediction") from None
