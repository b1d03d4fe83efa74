"""Checks of one loss: its form, its count, and what it is the sum of."""

import torch

from bertlab.packed_batch import PackedBatch
from bertlab.tasks import Objective, TaskLoss
from bertlab.testing.check import TASK_KINDS, check
from bertlab.testing.comparisons import changed_tensor, close
from bertlab.testing.failures import ConformanceFailure
from bertlab.testing.stacks import tensors_of
from bertlab.testing.task_cases import TASK, TaskCase


@check(*TASK_KINDS, after=("builds", "prepare_leaves_the_layout_alone", "encode_fits_the_encoder"))
def loss_is_a_finite_scalar(case: TaskCase) -> None:
    """``sum`` of the loss is one finite float with a gradient, and ``count`` is an int."""
    stack = case.stack()
    loss = stack.loss(case.all(stack))
    if not isinstance(loss, TaskLoss):
        raise ConformanceFailure(
            f"loss() returns a {type(loss).__name__}",
            "return bertlab.tasks.TaskLoss(sum, count, preds, target)",
        )
    total = loss.sum
    if not torch.is_tensor(total) or total.dim() or not total.is_floating_point():
        shown = tuple(total.shape) if torch.is_tensor(total) else type(total).__name__
        raise ConformanceFailure(
            f"sum is {shown}", "sum the losses of all predictions: (…).sum(), a scalar"
        )
    if not total.isfinite():
        raise ConformanceFailure(
            f"sum is {total.item()}", "look for log(0), 0/0 or a softmax over nothing but -inf"
        )
    if not total.requires_grad:
        raise ConformanceFailure(
            "sum has no gradient", "remove .detach(), .item() or no_grad() on the way to it"
        )
    if type(loss.count) is not int:
        raise ConformanceFailure(
            f"count is a {type(loss.count).__name__}", "return an int: target.numel(), int(…)"
        )


@check(*TASK_KINDS, after=("loss_is_a_finite_scalar",))
def count_is_as_announced(case: TaskCase) -> None:
    """``count`` of the loss is what ``prepare`` returned, or the ``Features.count`` of its rows."""
    stack = case.stack()
    batch = case.all(stack)
    announced, count = batch.counts[TASK], stack.loss(batch).count
    if announced != count:
        is_objective = issubclass(case.plugin, Objective)
        source = "prepare() returned" if is_objective else "the Features of the batch say"
        raise ConformanceFailure(
            f"count of the loss is {count}, {source} {announced}",
            "let both be the number of predictions that the sum is over; the mean of an optimiser "
            "step is made with the announced number",
        )


@check(*TASK_KINDS, after=("loss_is_a_finite_scalar", "count_is_as_announced"))
def predictions_have_targets(case: TaskCase) -> None:
    """``preds`` and ``target`` are tensors of one row a prediction, and ``preds`` is detached."""
    stack = case.stack()
    loss = stack.loss(case.all(stack))
    for name, value in (("preds", loss.preds), ("target", loss.target)):
        if not torch.is_tensor(value) or value.dim() == 0:
            raise ConformanceFailure(
                f"{name} of the loss is {value!r}", "return a tensor with one row a prediction"
            )
    rows = len(loss.preds), len(loss.target)
    if rows[0] != rows[1] or (stack.task.metrics() and rows[0] != loss.count):
        raise ConformanceFailure(
            f"preds has {rows[0]} rows, target {rows[1]}, and count is {loss.count}",
            "return one row for each prediction that counts; leave out padding and ignored ones",
        )
    if loss.preds.requires_grad:
        raise ConformanceFailure(
            "preds has a gradient, so metrics would keep every batch's graph in memory",
            "detach it: logits.detach().argmax(-1)",
        )


@check(*TASK_KINDS, after=("loss_is_a_finite_scalar", "prepare_does_not_depend_on_the_batch"))
def loss_is_a_sum(case: TaskCase) -> None:
    """A batch that has every sequence twice has twice the loss and twice the count."""
    stack = case.stack()
    once, twice = stack.loss(case.all(stack)), stack.loss(case.twice(stack))
    if twice.count != 2 * once.count:
        raise ConformanceFailure(
            f"count is {once.count}, and {twice.count} where every sequence is there twice",
            "return the number of predictions of the batch",
        )
    if not close(twice.sum.item(), 2 * once.sum.item()):
        is_mean = close(twice.sum.item(), once.sum.item(), 0.05)
        raise ConformanceFailure(
            f"sum is {once.sum.item():.4g}, and {twice.sum.item():.4g} where every sequence is "
            "there twice" + (": that is a mean" if is_mean else ", expected twice as much"),
            'return the sum over the predictions, for example with reduction="sum"; the core '
            "divides by the count of the whole optimiser step",
        )


@check(*TASK_KINDS, after=("loss_is_a_finite_scalar",))
def evaluation_repeats(case: TaskCase) -> None:
    """In evaluation mode, the same batch has the same loss and predictions to the last bit."""
    stack = case.stack()
    batch = case.all(stack)
    one, other = stack.loss(batch), stack.loss(batch)
    if not torch.equal(one.sum, other.sum) or not torch.equal(one.preds, other.preds):
        raise ConformanceFailure(
            f"two losses of one batch are {one.sum.item():.8g} and {other.sum.item():.8g}",
            "use dropout only while self.training (nn.Dropout does); draw noise in prepare(), "
            "keyed by epochs and indices, and put it into fields",
        )


@check(*TASK_KINDS, after=("loss_is_a_finite_scalar",))
def loss_leaves_the_batch_alone(case: TaskCase) -> None:
    """``loss``, ``decode`` and ``rewrite_input`` change no tensor of the batch."""
    stack = case.stack()
    batch = case.all(stack)
    before = tensors_of(batch)
    stack.loss(batch)
    stack.decode(batch)
    _same_tensors(before, batch)


def _same_tensors(before: dict[str, torch.Tensor], batch: PackedBatch) -> None:
    changed = changed_tensor(before, tensors_of(batch))
    if changed:
        raise ConformanceFailure(
            f"{changed} of the batch is changed in place",
            "work on a copy; rewrite_input() returns dataclasses.replace(batch, input_ids=…)",
        )
