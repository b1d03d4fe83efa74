"""Scores of a vocabulary and their cross-entropy in one step, for training on a CPU."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bertlab.autocast_dtype import dtype_of_products
from bertlab.objectives.summed_cross_entropy import sum_by_rows

Context = Any  # torch.autograd.function.FunctionCtx, with what is kept on it


def linear_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    """Return cross-entropy in nats of the scores ``hidden @ weight.T + bias``, summed in float32.

    Same as ``F.cross_entropy`` of ``F.linear``. The gradient takes the place of the scores, which
    spares their size in memory, and the bias is added and has its gradient while some rows of them
    are in a core's cache. Under autocast the products are in its dtype, nothing else is.

    Args:
        hidden: ``(K or more, H)``; rows that follow do not count.
        weight: ``(V, H)``.
        bias: ``(V,)``.
        labels: ``(K,)`` int64 class ids.
    """
    total: Tensor = _LinearCrossEntropy.apply(hidden, weight, bias, labels)  # type: ignore[no-untyped-call]
    return total


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Context, hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor
    ) -> Tensor:
        dtype = dtype_of_products(hidden)
        rows, matrix = hidden.to(dtype), weight.to(dtype)
        scores = rows @ matrix.T
        bias_gradient = torch.zeros_like(bias, dtype=torch.float32)
        total = sum_by_rows(scores, labels, bias, bias_gradient)
        ctx.save_for_backward(rows, matrix, scores, bias_gradient)
        ctx.dtypes = hidden.dtype, weight.dtype, bias.dtype
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, share: Tensor) -> tuple[Tensor | None, ...]:
        rows, matrix, gradient, bias_gradient = ctx.saved_tensors
        needed, dtypes = ctx.needs_input_grad, ctx.dtypes
        return (
            (gradient @ matrix).to(dtypes[0]).mul_(share) if needed[0] else None,
            (gradient.T @ rows).to(dtypes[1]).mul_(share) if needed[1] else None,
            (bias_gradient * share).to(dtypes[2]) if needed[2] else None,
            None,
        )
