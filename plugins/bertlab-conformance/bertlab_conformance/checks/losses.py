"""Checks of the loss: a sum over the predictions, its count, and its gradients."""

from collections.abc import Iterable

import torch
from torch import nn

from bertlab.api import Objective, PackedBatch, TaskLoss
from bertlab_conformance.cases import SEED
from bertlab_conformance.check import TASK_KINDS, ConformanceFailure, NotApplicable, check
from bertlab_conformance.comparisons import changed_tensor, close
from bertlab_conformance.stack import Stack, seeded, tensors_of
from bertlab_conformance.task_cases import TASK, TaskCase


@check(*TASK_KINDS, after=("builds", "prepare_leaves_the_layout_alone", "encode_fits_the_encoder"))
def loss_is_a_finite_scalar(case: TaskCase) -> None:
    """``sum`` of the loss is one finite float with a gradient, and ``count`` is an int."""
    stack = case.stack()
    loss = stack.loss(case.all(stack))
    if not isinstance(loss, TaskLoss):
        raise ConformanceFailure(
            f"loss() returns a {type(loss).__name__}",
            "return bertlab.api.task.TaskLoss(sum, count, preds, target)",
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
    # caught: padding (-100) counted by one of the two only
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
    """``preds``, ``target`` and extras are tensors of one row a prediction, ``preds`` detached."""
    stack = case.stack()
    loss = stack.loss(case.all(stack))
    extras = {f"extras[{name!r}]": value for name, value in loss.extras.items()}
    for name, value in {"preds": loss.preds, "target": loss.target, **extras}.items():
        if not torch.is_tensor(value) or value.dim() == 0:
            raise ConformanceFailure(
                f"{name} of the loss is {value!r}", "return a tensor with one row a prediction"
            )
    for name, value in extras.items():
        if len(value) != len(loss.target):
            raise ConformanceFailure(
                f"{name} has {len(value)} rows, target {len(loss.target)}",
                "return one row for each prediction",
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
    _need_independent_sequences(case)
    stack = case.stack()
    # caught: reduction="mean", which weighs a batch of few predictions like one of many
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


def _need_independent_sequences(case: TaskCase) -> None:
    if case.plugin.compares_sequences:
        raise NotApplicable("compares_sequences is True")


@check(*TASK_KINDS, after=("loss_is_a_finite_scalar", "prepare_does_not_depend_on_the_batch"))
def compares_sequences_is_true(case: TaskCase) -> None:
    """With ``compares_sequences``, the loss of a batch is not that of its sequences alone."""
    if not case.plugin.compares_sequences:
        raise NotApplicable("compares_sequences is False")
    stack = case.stack()
    packed = stack.loss(case.all(stack)).sum.item()
    alone = sum(stack.loss(batch).sum.item() for batch in case.each(stack))
    if close(packed, alone):
        raise ConformanceFailure(
            f"sum is {packed:.6g} packed and {alone:.6g} one by one, but compares_sequences is "
            "True, so that accumulation and several devices are refused",
            "set compares_sequences = False in the class",
        )


@check(*TASK_KINDS, after=("loss_is_a_finite_scalar",))
def evaluation_repeats(case: TaskCase) -> None:
    """In evaluation mode, the same batch has the same loss and predictions to the last bit."""
    stack = case.stack()
    batch = case.all(stack)
    one, other = stack.loss(batch), stack.loss(batch)
    # to the last bit, as nothing may be drawn here; F.dropout(x) drops even in evaluation
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


Named = Iterable[tuple[str, nn.Parameter]]


@check(*TASK_KINDS, after=("loss_is_a_finite_scalar",))
def gradient_reaches_every_parameter(case: TaskCase) -> None:
    """Every parameter of the task gets a gradient that is finite and not zero."""
    stack = case.stack()
    _backward(case, stack)
    missing = without_gradient(stack.task.named_parameters())
    if missing:
        raise ConformanceFailure(
            f"no gradient reaches {', '.join(missing[:5])}",
            "use the layer in loss(), look for .detach() and no_grad() before it, or remove it; "
            "DDP waits for the gradient of every parameter",
        )


@check(*TASK_KINDS, after=("loss_is_a_finite_scalar",))
def gradient_reaches_the_encoder(case: TaskCase) -> None:
    """Every parameter of the encoder below its pooler gets a gradient, unless it is fixed."""
    stack = case.stack()
    if stack.is_fixed:
        raise NotApplicable("trains_encoder is False")
    _backward(case, stack)
    poolers = {id(parameter) for parameter in stack.encoder.pooler.parameters()}
    rest = [item for item in stack.encoder.named_parameters() if id(item[1]) not in poolers]
    missing = without_gradient(rest)
    if missing:
        raise ConformanceFailure(
            f"no gradient reaches {', '.join(missing[:5])} of the encoder",
            "compute the loss from output.tokens, .cls or .pooled without .detach(); a head that "
            "takes the encoder's states as fixed features says trains_encoder = False",
        )


@check(*TASK_KINDS, after=("loss_is_a_finite_scalar",))
def uses_pooled_is_true(case: TaskCase) -> None:
    """``uses_pooled`` says whether the loss reads ``output.pooled``; if not, it is frozen."""
    stack = case.stack()
    if stack.is_fixed:
        raise NotApplicable("trains_encoder is False")
    loss = _backward(case, stack)
    pooler = list(stack.encoder.pooler.named_parameters())
    if not pooler:
        raise NotApplicable("the encoder's pooler has no parameters")
    # the pooler's weight has a gradient just if the loss reads pooled
    reads = len(without_gradient(pooler)) < len(pooler)
    if reads != stack.task.uses_pooled:
        does = "reads" if reads else "does not read"
        raise ConformanceFailure(
            f"uses_pooled is {stack.task.uses_pooled}, but loss() {does} output.pooled "
            f"(loss {loss.sum.item():.4g})",
            f"set uses_pooled = {reads} in the class",
        )


def without_gradient(named: Named) -> list[str]:
    """Return the trained parameters that got no gradient; for messages, with the reason.

    A vector may get zero: a softmax over positions or sequences does not see the bias of a score.
    """
    missing = []
    for name, parameter in named:
        if not parameter.requires_grad:
            continue
        gradient = parameter.grad
        if gradient is None:
            missing.append(name)
        elif not gradient.isfinite().all():
            missing.append(f"{name} (not finite)")
        # caught: a layer behind relu of negative values, a product with a constant 0
        elif gradient.dim() > 1 and not gradient.any():
            missing.append(f"{name} (all zeros)")
    return missing


def _backward(case: TaskCase, stack: Stack) -> TaskLoss:
    with seeded(SEED):
        loss = stack.train().loss(case.all(stack))
        torch.autograd.backward(loss.sum)
    return loss
