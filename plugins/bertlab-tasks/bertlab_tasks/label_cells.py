"""Several labels of a row, as files write them: found out once for a file, not cell by cell.

Lists of names or class ids (JSON, Parquet), lists printed into cells, names with one separator
between them, a column of 0 and 1 for each label, or lists of 0 and 1 in the order of the names.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertlab.api import DataError
from bertlab.extend import looks_printed
from bertlab_tasks.printed_cells import parse_printed

_SEPARATORS = ("|", ";", ",")
_HOLDS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}
_WORDS = {"yes": True, "y": True, "no": False, "n": False}
_FRACTION = re.compile(r"[-+]?\d*\.\d+")
_OTHER_MARKS = (
    "\n",
    "/",
    "+",
    "&",
    "、",
    "，",
    " ",
)  # between names, if data.label_separator says so
_MULTI_HOT = re.compile(r"[01](?:[ ,;|]\s?[01])+")
_UNLABELLED = {"-1", "-1.0"}  # in the columns of the toxic comments' test set


@dataclass(frozen=True)
class LabelCells:
    """How the labels of a row are written.

    Attributes:
        separator: between names in a cell.
        columns: names of the labels whose columns hold 0 and 1.
        multi_hot: names in the order of lists of 0 and 1.
        skips_empty: a row has a cell for each of several names, and some are empty.
        form: in words, for the data report.
    """

    separator: str | None = None
    columns: tuple[str, ...] = ()
    multi_hot: tuple[str, ...] = ()
    skips_empty: bool = False
    form: str = "lists"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the labels in the order of the 0s and 1s, where cells hold these."""
        return self.columns or self.multi_hot

    def split(self, value: object, place: str) -> object:
        """Return the list of raw labels that a value stands for; a value of no form as it is.

        Returns:
            None if the row is not labelled.

        Raises:
            DataError: it is not of the form of the others.
        """
        if self.columns:
            return self._columns_that_hold(value, place)
        if self.skips_empty and isinstance(value, list):
            return [cell for cell in value if not _is_empty(cell)]
        if isinstance(value, str) and looks_printed(value):
            value = _parsed(value, place)
        elif isinstance(value, str):
            gaps = re.split(r"[ ,;|]\s?", value.strip()) if self.multi_hot else None
            parts = gaps or (value.split(self.separator) if self.separator else [value])
            value = [name for part in parts if (name := part.strip())]
        if self.multi_hot and isinstance(value, list):
            held = [_HOLDS.get(str(each).lower()) for each in value]
            if len(held) != len(self.multi_hot) or None in held:
                raise DataError(
                    f"{place}: found {str(value)[:60]}, expected {len(self.multi_hot)} times 0 or "
                    f"1, for {', '.join(self.multi_hot)}"
                )
            return [name for name, holds in zip(self.multi_hot, held, strict=True) if holds]
        return value

    def _columns_that_hold(self, value: object, place: str) -> list[str] | None:
        cells = [str(cell).strip().lower() for cell in value] if isinstance(value, list) else []
        if all(cell in _UNLABELLED for cell in cells):
            return None
        held = {**_HOLDS, **_WORDS}
        for name, cell in zip(self.columns, cells, strict=True):
            if cell not in held:
                raise DataError(
                    f"{place}: found {cell[:40]!r} for {name!r}, expected 0 or 1 as in the rows "
                    "before: a column for each label"
                )
        return [name for name, cell in zip(self.columns, cells, strict=True) if held[cell]]


def find_label_cells(
    values: Sequence[object],
    place: str,
    source: str | tuple[str, ...],
    names: Sequence[str] | None,
    separator: str | None = None,
    labels: Collection[str] = (),
) -> LabelCells:
    """Return how the labels of a file are written, by all its values.

    Args:
        values: of the column; lists of cells where there are several columns.
        place: what messages call it.
        source: the column, or several.
        names: of the classes, if they are known: declared, or ``data.label_names``.
        separator: that the user says.
        labels: of the training data, where they are known.

    Raises:
        DataError: the values cannot be told apart, or have no names.
    """
    known = tuple(names or ())
    given = [value for value in values if value is not None and value != ""]
    if isinstance(source, tuple):
        return _of_columns(given, place, source, known, labels)
    texts = [value.strip() for value in given if isinstance(value, str) and value.strip()]
    printed = [text for text in texts if looks_printed(text)]
    if printed and len(printed) < len(texts):
        other = next(text for text in texts if not looks_printed(text))
        raise DataError(
            f"{place}: found {printed[0][:40]!r}, which looks like a printed list, and "
            f"{other[:40]!r}, which does not, expected one form in a file; mend the rows"
        )
    are_ids = not known and "1" in labels
    lists = [_parsed(text, place) for text in printed] or [v for v in given if isinstance(v, list)]
    if lists and not are_ids and _is_multi_hot(lists):
        # [1, 1] cannot be a list of ids: it would name one class twice
        has_twice = any(len({*each}) < len(each) for each in lists)
        if len(known or lists[0]) == len(lists[0]) or has_twice:
            return _multi_hot(place, lists[0], known)
    if texts and not (printed or are_ids) and all(map(_MULTI_HOT.fullmatch, texts)):
        return _multi_hot(place, re.findall("[01]", texts[0]), known)
    if printed:
        return LabelCells(form="lists, printed into cells")
    if not texts:
        return LabelCells()
    chosen = separator or _separator(texts, labels)
    if separator is None:
        _check_names(place, texts, chosen)
    return LabelCells(chosen, form=f"names with {chosen!r} between them" if chosen else "one name")


