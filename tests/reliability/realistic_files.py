"""Files of rows as people have them, drawn from a grammar, and what other libraries read in them.

A file is drawn by a seed: its format, dialect, encoding, packing, columns, forms of labels and at
most one fault. What it holds is read back with ``csv``, ``json``, ``pandas`` and ``pyarrow``, which
know how it was written. bertlab, which does not, reads the same rows, or refuses the file in one
message with its name and a place or a setting.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import re
import unicodedata
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
from seqeval.metrics.sequence_labeling import get_entities

from bertlab.api.examples import Example, Labels
from bertlab.data.corpus.corpus import Corpus, read_raw_documents
from bertlab.data.examples.source import read_rows, stream_rows
from bertlab.data.examples.splits import check_truth
from bertlab.data.rows.tables import RowReading
from bertlab.errors import BertlabError
from bertlab.heads.sentences import SentencePair, SingleSentence
from bertlab.heads.span import Span
from bertlab.heads.span_windows import _place, gold_answers
from bertlab.heads.tag_schemes import check_plain, entities, entity_types
from bertlab.heads.tagging import Tagging
from bertlab_tasks.multi_label import MultiLabel

SENTENCES = {
    "English": ["The film is good", "It rains, again", 'He said "no"', "5 o'clock; tea", "A|B test"],
    "Hindi": ["यह फ़िल्म अच्छी है।", "मौसम बहुत ख़राब है", "क्या आप ठीक हैं?", "हिन्दी में लिखो"],
    "Japanese": ["この映画は、とても良い。", "今日は雨です", "ガソリンが高い", "「はい」と言った"],
    "Vietnamese": ["Phim này rất hay", "Trời mưa, lạnh quá", "Tiếng Việt có dấu", "Ăn cơm chưa?"],
    "Chinese": ["这部电影很好。", "天气,不好", "他说:“不”", "我喜欢茶"],
    "Arabic": ["الفيلم جيد جدا", "الطقس سيئ، اليوم", "هَلْ أَنْتَ بِخَيْرٍ؟", "أحب الشاي"],
    "German": ["Das Wetter ist schön", "Größe: 5; Preis: 3", "Über Äpfel, Öl", "Fünf Füße"],
}
ODD = [
    "two\nlines",
    "with\ttab",
    'she said ""hm""',
    "#no comment",
    "a\u2028b\x0bc\x0cd\x85e",
    "nan",
    "NULL",
    "👩‍💻 codes \U0001f600",
    "x" * 3000,
    "=SUM(A1)",
    "[MASK] and [SEP]",
    "\\n is no line \\",
    "  spaces around  ",
    "1,5;2|3",
    "'tis 'quoted'",
]
LABELS = {
    "words": ["good", "bad", "so so"],
    "numbers": ["0", "1", "2"],
    "floats": ["0.0", "1.0"],
    "signed": ["-1", "1"],
    "booleans": ["True", "False"],
    "others": ["schön", "शुभ", "良い"],
    "case": ["Yes", "yes", "NO"],
    "none": ["None", "some", "N/A"],
}
PACKERS: dict[str, Callable[[bytes, str], bytes]] = {
    ".gz": lambda data, _: gzip.compress(data),
    ".bz2": lambda data, _: bz2.compress(data),
    ".xz": lambda data, _: lzma.compress(data),
    ".zst": lambda data, _: pa.compress(data, "zstd", asbytes=True),
    ".zip": lambda data, name: _zip(data, name),
}
ENDINGS = {
    "csv": [".csv", ".CSV", ".Csv"],
    "tsv": [".tsv", ".TSV", ".tab"],
    "jsonl": [".jsonl", ".ndjson", ".JSONL"],
    "json": [".json", ".JSON"],
    "parquet": [".parquet", ".pq", ".Parquet"],
    "arrow": [".arrow", ".feather"],
}


@dataclass
class Case:
    """A file, how it is asked for, and what is in it.

    Attributes:
        kind: what was drawn, for the counts.
        path: of the file.
        read: reads it with bertlab: values of the rows, and how many were left out.
        expected: the same by other libraries; None if the file is to be refused.
        words: patterns of which a refusal has one: a place, or what is wrong.
        may_refuse: what is in the file may be read or refused; a silent third is wrong.
    """

    kind: str
    path: Path
    read: Callable[[], tuple[list[Any], int]]
    expected: tuple[list[Any], int] | None
    words: tuple[str, ...] = ()
    may_refuse: bool = False


@dataclass
class Verdict:
    """``right``, ``refused`` (as expected), ``too strict`` or ``wrong``, and why."""

    name: str
    reason: str = ""


@dataclass
class Table:
    """Rows as they were drawn, and the file that they become."""

    rng: Random
    rows: list[dict[str, Any]]
    kind: list[str] = field(default_factory=list)


def verdict(case: Case) -> Verdict:
    """Read a file with bertlab, and compare with what is in it."""
    try:
        found = case.read()
    except BertlabError as error:
        message = str(error)
        if case.path.name not in message and not re.search(r"(data|model)\.\w", message):
            return Verdict("wrong", f"names neither file nor setting: {message}")
        if "\n" in message:
            return Verdict("wrong", f"several lines: {message}")
        if case.expected is None or case.may_refuse:
            if any(re.search(word, message) for word in case.words):
                return Verdict("refused", message)
            return Verdict("wrong", f"says {message!r}, expected {case.words}")
        return Verdict("too strict", message)
    except Exception as error:  # noqa: BLE001  what else there is is a crash
        return Verdict("wrong", f"{type(error).__name__}: {error}")
    if case.expected is None:
        return Verdict("wrong", f"read {len(found[0])} rows such as {found[0][:1]}")
    if found == case.expected:
        return Verdict("right")
    rows, truth = found[0], case.expected[0]
    for number, (here, there) in enumerate(zip(rows, truth, strict=False)):
        if here != there:
            return Verdict("wrong", f"row {number}: {here!r}, expected {there!r}"[:300])
    return Verdict(
        "wrong",
        f"{len(rows)} rows and {found[1]} left out, expected {len(truth)} and {case.expected[1]}",
    )


def draw(seed: int, folder: Path) -> Case:
    """Draw and write a file."""
    rng = Random(seed)  # noqa: S311
    families = [_table, _table, _table, _lines, _columnar, _tags, _answers, _several, _corpus]
    return rng.choice([*families, _new_text])(rng, folder)


def _zip(data: bytes, name: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return packed.getvalue()


def _rows(rng: Random, pair: bool = False, label: str | None = None) -> list[dict[str, Any]]:
    """Draw rows with ``text`` (or ``text_a`` and ``text_b``) and ``label``."""
    sentences, form = SENTENCES[rng.choice([*SENTENCES])], rng.choice(["NFC", "NFD"])
    labels = LABELS[label or rng.choice([*LABELS])]
    rows = []
    for number in range(rng.choice([1, 2, 3, 6, 9, 40, 150])):

        def text() -> str:
            if rng.random() < 0.08:
                return rng.choice(ODD)
            several = " ".join(rng.choices(sentences, k=rng.choice([1, 1, 2, 5])))
            return unicodedata.normalize(form, f"{several} {number}"[: rng.choice([60, 400])])

        texts = {"text_a": text(), "text_b": text()} if pair else {"text": text()}
        rows.append({**texts, "label": rng.choice(labels)})
    return rows


def _labelled(
    path: Path, head: Any, columns: Mapping[str, Any] | None = None, **settings: Any
) -> Callable[[], tuple[list[Any], int]]:
    names = settings.pop("names", None)
    form = settings.pop("form", "auto")

    def read() -> tuple[list[Any], int]:
        reading = RowReading(**settings)
        found = read_rows(str(path), None, dict(columns or {}), form, head.columns, names, reading)
        check_truth(found.rows, head.columns, "train")
        blank = found.skipped.get("a blank line", 0)
        return [dict(row.values) for row in found.rows], sum(found.skipped.values()) - blank

    return read


def _save(folder: Path, rng: Random, form: str, data: bytes) -> Path:
    """Write a file, packed or not."""
    name = rng.choice(["train", "my data", "données", "a.b"]) + rng.choice(ENDINGS[form])
    if rng.random() < 0.25:
        packer = rng.choice([*PACKERS])
        data = PACKERS[packer](data, name)
        name += rng.choice([packer, packer.upper()])
    path = folder / name
    path.write_bytes(data)
    return path


def _unpacked(path: Path) -> bytes:
    data, packer = path.read_bytes(), path.suffix.lower()
    match packer:
        case ".gz":
            return gzip.decompress(data)
        case ".bz2":
            return bz2.decompress(data)
        case ".xz":
            return lzma.decompress(data)
        case ".zip":
            archive = zipfile.ZipFile(io.BytesIO(data))
            return archive.read(archive.namelist()[0])
        case ".zst":
            return bytes(pa.CompressedInputStream(pa.BufferReader(data), "zstd").read())
    return data


NAMES = {
    "text": [("text", None), ("sentence", "text"), ("review", "text"), ("Text ", "text")],
    "label": [("label", None), ("stars", "label"), ("class, as said", "label")],
    "text_a": [("text_a", None), ("premise", "text_a")],
    "text_b": [("text_b", None), ("hypothesis", "text_b")],
}


def _table(rng: Random, folder: Path) -> Case:
    """Draw CSV or TSV: by pandas, csv, or line by line."""
    pair = rng.random() < 0.2
    rows = _rows(rng, pair)
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
        "": lambda n: str(n),
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
    path = _save(folder, rng, form, text.encode(encoding, errors="surrogateescape"))
    if fault == "skip empty":
        settings["skip_empty"] = True
    expected = None
    if accepted:
        expected = _by_csv(path, form, delimiter, quote, has_header, place, encoding, fault)
    read = _labelled(path, head, columns, **settings)
    # a column of labels without a second row of a class, and of names: it may be a header
    return Case(kind, path, read, expected, tuple(words), may_refuse=bool(fault) and accepted)


def _by_csv(
    path: Path, form: str, delimiter: str, quote: str, has_header: bool, place: dict[str, int],
    encoding: str, fault: str,
) -> tuple[list[Any], int]:  # fmt: skip
    text = _unpacked(path).decode(encoding)
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
    return text, encoding, [rf":\d+: column .*is empty"], False


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
    if table["form"] == "tsv" or table["quote"] != '"' or '"' in table["text"] or not _simple(table):
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
    one, other = rng.choice([("caf\u00e9", "cafe\u0301"), ("good", "good\u200b"), ("a b", "a\u00a0b")])
    cells[0][at], cells[1][at] = one, other
    return _written(table, cells), encoding, ["looks like .* has other characters"], False


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


def _typed(value: str) -> Any:
    """Return a label as JSON and Parquet have it."""
    if re.fullmatch(r"-?\d+", value):
        return int(value)
    if re.fullmatch(r"\d+\.\d+", value):
        return float(value)
    return {"True": True, "False": False}.get(value, value)


def _lines(rng: Random, folder: Path) -> Case:
    """Draw JSON lines or an array."""
    rows = [{**row, "label": _typed(row["label"])} for row in _rows(rng)]
    if rng.random() < 0.3:
        rows = [{"id": number, "meta": {"a": [1]}, **row} for number, row in enumerate(rows)]
    form = rng.choice(["jsonl", "jsonl", "json"])
    ascii_only, end = rng.random() < 0.4, rng.choice(["\n", "\n", "\r\n"])
    fault = rng.choice(["", "", "", *LINE_FAULTS])
    at = rng.randrange(len(rows))
    words: tuple[str, ...] = ()
    if fault in ("null text", "null label", "no label", "a list as text", "nan label"):
        key = "text" if "text" in fault else "label"
        value = {"a list as text": ["a"], "nan label": float("nan")}.get(fault)
        rows[at] = {**rows[at], key: value}
        if fault == "no label":
            del rows[at]["label"]
        words = LINE_FAULTS[fault]
    texts = [json.dumps(row, ensure_ascii=ascii_only) for row in rows]
    if fault in ("cut short", "no object", "half a surrogate"):
        texts[at] = {
            "cut short": texts[at][: len(texts[at]) // 2],
            "no object": rng.choice(['"text"', "[1]" if form == "json" else "5", "null"]),
            "half a surrogate": json.dumps({**rows[at], "text": "a \ud83d b"}),
        }[fault]
        words = LINE_FAULTS[fault]
    if fault == "in several lines" and form == "jsonl":
        texts[at] = json.dumps(rows[at], indent=2)
        words = LINE_FAULTS[fault]
    elif fault == "in several lines":
        fault = ""
    if form == "jsonl":
        text = end.join([*texts, ""])
        if fault == "blank lines":
            text = end.join(["", *texts[:at], " ", *texts[at:], "", ""])
    else:
        inner = rng.choice([f",{end}", ", ", ","]).join(texts)
        text = rng.choice(["[{}]", "\n[\n{}\n]\n", "  [ {} ]"]).format(inner.replace("%", "%"))
        if fault == "blank lines":
            text = f"{end}{end}{text}{end}{end}"
    if not words and rng.random() < 0.06:  # as pandas writes a table by columns
        orient = rng.choice(["columns", "split", "index", "values", "table"])
        fault, words = f"pandas, {orient}", (r"expected|no column|malformed|missing",)
        text = pd.DataFrame(rows)[["text", "label"]].to_json(orient=orient)
    path = _save(folder, rng, form, text.encode(rng.choice(["utf-8", "utf-8-sig"])))
    expected = None
    if not words:
        content = _unpacked(path).decode("utf-8-sig")
        if form == "json":
            found = json.loads(content)
        else:
            parts = re.split(r"\r\n|\n", content)
            found = [json.loads(part) for part in parts if part.strip()]
        expected = [{"text": row["text"], "label": _named(row["label"])} for row in found], 0
    read = _labelled(path, SingleSentence)
    may = any(isinstance(row["label"], float) for row in rows if "label" in row)
    return Case(f"{form}: {fault or 'whole'}", path, read, expected, (*words, *MIXED), may)


LINE_FAULTS: dict[str, tuple[str, ...]] = {
    "blank lines": (),
    "null text": (r"(:|row )\d+: column 'text': is empty",),
    "null label": (r"(:|row )\d+: label: missing",),
    "no label": (r"(:|row )\d+: label: missing", "no column 'label'", "'label': is missing"),
    "nan label": (r"(:|row )\d+: .*[Nn]a[Nn]",),
    "a list as text": (r"(:|row )\d+: column 'text': found list",),
    "cut short": (r":\d+: malformed JSON", r"found \w+ .*expected a JSON object", "no rows"),
    "no object": (r"(:|row )\d+: found \w+ .*expected a JSON object",),
    "half a surrogate": (r"lone surrogate",),
    "in several lines": (r":\d+: malformed JSON",),
}
MIXED = ("never",)


def _named(label: Any) -> Any:
    return label.strip() if isinstance(label, str) else label if type(label) is float else str(label)


def _columnar(rng: Random, folder: Path) -> Case:
    """Draw Parquet, Arrow or Feather, by pandas or pyarrow."""
    form = rng.choice(["parquet", "parquet", "arrow"])
    rows = [{**row, "label": _typed(row["label"])} for row in _rows(rng)]
    frame = pd.DataFrame(rows)
    fault = rng.choice(["", "", "", "", "null text", "null label", "nan label", "cut short"])
    if rng.random() < 0.3:
        frame["label"] = frame["label"].astype("category")
    if rng.random() < 0.3:
        frame.index = pd.Index([f"r{number}" for number in range(len(frame))], name=None)
    at, words = rng.randrange(len(rows)), ()
    if fault == "null text":
        frame.loc[frame.index[at], "text"] = None
        words = (r"row \d+: column 'text': is empty",)
    elif fault == "null label":
        values: list[Any] = list(frame["label"])
        values[at] = None
        frame["label"] = pd.Series(values, index=frame.index, dtype=object)
        words = (r"row \d+: label: missing", "no row is left")
    elif fault == "nan label":
        frame["label"] = pd.Series([float("nan")] * len(rows), index=frame.index)
        words = ("[Nn]a[Nn]|missing|no row is left",)
    target = io.BytesIO()
    table = pa.Table.from_pandas(frame)
    if rng.random() < 0.2:
        index = table.column_names.index("text")
        table = table.set_column(index, "text", table["text"].cast(pa.large_string()))
    if form == "parquet":
        codec = rng.choice(["snappy", "zstd", "none"])
        pq.write_table(table, target, row_group_size=rng.choice([7, 1000]), compression=codec)
    elif rng.random() < 0.5:
        feather.write_feather(table, target, compression=rng.choice(["uncompressed", "lz4"]))
    else:
        with pa.ipc.new_stream(target, table.schema) as writer:
            writer.write_table(table, max_chunksize=rng.choice([5, 100]))
    data = target.getvalue()
    if fault == "cut short":
        data, words = data[: len(data) // 2], (f"not a readable {form.title()} file",)
    path = _save(folder, rng, form, data)
    expected = None
    if not words:
        content = pa.BufferReader(_unpacked(path))
        if form == "parquet":
            table = pq.read_table(content)
        else:
            try:
                table = pa.ipc.open_file(content).read_all()
            except pa.ArrowInvalid:
                table = pa.ipc.open_stream(pa.BufferReader(_unpacked(path))).read_all()
        found = table.to_pylist()
        expected = [{"text": row["text"], "label": _named(row["label"])} for row in found], 0
    read = _labelled(path, SingleSentence)
    return Case(f"{form}: {fault or 'whole'}", path, read, expected, (*words, *MIXED))


def _spans(rng: Random) -> list[tuple[str, int]]:
    kinds = ["O", "PER", "LOC", "ORG-X", "O"]
    return [(rng.choice(kinds), rng.choice([1, 1, 2, 3])) for _ in range(rng.choice([1, 3, 6]))]


def _tag(form: str, kind: str, place: int, size: int, touches: bool) -> str:
    """Return the tag of a word of an entity in a scheme."""
    if kind == "O":
        return "O"
    prefix = {
        "BIO": "B" if place == 0 else "I",
        "IOB1": "B" if place == 0 and touches else "I",
        "BIOES": "S" if size == 1 else "B" if place == 0 else "E" if place == size - 1 else "I",
        "BILOU": "U" if size == 1 else "B" if place == 0 else "L" if place == size - 1 else "I",
        "IO": "I",
    }[form]
    return f"{prefix}-{kind}"


SCHEMES = ["BIO", "BIO", "IOB1", "BIOES", "BILOU", "IO", "numbers", "other"]


def _tags(rng: Random, folder: Path) -> Case:
    """Draw sentences with tags: JSON lines, lists printed into CSV, Parquet, CoNLL's columns."""
    scheme = rng.choice(SCHEMES)
    words_of = SENTENCES[rng.choice([*SENTENCES])]
    rows = []
    for _ in range(rng.choice([1, 2, 5, 20])):
        words: list[str] = []
        tags: list[str] = []
        before = "O"
        for kind, size in _spans(rng):
            for place in range(size):
                words.append(rng.choice(rng.choice(words_of).split()))
                form = scheme if scheme in ("BIO", "IOB1", "BIOES", "BILOU", "IO") else "BIO"
                tag = _tag(form, kind, place, size, before == kind)
                tags.append(tag.replace("-", "_", 1) if scheme == "other" else tag)
            before = kind
        rows.append({"words": words, "tags": tags})
    names = sorted({tag for row in rows for tag in row["tags"]})
    if scheme == "numbers":
        rows = [{**row, "tags": [names.index(tag) for tag in row["tags"]]} for row in rows]
    form = rng.choice(["jsonl", "csv", "parquet", "conll"])
    fault = rng.choice(["", "", "", "a tag less"])
    at = rng.randrange(len(rows))
    if form == "conll" and at == 0 and len(rows[0]["words"]) == 1:
        fault = ""  # its one line says how many columns there are
    if fault and form != "conll":
        rows[at] = {**rows[at], "tags": rows[at]["tags"][:-1]}
    if form == "jsonl":
        data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    elif form == "csv":
        printed = rng.choice([repr, json.dumps])
        frame = pd.DataFrame([{key: printed(value) for key, value in row.items()} for row in rows])
        data = frame.to_csv(index=rng.random() < 0.3).encode()
    elif form == "parquet":
        target = io.BytesIO()
        pd.DataFrame(rows).to_parquet(target)
        data = target.getvalue()
    else:
        gap, columns = rng.choice([" ", "\t", "  "]), rng.choice([2, 4])
        lines = []
        for number, row in enumerate(rows):
            for place, (word, tag) in enumerate(zip(row["words"], row["tags"], strict=True)):
                cells = [word, *["x"] * (columns - 2), str(tag)]
                if fault and number == at and place == 0:
                    cells = cells[:-1]
                lines.append(gap.join(cells))
            lines += [""] * rng.choice([1, 1, 2])
        data = "\n".join(lines).encode()
    if form == "conll":
        path = folder / f"train.{rng.choice(['conll', 'bio', 'iob'])}"
        path.write_bytes(data)
    else:
        path = _save(folder, rng, form, data)
    expected_words = [[str(tag) for tag in row["tags"]] for row in rows]
    expected: tuple[list[Any], int] | None = (
        [
            {"words": row["words"], "tags": tags}
            for row, tags in zip(rows, expected_words, strict=True)
        ],
        0,
    )
    read = _labelled(path, Tagging)
    words_: tuple[str, ...] = ("tags",)
    if fault:
        expected = None
        words_ = (r"tags: found \d+ tags?.* \d+ words?|columns?", "tags")

    def checked() -> tuple[list[Any], int]:
        found, left = read()
        head = Tagging()
        examples = [Example(row, f"{path}:{n}") for n, row in enumerate(found)]
        head.labels = Labels.of(tag for row in examples for tag in head.labels_of(row))
        head.entity_types = entity_types(head.labels.names, "auto")
        if head.entity_types is None:
            check_plain(head.labels.names, head.labels.counts)
        for row, example in zip(found, examples, strict=True):
            head._tag_ids(example)
            # as seqeval's scorer of CoNLL finds them in the tags that were written
            with warnings.catch_warnings(action="ignore"):
                written = get_entities(row["tags"])
            here = [(each.type, each.start_word, each.end_word - 1) for each in entities(row["tags"])]
            assert here == written or head.entity_types is None, (here, written)
        return found, left

    kind = f"tags, {scheme}: {form}{', a tag less' if fault else ''}"
    may = scheme in ("BIOES", "BILOU", "numbers", "other", "IO")
    return Case(kind, path, checked, expected, words_, may_refuse=may)


