"""Files of rows as people have them, drawn from a grammar, and what other libraries read in them.

A file is drawn by a seed: its format, dialect, encoding, packing, columns, forms of labels and at
most one fault. What it holds is read back with ``csv``, ``json``, ``pandas`` and ``pyarrow``, which
know how it was written. bertlab, which does not, reads the same rows, or refuses the file in one
message with its name and a place or a setting.
"""

import io
import json
import re
import warnings
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import feather
from seqeval.metrics.sequence_labeling import get_entities

from bertlab.api.examples import Example, Labels
from bertlab.data.corpus.corpus import Corpus, read_raw_documents
from bertlab.data.examples.source import stream_rows
from bertlab.heads.sentences import SingleSentence
from bertlab_tasks.multi_label import MultiLabel
from bertlab_tasks.span import Span
from bertlab_tasks.span_windows import _place, gold_answers
from bertlab_tasks.tag_schemes import check_plain, entities, entity_types
from bertlab_tasks.tagging import Tagging
from tests.reliability.realistic_rows import SENTENCES, Case, draw_rows, reader_of, save, unpacked
from tests.reliability.realistic_tables import draw_table


def draw(seed: int, folder: Path) -> Case:
    """Draw and write a file."""
    rng = Random(seed)
    families = [
        draw_table,
        draw_table,
        draw_table,
        _lines,
        _columnar,
        _tags,
        _answers,
        _several,
        _corpus,
    ]
    return rng.choice([*families, _new_text])(rng, folder)


def _typed(value: str) -> Any:
    """Return a label as JSON and Parquet have it."""
    if re.fullmatch(r"-?\d+", value):
        return int(value)
    if re.fullmatch(r"\d+\.\d+", value):
        return float(value)
    return {"True": True, "False": False}.get(value, value)


def _lines(rng: Random, folder: Path) -> Case:
    """Draw JSON lines or an array."""
    rows = [{**row, "label": _typed(row["label"])} for row in draw_rows(rng)]
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
    path = save(folder, rng, form, text.encode(rng.choice(["utf-8", "utf-8-sig"])))
    expected = None
    if not words:
        content = unpacked(path).decode("utf-8-sig")
        if form == "json":
            found = json.loads(content)
        else:
            parts = re.split(r"\r\n|\n", content)
            found = [json.loads(part) for part in parts if part.strip()]
        expected = [{"text": row["text"], "label": _named(row["label"])} for row in found], 0
    read = reader_of(path, SingleSentence)
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
    if type(label) is float:  # a whole one is the class that the int is
        return str(int(label)) if label.is_integer() else label
    return label.strip() if isinstance(label, str) else str(label)


def _columnar(rng: Random, folder: Path) -> Case:
    """Draw Parquet, Arrow or Feather, by pandas or pyarrow."""
    form = rng.choice(["parquet", "parquet", "arrow"])
    rows = [{**row, "label": _typed(row["label"])} for row in draw_rows(rng)]
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
    path = save(folder, rng, form, data)
    expected = None
    if not words:
        content = pa.BufferReader(unpacked(path))
        if form == "parquet":
            table = pq.read_table(content)
        else:
            try:
                table = pa.ipc.open_file(content).read_all()
            except pa.ArrowInvalid:
                table = pa.ipc.open_stream(pa.BufferReader(unpacked(path))).read_all()
        found = table.to_pylist()
        expected = [{"text": row["text"], "label": _named(row["label"])} for row in found], 0
    read = reader_of(path, SingleSentence)
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
        path = save(folder, rng, form, data)
    expected_words = [[str(tag) for tag in row["tags"]] for row in rows]
    expected: tuple[list[Any], int] | None = (
        [
            {"words": row["words"], "tags": tags}
            for row, tags in zip(rows, expected_words, strict=True)
        ],
        0,
    )
    read = reader_of(path, Tagging)
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
            here = [
                (each.type, each.start_word, each.end_word - 1) for each in entities(row["tags"])
            ]
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
    path = save(folder, rng, form, data)
    read = reader_of(path, Span)

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
    names = rng.choice(
        [["toxic", "insult", "threat"], ["Food, drink", "Travel"], ["a", "b", "c d"]]
    )
    rows = draw_rows(rng)
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
    path = save(folder, rng, ending, data)
    settings: dict[str, Any] = {"names": given}
    comma = form == "names" and separator == "," and "Food, drink" in names
    if form == "names":
        settings["label_separator"] = separator
        if rng.random() < 0.5 and separator == "|" and any(len(each) > 1 for each in held):
            del settings["label_separator"]
    read = reader_of(path, MultiLabel, columns, **settings)
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
    texts = [row["text"] for row in draw_rows(rng)]
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
        path = save(folder, rng, form, data)
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
    rows = draw_rows(rng)
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
        path = save(folder, rng, form, data)
        expected = [({"text": row["text"]}, row) for row in given]

    def read() -> tuple[list[Any], int]:
        rows = stream_rows(str(path), {}, "auto", SingleSentence.columns)
        return [(dict(row.values), dict(row.row)) for row in rows], 0

    return Case(f"new text: {form}", path, read, (expected, 0), ("never",))
