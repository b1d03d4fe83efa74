"""What the realistic files share: texts, labels, packing, and the comparison with bertlab."""

import bz2
import gzip
import io
import lzma
import re
import unicodedata
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from bertlab.data.examples.source import read_rows
from bertlab.data.examples.splits import check_truth
from bertlab.data.rows.tables import RowReading
from bertlab.errors import BertlabError

SENTENCES = {
    "English": [
        "The film is good",
        "It rains, again",
        'He said "no"',
        "5 o'clock; tea",
        "A|B test",
    ],
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
    "case": ["Yes", "No", "MAYBE"],
    "none": ["None", "some", "N/A"],
}


def _zip(data: bytes, name: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return packed.getvalue()


PACKERS: dict[str, Callable[[bytes, str], bytes]] = {
    ".gz": lambda data, _: gzip.compress(data),
    ".bz2": lambda data, _: bz2.compress(data),
    ".xz": lambda data, _: lzma.compress(data),
    ".zst": lambda data, _: pa.compress(data, "zstd", asbytes=True),
    ".zip": _zip,
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
    except Exception as error:
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


def draw_rows(rng: Random, pair: bool = False, label: str | None = None) -> list[dict[str, Any]]:
    """Draw rows with ``text`` (or ``text_a`` and ``text_b``) and ``label``."""
    sentences, form = SENTENCES[rng.choice([*SENTENCES])], rng.choice(["NFC", "NFD"])
    labels = LABELS[label or rng.choice([*LABELS])]
    rows = []
    for number in range(rng.choice([1, 2, 3, 6, 9, 40, 150])):

        def text(number: int = number) -> str:
            if rng.random() < 0.08:
                return rng.choice(ODD)
            several = " ".join(rng.choices(sentences, k=rng.choice([1, 1, 2, 5])))
            return unicodedata.normalize(form, f"{several} {number}"[: rng.choice([60, 400])])

        texts = {"text_a": text(), "text_b": text()} if pair else {"text": text()}
        rows.append({**texts, "label": rng.choice(labels)})
    return rows


def reader_of(
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


def save(folder: Path, rng: Random, form: str, data: bytes) -> Path:
    """Write a file, packed or not."""
    name = rng.choice(["train", "my data", "données", "a.b"]) + rng.choice(ENDINGS[form])
    if rng.random() < 0.25:
        packer = rng.choice([*PACKERS])
        data = PACKERS[packer](data, name)
        name += rng.choice([packer, packer.upper()])
    path = folder / name
    path.write_bytes(data)
    return path


def unpacked(path: Path) -> bytes:
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
