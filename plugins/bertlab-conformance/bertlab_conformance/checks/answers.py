"""A check of what an objective's predictions can see: never the true token itself."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from bertlab import IntArray
from bertlab.api import PackedSequences
from bertlab_conformance.cases import SEED
from bertlab_conformance.check import ConformanceFailure, NotApplicable, check
from bertlab_conformance.comparisons import SAME_STATE, tensor_difference
from bertlab_conformance.stack import Stack, seeded
from bertlab_conformance.task_cases import ObjectiveCase

_TRIALS = 4  # predictions of each sequence
_MOST = 0.5  # of the predictions; BERT leaves a tenth of the tokens as they are


@check("objective", after=("prepare_repeats", "decodes", "loss_is_a_finite_scalar"))
def the_answer_is_hidden(case: ObjectiveCase) -> None:
    """The state that predicts a token of the text does not change with that token.

    A share of the tokens may stay, as a tenth of BERT's does.
    """
    stack = case.stack()
    for training in (True, False):
        seen = list(_seen(case, stack, training))
        # caught: labels without a mask; what the encoder reads is then the answer
        if np.mean(seen) > _MOST:
            words = "training" if training else "evaluation"
            raise ConformanceFailure(
                f"in {words}, {np.mean(seen):.0%} of {len(seen)} states that predict a token "
                "change where that token is another",
                "mask what is predicted (corrupts_input = True), or require a left-to-right "
                "encoder (requires_causal = True) and write the position before each token",
            )


def _seen(case: ObjectiveCase, stack: Stack, training: bool) -> Iterator[bool]:
    """Yield, for some predictions, whether the state that makes it changes with the answer."""
    words = case.language.ids_of_words
    before = case.sequences(case.units)
    positions, answers, labels = _predictions(case, stack, before, training)
    states = _states(case, stack, before, training)
    owner = before.sequence_of_token[positions]
    for trial in range(_TRIALS):
        # at most one of each sequence: sequences do not see each other
        chosen = [rows[trial] for rows in _by_sequence(owner) if len(rows) > trial]
        other = replace(before, input_ids=before.input_ids.copy())
        # the word behind it in the vocabulary's: never the same
        ids = (np.searchsorted(words, labels[chosen]) + 1) % len(words)
        other.input_ids[answers[chosen]] = np.asarray(words)[ids]
        again, changed = _predictions(case, stack, other, training), None
        for row in chosen:
            same = np.flatnonzero(again[0] == positions[row])
            if not len(same):  # it chooses by the text: another word is no longer predicted
                continue
            if changed is None:
                changed = _states(case, stack, other, training)
            place = positions[row]
            yield tensor_difference(states[place], changed[place]) > SAME_STATE


def _predictions(
    case: ObjectiveCase, stack: Stack, sequences: PackedSequences, training: bool
) -> tuple[IntArray, IntArray, IntArray]:
    """Return the positions that predict, those of the answers, and these: words, none special."""
    read = _prepared(case, stack, sequences, training)
    new = read.fields.keys() - sequences.fields.keys()
    words = case.language.ids_of_words
    for name in sorted(new):
        stem = name.removesuffix("_labels")
        if stem == name or f"{stem}_positions" not in new:
            continue
        written = read.token_labels(stem)
        if written.labels.shape != written.positions.shape or not len(written.labels):
            continue
        for offset in (0, 1):  # the state at the token, or the one before it
            places = (written.positions + offset) % len(sequences.input_ids)
            if (sequences.input_ids[places] == written.labels).all():
                rows = np.isin(written.labels, words)
                return written.positions[rows], places[rows], written.labels[rows]
    raise NotApplicable("it predicts no tokens of its text")


def _prepared(
    case: ObjectiveCase, stack: Stack, sequences: PackedSequences, training: bool
) -> PackedSequences:
    copied = replace(
        sequences,
        input_ids=sequences.input_ids.copy(),
        fields=dict(sequences.fields),
        counts=dict(sequences.counts),
    )
    return case.prepare(stack.task, copied, training)


def _states(
    case: ObjectiveCase, stack: Stack, sequences: PackedSequences, training: bool
) -> torch.Tensor:
    with torch.no_grad(), seeded(SEED):
        batch = stack.rewritten(_prepared(case, stack, sequences, training).to_batch())
        return stack.output(batch).tokens


def _by_sequence(owner: IntArray) -> list[IntArray]:
    """Return the predictions of each sequence: owner [0, 0, 2] -> [[0, 1], [2]]."""
    return [np.flatnonzero(owner == each) for each in np.unique(owner)]
