"""What labelled rows can hardly mean: refused with the setting that says otherwise."""

import re
from collections import Counter
from collections.abc import Sequence

from bertlab.api.examples import Example
from bertlab.api.source import RawExamples
from bertlab.data.examples.columns import Mapped
from bertlab.data.examples.printed import looks_printed
from bertlab.errors import DataError

_ACCEPT = "data.doubtful: accept takes the rows as they are"
_LEAST_ROWS = 4
_LEAST_DIFFERENT = 20  # rows of which no two have one label
_NAME = re.compile(r"[^\W\d][\w .#/-]{0,30}")
# 17, 17.5, 0f8fad5b-d9cb-469f-a165-70867728950e, d41d8cd98f00b204
_ID = re.compile(r"[-+#]?\d+([.,]\d+)*|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16,}")


def check_meaning(raw: RawExamples, rows: Sequence[Example], mapped: Sequence[Mapped]) -> None:
    """Raise DataError if a column can hardly be what it is taken for; ``raw`` had these rows."""
    for each in mapped:
        name = each.column.name
        if each.column.kind == "text" and each.column.required and not each.column.is_truth:
            _check_text([row.values[name] for row in rows if name in row.values], each, raw)
        if each.column.kind == "label":
            _check_label(rows, each, raw)


def check_no_header(raw: RawExamples, rows: Sequence[Example], mapped: Sequence[Mapped]) -> None:
    """Raise DataError if the first row of a table without header looks like one."""
    label = next((each.column.name for each in mapped if each.column.kind == "label"), None)
    if raw.has_header or label is None or len(rows) < _LEAST_ROWS:
        return
    counts = Counter(str(row.values.get(label)) for row in rows)
    first = rows[0].values
    alone = counts.pop(str(first.get(label))) == 1 and min(counts.values(), default=0) > 1
    cells = [value for value in first.values() if isinstance(value, str)]
    if alone and all(_NAME.fullmatch(cell) for cell in cells):
        raise DataError(
            f"{rows[0].where}: looks like a header: no other row has the label "
            f"{first.get(label)!r}; data.header: true takes it for one, data.header: false for a "
            "row"
        )


def _check_text(texts: Sequence[str], mapped: Mapped, raw: RawExamples) -> None:
    if len(texts) >= _LEAST_ROWS and all(_ID.fullmatch(text.strip()) for text in texts):
        others = [column for column in raw.columns if column != mapped.source]
        there = f" ({', '.join(others)})" if others else ""
        raise DataError(
            f"{raw.name}: {mapped.place}: all {len(texts):,} texts are ids or numbers, such as "
            f"{texts[0]!r}; name the column of texts{there}, as in data.columns: "
            f"{{{mapped.column.name}: COLUMN}}, or {_ACCEPT}"
        )


def _check_label(rows: Sequence[Example], mapped: Mapped, raw: RawExamples) -> None:
    name = mapped.column.name
    labels = [label for row in rows if isinstance(label := row.values.get(name), str)]
    printed = next(filter(looks_printed, labels), None)
    if printed is not None:
        raise DataError(
            f"{raw.name}: {mapped.place}: found {printed[:40]!r}, which looks like a printed list, "
            f"expected one label; model.head: multi_label reads several, or {_ACCEPT}"
        )
    counts = Counter(labels)
    if (
        len(labels) >= _LEAST_DIFFERENT
        and len(counts) == len(labels)
        and not all(_ID.fullmatch(label) for label in labels)
    ):
        raise DataError(
            f"{raw.name}: {mapped.place}: no two of {len(labels):,} rows have the same label, so "
            f"there is nothing to learn; name another column with data.columns, or {_ACCEPT}"
        )
