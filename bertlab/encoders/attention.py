"""Attention inside each sequence of a packed batch, by the best kernel that the device has.

T is the number of tokens, B of sequences, S the length of the longest, A of heads, d their size.
A GPU's flash kernel reads packed tokens as they are. Elsewhere they are padded.
"""

from collections.abc import Callable
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

    ``qkv`` has them side by side, ``(T, 3 * A * d)``; rows that follow are left out.
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


def places_of_rows(rows: Tensor, batch: PackedBatch) -> tuple[Tensor, Tensor] | None:
    """Lay out ``(N,)`` ascending tokens, those of each sequence side by side, at most M.

    Returns:
        ``(B, M)`` int64 positions in their sequences, 0 where a sequence has fewer, and ``(N,)``
        places in ``(B * M)``; None if a sequence has more than half its tokens there.
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
    return positions.view(len(batch), most), places


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


Kernel = Callable[[Tensor, PackedBatch, int, float], Tensor | None]
_kernels: list[Kernel] = []


def add_attention_kernel(kernel: Kernel) -> None:
    """Let layers that are compiled for a GPU attend by a kernel, where it can.

    Args:
        kernel: of ``qkv``, ``batch``, ``num_heads`` and ``dropout`` as in :func:`packed_attention`,
            among all tokens of each sequence; returns None of what it is not made for.
    """
    if kernel not in _kernels:
        _kernels.append(kernel)


def dtype_of_products(values: Tensor) -> torch.dtype:
    """Return the dtype of matrix products of ``values`` here: autocast's, or their own."""
    device = values.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else values.dtype


def keys_seen(places: Tensor, causal: bool) -> Tensor:
    """Return which keys each query sees by their places, ``(S, S)`` bool.

    Args:
        places: ``(S,)`` int64 positions: 0, 1, 2, …
        causal: no token sees what is to its right.
    """
    distance = places[:, None] - places  # above 0 to the left
    return distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)


_LARGEST_FLASH_HEAD = 256  # FlashAttention 2 has kernels up to this, for multiples of 8


def packed_attention(
    qkv: Tensor,
    batch: PackedBatch,
    num_heads: int,
    dropout: float,
    causal: bool,
    rows: Tensor | None = None,
) -> Tensor:
    """Scaled dot-product attention; a token sees the tokens of its own sequence only.

    Args:
        qkv: ``(T, 3 * H)`` queries, keys and values side by side; more rows may follow.
        batch: gives the borders of the B sequences.
        num_heads: A; H / A is the size of a head.
        dropout: probability of dropping an attention weight; 0 in evaluation.
        causal: mask what is to the right; ``batch.causal`` says it of each sequence.
        rows: ``(N,)`` int64 positions of the query tokens, ascending; None: all.

    Returns:
        ``(T, H)``, in the dtype of ``qkv``; any finite values in the rows that followed. ``(N, H)``
        of ``rows``.
    """
    if not takes_flash(qkv, batch, num_heads):
        padded: Tensor = attention_by_padding(qkv, batch, num_heads, dropout, causal, rows)
        return padded
    attended = None
    # launched one by one, kernels of packages take longer than FlashAttention's
    if torch.compiler.is_compiling() and not causal and batch.causal is None:
        for kernel in _kernels:
            attended = kernel(qkv, batch, num_heads, dropout) if attended is None else attended
    if attended is None:
        attended = flash_attention(qkv, batch, num_heads, dropout, causal)
    return attended if rows is None else attended.index_select(0, rows)


def takes_flash(qkv: Tensor, batch: PackedBatch, num_heads: int) -> bool:
    """Return whether a GPU's flash kernel takes queries, keys and values as they are."""
    is_filled = len(qkv) > len(batch.input_ids)
    head_size = qkv.shape[1] // (3 * num_heads)
    fits = head_size % 8 == 0 and head_size <= _LARGEST_FLASH_HEAD
    return qkv.is_cuda and fits and not is_filled and bool(_has_flash(qkv.dtype))


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _has_flash(dtype: torch.dtype) -> bool:
    half = dtype in (torch.float16, torch.bfloat16)
    # FlashAttention 2 needs an Ampere GPU or newer
    return bool(half and torch.cuda.get_device_capability() >= (8, 0))


