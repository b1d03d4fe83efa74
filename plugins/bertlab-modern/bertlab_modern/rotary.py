"""Rotary positions (Su et al. 2021, RoFormer, sec. 3.2.2): queries and keys turn with their place.

Dimension i of a head's first half and dimension i of its second are a plane; at position p it turns
by ``p * theta ** (-2 i / d)``. The product of a query and a key then depends on the distance alone.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class Rotation:
    """Cosines and sines of the angles of T tokens, ``(T, 1, 1, d / 2)`` each."""

    cos: Tensor
    sin: Tensor


def rotation_of(
    position_ids: Tensor, longest: int, head_size: int, theta: float, dtype: torch.dtype
) -> Rotation:
    """Return the angles of T tokens.

    Args:
        position_ids: ``(T,)`` int64, below ``longest``.
        longest: rows of the table that they are taken from.
        head_size: d, even.
        theta: base of the wavelengths, which run from 2π to ``theta`` * 2π.
        dtype: of what is turned; angles are computed in float32.
    """
    device = position_ids.device
    even = torch.arange(0, head_size, 2, dtype=torch.float32, device=device)
    # head_size 4, theta 10,000: 1 / theta ** [0, 0.5] = [1, 0.01]; position 3 -> [3, 0.03]
    places = torch.arange(longest, dtype=torch.float32, device=device)
    angles = places[:, None] * (1.0 / theta ** (even / head_size))
    parts = (each.to(dtype)[position_ids][:, None, None] for each in (angles.cos(), angles.sin()))
    return Rotation(*parts)


def rotate(qkv: Tensor, rotation: Rotation, num_heads: int) -> Tensor:
    """Return ``(T, 3 * A * d)`` with its queries and keys turned, and its values as they are."""
    if torch.compiler.is_compiling():  # one kernel of all that follows
        parts = qkv.view(len(qkv), 3, num_heads, 2, -1)
        first, second = parts[:, :2].unbind(3)  # (T, 2, A, d / 2) each
        cos, sin = rotation.cos, rotation.sin
        turned = torch.stack([first * cos - second * sin, second * cos + first * sin], 3)
        return torch.cat([turned, parts[:, 2:]], 1).flatten(1)
    found: Tensor = _Rotate.apply(qkv, rotation.cos, rotation.sin, num_heads)  # type: ignore[no-untyped-call]
    return found


class _Rotate(torch.autograd.Function):
    # Half the passes over memory that autograd's own backward of slices and products makes.
    @staticmethod
    def forward(ctx: Any, qkv: Tensor, cos: Tensor, sin: Tensor, num_heads: int) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(cos, sin)
        ctx.num_heads = num_heads
        return _turned(qkv, cos, sin, num_heads)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        cos, sin = ctx.saved_tensors
        return _turned(gradient, cos, -sin, ctx.num_heads), None, None, None  # by as much back


def _turned(qkv: Tensor, cos: Tensor, sin: Tensor, num_heads: int) -> Tensor:
    turned = torch.empty_like(qkv, memory_format=torch.contiguous_format)
    given, made = (x.view(len(qkv), 3, num_heads, 2, -1) for x in (qkv.contiguous(), turned))
    first, second = given[:, :2].unbind(3)  # (T, 2, A, d / 2) each
    turned_first, turned_second = made[:, :2].unbind(3)
    torch.mul(first, cos, out=turned_first).addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=turned_second).addcmul_(first, sin)
    made[:, 2] = given[:, 2]
    return turned
