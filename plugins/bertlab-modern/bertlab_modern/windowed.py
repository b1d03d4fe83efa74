"""Attention within a window: a token sees some tokens on either side, of its own sequence.

On a GPU the flash kernel has a window. Elsewhere sequences are cut into blocks where a window
leaves out more than padding would cost. B is the number of sequences, S the length of the longest,
A of heads, d their size, T the number of tokens.
"""

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from bertlab.api import PackedBatch
from bertlab.extend import (
    attend,
    attention_by_padding,
    flash_attention,
    from_heads,
    packed_attention,
    takes_flash,
    to_heads,
)

_SMALLEST_BLOCK = 32  # smaller ones make matrix products of too few rows


def windowed_attention(
    qkv: Tensor,
    batch: PackedBatch,
    num_heads: int,
    dropout: float,
    causal: bool,
    rows: Tensor | None,
    window: int,
) -> Tensor:
    """Return what ``packed_attention`` does of tokens that see at most ``window`` on either side.

    It costs nothing where no sequence is longer.
    """
    if batch.max_seqlen <= window + 1:
        return packed_attention(qkv, batch, num_heads, dropout, causal, rows)
    if takes_flash(qkv, batch, num_heads):
        attended = flash_attention(qkv, batch, num_heads, dropout, causal, window)
        return attended if rows is None else attended.index_select(0, rows)
    padded: Tensor = _by_blocks_or_padding(qkv, batch, num_heads, dropout, causal, rows, window)
    return padded


@torch.compiler.disable  # type: ignore[untyped-decorator]  # kernels of varying shape, as they are
def _by_blocks_or_padding(
    qkv: Tensor,
    batch: PackedBatch,
    num_heads: int,
    dropout: float,
    causal: bool,
    rows: Tensor | None,
    window: int,
) -> Tensor:
    blocks = blocks_of(batch, max(window, _SMALLEST_BLOCK))
    if blocks.area < len(batch) * batch.max_seqlen**2:
        attended = _block_attention(qkv, blocks, num_heads, dropout, causal, window)
        return attended if rows is None else attended.index_select(0, rows)
    near = partial(_near, batch, window)
    padded: Tensor = attention_by_padding(qkv, batch, num_heads, dropout, causal, rows, near)
    return padded


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
    fields = {} if batch.causal is None else {"causal": batch.causal[sequence]}
    cut = replace(batch, cu_seqlens=borders, max_seqlen=size, fields=fields)
    return Blocks(cut, number > 0, number + 1 < counts[sequence])


def _near(batch: PackedBatch, window: int, positions: Tensor | None) -> Tensor:
    """Return the mask of keys that are near their query, ``(B or 1, 1, M, S)`` bool.

    Args:
        batch: gives the borders of the sequences.
        window: largest distance.
        positions: ``(B, M)`` of the queries; None: ``(S,)``, of all.
    """
    places = torch.arange(batch.max_seqlen, device=batch.cu_seqlens.device)
    queries = places[None] if positions is None else positions
    near = (queries[:, :, None] - places).abs() <= window
    if positions is None and len(batch) * batch.max_seqlen > len(batch.input_ids):
        # a query of padding sees all there is: of nothing at all, softmax would be NaN
        near = near | ~batch.attention_mask[:, :, None]
    return near[:, None]


def _block_attention(
    qkv: Tensor, blocks: Blocks, num_heads: int, dropout: float, causal: bool, window: int
) -> Tensor:
    """Attention within a window: a block looks at the block before, itself, and the one after."""
    batch, size = blocks.batch, blocks.batch.max_seqlen
    query, key, value = to_heads(qkv, batch, num_heads)  # (N, A, b, d) each
    # block n: [n - 1, n, n + 1]; the first and the last block of a sequence have strangers there
    key, value = (torch.cat([x.roll(1, 0), x, x.roll(-1, 0)], 2) for x in (key, value))
    token = batch.attention_mask  # (N, b)
    left, right = token.roll(1, 0), token.roll(-1, 0)
    there = [left & blocks.has_left[:, None], token, right & blocks.has_right[:, None]]
    seen = torch.cat(there, 1)[:, None, :]  # (N, 1, 3b)
    places = torch.arange(3 * size, device=qkv.device)
    distance = places[:size, None] + size - places  # (b, 3b), above 0 to the left
    near = (distance.abs() <= window)[None]
    if batch.causal is not None:
        near = near & ((distance >= 0) | ~batch.causal[:, None, None])  # (N, b, 3b)
    elif causal:
        near = near & (distance >= 0)
    mask = seen & (near | ~token[:, :, None])  # as in _near: padding sees what there is
    attended = attend(query, key, value, mask[:, None], dropout, causal=False)
    return from_heads(attended, batch, len(qkv))
