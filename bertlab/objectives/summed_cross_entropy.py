"""Cross-entropy over a vocabulary, summed over positions; on a CPU in one pass over the scores."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_SCORES = 2**20  # that are worked on at once, in a core's cache


class SummedCrossEntropy(nn.Module):
    """Cross-entropy in nats, summed in float32; a module so that it can be compiled."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return a scalar.

        Args:
            logits: ``(K, C)`` scores of any floating dtype; rows that follow do not count.
            labels: ``(K,)`` int64 class ids.
        """
        on_cpu = logits.device.type == "cpu" and not torch.compiler.is_compiling()
        if on_cpu and not torch.is_grad_enabled():
            return sum_by_rows(logits, labels)
        return F.cross_entropy(logits[: len(labels)].float(), labels, reduction="sum")


def sum_by_rows(
    scores: Tensor,
    labels: Tensor,
    bias: Tensor | None = None,
    bias_gradient: Tensor | None = None,
) -> Tensor:
    """Return the summed cross-entropy of ``scores + bias``, some rows at a time.

    torch's functions write float32 scores, their log-softmax and two gradients, which takes four
    times the memory, and longer.

    Args:
        scores: ``(K or more, C)``. Overwritten by their gradient if ``bias_gradient`` is given.
        labels: ``(K,)`` int64 class ids.
        bias: ``(C,)`` added to each row.
        bias_gradient: ``(C,)`` float32, to which the gradient's sum over the rows is added.
    """
    total = torch.zeros((), dtype=torch.float32)
    height = max(1, min(len(labels), _SCORES // scores.shape[1]))
    numbers = torch.arange(height)
    cached, probabilities = scores.new_empty(2, height, scores.shape[1], dtype=torch.float32)
    for start in range(0, len(labels), height):
        rows = slice(start, min(start + height, len(labels)))
        right = numbers[: rows.stop - start], labels[rows]
        part = cached[: rows.stop - start].copy_(scores[rows])
        if bias is not None:
            part.add_(bias)
        shares = torch.softmax(part, 1, out=probabilities[: len(part)])
        total += _losses(part, shares[right], labels[rows]).sum()
        if bias_gradient is not None:
            shares[right] -= 1
            bias_gradient += shares.sum(0)
            scores[rows] = shares
    if bias_gradient is not None:
        scores[len(labels) :] = 0
    return total


def _losses(scores: Tensor, probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return ``(R,)`` cross-entropies, given ``(R,)`` probabilities of the labels."""
    losses = -probabilities.log()
    underflown = probabilities < torch.finfo(torch.float32).tiny
    if underflown.any():
        losses[underflown] = F.cross_entropy(
            scores[underflown], labels[underflown], reduction="none"
        )
    return losses
