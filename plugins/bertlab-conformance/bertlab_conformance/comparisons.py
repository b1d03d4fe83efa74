"""Comparisons of results: whether two are equal up to rounding, and where they differ."""

import json
import math
import pickle
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertlab import IntArray
from bertlab_conformance.check import ConformanceFailure

SAME_STATE = 1e-4  # of the largest state; what rounding leaves is a hundredth of it

Array = npt.NDArray[np.generic]


def close(a: float, b: float, tolerance: float = 1e-4) -> bool:
    """Tell whether two numbers are equal up to rounding; NaN equals NaN."""
    # abs_tol for losses near 0, where rounding is large in relation
    return (math.isnan(a) and math.isnan(b)) or math.isclose(
        a, b, rel_tol=tolerance, abs_tol=tolerance / 10
    )


def difference(one: object, other: object, place: str = "") -> str | None:
    """Return where two nested results differ and how, or None; numbers may differ by rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return None if close(one, other) else f"{place} {one:.4g} against {other:.4g}"
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if one.keys() != other.keys():
            return f"{place} keys {sorted(map(str, one))} against {sorted(map(str, other))}"
        pairs = [(f"{place}[{key!r}]", one[key], other[key]) for key in one]
    elif _is_list(one) and _is_list(other):
        if len(one) != len(other):  # type: ignore[arg-type]
            return f"{place} {len(one)} against {len(other)} entries"  # type: ignore[arg-type]
        zipped = zip(one, other, strict=True)  # type: ignore[call-overload]
        pairs = [(f"{place}[{number}]", a, b) for number, (a, b) in enumerate(zipped)]
    else:
        return None if one == other else f"{place} {one!r} against {other!r}"
    found = (difference(a, b, where) for where, a, b in pairs)
    return next((each for each in found if each is not None), None)


def not_json(value: object) -> str | None:
    """Return why a value cannot be written as JSON, or None."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        return str(error)
    return None


def tensor_difference(one: Tensor, other: Tensor) -> float:
    """Return the largest difference of two float tensors of one shape; 0 of none."""
    return float((one - other).detach().abs().max()) if one.numel() else 0.0


def state_difference(one: Tensor, other: Tensor) -> float:
    """Return the largest difference of two float tensors, in units of the largest of ``one``.

    Of values below 1, the difference itself.
    """
    # states of 50 may be off by 0.005, those of 0.01 by 0.0001
    return tensor_difference(one, other) / max(1.0, float(one.detach().abs().max()))


def changed_tensor(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> str | None:
    """Return the name of a tensor that is not exactly what it was, or None."""
    for name in [*before, *(name for name in after if name not in before)]:
        if name not in before or name not in after or not _same(before[name], after[name]):
            return name
    return None


def fits_together(whole: Array, parts: Sequence[Array], starts: IntArray) -> bool:
    """Tell whether an array of a batch consists of those of its sequences.

    Args:
        whole: of the batch of B sequences.
        parts: of each sequence alone.
        starts: ``(B,)`` first token of each sequence in the batch. Values may be positions in the
            batch, numbers of sequences, or offsets into the array itself.
    """
    if whole.ndim == 0:
        return all(np.array_equal(whole, part) for part in parts)
    if whole.dtype.kind not in "iu":
        return _equal(whole, list(parts))
    # what an entry may count from: its sequence, the batch's tokens, its sequences, or the array;
    # positions [1] and [0, 2] of sequences that start at tokens 0 and 3 -> [1, 3, 5]
    sizes = np.array([len(part) for part in parts])
    shifts = [
        np.zeros(len(parts), np.int64),
        starts,
        np.arange(len(parts)),
        np.cumsum(sizes) - sizes,
    ]
    # offsets that begin at 0, such as cu_seqlens: [0, 3] and [0, 1, 2] -> [0, 3, 4, 5]
    ends = np.cumsum([0, *(int(part[-1]) if part.size else 0 for part in parts)])
    joined = [whole[:1], *(part[1:] + end for part, end in zip(parts, ends[:-1], strict=True))]
    return _equal(whole, joined) or any(
        _equal(whole, [part + shift for part, shift in zip(parts, given, strict=True)])
        for given in shifts
    )


def _equal(whole: Array, parts: Sequence[Any]) -> bool:
    try:
        joined = np.concatenate(parts)
    except ValueError:
        return False
    floats = whole.dtype.kind == "f"
    return np.array_equal(whole, joined, equal_nan=floats)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _same(one: Tensor, other: Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    # NaN is unequal to itself: torch.equal alone would call an unchanged tensor changed
    return torch.equal(one, other) or bool(((one == other) | (one.isnan() & other.isnan())).all())


T = TypeVar("T")
PLAIN_FUNCTIONS = "use functions of a module instead of lambdas and local functions"


def pickled(value: T, what: str, advice: str = PLAIN_FUNCTIONS) -> T:
    """Return a copy that was pickled.

    Raises:
        ConformanceFailure: pickle refuses it; ``what`` says what it is, ``advice`` what to do.
    """
    try:
        copy: T = pickle.loads(pickle.dumps(value))  # noqa: S301  our own bytes
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConformanceFailure(f"pickle refuses the {what}: {error}", advice) from error
    return copy
