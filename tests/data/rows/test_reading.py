"""Rows as people have them: one reader for corpora and labelled files."""

import bz2
import csv
import datetime
import gzip
import io
import json
import lzma
import random
import tracemalloc
import zipfile
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertlab import files as files_module
from bertlab.data.corpus.corpus import Corpus, read_raw_documents
from bertlab.data.examples.source import read_rows
from bertlab.data.rows import lines as lines_module
from bertlab.data.rows.lines import read_lines
from bertlab.data.rows.tables import RowReading, read_json
from bertlab.errors import CorpusError, DataError, OutOfMemoryError
from bertlab_tasks.arrow_rows import light_parts, read_arrow
from tests.data.examples.labelled_files import SINGLE, fails, read, values

ROWS = [{"text": f'Sentence, number {n}; it is "here".', "label": "ab"[n % 2]} for n in range(6)]
PLAIN = [{"text": f"Sentence number {n} is here.", "label": "ab"[n % 2]} for n in range(6)]
PACKERS = {
    "": lambda data, name: data,
    ".gz": lambda data, name: gzip.compress(data),
    ".bz2": lambda data, name: bz2.compress(data[:20]) + bz2.compress(data[20:]),
    ".xz": lambda data, name: lzma.compress(data[:20]) + lzma.compress(data[20:]),
    ".zst": lambda data, name: pa.compress(data, codec="zstd", asbytes=True),
    ".zip": lambda data, name: zipped({name: data}),
}


def zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def table(rows, **dialect):
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(rows[0]), **dialect)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def arrow(rows, form):
    out = io.BytesIO()
    found = pa.Table.from_pylist(rows)
    if form == "parquet":
        pq.write_table(found, out)
    else:
        make = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
        with make(out, found.schema) as writer:
            writer.write_table(found)
    return out.getvalue()


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


FILES = {
    "a.csv": table(ROWS),
    "a.CSV": table(ROWS, delimiter=";"),
    "a.jsonl": json_lines(ROWS),
    "a.NDJSON": json_lines(ROWS).replace(b"\n", b"\r\n"),
    "a.json": json.dumps(ROWS, indent=2).encode(),
    "a.tsv": "\n".join(
        "\t".join(row.values()) for row in [{"a": "text", "b": "label"}, *ROWS]
    ).encode(),
    "a.parquet": arrow(ROWS, "parquet"),
    "a.arrow": arrow(ROWS, "stream"),
    "a.feather": arrow(ROWS, "file"),
}


def texts_of_corpus(path, **options):
    return [raw.text for raw in read_raw_documents(Corpus([str(path)], **options), with_empty=True)]


@pytest.mark.parametrize("form", ["parquet", "file", "stream"])
@pytest.mark.parametrize(
    ("kind", "categories"),
    [
        (pa.float64(), [0.5, 2.0]),
        (pa.int8(), [1, 2]),
        (pa.string(), ["no", "yes"]),
        (pa.large_string(), ["no", "yes"]),
        (pa.date32(), [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)]),
        (pa.decimal128(3, 1), [Decimal("0.5"), Decimal("2.0")]),
        (pa.string_view(), ["no", "yes"]),
    ],
    ids=str,
)
def test_categories_of_any_kind(tmp_path, kind, categories, form):
    places = pa.array([0, 1, None, 1], pa.int8())
    column = pa.DictionaryArray.from_arrays(places, pa.array(categories, kind))
    path = tmp_path / "rows.arrow"
    rows = pa.table({"text": ["a", "b", "c", "d"], "label": column})
    if form == "parquet" and kind != pa.string_view():  # which Parquet cannot have
        path = tmp_path / "rows.parquet"
        pq.write_table(rows, path)
    else:
        new = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
        with new(path, rows.schema) as writer:
            writer.write_table(rows)
    rows_read = read_arrow(str(path), "parquet" if path.suffix == ".parquet" else "arrow").rows
    found = [row["label"] for _, row in rows_read]
    assert found == [categories[0], categories[1], None, categories[1]]


