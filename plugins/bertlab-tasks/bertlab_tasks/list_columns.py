"""The reader of columns that hold more than one value: texts, tags, labels, answers, spans."""

from collections.abc import Mapping
from typing import Any

from bertlab.api import DataError, RawExamples
from bertlab.extend import (
    ColumnReader,
    EmptyTextError,
    checked_string,
    checked_text,
    number_of,
    show_value,
    words_of,
)
from bertlab_tasks.label_cells import LabelCells, find_label_cells
from bertlab_tasks.printed_cells import as_list
from bertlab_tasks.span_windows import nearest_occurrence


class ListReader(ColumnReader):
    """Reads the values of a column of a kind other than ``text``, ``label`` and ``number``.

    ``texts`` and ``tags`` are lists of texts, ``labels`` lists of names, ``numbers`` lists of
    numbers, ``answers`` lists under ``text`` and ``answer_start``, ``span`` a start and an end.
    """

    cells: LabelCells | None = None  # how several labels are written; None: go by the row alone

    @property
    def form(self) -> str:  # type: ignore[override]
        """How several labels of a row are written, for the data report."""
        return "" if self.cells is None else self.cells.form

    def look_ahead(self, raw: RawExamples, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Find out by all rows how several labels are written; return the names if known."""
        if self._kind != "labels":
            return names
        rows, source = list(raw.rows), self._source
        raw.rows = iter(rows)
        values = [
            row.get(source) if isinstance(source, str) else [row.get(key) for key in source]
            for _, row in rows
        ]
        place = f"{raw.name}: {self.mapped.place}"
        self.cells = self._find_cells(values, place, self._class_names or names)
        return self.cells.names or names

    def _find_cells(
        self, values: list[Any], place: str, known: tuple[str, ...] | None
    ) -> LabelCells:
        found = self.reading.labels
        labels = () if found is None else found.names
        separator = self.reading.label_separator
        return find_label_cells(values, place, self._source, known, separator, labels)

    def _nothing(self) -> Any:  # noqa: ANN401  of the column's kind
        nothing: dict[str, Any] = {"answers": {"text": [], "answer_start": []}, "labels": []}
        return nothing.get(self._kind)

    def _convert(self, value: Any, place: str) -> Any:  # noqa: ANN401
        read = {
            "labels": self._several_labels,
            "tags": self._tags,
            "answers": _answers,
            "texts": self._texts,
            "numbers": _numbers,
            "span": _span,
        }
        return read[self._kind](value, place)

    def settle(self, values: dict[str, Any], where: str) -> None:
        """Find a span that is given by its text, and check that it lies in its column's text."""
        column = self.mapped.column
        if column.name in values and column.of in values:
            place = f"{where}: {self.mapped.place}"
            values[column.name] = _located(values[column.name], values[column.of], column.of, place)

    def _several_labels(self, value: Any, place: str) -> list[str] | None:  # noqa: ANN401
        cells = self.cells
        if cells is None:  # of new text, whose rows are read one by one
            if isinstance(self._source, tuple) and all(each in (None, "") for each in value):
                return None
            known = self._class_names or tuple(dict.fromkeys((self.by_raw or {}).values()))
            cells = self._find_cells([value], place, known)
        value = cells.split(value, place)
        if value is None:
            return None
        if not isinstance(value, list):
            raise DataError(f"{place}: found {show_value(value)}, expected a list of labels")
        return list(dict.fromkeys(self._class_names_of(value, place)))

    def _texts(self, value: object, place: str) -> list[str]:
        found = as_list(value)
        if self.parts_texts and isinstance(value, str) and not _are_texts(found):
            found = words_of(value)
        return _texts(found, place)

    def _tags(self, value: object, place: str) -> list[str]:
        value = as_list(value)
        if not isinstance(value, list):
            raise DataError(
                f"{place}: found {show_value(value)}, expected a list with a tag for each word"
            )
        is_plain = self._class_names is None and self.by_raw is None
        if is_plain and _are_strings(value) and "" not in value:
            return value
        return self._class_names_of(value, place)

    def _class_names_of(self, values: list[Any], place: str) -> list[str]:
        return [self._class_name(each, f"{place}[{n}]") for n, each in enumerate(values)]


def _texts(value: object, place: str) -> list[str]:
    if value == [] or value is None or (isinstance(value, str) and not value.strip()):
        raise EmptyTextError(f"{place}: is empty, expected a text; correct the row or remove it")
    if not isinstance(value, list):
        advice = "; a table gives it by a list of columns" if isinstance(value, str) else ""
        raise DataError(f"{place}: found {show_value(value)}, expected a list of texts{advice}")
    if not _are_strings(value):
        for number, text in enumerate(value):
            checked_string(text, f"{place}[{number}]")
    if "" in value:
        raise EmptyTextError(
            f"{place}[{value.index('')}]: is empty, expected a text; correct the row or remove it"
        )
    return value


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _are_strings(values: list[Any]) -> bool:
    """Return whether all are plain texts; if not, :func:`_string` says what is wrong with which."""
    # half a surrogate pair is not printable; one joined text is checked faster than each
    return all(type(value) is str for value in values) and "".join(values).isprintable()


def _numbers(value: object, place: str) -> list[float]:
    value = as_list(value)
    if not isinstance(value, list):
        raise DataError(f"{place}: found {show_value(value)}, expected a list of numbers")
    return [number_of(each, f"{place}[{n}]") for n, each in enumerate(value)]


Span = tuple[int | None, int | None, str | None]  # start, end, text; what a row does not give: None


def _span(value: object, place: str) -> Span:
    match as_list(value):
        case str(text) if text.strip():
            return None, None, checked_text(text, place).strip()
        case [start, end]:
            return _character(start, place), _character(end, place), None
        case {"text": str(text), "start": start}:
            return _character(start, place), None, checked_text(text, place)
        case {"start": start, "end": end}:
            return _character(start, place), _character(end, place), None
    raise DataError(
        f"{place}: found {show_value(value)}, expected a text that occurs in the row, [start, end] "
        'in characters, {"start": …, "end": …} or {"text": …, "start": …}'
    )


def _character(found: object, place: str) -> int:
    """Return the number of a character; cells of a table are text."""
    number = number_of(found, place)
    if number < 0 or number != int(number):
        raise DataError(f"{place}: found {found!r}, expected the number of a character, from 0")
    return int(number)


def _located(span: Span, text: str, of: str, place: str) -> tuple[int, int]:
    start, end, given = span
    if given is not None:
        end = None
        if start is None:
            start = nearest_occurrence(text, given, 0)
        if start is not None and text.startswith(given, start):
            end = start + len(given)
    if start is None or end is None or not start < end <= len(text):
        found = repr(given)[:60] if given is not None else f"[{start}, {end}]"
        at = f" at {start}" if given is not None and start is not None else ""
        raise DataError(
            f"{place}: found {found}{at}, which is not in {of} ({len(text)} characters: "
            f"{text[:40]!r}…)"
        )
    return start, end


def _answers(value: object, place: str) -> dict[str, list[Any]]:
    value = as_list(value)
    if isinstance(value, str) and not value.startswith("{"):  # the answer's text alone
        value = [value]
    if isinstance(value, list) and all(isinstance(each, Mapping) for each in value):
        # SQuAD's [{"text": "a", …}, …] -> the hub's {"text": ["a", …], …}
        value = {key: [each.get(key) for each in value] for key in ("text", "answer_start")}
    starts: list[int | None]
    match value:
        case list() if value and all(isinstance(each, str) for each in value):
            texts, starts = value, [None] * len(value)
        case {"text": list(texts), "answer_start": list(starts)} if _are_starts(starts, len(texts)):
            pass
        case _:
            raise DataError(
                f"{place}: found {show_value(value)}, expected a text, or "
                '{"text": [texts], "answer_start": [characters]}, both of the same length'
            )
    texts = [checked_text(text, f"{place}.text[{number}]") for number, text in enumerate(texts)]
    return {"text": texts, "answer_start": list(starts)}


def _are_starts(values: list[Any], number: int) -> bool:
    return len(values) == number and all(type(value) is int for value in values)
