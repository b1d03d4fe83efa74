"""Checks of raw texts and labels, and their conversion to the form that heads read."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from bertlab.api.examples import Example, RawExamples, number_of
from bertlab.api.format import LabelNames
from bertlab.data.examples.columns import Mapped
from bertlab.data.rows.tables import PLAIN, RowReading
from bertlab.errors import DataError, EmptyTextError, kind_of, nearest, warn
from bertlab.plugins.index import of_package

# ['a', 'b'], {"a": 1}, ('a',), (0, 1), (), set(), array([1])
_PRINTED = re.compile(
    r"""\[.*\]|\{.*\}|\((['"].*|\d+,.*)?\)|(array|frozenset|set)\(.*\)""", re.DOTALL
)


def looks_printed(value: object) -> bool:
    """Return whether a cell looks like a printed list, set or object."""
    return isinstance(value, str) and _PRINTED.fullmatch(value.strip()) is not None


def ordered_names(names: LabelNames) -> tuple[str, ...]:
    """Return the names of the classes in the order of their ids."""
    found = tuple(dict.fromkeys(names.values() if isinstance(names, Mapping) else names))
    if not isinstance(names, Mapping) and len(found) < len(names):
        raise DataError(f"data.label_names: found {', '.join(names)}, expected each name once")
    return found


def names_by_raw(names: LabelNames) -> dict[str, str]:
    """Return the names of the classes by raw label; what is a name already stays.

    Names in a list may be numbers, and then these are meant, not places in the list.
    """
    same = {name: name for name in ordered_names(names)}
    if isinstance(names, Mapping):
        return same | {str(raw): name for raw, name in names.items()}
    # a name wins over a number: names ["1", "0"] -> {"0": "0", "1": "1"}
    return {str(number): name for number, name in enumerate(names)} | same


Rows = Sequence[Example]
_KEPT = 1000  # different labels of a column whose names are remembered


class ColumnReader:
    """Reads values of one of a head's columns: texts, labels, numbers; a subclass reads others."""

    form = ""  # how several labels of a row are written, for the data report
    parts_texts = False  # whether a text, of new rows, stands for its words

    def __init__(
        self,
        mapped: Mapped,  # the column, and where it comes from
        by_raw: Mapping[str, str] | None,  # names of classes by raw label; None: labels are names
        no_label: str | None,  # raw label of rows without one
        labelled: bool = True,  # rows have their truth: an empty cell is no answer, or no labels
        reading: RowReading = PLAIN,
        of_hub: bool = False,  # -1 says that there is no label
    ) -> None:
        self.mapped, self.labelled, self.reading, self.of_hub = mapped, labelled, reading, of_hub
        self.by_raw, self.no_label = by_raw, no_label
        self._source, self._kind = mapped.source, mapped.column.kind
        self._class_names = mapped.class_names
        self._is_truth, self._is_told = mapped.column.is_truth, False
        self._is_optional = self._is_truth or not mapped.column.required
        self._labels: dict[str, str | float | None] = {}  # by the text of a cell

    def look_ahead(self, raw: RawExamples, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Find out by all rows how the column is written; return the classes' names if known."""
        del raw
        return names

    def read(self, row: Mapping[str, Any], where: str) -> Any:  # noqa: ANN401  of the column's kind
        """Return the value in a raw row; None if the row lacks it.

        A text is as it is, or those of several columns with spaces between. A label is a name, or a
        float that is not whole.
        """
        source = self._source
        value = row.get(source) if type(source) is str else [row.get(key) for key in source]
        if type(value) is str:  # most are, and nothing is wrong with them
            if self._kind == "label":
                if value in self._labels:
                    return self._labels[value]
            elif self._kind == "text" and value.isprintable() and value and not value.isspace():
                return value
        return self._read(value, row, f"{where}: {self.mapped.place}")

    def settle(self, values: dict[str, Any], where: str) -> None:
        """Finish what was read where that takes the other columns, ``values`` by their names."""

    def _read(self, value: Any, row: Mapping[str, Any], place: str) -> Any:  # noqa: ANN401
        if value is None and not self._is_optional and self._source not in row:
            raise DataError(f"{place}: is missing; there are {', '.join(map(repr, row))}")
        if self._is_optional and (value is None or (isinstance(value, str) and not value.strip())):
            return self._nothing() if self.labelled and value is not None else None
        try:
            return self._convert(value, place)
        except DataError as error:  # a prediction does not need the truth
            if self.labelled or not (self._is_truth and self.reading.keeps_unreadable):
                raise
            if not self._is_told:
                warn(f"{error}; a truth that cannot be read is left out")
            self._is_told = True
            return None

    def _nothing(self) -> Any:  # noqa: ANN401  of the column's kind
        """Return what the empty cell of a labelled row says; None: that it has no label."""
        return None

    def _convert(self, value: Any, place: str) -> Any:  # noqa: ANN401
        if self._kind == "label":
            label = self._label(value, place)
            if type(value) is str and len(self._labels) < _KEPT:
                self._labels[value] = label
            return label
        if self._kind == "number":
            setting = self.mapped.column.setting
            return None if value == self.no_label else number_of(value, place, setting)
        if isinstance(self._source, tuple):  # ["Title", None, "Body"] -> "Title Body"
            parts = (checked_string(each, place) for each in value if each is not None)
            value = " ".join(part for part in parts if part.strip())
        # an optional text is a name such as an id, which may be a number
        return checked_text(
            str(value) if self._is_optional and type(value) is int else value, place
        )

    def _label(self, value: object, place: str) -> str | float | None:
        if isinstance(value, str):
            value = value.strip()
        by_raw = self.by_raw
        # of the hub's test splits; in a file of the user's own it is a class
        is_hub = self.of_hub and by_raw is not None and "-1" not in by_raw
        is_none = str(value) == "-1" and (is_hub or self._class_names is not None)
        if value == self.no_label or is_none:
            return None
        if isinstance(value, float):
            if not math.isfinite(value):
                raise DataError(f"{place}: found {value}, expected a label or a number")
            if not value.is_integer():
                return value if by_raw is None else _named(str(value), place, by_raw)
            value = int(value)  # the class 2: pandas writes 2.0 where other rows have no number
        return self._class_name(value, place)

    def _class_name(self, value: object, place: str) -> str:
        names = self._class_names
        if names is not None and type(value) is int:
            if not 0 <= value < len(names):
                raise DataError(
                    f"{place}: found {value}, expected 0 to {len(names) - 1}: the data set has "
                    f"{len(names)} classes ({', '.join(names)})"
                )
            value = names[value]
        if not isinstance(value, str | int) or value == "":
            raise DataError(f"{place}: found {show_value(value)}, expected a name or a number")
        name = checked_string(str(value), place)
        return name if self.by_raw is None else _named(name, place, self.by_raw)


def column_reader(
    mapped: Mapped,
    by_raw: Mapping[str, str] | None = None,
    no_label: str | None = None,
    labelled: bool = True,
    reading: RowReading = PLAIN,
    of_hub: bool = False,
) -> ColumnReader:
    """Return the reader of a column, with these arguments; bertlab-tasks has that of lists."""
    kind = ColumnReader
    if mapped.column.kind not in ("text", "label", "number"):
        failure = f"{mapped.place}: cannot read {mapped.column.kind}"
        kind = of_package("data.ListReader", DataError, failure)
    return kind(mapped, by_raw, no_label, labelled, reading, of_hub)


def checked_text(value: object, place: str) -> str:
    """Return a text that is not empty; DataError of all else."""
    if value is None or (isinstance(value, str) and not value.strip()):
        raise EmptyTextError(f"{place}: is empty, expected a text; correct the row or remove it")
    return checked_string(value, place)


def checked_string(value: object, place: str) -> str:
    """Return a text that can be encoded; DataError of all else."""
    if not isinstance(value, str):
        raise DataError(f"{place}: found {show_value(value)}, expected a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # JSON can escape half a surrogate pair
        words = f"{place}: holds a lone surrogate \\u{ord(value[error.start]):04x}"
        raise DataError(f"{words}, which is no character; mend the row") from None
    return value


def _named(raw: str, place: str, by_raw: Mapping[str, str]) -> str:
    if raw in by_raw:
        return by_raw[raw]
    known = (key if key == name else f"{key} ({name})" for key, name in by_raw.items())
    raise DataError(f"{place}: found {raw!r}{nearest(raw, by_raw)}, expected {', '.join(known)}")


def show_value(value: object) -> str:
    """Return a value for a message: its type, and its first 60 characters."""
    if value is None:
        return "nothing"
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    shown = repr(value)
    return f"{kind_of(value)} {shown if len(shown) <= 60 else f'{shown[:59]}…'}"


_ACCEPT = ", or data.doubtful: accept takes the rows as they are"
_LEAST_ROWS = 4
_LEAST_DIFFERENT = 20  # rows of which no two have one label
_MOST_SHOWN = 40  # characters
_NUMBER = re.compile(r"[-+]?\d{1,20}(\.\d{1,20})?")
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_NULLS = {"nan", "NaN", "null", "NULL", "<NA>", "\\N"}  # "None" and "N/A" may be classes
_NAME = re.compile(r"[^\W\d][\w .#/-]{0,30}")
# 17, 17.5, 2024-05-01T10:00Z, 0f8fad5b-d9cb-469f-a165-70867728950e, d41d8cd98f00b204
_ID = re.compile(
    r"[-+#]?\d+([.,:/T -]+\d+)*Z?|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16,}"
)


def _as_seen(label: str) -> str:
    """Return a label in NFC and small letters, without what is not seen, numbers by their value."""
    if not label.isascii():
        label = unicodedata.normalize("NFC", label)
        label = "".join(each for each in label if unicodedata.category(each) != "Cf")
    label = " ".join(label.casefold().split())
    label = {"true": "1", "false": "0"}.get(label, label)  # as pandas may write them
    return str(Decimal(label).normalize()) if _NUMBER.fullmatch(label) else label  # 01, 1.0 -> 1


def check_meaning(raw: RawExamples, rows: Rows, mapped: Sequence[Mapped], how: RowReading) -> None:
    """Raise DataError if a column can hardly be what it is taken for; ``raw`` had these rows."""
    for each in mapped:
        name = each.column.name
        if each.column.kind == "text" and each.column.required and not each.column.is_truth:
            texts = [row.values[name] for row in rows if name in row.values]
            _check_text(texts, each, raw, how)
        if each.column.kind in ("label", "labels", "tags"):
            _check_labels(rows, each, raw, how)


def check_header(raw: RawExamples, rows: Rows, mapped: Sequence[Mapped], how: RowReading) -> None:
    """Raise DataError if a row looks like a header: the first of a table without, or a second."""
    label = next((each.column.name for each in mapped if each.column.kind == "label"), None)
    if label is None:
        return
    if raw.has_header:
        names = {each.column.name: each.source for each in mapped}
        again = next((r for r in rows if r.values.get(label) == names[label]), None)
        if again is not None and all(again.values.get(n) == name for n, name in names.items()):
            told = f"{again.where}: is the header again; remove the row"
            raise DataError(told + how.advise(_ACCEPT))
    if raw.has_header or len(rows) < _LEAST_ROWS:
        return
    counts = Counter(str(row.values.get(label)) for row in rows)
    first = rows[0].values
    alone = counts.pop(str(first.get(label))) == 1 and min(counts.values(), default=0) > 1
    cells = [value for value in first.values() if isinstance(value, str)]
    if alone and all(_NAME.fullmatch(cell) for cell in cells):
        advice = "; data.header: true takes it for one, data.header: false for a row"
        told = f"looks like a header: no other row has the label {first.get(label)!r}"
        raise DataError(f"{rows[0].where}: {told}{how.advise(advice)}")


def _check_text(texts: list[str], mapped: Mapped, raw: RawExamples, how: RowReading) -> None:
    place, accept = f"{raw.name}: {mapped.place}", how.advise(_ACCEPT)
    quoted = [text for text in texts if '"' in text] if raw.form.startswith("tsv") else []
    # "a ""b""" and "c", but neither a "b" nor "a" or "b": a program wrote CSV with tabs
    if all(map(_QUOTED.fullmatch, quoted)) and any('""' in text[1:-1] for text in quoted):
        told = f"{place}: all {len(quoted):,} texts with quotes, such as "
        told += f"{quoted[0][:_MOST_SHOWN]!r}, have them around and twice inside, as CSV has"
        told += how.advise("; data.quote: '\"' takes these off")
        raise DataError(told + accept)
    if raw.form.startswith("csv") and texts and all(text.startswith(' "') for text in texts):
        told = f"{place}: all texts begin with a space and a quote, which are then part of the text"
        raise DataError(f"{told}; remove the spaces behind the delimiter{accept}")
    if len(texts) >= _LEAST_ROWS and all(_ID.fullmatch(text.strip()) for text in texts):
        others = [column for column in raw.columns if column != mapped.source]
        there = f" ({', '.join(others)})" if others else ""
        told = f"{place}: all {len(texts):,} texts are ids or numbers, such as {texts[0]!r}; name "
        named = how.advise(f", as in data.columns: {{{mapped.column.name}: COLUMN}}")
        raise DataError(f"{told}the column of texts{there}{named}{accept}")


def _labels_in(row: Example, name: str) -> list[str]:
    """Return the labels of a column: one, those of a list, or none where it has numbers."""
    found = row.values.get(name)
    return [found] if isinstance(found, str) else found if isinstance(found, list) else []


def _check_labels(rows: Rows, mapped: Mapped, raw: RawExamples, how: RowReading) -> None:
    name = mapped.column.name
    labels = [label for row in rows for label in _labels_in(row, name)]
    counts = Counter(labels)
    alike: dict[str, str] = {}
    for label in counts:
        twin = alike.setdefault(_as_seen(label), label)
        if looks_printed(label):
            odd = "a printed list, expected one label; model.head: multi_label reads several"
        elif label in _NULLS:
            odd = "an empty cell that a program has printed; give the label, or remove the row"
        elif label[0] == label[-1] and label[0] in "\"'" and len(label) > 1:
            odd = f"a quoted cell{how.advise('; data.quote tells those of the file')}"
        elif twin != label:
            odd = f"{twin!r}, written otherwise; write both alike"
        else:
            continue
        where = next(row.where for row in rows if label in _labels_in(row, name))
        found = repr(label[:_MOST_SHOWN])
        told = f"{where}: {mapped.place}: found {found}, which looks like {odd}"
        raise DataError(told + how.advise(_ACCEPT))
    if (
        mapped.column.kind == "label"
        and len(labels) >= _LEAST_DIFFERENT
        and len(counts) == len(labels)
        and not all(_ID.fullmatch(label) for label in labels)
    ):
        told = f"{raw.name}: {mapped.place}: no two of {len(labels):,} rows have the same label, so"
        told += " there is nothing to learn" + how.advise("; name another column with data.columns")
        raise DataError(told + how.advise(_ACCEPT))
