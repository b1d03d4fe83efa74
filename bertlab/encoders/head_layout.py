"""Between packed tokens and the padded layout of attention heads, in one pass each way.

T is the number of tokens, B of sequences, S the length of the longest, A of heads, d their size.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bertlab.api.batch import PackedBatch

Context = Any  # torch.autograd.function.FunctionCtx, with what is kept on it


def to_heads(qkv: Tensor, batch: PackedBatch, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values as ``(B, A, S, d)`` each; any finite values in the padding.

    Args:
        qkv: ``(T, 3 * A * d)``, side by side; rows that follow are left out.
        batch: gives the borders of the sequences.
        num_heads: A.
    """
    size = (len(batch), num_heads, batch.max_seqlen)
    rows = batch.rows_of_heads(num_heads)
    query, key, value = _ToHeads.apply(qkv, batch.token_index, rows, size)  # type: ignore[no-untyped-call]
    return query, key, value


def from_heads(heads: Tensor, batch: PackedBatch, rows: int) -> Tensor:
    """Return ``(B, A, S, d)`` values as ``(rows, A * d)``; of the first token where rows > T."""
    places = batch.rows_of_heads(heads.shape[1])
    packed: Tensor = _FromHeads.apply(heads, places, rows)  # type: ignore[no-untyped-call]
    return packed


@dataclass(frozen=True)
class PlacesOfRows:
    """Some tokens of each sequence, side by side.

    Attributes:
        positions: ``(B, M)`` int64 positions in their sequences; 0 where a sequence has fewer.
        places: ``(N,)`` int64 place of each token in ``(B * M)``.
    """

    positions: Tensor
    places: Tensor


def places_of_rows(rows: Tensor, batch: PackedBatch) -> PlacesOfRows | None:
    """Lay out some tokens of a batch; None if a sequence has more than half its tokens there.

    Args:
        rows: ``(N,)`` int64 tokens in ascending order.
        batch: gives the borders of the sequences.
    """
    # lengths [5, 6], rows [0, 2, 7]: sequence [0, 0, 1], counts [2, 1], most 2 ->
    # positions [[0, 2], [2, 0]], places [0, 1, 2]; the fourth place is padding
    starts = batch.cu_seqlens.long()
    sequence = torch.searchsorted(starts, rows, right=True) - 1
    counts = sequence.bincount(minlength=len(batch))
    most = int(counts.max())
    if 2 * most > batch.max_seqlen:
        return None
    before = counts.cumsum(0) - counts
    places = sequence * most + torch.arange(len(rows)) - before[sequence]
    positions = rows.new_zeros(len(batch) * most)
    positions[places] = rows - starts[sequence]
    return PlacesOfRows(positions.view(len(batch), most), places)


class _ToHeads(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Context, qkv: Tensor, tokens: Tensor, rows: Tensor, size: tuple[int, int, int]
    ) -> tuple[Tensor, ...]:
        sequences, heads, longest = size
        ctx.save_for_backward(rows)
        ctx.given = len(qkv)
        # head a of query, key, value (p 0, 1, 2) of token t is row t * 3A + p * A + a of qkv:
        # token 3, A = 2 -> queries in rows 18 and 19, keys in 20 and 21, values in 22 and 23
        parts = torch.arange(3 * heads, device=qkv.device).view(3, 1, heads, 1)
        places = (tokens[None, :, None, :] * (3 * heads) + parts).flatten()  # (3 * B * A * S,)
        gathered = qkv.reshape(len(qkv) * 3 * heads, -1).index_select(0, places)
        return gathered.view(3, sequences, heads, longest, -1).unbind()

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        # Nobody reads what padding attends to, and nobody attends to it: its gradient is 0. So each
        # token gathers from its one place, where autograd would add up all places by index_add.
        (rows,) = ctx.saved_tensors
        tokens, heads = rows.shape
        size = gradients[0].shape[-1]
        gradient = gradients[0].new_empty(ctx.given, 3, heads, size)
        for part, each in enumerate(gradients):
            gathered = each.reshape(-1, size).index_select(0, rows.flatten())  # (T * A, d)
            gradient[:tokens, part] = gathered.view(tokens, heads, size)
        gradient[tokens:] = 0
        return gradient.view(ctx.given, -1), None, None, None


class _FromHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, padded: Tensor, rows: Tensor, given: int) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.shape = padded.shape
        size = padded.shape[-1]
        packed = padded.new_empty(given, padded.shape[1] * size)
        tokens, heads = rows.shape
        torch.index_select(
            padded.reshape(-1, size), 0, rows.flatten(),
            out=packed[:tokens].view(tokens * heads, size),
        )  # fmt: skip
        # not left empty: in the weights' gradient, 0 times a NaN that lay there would be NaN
        packed[tokens:] = packed[0]
        return packed

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, None, None]:
        (rows,) = ctx.saved_tensors
        tokens, heads = rows.shape
        size = ctx.shape[-1]
        padded = gradient.new_zeros(ctx.shape)  # (B, A, S, d)
        kept = gradient[:tokens].reshape(tokens * heads, size)
        padded.view(-1, size).index_copy_(0, rows.flatten(), kept)
        return padded, None, None


@dataclass(frozen=True)
class Blocks:
    """The sequences of a batch, cut into N blocks of one size; the last of each may be shorter.

    Attributes:
        batch: a sequence for each block.
        has_left: ``(N,)`` bool, whether the block before belongs to the same sequence.
        has_right: ``(N,)`` bool, whether the block after does.
    """

    batch: PackedBatch
    has_left: Tensor
    has_right: Tensor

    @property
    def area(self) -> int:
        """Scores of queries and keys that attention to three blocks computes."""
        return 3 * len(self.batch) * self.batch.max_seqlen**2


def blocks_of(batch: PackedBatch, size: int) -> Blocks:
    """Cut the sequences of a batch into blocks of ``size`` tokens."""
    # lengths [5, 2], size 2: counts [3, 1], sequence [0, 0, 0, 1], number [0, 1, 2, 0]
    # -> borders [0, 2, 4, 5, 7], has_left [F, T, T, F], has_right [T, T, F, F]
    counts = (batch.lengths + size - 1) // size
    sequence = torch.repeat_interleave(counts)
    before = counts.cumsum(0) - counts
    number = torch.arange(len(sequence), device=counts.device) - before[sequence]
    starts = batch.cu_seqlens[:-1].long()[sequence] + number * size
    borders = torch.cat([starts, batch.cu_seqlens[-1:].long()]).int()
    cut = replace(batch, cu_seqlens=borders, max_seqlen=size)
    return Blocks(cut, number > 0, number + 1 < counts[sequence])
