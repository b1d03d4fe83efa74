"""Checks that the sequences of a batch have nothing to do with each other."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from bertlab.testing.check import TASK_KINDS, check
from bertlab.testing.comparisons import close, difference
from bertlab.testing.failures import ConformanceFailure
from bertlab.testing.stacks import Stack
from bertlab.testing.task_cases import TaskCase

_ADVICE = (
    "use batch.cu_seqlens, batch.lengths or batch.pad(…) so that nothing is computed over the "
    "sequences of a batch together; tokens of all of them lie end to end"
)


@check(*TASK_KINDS, after=("loss_is_a_sum", "evaluation_repeats"))
def loss_does_not_leak(case: TaskCase) -> None:
    """The loss of a batch is the sum of the losses of its sequences, each alone."""
    stack = case.stack()
    packed = stack.loss(case.all(stack))
    alone = [stack.loss(batch) for batch in case.each(stack)]
    total = sum(loss.sum.item() for loss in alone)
    if sum(loss.count for loss in alone) != packed.count:
        raise ConformanceFailure(
            f"count is {packed.count} packed and {sum(loss.count for loss in alone)} one by one",
            _ADVICE,
        )
    if not close(packed.sum.item(), total):
        raise ConformanceFailure(
            f"sum is {packed.sum.item():.6g} packed and {total:.6g} one by one", _ADVICE
        )


@check(*TASK_KINDS, after=("decodes", "loss_does_not_leak", "one_sequence_works"))
def predictions_do_not_leak(case: TaskCase) -> None:
    """Each sequence of a batch is predicted as if it were alone."""
    stack = case.stack()
    packed = stack.decode(case.all(stack))
    alone = [prediction for batch in case.each(stack) for prediction in stack.decode(batch)]
    _same(packed, alone, "packed against alone")


@check(*TASK_KINDS, after=("predictions_do_not_leak",))
def neighbours_do_not_matter(case: TaskCase) -> None:
    """Other words in one sequence change no prediction for the others."""
    stack = case.stack()
    batch = case.all(stack)
    before = stack.decode(batch)
    units = _sequences_of_first_unit(case, stack)
    changed = slice(1, int(batch.cu_seqlens[units]) - 1)
    special = torch.from_numpy(case.language.tokenizer.special_mask)
    ids = batch.input_ids.clone()
    words = (~special[ids[changed]]).nonzero().squeeze(-1) + 1
    ids[words] = ids[words].flip(0)
    after = stack.decode(replace(batch, input_ids=ids))
    _same(before[units:], after[units:], "before against after a change in another sequence")


@check(*TASK_KINDS, after=("loss_does_not_leak",))
def order_does_not_matter(case: TaskCase) -> None:
    """The sequences of a batch in another order have the same loss and predictions."""
    stack = case.stack()
    backwards = list(reversed(case.units))
    one, other = case.all(stack), case.batch(stack, backwards)
    losses = [stack.loss(batch).sum.item() for batch in (one, other)]
    if not close(*losses):
        raise ConformanceFailure(
            f"sum is {losses[0]:.6g}, and {losses[1]:.6g} in the reverse order", _ADVICE
        )
    if len(one) == len(case.units):  # a unit may be several sequences
        predictions = stack.decode(other)[::-1]
        _same(stack.decode(one), predictions, "in order against in reverse order")


def _same(one: Sequence[dict[str, Any]], other: Sequence[dict[str, Any]], words: str) -> None:
    found = difference(list(one), list(other))
    if found:
        raise ConformanceFailure(f"decode() differs, {words}: {found.strip()}", _ADVICE)


def _sequences_of_first_unit(case: TaskCase, stack: Stack) -> int:
    return len(case.batch(stack, [case.units[0]]))