def _of_columns(
    rows: Sequence[object],
    place: str,
    source: tuple[str, ...],
    known: tuple[str, ...],
    labels: Collection[str],
) -> LabelCells:
    every = [cell for row in rows if isinstance(row, list) for cell in row]
    names = {str(cell).strip() for cell in every if not _is_empty(cell)}
    several = LabelCells(skips_empty=True, form="names in several columns")
    cells = {str(cell).strip().lower() for cell in every}
    may_hold = cells <= {*_HOLDS, *_UNLABELLED} or cells <= {*_WORDS}
    # a label may be called 0, 1 or no: cells are no names where each column has its own label
    has_label_each = len(known) == len(source) or all(name in labels for name in source)
    if names and names.issubset(labels) and not (may_hold and has_label_each):
        return several
    if not may_hold:
        if not cells.isdisjoint(_HOLDS):
            odd = min(cells - {*_HOLDS})
            raise DataError(
                f"{place}: found {odd[:40]!r} beside 0 and 1, expected 0 or 1 in the column of "
                "each label, or names alone; correct the rows"
            )
        if len(names) < len(source) or all(map(_FRACTION.fullmatch, names)):
            shown = ", ".join(map(repr, sorted(names)[:3]))
            raise DataError(
                f"{place}: {len(source)} columns hold {shown} alone, expected 0 or 1 in the column "
                "of each label, or names; convert them"
            )
        return several
    if known and len(known) == len(source):
        columns = known
        if not set(source).isdisjoint(known):  # the order of classes is not that of the columns
            if set(source) != set(known):
                raise DataError(
                    f"{place}: columns {', '.join(source)} hold 0 and 1, expected those of "
                    f"data.label_names ({', '.join(known)}), or names in place of all of them"
                )
            columns = source
        return LabelCells(columns=columns, form="a column of 0 and 1 for each label")
    if all(name.removeprefix("-").isdecimal() for name in source):
        raise DataError(
            f"{place}: {len(source)} columns of 0 and 1 without names; data.label_names gives a "
            "name for each, or data.header: true takes the first line for names"
        )
    return LabelCells(columns=source, form="a column of 0 and 1 for each label")


def _is_empty(cell: object) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _check_names(place: str, texts: Sequence[str], separator: str | None) -> None:
    """Refuse names that are several others with a mark between them: drama/comedy, drama, comedy.

    All names with the mark must be of that kind, so that "science fiction" alone is a name.
    """
    names = {name.strip() for text in texts for name in text.split(separator or "\n\n")}
    for mark in _OTHER_MARKS:
        joined = sorted(name for name in names if mark in name)
        parts = {part.strip() for name in joined for part in name.split(mark)}
        if joined and parts <= names:
            raise DataError(
                f"{place}: found {joined[0]!r}, which looks like {len(joined[0].split(mark))} "
                f"labels with {mark!r} between them; data.label_separator: {mark!r} parts them, "
                f"{separator or '|'!r} leaves them as they are"
            )


def _is_multi_hot(lists: Sequence[Any]) -> bool:
    size = len(lists[0])
    return size > 1 and all(
        isinstance(each, list)
        and len(each) == size
        and all(type(x) in (int, float, bool) and x in (0, 1) for x in each)
        for each in lists
    )


def _multi_hot(place: str, first: Sequence[object], known: tuple[str, ...]) -> LabelCells:
    if len(known) != len(first):
        names = f"and data.label_names has {len(known)} names" if known else "have no names"
        raise DataError(
            f"{place}: lists of {len(first)} times 0 or 1 {names}; data.label_names gives "
            f"{len(first)} names in their order"
        )
    return LabelCells(multi_hot=known, form="lists of 0 and 1 in the order of data.label_names")


def _separator(texts: Sequence[str], labels: Collection[str]) -> str | None:
    """Return what parts the texts into the fewest different names, and none of the labels."""
    # "Travel|Food, drink", "Travel": | gives 2 names, a comma 3
    different = {
        mark: len({name.strip() for text in texts for name in text.split(mark)})
        for mark in _SEPARATORS
        if any(mark in text for text in texts) and not any(mark in label for label in labels)
    }
    return min(different, key=lambda mark: different[mark]) if different else None


def _parsed(text: str, place: str) -> list[Any]:
    try:
        found = parse_printed(text)
    except ValueError:
        found = None
    if isinstance(found, Mapping):
        found = [name for name, holds in found.items() if holds in (1, True)]
    if not isinstance(found, list):
        raise DataError(
            f"{place}: found {text[:60]!r}, which looks like a printed list and is none; write "
            "names with | between them, or JSON lines"
        )
    return found
