"""Attention of short sequences on a GPU, in Triton: one kernel forward, two backward.

FlashAttention's kernel for packed sequences is made for long ones: of 128 tokens its blocks have
one step to make, and its dropout costs more than its products. These kernels take blocks of 64
tokens, many at a time, drop by a hash of a weight's place, read queries, keys and values where the
product before has put them, and write their gradients there. Nothing is added up in an order of
chance.

T is the number of tokens, B of sequences, A of heads, d their size.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from bertlab.api import PackedBatch

LONGEST = 512  # tokens of a sequence, above which FlashAttention is as fast
HEAD_SIZES = (16, 32, 64)  # larger ones want more shared memory than small GPUs have
_LN_2 = math.log(2.0)

# blocks and warps, measured on an H200: benchmarks/figures/gpu.md
_FORWARD = {"queries_at_once": 128, "keys_at_once": 64, "num_warps": 8, "num_stages": 3}
_QUERIES = {"queries_at_once": 64, "keys_at_once": 64, "num_warps": 4, "num_stages": 3}
_KEYS = {"queries_at_once": 32, "keys_at_once": 64, "num_warps": 4, "num_stages": 2}


@triton.jit
def _mix(bits):  # type: ignore[no-untyped-def]
    """Scatter uint32 bits (Wellons' lowbias32)."""
    bits ^= bits >> 16
    bits *= 0x7FEB352D
    bits ^= bits >> 15
    bits *= 0x846CA68B
    bits ^= bits >> 16
    return bits


@triton.jit
def _sequence_and_head(borders, heads):  # type: ignore[no-untyped-def]
    """Return the number of a program's pair, its head, and its sequence's start and length."""
    program = tl.program_id(1)  # sequence 0 with each head, sequence 1 with each head, …
    sequence, head = program // heads, program % heads
    start = tl.load(borders + sequence)
    return program, head, start, tl.load(borders + sequence + 1) - start


@triton.jit
def _is_kept(seeds, program, queries, keys, threshold):  # type: ignore[no-untyped-def]
    """Whether each weight of ``queries`` and ``keys`` is kept, by bits that its place determines.

    A row's and a column's bits cost little, as there are few; what each weight costs is a product
    of the two and one more round.
    """
    low = _mix(tl.load(seeds).to(tl.uint32) + program.to(tl.uint32) * 0x9E3779B9)
    high = _mix(tl.load(seeds + 1).to(tl.uint32) ^ low)
    rows = _mix(low + queries.to(tl.uint32)) | 1  # odd: no bit of the column's is lost
    columns = _mix(high + keys.to(tl.uint32))
    bits = rows * columns
    bits ^= bits >> 15
    bits *= 0x2C1B3C6D
    return bits >= threshold.to(tl.uint32)


@triton.jit(do_not_specialize=["tokens"])  # type: ignore[untyped-decorator]
def _forward(  # type: ignore[no-untyped-def]
    qkv,
    borders,
    seeds,
    attended,
    log_sums,
    tokens,
    scale,
    threshold,
    kept_scale,
    heads: tl.constexpr,
    size: tl.constexpr,
    queries_at_once: tl.constexpr,
    keys_at_once: tl.constexpr,
    drops: tl.constexpr,
):
    """One block of queries of a sequence and head."""
    program, head, start, length = _sequence_and_head(borders, heads)
    first = tl.program_id(0) * queries_at_once
    if first >= length:
        return
    width = heads * size
    dims = tl.arange(0, size)
    queries = first + tl.arange(0, queries_at_once)
    is_query = queries < length
    # (T, 3 H): the head's queries, then H further its keys, and H further its values
    origin = qkv + start.to(tl.int64) * (3 * width) + head * size
    query = tl.load(
        origin + queries[:, None] * (3 * width) + dims[None, :], mask=is_query[:, None], other=0.0
    )
    highest = tl.full([queries_at_once], -float("inf"), tl.float32)
    total = tl.zeros([queries_at_once], tl.float32)
    output = tl.zeros([queries_at_once, size], tl.float32)
    for begin in range(0, length, keys_at_once):
        keys = begin + tl.arange(0, keys_at_once)
        places = origin + width + keys[:, None] * (3 * width) + dims[None, :]
        key = tl.load(places, mask=keys[:, None] < length, other=0.0)
        value = tl.load(places + width, mask=keys[:, None] < length, other=0.0)
        scores = tl.dot(query, tl.trans(key)) * scale  # of base 2
        scores = tl.where(keys[None, :] < length, scores, -float("inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.math.exp2(scores - higher[:, None])
        shrunk = tl.math.exp2(highest - higher)
        total = total * shrunk + tl.sum(weights, 1)
        if drops:
            kept = _is_kept(seeds, program, queries[:, None], keys[None, :], threshold)
            weights = tl.where(kept, weights, 0.0)
        output = output * shrunk[:, None]
        output = tl.dot(weights.to(value.dtype), value, output)
        highest = higher
    output = output * (kept_scale / total)[:, None]
    places = attended + (start.to(tl.int64) + queries[:, None]) * width + head * size
    tl.store(places + dims[None, :], output.to(query.dtype), mask=is_query[:, None])
    sums = log_sums + head.to(tl.int64) * tokens + start + queries
    tl.store(sums, highest + tl.math.log2(total), mask=is_query)


@triton.jit(do_not_specialize=["tokens"])  # type: ignore[untyped-decorator]
def _backward_queries(  # type: ignore[no-untyped-def]
    qkv,
    borders,
    seeds,
    attended,
    log_sums,
    means,
    gradient,
    qkv_gradient,
    tokens,
    scale,
    root,
    threshold,
    kept_scale,
    heads: tl.constexpr,
    size: tl.constexpr,
    queries_at_once: tl.constexpr,
    keys_at_once: tl.constexpr,
    drops: tl.constexpr,
):
    """One block of queries of a sequence and head: their gradient, and what keys need of them."""
    program, head, start, length = _sequence_and_head(borders, heads)
    first = tl.program_id(0) * queries_at_once
    if first >= length:
        return
    width = heads * size
    dims = tl.arange(0, size)
    queries = first + tl.arange(0, queries_at_once)
    is_query = queries < length
    corner = start.to(tl.int64) * (3 * width) + head * size
    query_places = corner + queries[:, None] * (3 * width) + dims[None, :]
    places = start.to(tl.int64) * width + head * size + queries[:, None] * width + dims[None, :]
    query = tl.load(qkv + query_places, mask=is_query[:, None], other=0.0)
    given = tl.load(gradient + places, mask=is_query[:, None], other=0.0)
    output = tl.load(attended + places, mask=is_query[:, None], other=0.0)
    row = head.to(tl.int64) * tokens + start + queries
    log_sum = tl.load(log_sums + row, mask=is_query, other=float("inf"))
    # the row's mean of the weights' gradients, weighted by the weights
    mean = tl.sum(given.to(tl.float32) * output.to(tl.float32), 1)
    tl.store(means + row, mean, mask=is_query)
    query_gradient = tl.zeros([queries_at_once, size], tl.float32)
    for begin in range(0, length, keys_at_once):
        keys = begin + tl.arange(0, keys_at_once)
        key_places = corner + width + keys[:, None] * (3 * width) + dims[None, :]
        key = tl.load(qkv + key_places, mask=keys[:, None] < length, other=0.0)
        value = tl.load(qkv + key_places + width, mask=keys[:, None] < length, other=0.0)
        # the softmax once more, from the logarithm of each row's sum
        weights = tl.math.exp2(tl.dot(query, tl.trans(key)) * scale - log_sum[:, None])
        weights = tl.where(keys[None, :] < length, weights, 0.0)
        weight_gradient = tl.dot(given, tl.trans(value))
        if drops:
            kept = _is_kept(seeds, program, queries[:, None], keys[None, :], threshold)
            weight_gradient = tl.where(kept, weight_gradient * kept_scale, 0.0)
        score_gradient = weights * (weight_gradient - mean[:, None])
        query_gradient = tl.dot(score_gradient.to(key.dtype), key, query_gradient)
    found = (query_gradient * root).to(query.dtype)
    tl.store(qkv_gradient + query_places, found, mask=is_query[:, None])


@triton.jit(do_not_specialize=["tokens"])  # type: ignore[untyped-decorator]
def _backward_keys(  # type: ignore[no-untyped-def]
    qkv,
    borders,
    seeds,
    log_sums,
    means,
    gradient,
    qkv_gradient,
    tokens,
    scale,
    root,
    threshold,
    kept_scale,
    heads: tl.constexpr,
    size: tl.constexpr,
    queries_at_once: tl.constexpr,
    keys_at_once: tl.constexpr,
    drops: tl.constexpr,
):
    """One block of keys of a sequence and head: gradients of keys and values."""
    program, head, start, length = _sequence_and_head(borders, heads)
    begin = tl.program_id(0) * keys_at_once
    if begin >= length:
        return
    width = heads * size
    dims = tl.arange(0, size)
    keys = begin + tl.arange(0, keys_at_once)
    is_key = keys[:, None] < length
    corner = start.to(tl.int64) * (3 * width) + head * size
    key_places = corner + width + keys[:, None] * (3 * width) + dims[None, :]
    key = tl.load(qkv + key_places, mask=is_key, other=0.0)
    value = tl.load(qkv + key_places + width, mask=is_key, other=0.0)
    key_gradient = tl.zeros([keys_at_once, size], tl.float32)
    value_gradient = tl.zeros([keys_at_once, size], tl.float32)
    for first in range(0, length, queries_at_once):
        queries = first + tl.arange(0, queries_at_once)
        is_query = queries < length
        query_places = corner + queries[:, None] * (3 * width) + dims[None, :]
        query = tl.load(qkv + query_places, mask=is_query[:, None], other=0.0)
        places = (start.to(tl.int64) + queries[:, None]) * width + head * size + dims[None, :]
        given = tl.load(gradient + places, mask=is_query[:, None], other=0.0)
        # what is no query has infinite sums, and so no weights
        row = head.to(tl.int64) * tokens + start + queries
        log_sum = tl.load(log_sums + row, mask=is_query, other=float("inf"))
        mean = tl.load(means + row, mask=is_query, other=0.0)
        # (keys, queries): turned round, the weights are in their place for the products that follow
        weights = tl.math.exp2(tl.dot(key, tl.trans(query)) * scale - log_sum[None, :])
        weight_gradient = tl.dot(value, tl.trans(given))
        dropped = weights
        if drops:
            kept = _is_kept(seeds, program, queries[None, :], keys[:, None], threshold)
            weight_gradient = tl.where(kept, weight_gradient * kept_scale, 0.0)
            dropped = tl.where(kept, weights, 0.0)
        value_gradient = tl.dot(dropped.to(given.dtype), given, value_gradient)
        score_gradient = (weights * (weight_gradient - mean[None, :])).to(query.dtype)
        key_gradient = tl.dot(score_gradient, query, key_gradient)
    found = (key_gradient * root).to(key.dtype)
    tl.store(qkv_gradient + key_places, found, mask=is_key)
    found = (value_gradient * kept_scale).to(key.dtype)
    tl.store(qkv_gradient + key_places + width, found, mask=is_key)


def _numbers(size: int, dropout: float) -> tuple[float, float, int, float]:
    """Return the scale of scores in base 2 and base e, the least kept bits, the kept's scale."""
    root = size**-0.5
    return root / _LN_2, root, min(round(dropout * 2**32), 2**32 - 1), 1 / (1 - dropout)


@torch.library.custom_op("bertlab::short_attention", mutates_args=())
def _short_attention(
    qkv: Tensor, borders: Tensor, seeds: Tensor, heads: int, dropout: float, longest: int
) -> tuple[Tensor, Tensor]:
    tokens, size = len(qkv), qkv.shape[1] // (3 * heads)
    attended = qkv.new_empty(tokens, heads * size)
    log_sums = torch.empty(heads, tokens, dtype=torch.float32, device=qkv.device)
    scale, _, threshold, kept_scale = _numbers(size, dropout)
    blocks = triton.cdiv(longest, _FORWARD["queries_at_once"])
    _forward[(blocks, (len(borders) - 1) * heads)](
        qkv, borders, seeds, attended, log_sums, tokens, scale, threshold, kept_scale,
        heads=heads, size=size, drops=dropout > 0, **_FORWARD,
    )  # fmt: skip
    return attended, log_sums


@_short_attention.register_fake
def _(qkv: Tensor, borders: Tensor, seeds: Tensor, heads: int, *rest: object) -> tuple[Tensor, ...]:
    del borders, seeds, rest
    attended = qkv.new_empty(qkv.shape[0], qkv.shape[1] // 3)
    return attended, qkv.new_empty(heads, qkv.shape[0], dtype=torch.float32)


@torch.library.custom_op("bertlab::short_attention_backward", mutates_args=())
def _short_attention_backward(
    gradient: Tensor,
    qkv: Tensor,
    borders: Tensor,
    seeds: Tensor,
    attended: Tensor,
    log_sums: Tensor,
    heads: int,
    dropout: float,
    longest: int,
) -> Tensor:
    tokens, size = len(qkv), qkv.shape[1] // (3 * heads)
    found, means = torch.empty_like(qkv), torch.empty_like(log_sums)
    gradient = gradient.contiguous()
    scale, root, threshold, kept_scale = _numbers(size, dropout)
    numbers = (tokens, scale, root, threshold, kept_scale)
    fixed = {"heads": heads, "size": size, "drops": dropout > 0}
    programs = (len(borders) - 1) * heads
    blocks = triton.cdiv(longest, _QUERIES["queries_at_once"])
    _backward_queries[(blocks, programs)](
        qkv, borders, seeds, attended, log_sums, means, gradient, found, *numbers,
        **fixed, **_QUERIES,
    )  # fmt: skip
    blocks = triton.cdiv(longest, _KEYS["keys_at_once"])
    _backward_keys[(blocks, programs)](
        qkv, borders, seeds, log_sums, means, gradient, found, *numbers, **fixed, **_KEYS
    )
    return found


@_short_attention_backward.register_fake
def _(gradient: Tensor, qkv: Tensor, *rest: object) -> Tensor:
    del gradient, rest
    return torch.empty_like(qkv)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:  # noqa: ANN401
    qkv, borders, seeds, ctx.heads, ctx.dropout, ctx.longest = inputs
    ctx.save_for_backward(qkv, borders, seeds, *output)


def _give_back(ctx: Any, gradient: Tensor, of_sums: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    del of_sums
    found = _short_attention_backward(
        gradient, *ctx.saved_tensors, ctx.heads, ctx.dropout, ctx.longest
    )
    return found, None, None, None, None, None


_short_attention.register_autograd(_give_back, setup_context=_keep)


def short_attention(
    qkv: Tensor, borders: Tensor, num_heads: int, dropout: float, longest: int
) -> Tensor:
    """Attention among all tokens of each sequence.

    Args:
        qkv: ``(T, 3 * A * d)`` queries, keys and values side by side, in half precision.
        borders: ``(B + 1,)`` int32 cumulative lengths.
        num_heads: A; d is one of :data:`HEAD_SIZES`.
        dropout: probability of dropping a weight, below 1.
        longest: length of the longest sequence, or more.

    Returns:
        ``(T, A * d)``, in the dtype of ``qkv``.
    """
    seeds = torch.randint(2**31 - 1, (2,), device=qkv.device)
    attended: Tensor = _short_attention(qkv, borders, seeds, num_heads, dropout, longest)[0]
    return attended


def attend_short(qkv: Tensor, batch: PackedBatch, num_heads: int, dropout: float) -> Tensor | None:
    """As :func:`short_attention`; None of sequences, heads or dropout that it is not made for."""
    head_size = qkv.shape[1] // (3 * num_heads)
    if batch.max_seqlen > LONGEST or head_size not in HEAD_SIZES or dropout >= 1:
        return None
    return short_attention(qkv, batch.cu_seqlens, num_heads, dropout, batch.max_seqlen)
