"""Realistic CSV and TSV files, and the faults that they have."""

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd

from bertlab.heads.sentences import SentencePair, SingleSentence
from tests.reliability.realistic_rows import Case, draw_rows, reader_of, save, unpacked

NAMES = {
    "text": [("text", None), ("sentence", "text"), ("review", "text"), ("Text ", "text")],
    "label": [("label", None), ("stars", "label"), ("class, as said", "label")],
    "text_a": [("text_a", None), ("premise", "text_a")],
    "text_b": [("text_b", None), ("hypothesis", "text_b")],
}


def draw_table(rng: Random, folder: Path) -> Case:
    """Draw CSV or TSV: by pandas, csv, or line by line."""
    pair = rng.random() < 0.2
    rows = draw_rows(rng, pair)
    head = SentencePair if pair else SingleSentence
    form = rng.choice(["csv", "csv", "tsv"])
    keys = ["text_a", "text_b", "label"] if pair else ["text", "label"]
    chosen = {key: rng.choice(NAMES[key]) for key in keys}
    extras = [key for key in ("id", "", "date", "score") if rng.random() < 0.25]
    header = [*(chosen[key][0] for key in keys), *extras]
    rng.shuffle(header)
    place = {key: header.index(chosen[key][0]) for key in keys}
    has_header = rng.random() < 0.75
    columns: dict[str, Any] = {key: name for key, (name, other) in chosen.items() if other}
    if not has_header:
        columns = {key: rng.choice([at, str(at)]) for key, at in place.items()}
    extra = {
        "id": lambda n: str(n + 1),
        "": str,
        "date": lambda n: f"2024-01-{n % 28 + 1:02}",
        "score": lambda n: f"{n / 7:.2f}",
    }
    cells = []
    for number, row in enumerate(rows):
        named = {chosen[key][0]: row[key] for key in keys}
        named |= {name: extra[name](number) for name in extras}
        cells.append([named[name] for name in header])
    end = rng.choice(["\n", "\n", "\r\n", "\r"])
    settings: dict[str, Any] = {}
    if form == "tsv":
        delimiter, quote = "\t", ""
        flat = [[re.sub(r"[\t\n\r]", " ", cell) for cell in row] for row in cells]
        cells = flat
    else:
        delimiter = rng.choice([",", ",", ";", "\t", "|", "^", ":"])
        quote = rng.choice(['"', '"', '"', "'"])
        if delimiter in "^:":
            settings["delimiter"] = delimiter
        if quote != '"':
            settings["quote"] = quote
    fault = rng.choice([*TABLE_FAULTS, *[""] * len(TABLE_FAULTS)])
    body = io.StringIO()
    if form == "tsv":
        lines = [header, *cells] if has_header else cells
        body.write("".join("\t".join(line) + end for line in lines))
    else:
        # with CR between lines, csv leaves cells with LF in them without quotes
        quoting = csv.QUOTE_ALL if end == "\r" else rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
        writer = csv.writer(
            body, delimiter=delimiter, quotechar=quote, quoting=quoting, lineterminator=end
        )
        if has_header:
            writer.writerow(header)
        writer.writerows(cells)
    text = body.getvalue()
    table = {
        "text": text, "end": end, "header": has_header, "names": header, "cells": cells,
        "delimiter": delimiter, "place": place, "form": form, "keys": keys, "rng": rng,
        "quote": quote,
    }  # fmt: skip
    kind = f"{form}: {fault or 'whole'}"
    encoding = rng.choice(["utf-8", "utf-8", "utf-8-sig"])
    expected: tuple[list[Any], int] | None
    if fault:
        text, encoding, words, accepted = TABLE_FAULTS[fault](table, encoding)
        if words is None:  # the fault does not suit this table
            fault, kind, words = "", f"{form}: whole", ()
    else:
        words, accepted = (), True
        if rng.random() < 0.2 and text.endswith(end):
            text = text.removesuffix(end)  # no line end at the end
        if form == "csv" and rng.random() < 0.05 and delimiter in ",;" and not settings:
            text = f"sep={delimiter}{end}{text}"
            kind = "csv: sep="
    path = save(folder, rng, form, text.encode(encoding, errors="surrogateescape"))
    if fault == "skip empty":
        settings["skip_empty"] = True
    expected = None
    if accepted:
        expected = _by_csv(path, form, delimiter, quote, has_header, place, encoding, fault)
    read = reader_of(path, head, columns, **settings)
    # a column of labels without a second row of a class, and of names: it may be a header
    return Case(kind, path, read, expected, tuple(words), may_refuse=bool(fault) and accepted)


