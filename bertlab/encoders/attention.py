"""Attention inside each sequence of a packed batch, by the best kernel that the device has."""

import torch
from torch import Tensor
from torch.nn import functional as F

from bertlab.encoders.dropout import dropout as drop
from bertlab.encoders.head_layout import from_heads, places_of_rows, to_heads
from bertlab.packed_batch import PackedBatch

_LARGEST_FLASH_HEAD = 256


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
        causal: mask what is to the right.
        rows: ``(N,)`` int64 tokens in ascending order that are to look; None: all.

    Returns:
        ``(T, H)``, in the dtype of ``qkv``; any finite values in the rows that followed. ``(N, H)``
        of ``rows``.
    """
    is_filled = len(qkv) > len(batch.input_ids)
    head_size = qkv.shape[1] // (3 * num_heads)
    fits = head_size % 8 == 0 and head_size <= _LARGEST_FLASH_HEAD
    if qkv.is_cuda and fits and not is_filled and _has_flash(qkv.dtype):
        attended = _flash_attention(qkv, batch, num_heads, dropout, causal)
        attended = attended if rows is None else attended.index_select(0, rows)
    else:
        attended = _padded_attention(qkv, batch, num_heads, dropout, causal, rows)
    return attended


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _has_flash(dtype: torch.dtype) -> bool:
    half = dtype in (torch.float16, torch.bfloat16)
    # FlashAttention 2 needs an Ampere GPU or newer
    return bool(half and torch.cuda.get_device_capability() >= (8, 0))


def _flash_attention(
    qkv: Tensor, batch: PackedBatch, num_heads: int, dropout: float, causal: bool
) -> Tensor:
    query, key, value = qkv.view(len(qkv), 3, num_heads, -1).unbind(1)  # (T, A, H / A) each
    borders, longest = batch.cu_seqlens, batch.max_seqlen
    # torch.nn.attention.varlen_attn calls the same, but says dropout_p=0
    attended: Tensor = torch.ops.aten._flash_attention_forward(
        query, key, value, borders, borders, longest, longest, dropout, causal, False
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
) -> Tensor:
    tokens, sequences, longest = len(batch.input_ids), len(batch), batch.max_seqlen
    equal_lengths = sequences * longest == tokens
    if equal_lengths:
        # (B, S, 3, A, d) -> three of (B, A, S, d)
        padded = qkv[:tokens].view(sequences, longest, 3, num_heads, -1)
        query, key, value = padded.permute(2, 0, 3, 1, 4).unbind()
    else:
        query, key, value = to_heads(qkv, batch, num_heads)
    looking = None if rows is None or causal else places_of_rows(rows, batch)
    if looking is not None:
        query = query.take_along_dim(looking.positions[:, None, :, None], 2)
    mask = None if equal_lengths else batch.attention_mask[:, None, None, :]
    by_products = qkv.device.type == "cpu" and (dropout > 0.0 or _is_slow_backward(qkv))
    if causal and (by_products or mask is not None):
        left = torch.ones(longest, longest, dtype=torch.bool, device=qkv.device).tril()
        mask = left if mask is None else mask & left
    if by_products:
        attended = _matmul_attention(query, key, value, mask, dropout)
    else:
        attended = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal and mask is None
        )
    if looking is not None:
        return attended.transpose(1, 2).flatten(0, 1).flatten(1).index_select(0, looking.places)
    if not equal_lengths:
        attended = from_heads(attended, batch, len(qkv))
    else:
        attended = attended.transpose(1, 2).reshape(tokens, -1)
        if len(qkv) > tokens:
            attended = F.pad(attended, (0, 0, 0, len(qkv) - tokens))
    return attended if rows is None else attended.index_select(0, rows)


def _is_slow_backward(qkv: Tensor) -> bool:
    """Whether the backward pass of torch's kernel for CPUs takes ten times as long as products."""
    return qkv.dtype != torch.float32 and torch.is_grad_enabled() and qkv.requires_grad


def _matmul_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float
) -> Tensor:
    # torch's kernel for CPUs has no dropout, and what it does instead takes 1.6 times as long
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
    if mask is not None:
        scores = scores + torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~mask, -torch.inf)
    return drop(scores.softmax(-1), dropout) @ value