def flash_attention(
    qkv: Tensor,
    batch: PackedBatch,
    num_heads: int,
    dropout: float,
    causal: bool,
    window: int | None = None,
) -> Tensor:
    """As :func:`packed_attention`, by the flash kernel; ``window``: most tokens on either side."""
    query, key, value = qkv.view(len(qkv), 3, num_heads, -1).unbind(1)  # (T, A, H / A) each
    borders, longest = batch.cu_seqlens, batch.max_seqlen

    def attended(causal: bool) -> Tensor:
        sides = {}
        if window is not None:
            sides = {"window_size_left": window, "window_size_right": 0 if causal else window}
        # torch.nn.attention.varlen_attn calls the same, but says dropout_p=0
        found: Tensor = torch.ops.aten._flash_attention_forward(
            query, key, value, borders, borders, longest, longest, dropout, causal, False, **sides
        )[0]
        return found.reshape(len(qkv), -1)

    if batch.causal is None:
        return attended(causal)
    # both ways for all tokens: to sort sequences by direction would wait for the GPU
    is_causal = torch.repeat_interleave(batch.causal, batch.lengths, output_size=len(qkv))
    return torch.where(is_causal[:, None], attended(True), attended(False))


@torch.compiler.disable  # type: ignore[untyped-decorator]  # kernels of varying shape, as they are
def attention_by_padding(
    qkv: Tensor,
    batch: PackedBatch,
    num_heads: int,
    dropout: float,
    causal: bool,
    rows: Tensor | None = None,
    near: Callable[[Tensor | None], Tensor] | None = None,
) -> Tensor:
    """As :func:`packed_attention`, on padded sequences.

    ``near`` may leave out keys: it returns those that queries at ``(B, M)`` positions may see, or
    at all S if that is None, ``(B or 1, 1, M, S)`` bool.
    """
    tokens, sequences, longest = len(batch.input_ids), len(batch), batch.max_seqlen
    equal_lengths = sequences * longest == tokens
    if equal_lengths:
        # (B, S, 3, A, d) -> three of (B, A, S, d)
        padded = qkv[:tokens].view(sequences, longest, 3, num_heads, -1)
        query, key, value = padded.permute(2, 0, 3, 1, 4).unbind()
    else:
        query, key, value = to_heads(qkv, batch, num_heads)
    # a causal mask has a row for each of the S positions, so all queries stay
    found = None if rows is None or causal else places_of_rows(rows, batch)
    looking, places = (None, None) if found is None else found
    if looking is not None:
        query = query.take_along_dim(looking[:, None, :, None], 2)  # (B, A, M, d)
    mask = None if equal_lengths else batch.attention_mask[:, None, None, :]  # (B, 1, 1, S)
    if near is not None:
        seen = near(looking)
        mask = seen if mask is None else mask & seen
    if batch.causal is not None:
        keys = torch.arange(longest, device=qkv.device)
        queries = keys[None] if looking is None else looking  # (1, S) or (B, M)
        seen = (keys <= queries[:, :, None]) | ~batch.causal[:, None, None]  # (B, M, S)
        mask, causal = seen[:, None] if mask is None else mask & seen[:, None], False
    attended = attend(query, key, value, mask, dropout, causal)
    if places is not None:
        # (B, A, M, d) -> (B * M, A * d) -> (N, H)
        return attended.transpose(1, 2).flatten(0, 1).flatten(1).index_select(0, places)
    if not equal_lengths:
        attended = from_heads(attended, batch, len(qkv))
    else:
        attended = attended.transpose(1, 2).reshape(tokens, -1)  # (B, S, A, d) -> (T, H)
        if len(qkv) > tokens:
            attended = F.pad(attended, (0, 0, 0, len(qkv) - tokens))
    return attended if rows is None else attended.index_select(0, rows)


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, causal: bool
) -> Tensor:
    """Attention of ``(B, A, S, d)`` heads; the mask, of whatever is to be seen, is ``bool``."""
    # the backward pass of torch's kernel for CPUs takes ten times as long as products
    slow_backward = query.dtype != torch.float32 and torch.is_grad_enabled() and query.requires_grad
    by_products = query.device.type == "cpu" and (dropout > 0.0 or slow_backward)
    if causal and (by_products or mask is not None):
        size = (query.shape[2], key.shape[2])
        left = torch.ones(size, dtype=torch.bool, device=query.device).tril()
        mask = left if mask is None else mask & left  # (S, S) or (B, 1, S, S)
    if by_products:
        return _matmul_attention(query, key, value, mask, dropout)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal and mask is None
    )


def _matmul_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float
) -> Tensor:
    # torch's kernel for CPUs has no dropout, and what it does instead takes 1.6 times as long
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)  # scales S * d, not S * S
    if mask is not None:
        scores = scores + torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~mask, -torch.inf)
    return drop(scores.softmax(-1), dropout) @ value  # (B, A, S, d)