def _by_csv(
    path: Path, form: str, delimiter: str, quote: str, has_header: bool, place: dict[str, int],
    encoding: str, fault: str,
) -> tuple[list[Any], int]:  # fmt: skip
    text = unpacked(path).decode(encoding)
    if form == "tsv":
        lines = [line.split("\t") for line in re.split(r"\r\n|\r|\n", text) if line]
        skip = 0
    else:
        skip = text.startswith("sep=")
        source = io.StringIO(text, newline="")
        lines = [row for row in csv.reader(source, delimiter=delimiter, quotechar=quote) if row]
        if not has_header and not skip and fault == "":
            source = io.StringIO(text, newline="")
            frame = pd.read_csv(
                source, sep=delimiter, quotechar=quote, header=None, dtype=str,
                keep_default_na=False, engine="python",
            )  # fmt: skip
            differ = [(a, b) for a, b in zip(frame.values.tolist(), lines, strict=True) if a != b]
            assert not differ, differ[0]
    lines = lines[int(skip) + int(has_header) :]
    found, left = [], 0
    for cells in lines:
        row = {key: re.sub(r"\r\n|\r", "\n", cells[at]) for key, at in place.items()}
        row["label"] = row["label"].strip()
        if fault == "skip empty" and not all(value.strip() for value in row.values()):
            left += 1
            continue
        found.append(row)
    return found, left


def _lines_of(table: dict[str, Any]) -> list[str]:
    """Return the lines of a table whose cells have none."""
    return str(table["text"]).removesuffix(table["end"]).split(table["end"])


def _simple(table: dict[str, Any]) -> bool:
    """Whether every row is one line."""
    has = int(table["header"])
    within = str(table["text"]).replace(table["end"], "")
    return len(_lines_of(table)) == len(table["cells"]) + has and not re.search(
        r"[\n\r\x0b\x0c\x85\u2028]", within
    )


def _ragged(table: dict[str, Any], change: Callable[[str, str], str]) -> Any:
    lines = _lines_of(table)
    first = int(table["header"])
    if not _simple(table) or len(lines) <= first + 1 or len(table["names"]) < 2:
        return table["text"], "utf-8", None, True
    at = table["rng"].randrange(first + 1, len(lines))
    lines[at] = change(lines[at], table["delimiter"])
    text = table["end"].join(lines) + table["end"]
    return text, "utf-8", [rf":{at + 1}: found \d+ .*column", "malformed"], False


def _short(line: str, delimiter: str) -> str:
    del delimiter
    return '"x"' if line else line


def _fault_longer(table: dict[str, Any], encoding: str) -> Any:
    del encoding
    return _ragged(table, lambda line, delimiter: f"{line}{delimiter}more")


def _fault_shorter(table: dict[str, Any], encoding: str) -> Any:
    del encoding
    return _ragged(table, _short)


def _fault_blank(table: dict[str, Any], encoding: str) -> Any:
    lines, rng = _lines_of(table), table["rng"]
    if not _simple(table):
        return table["text"], encoding, None, True
    for _ in range(rng.choice([1, 3])):
        lines.insert(rng.randrange(len(lines) + 1), "")
    return table["end"].join(lines) + table["end"], encoding, ["never"], True


def _fault_empty(table: dict[str, Any], column: str) -> Any:
    rng, cells = table["rng"], [list(row) for row in table["cells"]]
    numbers = rng.sample(range(len(cells)), k=min(len(cells), rng.choice([1, 2])))
    for number in numbers:
        cells[number][table["place"][column]] = rng.choice(["", "", " "])
    if any(not "".join(row).strip() for row in cells):
        return None
    return _written(table, cells)


def _written(table: dict[str, Any], cells: list[list[str]]) -> str:
    rows = [table["names"], *cells] if table["header"] else cells
    if table["form"] == "tsv":
        return "".join("\t".join(row) + table["end"] for row in rows)
    body = io.StringIO()
    quote = "'" if "'" in table["text"] and '"' not in table["text"] else '"'
    del quote
    csv.writer(
        body, delimiter=table["delimiter"], lineterminator=table["end"], quoting=csv.QUOTE_ALL
    ).writerows(rows)
    return body.getvalue()


def _fault_empty_text(table: dict[str, Any], encoding: str) -> Any:
    key = table["keys"][0]
    text = _fault_empty(table, key)
    ok = table["form"] == "tsv"
    if text is None or not ok:
        return table["text"], encoding, None, True
    return text, encoding, [r":\d+: column .*is empty"], False


def _fault_empty_label(table: dict[str, Any], encoding: str) -> Any:
    text = _fault_empty(table, "label") if table["form"] == "tsv" else None
    if text is None:
        return table["text"], encoding, None, True
    return text, encoding, [r":\d+: label: missing", "no row is left"], False