def _answers(rng: Random, folder: Path) -> Case:
    """Draw questions: answers printed into CSV, in JSON lines or Parquet, some not where told."""
    sentences = SENTENCES[rng.choice([*SENTENCES])]
    rows, places = [], []
    for number in range(rng.choice([1, 3, 12])):
        context = " ".join(rng.choices(sentences, k=4))
        texts, starts, found = [], [], []
        for _ in range(rng.choice([0, 1, 1, 1, 3])):
            answer = rng.choice(context.split())
            start = context.index(answer)
            moved = rng.choice([0, 0, 0, 1, -1])
            if rng.random() < 0.1:
                answer, moved = "nowhere to be found", 0
            texts.append(answer)
            starts.append(max(0, start + moved))
            found.append(answer in context)
        rows.append(
            {
                "id": f"q{number}",
                "question": f"What is {number}?",
                "context": context,
                "answers": {"text": texts, "answer_start": starts},
            }
        )
        places.append(found)
    form = rng.choice(["jsonl", "csv", "parquet"])
    fault = rng.choice(["", "", "", "starts less", "start as text"])
    at, words = rng.randrange(len(rows)), ("answers",)
    if fault:
        given = rows[at]["answers"]
        if not given["text"] or form == "parquet":
            fault = ""
        elif fault == "starts less":
            given["answer_start"] = given["answer_start"][:-1]
        else:
            given["answer_start"] = [str(start) for start in given["answer_start"]]
    if form == "jsonl":
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    elif form == "csv":
        printed = rng.choice([repr, json.dumps])
        frame = pd.DataFrame([{**row, "answers": printed(row["answers"])} for row in rows])
        data = frame.to_csv(index=False).encode()
    else:
        target = io.BytesIO()
        pd.DataFrame(rows).to_parquet(target)
        data = target.getvalue()
    path = _save(folder, rng, form, data)
    read = _labelled(path, Span)

    def checked() -> tuple[list[Any], int]:
        found, left = read()
        for row, there in zip(found, places, strict=True):
            example, notes = Example(row, "x:1"), Counter[str]()
            for (text, start), is_there in zip(
                zip(*gold_answers(example), strict=True), there, strict=True
            ):
                at = _place(example, text, start, "locate", notes)
                assert (at is not None) == is_there, (row, text, start, at)
                assert at is None or row["context"].startswith(text, at)
        return found, left

    return Case(f"answers: {form} {fault}", path, checked, None if fault else (rows, 0), words)


