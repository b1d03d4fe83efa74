"""Attention inside each sequence of a packed batch, by the best kernel that the device has.

T is the number of tokens, B of sequences, S the length of the longest, A of heads, d their size.
A GPU's flash kernel reads packed tokens as they are. Elsewhere they are padded, or cut into blocks
where a window leaves out more than padding would cost.
"""

from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from bertlab.api.batch import PackedBatch
from bertlab.encoders.layers import dropout as drop

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


_HAS_SHORT = torch.cuda.is_available() and find_spec("triton") is not None
if _HAS_SHORT:
    from bertlab.encoders.attention_kernel import HEAD_SIZES, LONGEST, short_attention


def dtype_of_products(values: Tensor) -> torch.dtype:
    """Return the dtype of matrix products of ``values`` here: autocast's, or their own."""
    device = values.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else values.dtype


def keys_seen(places: Tensor, causal: bool, window: int | None) -> Tensor:
    """Return which keys each query sees by their distance, ``(S, S)`` bool.

    Args:
        places: ``(S,)`` int64 positions: 0, 1, 2, …
        causal: no token sees what is to its right.
        window: most tokens on either side that a token sees; None: all.
    """
    distance = places[:, None] - places  # above 0 to the left
    seen = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    return seen if window is None else seen & (distance.abs() <= window)


_LARGEST_FLASH_HEAD = 256  # FlashAttention 2 has kernels up to this, for multiples of 8


def packed_attention(
    qkv: Tensor,
    batch: PackedBatch,
    num_heads: int,
    dropout: float,
    causal: bool,
    rows: Tensor | None = None,
    window: int | None = None,
) -> Tensor:
    """Scaled dot-product attention; a token sees the tokens of its own sequence only.

    Args:
        qkv: ``(T, 3 * H)`` queries, keys and values side by side; more rows may follow.
        batch: gives the borders of the B sequences.
        num_heads: A; H / A is the size of a head.
        dropout: probability of dropping an attention weight; 0 in evaluation.
        causal: mask what is to the right.
        rows: ``(N,)`` int64 positions of the query tokens, ascending; None: all.
        window: most tokens on either side that a token sees; None: all. It costs nothing where no
            sequence is longer.

    Returns:
        ``(T, H)``, in the dtype of ``qkv``; any finite values in the rows that followed. ``(N, H)``
        of ``rows``.
    """
    is_filled = len(qkv) > len(batch.input_ids)
    head_size = qkv.shape[1] // (3 * num_heads)
    fits = head_size % 8 == 0 and head_size <= _LARGEST_FLASH_HEAD
    if qkv.is_cuda and fits and not is_filled and _has_flash(qkv.dtype):
        sees_all = not causal and (window is None or batch.max_seqlen <= window + 1)
        # launched one by one, its kernels take longer than FlashAttention's
        is_short = _HAS_SHORT and torch.compiler.is_compiling() and batch.max_seqlen <= LONGEST
        if is_short and sees_all and head_size in HEAD_SIZES and dropout < 1:
            attended = short_attention(qkv, batch.cu_seqlens, num_heads, dropout, batch.max_seqlen)
        else:
            attended = _flash_attention(qkv, batch, num_heads, dropout, causal, window)
        attended = attended if rows is None else attended.index_select(0, rows)
    else:
        attended = _padded_attention(qkv, batch, num_heads, dropout, causal, rows, window)
    return attended


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _has_flash(dtype: torch.dtype) -> bool:
    half = dtype in (torch.float16, torch.bfloat16)
    # FlashAttention 2 needs an Ampere GPU or newer
    return bool(half and torch.cuda.get_device_capability() >= (8, 0))


def _flash_attention(
    qkv: Tensor,
    batch: PackedBatch,
    num_heads: int,
    dropout: float,
    causal: bool,
    window: int | None = None,
) -> Tensor:
    query, key, value = qkv.view(len(qkv), 3, num_heads, -1).unbind(1)  # (T, A, H / A) each
    borders, longest = batch.cu_seqlens, batch.max_seqlen
    # torch.nn.attention.varlen_attn calls the same, but says dropout_p=0
    sides = {} if window is None else {"window_size_left": window}
    if window is not None:
        sides["window_size_right"] = 0 if causal else window
    attended: Tensor = torch.ops.aten._flash_attention_forward(
        query, key, value, borders, borders, longest, longest, dropout, causal, False, **sides
    )[0]
    return attended.reshape(len(qkv), -1)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # kernels of varying shape, as they are
