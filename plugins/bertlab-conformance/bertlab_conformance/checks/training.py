"""Checks of training and prediction: extreme batch sizes, bf16, learning, devices, output."""

import contextlib
import io
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from bertlab import MaskedLM, NextSentencePrediction, encode_examples, prepare_sequences
from bertlab.api import BertlabError, Example, Objective, PackedBatch
from bertlab.extend import installed, load_sampler
from bertlab_conformance.cases import SEED
from bertlab_conformance.check import TASK_KINDS, ConformanceFailure, NotApplicable, check
from bertlab_conformance.comparisons import close, difference
from bertlab_conformance.device_watch import DeviceWatch
from bertlab_conformance.samples import sample_rows, short_sequences
from bertlab_conformance.stack import MAX_LENGTH, Stack, seeded
from bertlab_conformance.task_cases import TASK, HeadCase, ObjectiveCase, TaskCase

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
        # caught: a shift by one token that leaves nothing, a mask over which max() is taken
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
            encoded = encode_examples(stack.head, rows, case.language.tokenizer, MAX_LENGTH)
        except BertlabError:
            continue
        batch = encoded.batch(np.arange(len(encoded)), TASK)[0]
        _works(stack, batch, f"{column.name} of 200 words")


@check("objective", after=("loss_is_a_finite_scalar",))
def nothing_to_predict_is_zero(case: ObjectiveCase) -> None:
    """A batch without predictions has a loss of 0 that can be differentiated, never NaN."""
    stack = case.stack()
    # [CLS] [UNK] [SEP] twice: most objectives have nothing to predict there
    batch = _by_hand(case, stack, [[case.language.tokenizer.unk_id]] * 2)
    loss = stack.loss(batch)
    value = loss.sum.item()
    # caught: cross_entropy of nothing with reduction="mean", which is NaN
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
    for name in installed("input_format"):
        if case.plugin.requires_pairs and not load_sampler(name).has_pairs:
            continue
        for training in (True, False):
            sequences = case.sequences(case.units, input_format=name)
            batch = case.prepare(stack.task, sequences, training).to_batch()
            _works(stack, batch, f"data.input_format {name}")


def _need_labels_of(case: HeadCase, rows: Sequence[Example]) -> None:
    known = case.labels(case.rows)
    found = case.labels(rows)
    # rows of the author with labels "yes" and "no": made rows have "0", "1", "2"
    if known and found and not set(found.names) <= set(known.names):
        raise NotApplicable("the given rows have labels of their own")


def _by_hand(case: ObjectiveCase, stack: Stack, texts: Sequence[Sequence[int]]) -> PackedBatch:
    sequences = short_sequences(case.language, texts, case.plugin.requires_pairs)
    case.prepare_companions(sequences)
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


_STEPS, _EVERY = 100, 10
_LEARNED = 0.85  # of the loss before


@check(*TASK_KINDS, after=("decodes", "evaluation_repeats"))
def bfloat16_is_close(case: TaskCase) -> None:
    """Under bf16 autocast the loss is about the same, is summed in float32, and decoding works."""
    stack = case.stack()
    batch = case.all(stack)
    full = stack.loss(batch).sum.item()
    with torch.autocast("cpu", torch.bfloat16):
        half = stack.loss(batch)
        stack.decode(batch)
    if half.sum.dtype != torch.float32:
        raise ConformanceFailure(
            f"sum is {half.sum.dtype} under bf16 autocast, which has 3 digits",
            "compute the loss of logits.float()",
        )
    if not close(half.sum.item(), full, 0.1):
        raise ConformanceFailure(
            f"the loss is {full:.4g} in float32 and {half.sum.item():.4g} under bf16 autocast",
            "compute softmax, logarithms, norms and sums in float32",
        )


@check(*TASK_KINDS, after=("gradient_reaches_every_parameter", "evaluation_repeats"))
def learns(case: TaskCase) -> None:
    """At most 100 steps of AdamW on one batch lower its loss by 15 %."""
    stack = case.stack(disturbed=False)
    batch = case.all(stack)
    before = _mean_loss(stack, batch)
    # caught: a loss of the wrong sign, or whose target does not follow from the input's states
    optimizer = stack.optimizer()
    after = before
    for step in range(_STEPS):
        with seeded(SEED + step):
            stack.step(optimizer, batch)
        # after 10, 20, … steps; most tasks are done after the first ten
        if step % _EVERY == _EVERY - 1:
            after = _mean_loss(stack, batch)
            if after < _LEARNED * before:
                return
    raise ConformanceFailure(
        f"the loss on one batch is {before:.4g}, and {after:.4g} after {_STEPS} steps on it",
        "look at the sign of the loss, at labels that do not belong to their positions, and at "
        "initial weights (initialize(self, encoder.initializer_range))",
    )


