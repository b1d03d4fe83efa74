"""Attention inside each sequence of a packed batch, by the best kernel that the device has.

T is the number of tokens, B of sequences, S the length of the longest, A of heads, d their size.
A GPU's flash kernel reads packed tokens as they are. Elsewhere they are padded, or cut into blocks
where a window leaves out more than padding would cost.
"""

from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional as F

from bertlab.api.batch import PackedBatch
from bertlab.encoders.head_layout import Blocks, blocks_of, from_heads, places_of_rows, to_heads
from bertlab.encoders.layers import dropout as drop

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