@pytest.mark.parametrize("groups", [[0, 2], [2, 0], [1, 0, 1]])
def test_row_groups_without_rows(tmp_path, groups):
    rows = pa.table({"text": ["a b", "c"], "label": ["x", "y"]})
    path, start = tmp_path / "rows.parquet", 0
    with pq.ParquetWriter(path, rows.schema) as writer:
        for count in groups:
            writer.write_table(rows.slice(start, count))
            start += count
    found = [row for _, row in read_arrow(str(path), "parquet").rows]
    assert found == rows.to_pylist()


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_column_that_is_there_twice(tmp_path, form):
    rows = pa.table([["a"], ["b"], ["x"]], names=["text", "text", "label"])
    path = tmp_path / f"rows.{form}"
    if form == "parquet":
        pq.write_table(rows, path)
    else:
        with pa.ipc.new_file(path, rows.schema) as writer:
            writer.write_table(rows)
    with pytest.raises(DataError, match=rf"rows\.{form}: has a column 'text' twice"):
        read_arrow(str(path), form)
    assert [row for _, row in read_arrow(str(path), form, ["label"]).rows] == [{"label": "x"}]


def test_many_views_of_one_text_are_few_rows_at_a_time(tmp_path):
    size, count = 2**20, 1000
    text = pa.array(["a " * (size // 2)], pa.string_view())
    _, view, shared = text.buffers()
    views = pa.Array.from_buffers(
        pa.string_view(), count, [None, pa.py_buffer(view.to_pybytes()[:16] * count), shared]
    )
    places = pa.array(range(count))
    parts = light_parts(pa.record_batch([views, places], ["text", "n"]), ["text", "n"], "a", 1)
    first = next(parts)
    assert len(first["text"]) * size <= files_module.reading_budget() // 16
    assert first["n"][:2] == [0, 1]
    small = pa.record_batch([pa.array(["a", None, "b"], pa.string_view())], ["text"]).slice(1)
    assert list(light_parts(small, ["text"], "a", 1)) == [{"text": [None, "b"]}]


@pytest.mark.parametrize("packed", PACKERS)
@pytest.mark.parametrize("name", FILES)
def test_corpora_and_labelled_files_read_the_same_rows(tmp_path, name, packed):
    path = tmp_path / (name + packed)
    path.write_bytes(PACKERS[packed](FILES[name], name))
    assert values(path) == ROWS
    assert texts_of_corpus(path) == [row["text"] for row in ROWS]


def test_a_zip_is_read_as_what_is_in_it(tmp_path):
    path = tmp_path / "rows.zip"
    path.write_bytes(zipped({"rows.csv": table(ROWS), "__MACOSX/._rows.csv": b"x"}))
    assert values(path) == ROWS
    assert len(texts_of_corpus(path)) == len(ROWS)
    path.write_bytes(zipped({"a.csv": table(ROWS), "b.csv": table(ROWS)}))
    fails(read, path, form="csv", matches="an archive of 2 files (a.csv, b.csv), expected one")
    with pytest.raises(CorpusError, match="an archive of 2 files"):
        texts_of_corpus(path)


@pytest.mark.parametrize("name", ["a.tar", "a.txt.7z", "a.TGZ", "a.csv.rar", "a.tar.gz"])
def test_what_is_packed_otherwise_is_named_so(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"x")
    with pytest.raises(CorpusError, match="is an archive; unpack it"):
        texts_of_corpus(path)
    fails(read, path, matches="is an archive; unpack it")


@pytest.mark.parametrize("packed", [".gz", ".bz2", ".xz", ".zst", ".zip"])
def test_damage_of_a_packed_file(tmp_path, packed):
    path = tmp_path / f"a.csv{packed}"
    rows = [{"text": f"{random.Random(n).random()}", "label": "a"} for n in range(3000)]
    whole = PACKERS[packed](table(rows), "a.csv")
    for damaged in (whole[: len(whole) // 2], whole[:10] + b"\xff" * 50 + whole[60:]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"a\.csv\.\w+: (damaged|cannot|not UTF-8|malformed)"):
            read(path)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_dialects(tmp_path, delimiter, end):
    path = tmp_path / "a.csv"
    path.write_bytes(table(ROWS, delimiter=delimiter, lineterminator=end))
    assert values(path) == ROWS
    assert texts_of_corpus(path) == [row["text"] for row in ROWS]


HEADERS = [
    ("id;text, as typed;label", {"text": "text, as typed"}, "1;It is so;a"),
    ('id;text;label;"notes, internal"', {}, '1;It is so;a;"checked, ok"'),
    ("id,text;x,label", {"text": "text;x"}, "1,It is so,a"),
    ("sep=;\nid;text;label", {}, "1;It is so;a"),
    ("\ufeffid|text|label", {}, "1|It is so|a"),
]


@pytest.mark.parametrize(("header", "columns", "row"), HEADERS)
def test_the_delimiter_is_found_in_more_than_the_first_line(tmp_path, header, columns, row):
    path = tmp_path / "a.csv"
    path.write_text("\n".join([header, *[row] * 3]), "utf-8")
    assert values(path, columns=columns) == [{"text": "It is so", "label": "a"}] * 3


@pytest.mark.parametrize("more", [",", "", ",,,"])
def test_rows_of_another_width_are_refused_by_line(tmp_path, more):
    path = tmp_path / "a.csv"
    lines = ["id,text,source", *[f"{n},A text of {n}.,web{',' * 0}" for n in range(3)]]
    lines[2:] = [line + more if more else "1,A text" for line in lines[2:]]
    path.write_text("\n".join(lines))
    with pytest.raises(CorpusError, match=r"a.csv:3: found \d comma-separated .*expected 3"):
        texts_of_corpus(path)
    fails(read, path, columns={"label": "source"}, matches=["a.csv:3: found", "data.delimiter"])


def test_cells_of_any_length(tmp_path):
    long = "word " * 60_000
    path = tmp_path / "a.csv"
    path.write_bytes(table([{"text": "a b", "label": "x"}, {"text": long, "label": "y"}]))
    assert values(path)[1]["text"] == long
    assert texts_of_corpus(path)[1] == long


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b'text,label\n"' + b"x\n" * 90_000),
        ("a.csv", b'text,label\n"' + b"x" * 140_000 + b'",a\n'),
        ("a.csv", b"text,label\n" + b"x" * 600_000),
        ("a.csv.gz", b"text,label\n" + "x😀".encode() * 90_000),
        ("a.csv.gz", b"text,label\n" + b'"a\nb",' * 100_000),
        ("a.csv.gz", b"text,label\n" + b"1," * 40_000),
        ("a.tsv.gz", b"text\tlabel\n" + b"1\t" * 40_000),
        ("a.jsonl", b'{"text": "' + b"x" * 600_000),
        ("a.jsonl", b'{"text": "a", "x": [' + b"[]," * 40_000 + b"[]]}"),
        ("a.json", b'[{"text": "' + b"x\\n" * 300_000),
        ("a.json", b'[{"text": "a", "x": [' + b"[]," * 40_000 + b"[]]}]"),
    ],
)
def test_a_bound_for_what_is_held_whole(tmp_path, monkeypatch, request, name, content):
    limit = csv.field_size_limit()  # of the whole process
    request.addfinalizer(lambda: csv.field_size_limit(limit))
    monkeypatch.setenv("BERTLAB_READING_MB", "1")
    monkeypatch.setattr(lines_module, "BLOCK", 10_000)
    monkeypatch.setattr(files_module, "_SMALL", 10_000)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    told = r"takes \d+ MB of memory, expected at most 1 MB|at most 131,072 characters, or more"
    with pytest.raises((DataError, OutOfMemoryError), match=f"{name}.*({told})"):
        read(tmp_path / name)


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize("packed", [".gz", ".bz2", ".xz", ".zst"])
def test_memory_is_bounded_while_unpacking(tmp_path, packed):
    path = tmp_path / f"bomb.csv{packed}"
    header, megabyte = b"text,label\n", (b"a text " * 12 + b",b\n") * 12_000
    parts = [PACKERS[packed](part, "bomb.csv") for part in (header, megabyte)]
    path.write_bytes(parts[0] + parts[1] * 36)
    tracemalloc.start()
    assert sum(1 for _ in read_lines(path)) == 36 * 12_000 + 1
    assert tracemalloc.get_traced_memory()[1] < 20 * 2**20  # of xz half of it is its own
    tracemalloc.stop()


@pytest.mark.slow
def test_an_array_is_read_as_it_comes(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("[" + ",\n".join(json.dumps(PLAIN[n % 6]) for n in range(60_000)) + "\n ]\n")
    tracemalloc.start()
    assert sum(1 for _ in read_json(path).rows) == 60_000
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()


relaxed = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
objects = st.lists(
    st.dictionaries(
        st.text(max_size=3), st.one_of(st.integers(), st.text(), st.none()), min_size=1
    ),
    min_size=1,
)


@pytest.mark.slow
@relaxed
@given(rows=objects, indent=st.sampled_from([None, 0, 2]), block=st.integers(1, 9))
def test_arrays_equal_those_of_json(tmp_path, rows, indent, block):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(rows, indent=indent))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_module, "BLOCK", block)
        assert [row for _, row in read_json(path).rows] == rows


@pytest.mark.parametrize("text", ["[", "[{}", "[{},", "[{},]", '[{"a": 1}] x', "[{} {}]", "[1]"])
def test_broken_arrays(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"malformed JSON|expected a JSON object"):
        list(read_json(path).rows)


@pytest.mark.parametrize("apart", [", ", ",\n"])
@pytest.mark.parametrize("wrong", ["{x}", '{"text"}', '{"a": 1}}'])
def test_a_mistake_in_an_array_has_the_line_and_column_that_json_tells(tmp_path, apart, wrong):
    rows = [f'{{"text": "number {n}"}}' for n in range(6_000)]  # more than is read at once
    text = f"[{apart.join([*rows, wrong])}]"
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(json.JSONDecodeError) as expected:
        json.loads(text)
    with pytest.raises(DataError) as found:
        list(read_json(path).rows)
    error = expected.value
    place = f"a.json:{error.lineno}: malformed JSON ({error.msg}, column {error.colno})"
    assert place in str(found.value)


cells = st.one_of(st.none(), st.sampled_from(["", " ", "A text.", "Another one, here.", 'A "b".']))


@relaxed
@given(
    rows=st.lists(st.fixed_dictionaries({"text": cells, "label": st.sampled_from(["a", "b", ""])})),
    name=st.sampled_from(["a.csv", "a.jsonl", "a.parquet"]),
)
def test_every_row_is_used_or_counted(tmp_path, rows, name):
    rows = [{"text": "A text.", "label": "a"}, *rows]
    path = tmp_path / name
    make = {"a.csv": table, "a.jsonl": json_lines, "a.parquet": lambda r: arrow(r, "parquet")}
    path.write_bytes(make[name](rows))
    found = read_rows(str(path), None, {}, "auto", SINGLE, None, RowReading(skip_empty=True))
    assert len(found.rows) + sum(found.skipped.values()) == len(rows)
    expected = [row for row in rows if (row["text"] or "").strip() and row["label"]]
    assert [row.values for row in found.rows] == expected
    assert len(texts_of_corpus(path)) == len(rows)


def shards(folder: Path, count=3, of=3, split="train"):
    for number in range(count):
        name = f"{split}-{number:05}-of-{of:05}.parquet"
        (folder / name).write_bytes(arrow(PLAIN[2 * number : 2 * number + 2], "parquet"))


def test_shards_and_patterns(tmp_path):
    shards(tmp_path)
    assert values(tmp_path, split="train") == PLAIN
    assert values(tmp_path / "train-*.parquet") == PLAIN
    assert values(tmp_path / "train-00001-of-00003.parquet") == PLAIN[2:4]
    (tmp_path / "train-00001-of-00003.parquet").unlink()
    fails(read, tmp_path, split="train", matches="train-00001-of-00003 is missing: found 2 of 3")
    fails(read, tmp_path / "no-*.csv", matches="no file matches this pattern")


@pytest.mark.parametrize("location", ["", "train-*.csv"])
def test_a_name_that_claims_very_many_shards_takes_no_memory(tmp_path, location):
    (tmp_path / "train-00000-of-02000000.csv").write_bytes(table(PLAIN))
    tracemalloc.start()
    words = "train-00001-of-02000000 is missing: found 1 of 2000000"
    fails(read, tmp_path / location, split="train", matches=words)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_shards_as_the_hub_lays_them(tmp_path):
    (tmp_path / "data").mkdir()
    shards(tmp_path / "data")
    (tmp_path / "README.md").write_text("A data set.")
    assert values(tmp_path, split="train") == PLAIN


def test_files_of_a_pattern_have_the_same_columns(tmp_path):
    (tmp_path / "a.csv").write_bytes(table(PLAIN))
    (tmp_path / "b.csv").write_bytes(table([{"text": "a", "class": "b"}]))
    fails(read, tmp_path / "*.csv", matches=["b.csv: has columns 'text', 'class', expected"])