def _fault_skip_empty(table: dict[str, Any], encoding: str) -> Any:
    rng, keys = table["rng"], table["keys"]
    text = _fault_empty(table, rng.choice(keys)) if table["form"] == "tsv" else None
    if text is None:
        return table["text"], encoding, None, True
    return text, encoding, ["no row is left"], True


def _fault_latin1(table: dict[str, Any], encoding: str) -> Any:
    rng = table["rng"]
    coding = rng.choice(["latin-1", "cp1252"])
    try:
        data = str(table["text"]).encode(coding)
    except UnicodeEncodeError:
        return table["text"], encoding, None, True
    if data.isascii():
        return table["text"], encoding, None, True
    return table["text"], coding, [r":\d+: not UTF-8 at byte offset"], False


def _fault_utf16(table: dict[str, Any], encoding: str) -> Any:
    del encoding
    coding = table["rng"].choice(["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
    return table["text"], coding, ["UTF-16|NUL byte|not UTF-8"], False


def _fault_bytes(table: dict[str, Any], encoding: str) -> Any:
    text, rng = str(table["text"]), table["rng"]
    at = rng.randrange(len(text) + 1)
    return text[:at] + "\udcff" + text[at:], encoding, [r":\d+: not UTF-8 at byte offset"], False


def _fault_nul(table: dict[str, Any], encoding: str) -> Any:
    text, rng = str(table["text"]), table["rng"]
    at = rng.randrange(len(text) + 1)
    return text[:at] + "\0" + text[at:], encoding, [r":\d+: holds a NUL byte"], False


def _fault_header_again(table: dict[str, Any], encoding: str) -> Any:
    if not table["header"] or not _simple(table) or len(table["cells"]) < 2:
        return table["text"], encoding, None, True
    lines = _lines_of(table)
    at = table["rng"].randrange(2, len(lines) + 1)
    lines.insert(at, lines[0])
    return table["end"].join(lines), encoding, [rf":{at + 1}: .*header"], False


def _fault_named_twice(table: dict[str, Any], encoding: str) -> Any:
    if not table["header"] or not _simple(table):
        return table["text"], encoding, None, True
    lines, name = _lines_of(table), table["names"][0]
    if not name or table["delimiter"] in name:
        return table["text"], encoding, None, True
    lines = [f"{line}{table['delimiter']}{'x' if n else name}" for n, line in enumerate(lines)]
    text = table["end"].join(lines)
    if '"' in lines[0] or "'" in lines[0]:
        return table["text"], encoding, None, True
    return text, encoding, [":1: the header names column .* twice"], False


def _fault_only_header(table: dict[str, Any], encoding: str) -> Any:
    if not table["header"] or not _simple(table):
        return table["text"], encoding, None, True
    return _lines_of(table)[0] + table["end"], encoding, ["no rows but the header"], False


def _fault_nothing(table: dict[str, Any], encoding: str) -> Any:
    return table["rng"].choice(["", table["end"], table["end"] * 3]), encoding, ["no rows"], False


def _fault_never_closed(table: dict[str, Any], encoding: str) -> Any:
    if (
        table["form"] == "tsv"
        or table["quote"] != '"'
        or '"' in table["text"]
        or not _simple(table)
    ):
        return table["text"], encoding, None, True
    lines = _lines_of(table)
    at = table["rng"].randrange(int(table["header"]), len(lines))
    lines[at] = '"' + lines[at]
    words = [rf":{at + 1}: malformed CSV", "no column", "looks like", "found 1"]
    return table["end"].join(lines), encoding, words, False


def _fault_nan_labels(table: dict[str, Any], encoding: str) -> Any:
    cells = [list(row) for row in table["cells"]]
    if len(cells) < 3 or table["form"] != "tsv":
        return table["text"], encoding, None, True
    cells[1][table["place"]["label"]] = table["rng"].choice(["nan", "NaN"])
    return _written(table, cells), encoding, ["nan|NaN"], False


def _fault_ids(table: dict[str, Any], encoding: str) -> Any:
    cells = [list(row) for row in table["cells"]]
    if len(cells) < 4 or table["form"] != "tsv":
        return table["text"], encoding, None, True
    for number, row in enumerate(cells):
        row[table["place"][table["keys"][0]]] = str(7 * number)
    return _written(table, cells), encoding, ["ids or numbers"], False


def _fault_quoted_tsv(table: dict[str, Any], encoding: str) -> Any:
    if table["form"] != "tsv" or len(table["cells"]) < 2:
        return table["text"], encoding, None, True
    cells = [list(row) for row in table["cells"]]
    for row in cells:  # as pandas and Excel write a tab-separated file
        row[table["place"][table["keys"][0]]] += ' "so"'
    body = io.StringIO()
    rows = [table["names"], *cells] if table["header"] else cells
    csv.writer(body, delimiter="\t", lineterminator=table["end"]).writerows(rows)
    return body.getvalue(), encoding, ["quote"], False


def _fault_printed_null(table: dict[str, Any], encoding: str) -> Any:
    cells = [list(row) for row in table["cells"]]
    if len(cells) < 3 or table["form"] != "tsv":
        return table["text"], encoding, None, True
    cells[1][table["place"]["label"]] = table["rng"].choice(["\\N", "<NA>", "null", "NULL"])
    return _written(table, cells), encoding, ["empty"], False


def _fault_look_alike(table: dict[str, Any], encoding: str) -> Any:
    cells = [list(row) for row in table["cells"]]
    if len(cells) < 3 or table["form"] != "tsv":
        return table["text"], encoding, None, True
    at, rng = table["place"]["label"], table["rng"]
    one, other = rng.choice(
        [
            *[("caf\u00e9", "cafe\u0301"), ("good", "good\u200b"), ("a b", "a\u00a0b")],
            *[("Yes", "yes"), ("1", "01"), ("2", "2.0")],
        ]
    )
    cells[0][at], cells[1][at] = one, other
    return _written(table, cells), encoding, ["looks like .* written otherwise"], False


def _fault_spaces(table: dict[str, Any], encoding: str) -> Any:
    if table["form"] == "tsv" or table["header"] or table["quote"] != '"' or not _simple(table):
        return table["text"], encoding, None, True
    if table["delimiter"] not in ",;" or len(table["cells"]) < 2:
        return table["text"], encoding, None, True
    cells = [[f'"{cell}"' for cell in row] for row in table["cells"]]
    if any('"' in cell or "," in cell or ";" in cell for row in table["cells"] for cell in row):
        return table["text"], encoding, None, True
    text = table["end"].join(f"{table['delimiter']} ".join(row) for row in cells)
    return text, encoding, ["quote"], False


def _fault_backslashes(table: dict[str, Any], encoding: str) -> Any:
    if table["form"] == "tsv" or table["quote"] != '"' or '"' in table["text"]:
        return table["text"], encoding, None, True
    cells = [list(row) for row in table["cells"]]
    cells[-1][table["place"][table["keys"][0]]] = 'it says "no, never" to me'
    body = io.StringIO()
    csv.writer(
        body, delimiter=table["delimiter"], lineterminator=table["end"], quoting=csv.QUOTE_ALL,
        doublequote=False, escapechar="\\",
    ).writerows([table["names"], *cells] if table["header"] else cells)  # fmt: skip
    words = ["malformed CSV", r"found \d+ \S+ column", "no column"]
    return body.getvalue(), encoding, words, False


def _fault_two_delimiters(table: dict[str, Any], encoding: str) -> Any:
    if table["form"] == "tsv" or table["quote"] != '"' or table["header"]:
        return table["text"], encoding, None, True
    if table["delimiter"] not in ",;|" or len(table["names"]) > 2:
        return table["text"], encoding, None, True
    other = table["rng"].choice([mark for mark in ",;|" if mark != table["delimiter"]])
    cells = [list(row) for row in table["cells"]]
    for row in cells:
        row[table["place"]["text"]] = f"this is so{other} or not"
    text = "".join(table["delimiter"].join(row) + table["end"] for row in cells)
    return text, encoding, ["data.delimiter"], True


TABLE_FAULTS: dict[str, Callable[[dict[str, Any], str], Any]] = {
    "a longer row": _fault_longer,
    "a shorter row": _fault_shorter,
    "blank lines": _fault_blank,
    "empty texts": _fault_empty_text,
    "empty labels": _fault_empty_label,
    "skip empty": _fault_skip_empty,
    "latin-1": _fault_latin1,
    "utf-16": _fault_utf16,
    "a bad byte": _fault_bytes,
    "a NUL": _fault_nul,
    "the header again": _fault_header_again,
    "a column twice": _fault_named_twice,
    "only a header": _fault_only_header,
    "nothing": _fault_nothing,
    "a quote never closed": _fault_never_closed,
    "nan as label": _fault_nan_labels,
    "ids as texts": _fault_ids,
    "TSV with quotes of CSV": _fault_quoted_tsv,
    "a printed null as label": _fault_printed_null,
    "labels that look the same": _fault_look_alike,
    "spaces before quotes": _fault_spaces,
    "backslashes before quotes": _fault_backslashes,
    "two delimiters": _fault_two_delimiters,
}