@check(
    "objective",
    after=(
        "prepare_does_not_depend_on_the_batch",
        "prepare_leaves_other_fields_alone",
        "count_is_as_announced",
        "rewritten_input_has_the_same_layout",
    ),
)
def works_beside_other_objectives(case: ObjectiveCase) -> None:
    """Beside ``nsp``, and ``mlm`` where the input is free, its loss and theirs can be computed."""
    stack = case.stack()
    others: dict[str, Objective] = {"nsp": NextSentencePrediction()}
    companions = stack.companions
    corrupt = [case.plugin.corrupts_input, *(each.corrupts_input for each in companions.values())]
    free = not any(corrupt)
    if free and case.plugin.requires_causal is not True:
        others["mlm"] = MaskedLM()
    for other in others.values():
        other.build(case.context(stack.encoder))
    assert isinstance(stack.task, Objective)
    sequences = case.sequences(case.units)
    # the sampler's field, which nsp reads: no other objective may write it
    labels = sequences.fields["next_sentence_label"].copy()
    prepare_sequences(sequences, {**others, TASK: stack.task}, SEED, True)
    found = difference(labels.tolist(), sequences.fields["next_sentence_label"].tolist())
    if found:
        raise ConformanceFailure(
            f"next_sentence_label is changed: {found.strip()}", "write fields of its own"
        )
    batch = sequences.to_batch()
    seen = stack.rewritten(batch)
    for name, other in {**others, **companions}.items():
        if not other.loss(stack.output(seen), seen).sum.isfinite():
            raise ConformanceFailure(
                f"the loss of {name} beside it is not finite", "write fields of its own"
            )
    # caught: loss() that finds its places by input_ids == mask_id and finds mlm's as well
    if stack.loss(batch).count != batch.counts[TASK]:
        raise ConformanceFailure(
            f"beside {' and '.join(others)}, count is {stack.loss(batch).count} and prepare() "
            f"returned {batch.counts[TASK]}",
            "let loss() read positions from fields, and not look for [MASK] in input_ids",
        )


@check(*TASK_KINDS, after=("decodes",))
def prints_nothing(case: TaskCase) -> None:
    """Building, preparing, training and predicting write nothing to the terminal."""
    with refused_output():
        stack = case.stack()
        batch = case.all(stack)
        stack.loss(batch)
        stack.decode(batch)
        stack.train().loss(batch)


@check(*TASK_KINDS, after=("decodes_without_truth",))
def keeps_to_the_device(case: TaskCase) -> None:
    """No tensor that is made without ``device`` meets the batch, which a GPU would refuse."""
    stack = case.stack()
    # caught: torch.arange(len(batch)) added to positions of the batch
    for step, batch in ((stack.loss, case.all(stack)), (stack.decode, case.unlabelled(stack))):
        with DeviceWatch():
            step(batch)


@check(*TASK_KINDS, after=("keeps_to_the_device",))
def runs_on_a_gpu(case: TaskCase) -> None:
    """On a GPU, where there is one, loss and predictions are about the same."""
    if not torch.cuda.is_available():
        raise NotApplicable("there is no GPU")
    stack = case.stack()
    batch = case.all(stack)
    here = stack.loss(batch).sum.item()  # before the modules move
    device = torch.device("cuda")
    for module in stack.modules():
        module.to(device)
    there = stack.loss(batch.to(device))
    torch.autograd.backward(there.sum)
    stack.decode(batch.to(device))
    if not close(here, there.sum.item(), 0.01):
        raise ConformanceFailure(
            f"the loss is {here:.6g} on the CPU and {there.sum.item():.6g} on the GPU",
            "make new tensors on the batch's device (values.new_zeros, device=…)",
        )


@contextlib.contextmanager
def refused_output() -> Iterator[None]:
    """Raise ConformanceFailure if anything is written to the terminal meanwhile."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(written):
        yield
    if written.getvalue():
        raise ConformanceFailure(
            f"it prints {written.getvalue()[:80]!r}",
            "remove print(); what predict writes to the terminal is its output. Heads count "
            "remarks about rows in self.notes",
        )


def _mean_loss(stack: Stack, batch: PackedBatch) -> float:
    with torch.no_grad():
        loss = stack.loss(batch)
    return loss.sum.item() / max(1, loss.count)
