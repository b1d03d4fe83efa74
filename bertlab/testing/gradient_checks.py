"""Checks that training reaches everything that it should reach."""

from collections.abc import Iterable

import torch
from torch import nn

from bertlab.tasks import TaskLoss
from bertlab.testing.cases import SEED
from bertlab.testing.check import TASK_KINDS, check
from bertlab.testing.failures import ConformanceFailure, NotApplicable
from bertlab.testing.stacks import Stack, seeded
from bertlab.testing.task_cases import TaskCase

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
        elif gradient.dim() > 1 and not gradient.any():
            missing.append(f"{name} (all zeros)")
    return missing


def _backward(case: TaskCase, stack: Stack) -> TaskLoss:
    with seeded(SEED):
        loss = stack.train().loss(case.all(stack))
        torch.autograd.backward(loss.sum)
    return loss