def _several(rng: Random, folder: Path) -> Case:
    """Draw several labels a row: lists, printed lists, separators, columns of 0 and 1."""
    names = rng.choice([["toxic", "insult", "threat"], ["Food, drink", "Travel"], ["a", "b", "c d"]])
    rows = _rows(rng)
    held = [[name for name in names if rng.random() < 0.5] for _ in rows]
    held[0] = names[:1]
    separator = rng.choice(["|", ";", ","])
    form = rng.choice(["lists", "printed", "json printed", "names", "columns", "multi-hot"])
    columns: dict[str, Any] = {}
    given, ending = None, "csv"
    texts = [row["text"] for row in rows]
    if form == "lists":
        frame = pd.DataFrame({"text": texts, "labels": held})
        ending = rng.choice(["jsonl", "parquet"])
    elif form == "printed":
        frame = pd.DataFrame({"text": texts, "labels": [str(each) for each in held]})
    elif form == "json printed":
        frame = pd.DataFrame({"text": texts, "labels": [json.dumps(each) for each in held]})
    elif form == "names":
        frame = pd.DataFrame({"text": texts, "labels": [separator.join(each) for each in held]})
    elif form == "columns":
        number = rng.choice([int, float, bool])
        frame = pd.DataFrame(
            {"text": texts, **{n: [number(n in each) for each in held] for n in names}}
        )
        columns = {"labels": names}
        ending = rng.choice(["csv", "jsonl", "parquet"])
    else:
        hot = [[int(name in each) for name in names] for each in held]
        frame = pd.DataFrame({"text": texts, "labels": [str(each) for each in hot]})
        given = names if rng.random() < 0.6 else None
    if ending == "csv":
        data = frame.to_csv(index=False).encode()
    elif ending == "jsonl":
        data = frame.to_json(orient="records", lines=True, force_ascii=False).encode()
    else:
        target = io.BytesIO()
        frame.to_parquet(target)
        data = target.getvalue()
    path = _save(folder, rng, ending, data)
    settings: dict[str, Any] = {"names": given}
    comma = form == "names" and separator == "," and "Food, drink" in names
    if form == "names":
        settings["label_separator"] = separator
        if rng.random() < 0.5 and separator == "|" and any(len(each) > 1 for each in held):
            del settings["label_separator"]
    read = _labelled(path, MultiLabel, columns, **settings)
    rows_ = [{"text": t, "labels": [*each]} for t, each in zip(texts, held, strict=True)]
    expected: tuple[list[Any], int] | None = (rows_, 0)
    words: tuple[str, ...] = ("never",)
    kind = f"several labels: {form}"
    if form == "multi-hot" and given is None:
        expected, words, kind = None, ("label_names",), f"{kind} without names"
    if comma:  # a comma in names, between names: nobody can tell
        rows_ = [
            {"text": t, "labels": [p.strip() for p in separator.join(each).split(",") if p.strip()]}
            for t, each in zip(texts, held, strict=True)
        ]
        expected = (
            [{**r, "labels": list(dict.fromkeys(r["labels"]))} for r in rows_],
            0,
        )
    return Case(kind, path, read, expected, words)


