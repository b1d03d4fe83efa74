"""Which rows are not independent of others: by a named column, by the file, by the head."""

import json

import pytest

from bertlab.api.examples import Example
from bertlab.data.examples.splits import with_clusters
from bertlab.training.predictions import RowFile

from .labelled_files import PAIR, SINGLE, SPAN, TAGGING, fails, read, streamed, write

ROWS = "speaker\ttext\tlabel\nann\tA fine day.\tgood\nbob\tRain.\tbad\nann\tSnow.\tbad\n"


def clusters(location, wanted=SINGLE, **settings):
    return [row.cluster for row in read(location, wanted, **settings).rows]


def test_a_column_says_which_rows_belong_together(tmp_path):
    path = write(tmp_path / "a.tsv", ROWS)
    assert clusters(path) == ["", "", ""]
    assert clusters(path, cluster="speaker") == ["speaker:ann", "speaker:bob", "speaker:ann"]
    assert clusters(path, cluster="label") == ["label:good", "label:bad", "label:bad"]
    fails(read, path, cluster="speakr", matches=["a.tsv:2", "cluster", "'speakr'", "'speaker'"])
    lines = [{"text": "a", "label": "x", "story": 7}, {"text": "b", "label": "y"}]
    some = write(tmp_path / "a.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    fails(read, some, cluster="story", matches=["cluster: found no value of 'story'"])


def test_columns_without_names_are_told_by_place(tmp_path):
    path = write(tmp_path / "a.tsv", "ann\tA fine day.\tgood\nbob\tRain.\tbad\n")
    found = clusters(path, columns={"text": "1", "label": "2"}, header=False, cluster="0")
    assert found == ["0:ann", "0:bob"]


def test_documents_of_conll_are_found(tmp_path):
    text = "-DOCSTART- O\n\nEU B\n\nyes O\n\n-DOCSTART- O\n\nno O\n"
    path = write(tmp_path / "a.conll", text)
    start = f"document:{path}"
    assert clusters(path, TAGGING) == [f"{start}:3", f"{start}:3", f"{start}:9"]
    assert [list(row) for row in streamed(path, TAGGING)] == [["words", "tags"]] * 3
    gaps = write(tmp_path / "b.conll", "EU B\n\nyes O\n\n\n" * 20)
    assert clusters(gaps, TAGGING)[:3] == [*[f"document:{gaps}:1"] * 2, f"document:{gaps}:6"]
    few = write(tmp_path / "c.conll", "EU B\n\nyes O\n\n\n" * 19)  # may be there by mistake
    assert set(clusters(few, TAGGING)) == {""}


def test_rows_of_one_text_are_together_by_default():
    rows = [Example({"context": text, "question": "?"}, "") for text in ("a", "b", "a")]
    first, second, third = (row.cluster for row in with_clusters(rows, "context"))
    assert first == third != second
    assert first.startswith("context:")
    named = [Example({"context": "a"}, "", cluster="title:x")]
    assert [row.cluster for row in with_clusters(named, "context")] == ["title:x"]
    assert list(with_clusters(rows, None)) == rows


def test_questions_of_squad_have_their_paragraph(tmp_path):
    questions = [{"id": f"{n}", "question": "who", "answers": []} for n in range(2)]
    paragraphs = [{"context": text, "qas": questions} for text in ("a b", "c d")]
    document = {"data": [{"title": "x", "paragraphs": paragraphs}]}
    path = write(tmp_path / "dev.json", json.dumps(document))
    rows = read(path, SPAN, form="squad").rows
    found = [row.cluster for row in with_clusters(rows, "context")]
    assert [found.index(each) for each in found] == [0, 0, 2, 2]
    assert set(clusters(path, SPAN, form="squad", cluster="title")) == {"title:x"}


class Lines(list):
    write = list.append


@pytest.mark.parametrize(("cluster", "expected"), [("", None), ("story:7", "story:7")])
def test_predictions_say_the_cluster_of_a_row(cluster, expected):
    lines = Lines()
    values = {"text_a": "a", "text_b": "b", "label": "x"}
    RowFile(lines, [column.name for column in PAIR if column.is_truth]).write(
        Example(values, "", cluster=cluster), {"label": "y"}
    )
    assert lines[0].get("cluster") == expected
    assert lines[0]["gold"] == {"label": "x"}
