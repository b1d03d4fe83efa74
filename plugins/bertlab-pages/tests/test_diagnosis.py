"""Where a head is wrong: figures that can be counted by hand, for each kind of head."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bertlab.api import Example
from bertlab.extend import write_json
from bertlab_pages.diagnosis import WORST, diagnose, entities_of, word_overlap
from bertlab_pages.line_charts import Line, line_chart, ticks
from bertlab_pages.run_page import run_page
from bertlab_pages.run_records import DIAGNOSIS
from browser import complaints

Rows = list[tuple[dict[str, Any], dict[str, Any]]]
LONG = "Donaudampfschifffahrtsgesellschaftskapitaenswitwenrentenversicherung" * 2

CLASSES: Rows = [
    ({"text": "a", "label": "yes"}, {"label": "yes", "scores": {"yes": 0.9, "no": 0.1}}),
    ({"text": "b", "label": "yes"}, {"label": "no", "scores": {"yes": 0.2, "no": 0.8}}),
    ({"text": "c", "label": "no"}, {"label": "no", "scores": {"yes": 0.3, "no": 0.7}}),
    ({"text": LONG, "label": "no"}, {"label": "yes", "scores": {"yes": 0.99, "no": 0.01}}),
]
LABELS: Rows = [
    ({"text": "a", "labels": ["x", "y"]}, {"labels": ["x"], "scores": {"x": 0.9, "y": 0.4}}),
    ({"text": "b", "labels": []}, {"labels": ["y"], "scores": {"x": 0.1, "y": 0.7}}),
]
TAGS: Rows = [
    (
        {"words": ["in", "new", "york", "bob"], "tags": ["O", "B-LOC", "I-LOC", "B-PER"]},
        {"tags": ["O", "B-LOC", "I-LOC", "O"], "scores": [0.9, 0.8, 0.8, 0.6], "entities": []},
    ),
    (
        {"words": ["acme", "runs"], "tags": ["B-ORG", "O"]},
        {"tags": ["B-PER", "B-PER"], "scores": [0.9, 0.9], "entities": []},
    ),
]
NUMBERS: Rows = [
    ({"text": "a", "label": 1.0}, {"score": 1.5}),
    ({"text": "b", "label": "3"}, {"score": 0.0}),
]
ANSWERS: Rows = [
    (
        {"question": "where?", "context": "in paris", "answers": {"text": ["paris"]}},
        {"answer": "in paris", "n_best": [{"text": "in paris", "probability": 0.7}]},
    ),
    ({"question": "who?", "context": "bob", "answers": {"text": []}}, {"answer": ""}),
]
CHOICES: Rows = [
    (
        {"context": "he", "choices": ["ran", "sat"], "label": 0},
        {"label": 1, "choice": "sat", "scores": [0.3, 0.7]},
    )
]
OTHER: Rows = [({"source": "a", "target": "b"}, {"text": "c"})]


def diagnosis(rows: Rows) -> dict[str, Any]:
    truths = {"label", "labels", "tags", "answers", "target"}
    examples = [Example(values, f"rows.csv:{n}") for n, (values, _) in enumerate(rows, 2)]
    predictions: list[Mapping[str, Any]] = [prediction for _, prediction in rows]
    numbers = range(len(rows))
    tokens, cut = [5 + n for n in numbers], [2 * n for n in numbers]
    return diagnose(examples, predictions, truths, tokens, cut)


def test_classes() -> None:
    found = diagnosis(CLASSES)
    assert (found["kind"], found["rows"], found["wrong"]) == ("classes", 4, 2)
    assert found["classes"] == [["yes", 2, 2, 1], ["no", 2, 2, 1]]  # true, predicted, right
    assert sorted(found["confusions"]) == sorted(
        [["yes", "yes", 1], ["yes", "no", 1], ["no", "no", 1], ["no", "yes", 1]]
    )
    assert [row["where"] for row in found["worst"]] == ["rows.csv:5", "rows.csv:3"]  # surest first
    assert [row["cut"] for row in found["longest"]] == [6, 4, 2, 0]
    assert found["cut"] == {"rows": 3, "right": 1, "whole": 1, "whole_right": 1}
    sure = [bin for bin in found["calibration"] if bin[0] > 0.85]
    assert sure == [[pytest.approx(0.945), 0.5, 2]]


def test_several_labels() -> None:
    found = diagnosis(LABELS)
    assert found["classes"] == [["x", 1, 1, 1], ["y", 1, 1, 0]]
    by_threshold = {round(t, 2): rest for t, *rest in found["thresholds"]}
    # 0.9 and 0.7 are taken, of which one is right; of x and y one is found
    assert by_threshold[0.5] == [0.5, 0.5, 0.5]
    assert found["worst"][0]["prediction"] == "y"
    assert found["worst"][0]["truth"] == "none"


def test_entities_are_right_confused_missed_or_too_many() -> None:
    found = diagnosis(TAGS)
    assert sorted(found["confusions"]) == [
        ["", "PER", 1], ["LOC", "LOC", 1], ["ORG", "PER", 1], ["PER", "", 1],
    ]  # fmt: skip
    assert found["worst"][0]["truth"] == "acme: B-ORG, runs: O"
    assert found["worst"][0]["prediction"] == "acme: B-PER, runs: B-PER"


def test_numbers_answers_choices_and_what_is_not_known() -> None:
    assert diagnosis(NUMBERS)["points"] == [[1.0, 1.5], [3.0, 0.0]]
    assert [row["score"] for row in diagnosis(NUMBERS)["worst"]] == [3.0, 0.5]
    answers = diagnosis(ANSWERS)
    assert answers["wrong"] == 1
    assert answers["worst"][0]["prediction"] == "in paris"
    assert diagnosis(CHOICES)["worst"][0]["prediction"] == "sat"
    assert diagnosis(OTHER)["kind"] == "other"
    assert diagnosis([])["rows"] == 0
    assert len(diagnosis(CLASSES * 30)["worst"]) == WORST


def test_entities_of_bio_and_bioes() -> None:
    assert entities_of(["B-LOC", "I-LOC", "O", "S-PER"]) == [(0, 2, "LOC"), (3, 4, "PER")]
    assert entities_of(["I-A", "B-A", "E-A", "I-A"]) == [(0, 1, "A"), (1, 3, "A"), (3, 4, "A")]
    assert word_overlap("in Paris", "paris") == pytest.approx(2 / 3)


def test_charts() -> None:
    assert ticks(0, 0.9) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    assert line_chart("a", [Line("x", [1.0], [float("nan")])], ("step", "y")) is None
    chart = line_chart("<b>", [Line("<i>", [1, 2], [3.0, 1e9])], ("step", "y"))
    assert chart is not None
    assert "<b>" not in chart
    assert "<i>" not in chart
    assert line_chart("a", [Line("x", [5, 5], [0.0, 0.0])], ("step", "y")) is not None


@pytest.mark.slow
def test_nothing_of_the_page_is_cut_off_covered_or_pale(tiny_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    kinds = {"classes": CLASSES, "labels": LABELS, "tags": TAGS, "numbers": NUMBERS}
    many = [
        ({"text": "a", "label": LONG[:n]}, {"label": f"c{n}", "scores": {f"c{n}": 1.0}})
        for n in range(1, 41)
    ]
    kinds |= {"answers": ANSWERS, "choices": CHOICES, "other": OTHER, LONG: many}
    tasks = {name: {"step": 6, "all_rows": 9, **diagnosis(rows)} for name, rows in kinds.items()}
    tables = [("rows", [(LONG, LONG)])]
    write_json(run / DIAGNOSIS, {"tasks": tasks, "data": tables, "seconds": 4000.0, "steps": 6})
    assert complaints(run_page(run), tmp_path) == []


@pytest.mark.nightly
def test_the_measuring_finds_what_is_planted(tmp_path: Path) -> None:
    style = "<style>body { color-scheme: light dark; background: #fff }</style>"
    found = complaints(
        f"<!doctype html>{style}<p style='width: 800px'>{'word ' * 60}</p>"
        "<p style='color: #ddd'>pale</p>"
        "<p style='overflow: hidden; width: 4em; white-space: nowrap'>is clipped here</p>"
        "<p>one</p><p style='margin-top: -2.2em'>two</p>",
        tmp_path,
    )
    assert any(line.startswith("390 light: cut off: word") for line in found)
    assert not any(line.startswith("1280 light: cut off: word") for line in found)
    for what in (
        "the page is wider",
        "contrast",
        "cut off by what it is in: is clipped",
        "covered",
    ):
        assert any(what in line for line in found), what


def test_numbers_beside_an_axis_differ() -> None:
    chart = line_chart("loss", [Line("held out", [8, 12], [0.70131, 0.70128])], ("step", "loss"))
    assert chart is not None
    numbers = re.findall(r">(0\.70\d*)<", chart)
    assert len(numbers) > 2
    assert len({*numbers}) == len(numbers)