def _corpus(rng: Random, folder: Path) -> Case:
    """Draw a corpus: rows of any format, a document each, some of them empty."""
    texts = [row["text"] for row in _rows(rng)]
    empty = {n for n in range(len(texts)) if rng.random() < 0.1}
    texts = ["" if n in empty else text for n, text in enumerate(texts)]
    form = rng.choice(["csv", "tsv", "jsonl", "json", "parquet", "txt", "txt"])
    column = rng.choice(["text", "body"])
    fault = rng.choice(["", "", "", "", "a bad byte", "another column"])
    if form == "tsv":
        texts = [re.sub(r"[\t\r\n\x0b\x0c\x85\u2028]", " ", text) for text in texts]
    frame = pd.DataFrame({"id": range(len(texts)), column: texts})
    match form:
        case "csv":
            data = frame.to_csv(index=False, sep=rng.choice(",;\t|")).encode()
        case "tsv":
            lines = [f"id\t{column}", *(f"{n}\t{text}" for n, text in enumerate(texts))]
            data = "\n".join([*lines, ""]).encode()
        case "jsonl" | "json":
            lines_ = form == "jsonl"
            data = frame.to_json(orient="records", lines=lines_, force_ascii=False).encode()
        case "parquet":
            target = io.BytesIO()
            frame.to_parquet(target)
            data = target.getvalue()
        case _:
            texts = [" ".join(text.split()) for text in texts]
            data = "\n\n".join(text for text in texts if text).encode()
    words: tuple[str, ...] = ("holds no text", "holds numbers", "no rows")
    if fault == "a bad byte" and form != "parquet":
        at = len(data) - 1
        data, words = data[:at] + b"\xff" + data[at:], ("not UTF-8 at byte offset",)
    elif fault == "another column" and form != "txt":
        column, words = "texts", ("no column 'texts'",)
    else:
        fault = ""
    if form == "txt":
        path = folder / f"corpus{rng.choice(['.txt', '.TXT', ''])}"
        path.write_bytes(data)
    else:
        path = _save(folder, rng, form, data)
    there = [text for text in texts if text.strip()]
    corpus_format = "sentences" if form == "txt" else "auto"
    if form == "csv":
        there = [text.replace("\r\n", "\n") for text in there]

    def read() -> tuple[list[Any], int]:
        corpus = Corpus([str(path)], format=corpus_format, text_column=column)
        raw = list(read_raw_documents(corpus, with_empty=True))
        found = [each.text for each in raw if each.text.strip()]
        return found, len(raw) - len(found)

    left = 0 if form == "txt" else len(texts) - len(there)
    expected = None if fault else (there, left)
    kind = f"corpus, {form}: {fault or 'whole'}"
    return Case(kind, path, read, expected, words, may_refuse=not there)


