"""Checks of transforms of rows: what a row becomes is decided by the row alone."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from bertlab_conformance.cases import TransformCase
from bertlab_conformance.check import ConformanceFailure, check
from bertlab_conformance.checks.building import USABLE


@check("transform", after=USABLE)
def keeps_the_columns(case: TransformCase) -> None:
    """``change`` gives the columns that it was given, of the same kinds, or a reason in words."""
    transform = case.new()
    for row in case.rows:
        found = transform.change(deepcopy(row))
        if isinstance(found, str) and found.strip():
            continue
        if not isinstance(found, Mapping) or _form(found) != _form(row):
            raise ConformanceFailure(
                f"change({row!s:.80}) gives {found!s:.80}",
                "return a mapping with the same columns, texts as texts and lists as lists; or a "
                "text that says why the row is left out",
            )


@check("transform", after=("keeps_the_columns",))
def a_row_decides_alone(case: TransformCase) -> None:
    """A row becomes the same after other rows, when it comes again, and in another process."""
    used = case.new()
    for row in [*case.rows, *case.rows]:  # twice
        found, expected = used.change(deepcopy(row)), case.new().change(deepcopy(row))
        # caught: rows that came before are left out; random words, as of augmentation
        if found != expected:
            raise ConformanceFailure(
                f"after other rows {row!s:.60} becomes {found!s:.60}, alone {expected!s:.60}",
                "keep nothing of other rows, and draw nothing: a row is changed alike in training, "
                "evaluation and prediction",
            )


@check("transform", after=("keeps_the_columns",))
def leaves_the_row_alone(case: TransformCase) -> None:
    """``change`` does not write into what it is given."""
    transform = case.new()
    for row in case.rows:
        given = deepcopy(row)
        transform.change(given)
        if given != row:
            raise ConformanceFailure(
                f"change() turns the given row into {given!s:.80}",
                "return a new mapping: {**values, name: …}",
            )


def _form(values: Mapping[str, Any]) -> dict[str, type]:
    return {name: type(value) for name, value in values.items()}
