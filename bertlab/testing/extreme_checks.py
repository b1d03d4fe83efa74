"""Checks of batches at the edge: one sequence, very short, very long, nothing to predict."""

from collections.abc import Sequence

import numpy as np
import torch

from bertlab.data.encoded_rows import encode_rows
from bertlab.data.input_formats import SAMPLERS
from bertlab.errors import BertlabError
from bertlab.heads.base import Head
from bertlab.labelled_rows import Row
from bertlab.packed_batch import PackedBatch
from bertlab.testing.check import TASK_KINDS, check
from bertlab.testing.failures import ConformanceFailure, NotApplicable
from bertlab.testing.sample_corpus import short_sequences
from bertlab.testing.sample_rows import sample_rows
from bertlab.testing.stacks import MAX_LENGTH, Stack
from bertlab.testing.task_cases import TASK, HeadCase, ObjectiveCase, TaskCase

_ADVICE = "let shapes follow from the batch; squeeze and max() go wrong where a size is 1 or 0"


@check(*TASK_KINDS, after=("decodes",))
def one_sequence_works(case: TaskCase) -> None:
    """A batch of one sequence, or of the sequences of one row, has a loss and predictions."""
    stack = case.stack()
    for batch in case.each(stack)[:3]:
        _works(stack, batch, "a batch of one")


@check("objective", after=("decodes", "one_sequence_works"))
def shortest_sequences_work(case: ObjectiveCase) -> None:
    """Sequences with a single word have a loss and predictions, alone and 100 of them."""
    stack = case.stack()
    for count in (1, 100):
        texts = [case.ids(1, number) for number in range(count)]
        _works(stack, _by_hand(case, stack, texts), f"{count} sequences of one word")


@check("head", after=("decodes", "one_sequence_works"))
def shortest_rows_work(case: HeadCase) -> None:
    """Rows with a single word in every text have a loss and predictions, alone and 30 of them."""
    rows = sample_rows(case.plugin.columns, case.language, 30, words=1)
    _need_labels_of(case, rows)
    stack = case.stack()
    _works(stack, case.batch_of(stack, rows[:1]), "a row of one word")
    _works(stack, case.batch_of(stack, rows), "30 rows of one word")


@check("objective", after=("decodes",))
def longest_sequences_work(case: ObjectiveCase) -> None:
    """Sequences as long as the encoder can read have a loss and predictions."""
    stack = case.stack()
    length = min(stack.encoder.max_position_embeddings, 512)
    sequences = case.sequences(range(4), max_seq_length=length)
    _works(stack, case.prepare(stack.task, sequences).to_batch(), f"sequences of {length} tokens")


@check("head", after=("decodes", "encode_keeps_to_any_limit"))
def longest_rows_work(case: HeadCase) -> None:
    """A text of 200 words is cut, divided, or a BertlabError; what is left of it is learned."""
    stack = case.stack()
    for column in case.plugin.columns:
        if column.kind not in ("text", "texts"):
            continue
        rows = sample_rows(case.plugin.columns, case.language, 4, words={column.name: 200})
        _need_labels_of(case, rows)
        try:
            encoded = encode_rows(_head(stack), rows, case.language.tokenizer, MAX_LENGTH)
        except BertlabError:
            continue
        batch = encoded.batch(np.arange(len(encoded)), TASK)[0]
        _works(stack, batch, f"{column.name} of 200 words")


@check("objective", after=("loss_is_a_finite_scalar",))
def nothing_to_predict_is_zero(case: ObjectiveCase) -> None:
    """A batch without predictions has a loss of 0 that can be differentiated, never NaN."""
    stack = case.stack()
    batch = _by_hand(case, stack, [[case.language.tokenizer.unk_id]] * 2)
    loss = stack.loss(batch)
    value = loss.sum.item()
    if not np.isfinite(value) or (loss.count == 0 and value != 0):
        raise ConformanceFailure(
            f"sum is {value} and count {loss.count} for text of unknown words only",
            'sum the losses (reduction="sum" is 0 of nothing; a mean of nothing is NaN)',
        )
    if not loss.sum.requires_grad:
        raise ConformanceFailure(
            "sum of a batch without predictions has no gradient, so backward() fails",
            "compute it from the layers all the same, instead of returning torch.tensor(0.0)",
        )


@check("objective", after=("loss_is_a_finite_scalar",))
def every_input_format_works(case: ObjectiveCase) -> None:
    """It reads pairs of segments or sentences and, unless it ``requires_pairs``, single ones."""
    stack = case.stack()
    for name, sampler in SAMPLERS.items():
        if case.plugin.requires_pairs and not sampler.has_pairs:
            continue
        for training in (True, False):
            sequences = case.sequences(case.units, input_format=name)  # type: ignore[arg-type]
            batch = case.prepare(stack.task, sequences, training).to_batch()
            _works(stack, batch, f"data.input_format {name}")


def _need_labels_of(case: HeadCase, rows: Sequence[Row]) -> None:
    known = case.labels(case.rows)
    found = case.labels(rows)
    if known and found and not set(found.names) <= set(known.names):
        raise NotApplicable("the given rows have labels of their own")


def _head(stack: Stack) -> Head:
    assert isinstance(stack.task, Head)
    return stack.task


def _by_hand(case: ObjectiveCase, stack: Stack, texts: Sequence[Sequence[int]]) -> PackedBatch:
    sequences = short_sequences(case.language, texts, case.plugin.requires_pairs)
    return case.prepare(stack.task, sequences).to_batch()


def _works(stack: Stack, batch: PackedBatch, words: str) -> None:
    loss = stack.loss(batch)
    if loss.sum.dim() or not torch.isfinite(loss.sum):
        raise ConformanceFailure(f"the loss of {words} is {loss.sum.tolist()}", _ADVICE)
    predictions = stack.decode(batch)
    if len(predictions) != len(batch):
        raise ConformanceFailure(
            f"decode() of {words} returns {len(predictions)} dicts for {len(batch)} sequences",
            _ADVICE,
        )