def _new_text(rng: Random, folder: Path) -> Case:
    """Draw rows to predict on: every column is given back, whatever it is."""
    rows = _rows(rng)
    form = rng.choice(["csv", "jsonl", "parquet", "txt"])
    big = rng.choice([2**63, 2**64 - 1, 7])
    table = [{"id": big, "": "x", "note": None, "text": row["text"]} for row in rows]
    if form == "txt":
        texts = [" ".join(row["text"].split()) for row in rows]
        path = folder / "new.txt"
        path.write_text("".join(f"{text}\n" for text in texts), "utf-8")
        expected = [({"text": text}, {"text": text}) for text in texts]
    else:
        frame = pd.DataFrame(table)
        if form == "csv":
            data = frame.to_csv(index=False).encode()
            given = [{"id": str(big), "": "x", "note": "", "text": row["text"]} for row in rows]
        elif form == "jsonl":
            data = "".join(json.dumps(row) + "\n" for row in table).encode()
            given = table
        else:
            target = io.BytesIO()
            frame.to_parquet(target)
            data, given = target.getvalue(), frame.to_dict("records")
        path = _save(folder, rng, form, data)
        expected = [({"text": row["text"]}, row) for row in given]

    def read() -> tuple[list[Any], int]:
        rows = stream_rows(str(path), {}, "auto", SingleSentence.columns)
        return [(dict(row.values), dict(row.row)) for row in rows], 0

    return Case(f"new text: {form}", path, read, (expected, 0), ("never",))
