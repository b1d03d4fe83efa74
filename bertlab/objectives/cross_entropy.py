"""Cross-entropy over a vocabulary, summed over positions; on a CPU in one pass over the scores.

Scores of a vocabulary and their cross-entropy in one step, for training on a CPU.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from bertlab.encoders.attention import dtype_of_products

_SCORES = 2**20  # that are worked on at once, in a core's cache


class SummedCrossEntropy(nn.Module):
    """Cross-entropy in nats, summed in float32; a module so that it can be compiled."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return a scalar for ``(K or more, C)`` scores of any dtype and ``(K,)`` int64 labels."""
        on_cpu = logits.device.type == "cpu" and not torch.compiler.is_compiling()
        if on_cpu and not torch.is_grad_enabled():
            return losses_by_rows(logits, labels).sum()
        return F.cross_entropy(logits[: len(labels)].float(), labels, reduction="sum")


def losses_by_rows(
    scores: Tensor, labels: Tensor, bias: Tensor | None = None, bias_gradient: Tensor | None = None
) -> Tensor:
    """Return the ``(K,)`` float32 cross-entropies of ``scores + bias``, some rows at a time.

    torch's functions write float32 scores, their log-softmax and two gradients, which takes four
    times the memory, and longer.

    ``scores`` ``(K or more, C)`` are overwritten by their gradient if ``bias_gradient`` ``(C,)`` is
    given, to which its sum over the rows is added; ``labels`` are ``(K,)`` int64.
    """
    losses = scores.new_empty(len(labels), dtype=torch.float32)
    height = max(1, min(len(labels), _SCORES // scores.shape[1]))  # 34 of 30,522 scores
    numbers = torch.arange(height)
    cached, probabilities = scores.new_empty(2, height, scores.shape[1], dtype=torch.float32)
    rows = torch.split(scores[: len(labels)], height)
    parts = zip(rows, torch.split(labels, height), torch.split(losses, height), strict=True)
    for chunk, chosen, found in parts:
        # (R, C) in float32, written over by the next rows
        part = cached[: len(chunk)].copy_(chunk)
        if bias is not None:
            part.add_(bias)
        right = numbers[: len(chunk)], chosen
        shares = torch.softmax(part, 1, out=probabilities[: len(chunk)])
        found.copy_(_losses(part, shares[right], chosen))
        if bias_gradient is not None:
            shares[right] -= 1  # the gradient of the scores: softmax less one-hot labels
            bias_gradient += shares.sum(0)
            chunk.copy_(shares)
    if bias_gradient is not None:
        scores[len(labels) :] = 0
    return losses


def _losses(scores: Tensor, probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return ``(R,)`` cross-entropies, given ``(R,)`` probabilities of the labels."""
    # a label whose score is 104 below the best has a share of 0 in float32, and log(0) is -inf;
    # log-softmax of such rows stays exact
    losses = -probabilities.log()
    underflown = probabilities < torch.finfo(torch.float32).tiny
    if underflown.any():
        losses[underflown] = F.cross_entropy(
            scores[underflown], labels[underflown], reduction="none"
        )
    return losses


Context = Any  # torch.autograd.function.FunctionCtx, with what is kept on it


def linear_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    """Return cross-entropy in nats of the scores ``hidden @ weight.T + bias``, summed in float32.

    Same as ``F.cross_entropy`` of ``F.linear``. The gradient takes the place of the scores, which
    spares their size in memory, and the bias is added and has its gradient while some rows of them
    are in a core's cache. Under autocast the products are in its dtype, nothing else is.

    ``hidden`` is ``(K or more, H)``, of which rows that follow do not count, ``weight`` ``(V, H)``.
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
        # the scores become their gradient: the one (K, V) tensor that backward keeps
        total = losses_by_rows(scores, labels, bias, bias_gradient).sum()
        ctx.save_for_backward(rows, matrix, scores, bias_gradient)
        ctx.dtypes = hidden.dtype, weight.dtype, bias.dtype
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, share: Tensor) -> tuple[Tensor | None, ...]:
        rows, matrix, gradient, bias_gradient = ctx.saved_tensors
        needed, dtypes = ctx.needs_input_grad, ctx.dtypes
        return (
            (gradient @ matrix).to(dtypes[0]).mul_(share) if needed[0] else None,  # (K, H)
            (gradient.T @ rows).to(dtypes[1]).mul_(share) if needed[1] else None,  # (V, H)
            (bias_gradient * share).to(dtypes[2]) if needed[2] else None,
            None,
        )
