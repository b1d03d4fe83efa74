"""Checks that what a task says it reads is what it reads, and that an encoder gives just that."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from bertlab.packed_batch import EncoderOutput, PackedBatch
from bertlab.testing.check import TASK_KINDS, check
from bertlab.testing.comparisons import SAME_STATE, difference, state_difference
from bertlab.testing.encoder_case import EncoderCase
from bertlab.testing.failures import ConformanceFailure, NotApplicable
from bertlab.testing.stacks import Stack
from bertlab.testing.task_cases import TaskCase


@check(*TASK_KINDS, after=("loss_is_a_finite_scalar", "evaluation_repeats"))
def tokens_read_are_enough(case: TaskCase) -> None:
    """``loss`` and ``decode`` need no states but those of ``tokens_read``, ``cls`` and ``pooled``.

    ``loss`` is asked about a labelled batch, ``decode`` about one to predict.
    """
    stack = case.stack()
    labelled, unlabelled = stack.rewritten(case.all(stack)), case.unlabelled(stack)
    places = [_places(stack, batch) for batch in (labelled, unlabelled)]
    if places == [None, None]:
        raise NotApplicable("tokens_read() returns None: all states are there")

    def loss(output: EncoderOutput) -> float:
        return stack.task.loss(output, labelled).sum.item()

    def decode(output: EncoderOutput) -> object:
        return stack.task.decode(output, unlabelled)

    with torch.no_grad():
        _compare("loss", loss, stack, labelled, places[0])
        _compare("decode", decode, stack, unlabelled, places[1])


@check("encoder", after=("evaluation_repeats",))
def states_that_are_read_are_right(case: EncoderCase) -> None:
    """States that ``tokens_read`` of a batch names are as they are without it, as is ``pooled``.

    So are their gradients.
    """
    encoder, batch = case.encoder(), case.batch()
    places = torch.arange(2, len(batch.input_ids), 3)
    results = []
    for read in (None, places):
        encoder.zero_grad()
        output = encoder(replace(batch, tokens_read=read))
        states = torch.cat([output.tokens[places], output.cls, output.pooled])
        torch.autograd.backward(states.square().sum())
        results.append([states.detach(), *_gradients(encoder)])
    for one, other in zip(*results, strict=True):
        found = state_difference(one, other)
        if found > SAME_STATE:
            raise ConformanceFailure(
                f"states or gradients are off by {found:.3g} where tokens_read is given",
                "compute all states that batch.tokens_read names and those of output.cls, or all "
                "there are",
            )


def _gradients(encoder: torch.nn.Module) -> list[Tensor]:
    return [each.grad for each in encoder.parameters() if each.grad is not None]


def _places(stack: Stack, batch: PackedBatch) -> Tensor | None:
    """Return what the task says, if that has the right form."""
    found = stack.task.tokens_read(batch)
    if found is None:
        return None
    if not torch.is_tensor(found) or found.dtype != torch.int64 or found.dim() != 1:
        shown = f"{tuple(found.shape)} {found.dtype}" if torch.is_tensor(found) else repr(found)
        raise ConformanceFailure(
            f"tokens_read() returns {shown[:80]}",
            "return (N,) int64 places in input_ids, or None for all",
        )
    return found


def _compare(
    name: str,
    compute: Callable[[EncoderOutput], object],
    stack: Stack,
    batch: PackedBatch,
    places: Tensor | None,
) -> None:
    """Compute from the states of ``places`` alone; fail if the result differs."""
    if places is None:
        return
    whole = stack.output(batch)
    summary = whole.cls
    tokens = torch.zeros_like(whole.tokens)
    tokens[places] = whole.tokens[places]
    bare = replace(whole, tokens=tokens, summary=lambda *_: summary)
    found = difference(compute(bare), compute(whole))
    if found is not None:
        raise ConformanceFailure(
            f"{name}() without the states that tokens_read() leaves out: {found.strip()}",
            f"name all places of output.tokens that {name}() reads, or return None for all",
        )