def _padded_attention(
    qkv: Tensor,
    batch: PackedBatch,
    num_heads: int,
    dropout: float,
    causal: bool,
    rows: Tensor | None = None,
    window: int | None = None,
) -> Tensor:
    tokens, sequences, longest = len(batch.input_ids), len(batch), batch.max_seqlen
    if window is not None and longest <= window + 1:
        window = None
    if window is not None:
        blocks = blocks_of(batch, max(window, _SMALLEST_BLOCK))
        if blocks.area < sequences * longest**2:
            attended = _block_attention(qkv, blocks, num_heads, dropout, causal, window)
            return attended if rows is None else attended.index_select(0, rows)
    equal_lengths = sequences * longest == tokens
    if equal_lengths:
        # (B, S, 3, A, d) -> three of (B, A, S, d)
        padded = qkv[:tokens].view(sequences, longest, 3, num_heads, -1)
        query, key, value = padded.permute(2, 0, 3, 1, 4).unbind()
    else:
        query, key, value = to_heads(qkv, batch, num_heads)
    # a causal mask has a row for each of the S positions, so all queries stay
    looking = None if rows is None or causal else places_of_rows(rows, batch)
    if looking is not None:
        query = query.take_along_dim(looking.positions[:, None, :, None], 2)  # (B, A, M, d)
    mask = None if equal_lengths else batch.attention_mask[:, None, None, :]  # (B, 1, 1, S)
    if window is not None:
        near = _near(batch, window, None if looking is None else looking.positions)
        mask = near if mask is None else mask & near
    attended = _attend(query, key, value, mask, dropout, causal)
    if looking is not None:
        # (B, A, M, d) -> (B * M, A * d) -> (N, H)
        return attended.transpose(1, 2).flatten(0, 1).flatten(1).index_select(0, looking.places)
    if not equal_lengths:
        attended = from_heads(attended, batch, len(qkv))
    else:
        attended = attended.transpose(1, 2).reshape(tokens, -1)  # (B, S, A, d) -> (T, H)
        if len(qkv) > tokens:
            attended = F.pad(attended, (0, 0, 0, len(qkv) - tokens))
    return attended if rows is None else attended.index_select(0, rows)


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


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, causal: bool
) -> Tensor:
    """Attention of ``(B, A, S, d)`` heads; the mask, of whatever is to be seen, is ``bool``."""
    by_products = query.device.type == "cpu" and (dropout > 0.0 or _is_slow_backward(query))
    if causal and (by_products or mask is not None):
        size = (query.shape[2], key.shape[2])
        left = torch.ones(size, dtype=torch.bool, device=query.device).tril()
        mask = left if mask is None else mask & left  # (S, S) or (B, 1, S, S)
    if by_products:
        return _matmul_attention(query, key, value, mask, dropout)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal and mask is None
    )


_SMALLEST_BLOCK = 32  # smaller ones make matrix products of too few rows


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
    near = (distance <= window) & (distance >= (0 if causal else -window))
    mask = seen & (near | ~token[:, :, None])  # as in _near: padding sees what there is
    attended = _attend(query, key, value, mask[:, None], dropout, causal=False)
    return from_heads(attended, batch, len(qkv))


def _is_slow_backward(qkv: Tensor) -> bool:
    """Whether the backward pass of torch's kernel for CPUs takes ten times as long as products."""
    return qkv.dtype != torch.float32 and torch.is_grad_enabled() and qkv.requires_grad


def _matmul_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float
) -> Tensor:
    # torch's kernel for CPUs has no dropout, and what it does instead takes 1.6 times as long
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)  # scales S * d, not S * S
    if mask is not None:
        scores = scores + torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~mask, -torch.inf)
    return drop(scores.softmax(-1), dropout) @ value  # (B, A, S, d)
