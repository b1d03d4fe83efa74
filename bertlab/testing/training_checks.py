"""Checks of training: half precision, learning, other tasks beside it, a GPU, silence."""

import contextlib
import io
from collections.abc import Iterator

import torch

from bertlab.data.step_loader import prepare_sequences
from bertlab.objectives.masked_lm import MaskedLM
from bertlab.objectives.next_sentence import NextSentencePrediction
from bertlab.packed_batch import PackedBatch
from bertlab.tasks import Objective
from bertlab.testing.cases import SEED
from bertlab.testing.check import TASK_KINDS, check
from bertlab.testing.comparisons import close, difference
from bertlab.testing.device_watch import DeviceWatch
from bertlab.testing.failures import ConformanceFailure, NotApplicable
from bertlab.testing.stacks import Stack, seeded
from bertlab.testing.task_cases import TASK, ObjectiveCase, TaskCase

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
    optimizer = stack.optimizer()
    after = before
    for step in range(_STEPS):
        with seeded(SEED + step):
            stack.step(optimizer, batch)
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
    ),
)
def works_beside_other_objectives(case: ObjectiveCase) -> None:
    """Beside ``nsp``, and ``mlm`` where the input is free, its loss and theirs can be computed."""
    stack = case.stack()
    others: dict[str, Objective] = {"nsp": NextSentencePrediction()}
    if not case.plugin.corrupts_input and case.plugin.requires_causal is not True:
        others["mlm"] = MaskedLM()
    for other in others.values():
        other.build(case.context(stack.encoder))
    assert isinstance(stack.task, Objective)
    sequences = case.sequences(case.units)
    labels = sequences.fields["next_sentence_label"].copy()
    prepare_sequences(sequences, {**others, TASK: stack.task}, SEED, True)
    found = difference(labels.tolist(), sequences.fields["next_sentence_label"].tolist())
    if found:
        raise ConformanceFailure(
            f"next_sentence_label is changed: {found.strip()}", "write fields of its own"
        )
    batch = sequences.to_batch()
    for name, other in others.items():
        if not other.loss(stack.output(batch), batch).sum.isfinite():
            raise ConformanceFailure(
                f"the loss of {name} beside it is not finite", "write fields of its own"
            )
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
    here = stack.loss(batch).sum.item()
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
