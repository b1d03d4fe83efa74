"""Cross-entropy over a vocabulary, summed over positions; on a CPU in one pass over the scores."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

Context = Any  # torch.autograd.function.FunctionCtx, with what is kept on it
_SCORES = 2**20  # that are worked on at once, in a core's cache


class SummedCrossEntropy(nn.Module):
    """Cross-entropy in nats, summed in float32; a module so that it can be compiled."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return a scalar.

        Args:
            logits: ``(K, C)`` scores of any floating dtype; rows that follow do not count.
            labels: ``(K,)`` int64 class ids.
        """
        if logits.device.type == "cpu" and not torch.compiler.is_compiling():
            loss: Tensor = _RowWise.apply(logits, labels)  # type: ignore[no-untyped-call]
        else:
            loss = F.cross_entropy(logits[: len(labels)].float(), labels, reduction="sum")
        return loss


class _RowWise(torch.autograd.Function):
    """Some rows at a time, with their gradient, which is all that is kept.

    torch's functions write float32 scores, their log-softmax and two gradients: four times the
    memory, and 1.6 times as long.
    """

    @staticmethod
    def forward(ctx: Context, logits: Tensor, labels: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float32)
        gradient = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        if gradient is not None:
            gradient[len(labels) :] = 0
        height = max(1, _SCORES // logits.shape[1])
        numbers = torch.arange(height)
        for start in range(0, len(labels), height):
            rows = slice(start, min(start + height, len(labels)))
            scores = logits[rows].to(torch.float32, copy=True)
            right = numbers[: len(scores)], labels[rows]
            highest = scores.amax(1, keepdim=True)
            expected = scores[right] - highest[:, 0]
            scores.sub_(highest).exp_()
            sums = scores.sum(1)
            total += (sums.log() - expected).sum()
            if gradient is not None:
                scores.div_(sums[:, None])
                scores[right] -= 1
                gradient[rows] = scores
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, share: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * share, None
