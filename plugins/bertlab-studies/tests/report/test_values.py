"""A study's figures as CSV and JSON: read back, they are those of the scores and comparisons."""

import csv
import io
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertlab_pages.spreadsheets import spreadsheet_csv
from bertlab_studies.report.report import report_of
from bertlab_studies.report.values import report_json, run_values, values_csv
from bertlab_studies.study_scores import StudyScores
from made_up_scores import add_repeats, made_up_study

NUMBER = "mlm loss"


@pytest.fixture
def study() -> StudyScores:
    """One with a missing run, a degenerate one and one that is not finite."""
    study = made_up_study()
    del study.variants["mlm"].cells["mrpc f1"].values[2]
    study.variants["ltr"].cells["qnli accuracy"].degenerate[3] = "one class for every row"
    study.variants["ltr"].cells[NUMBER].values[4] = math.inf
    study.analysis_sha256 = "ab" * 32
    return study


def read_csv(*studies: StudyScores) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(values_csv(studies), newline="")))


def refuse(constant: str) -> float:
    raise AssertionError(f"{constant} is no JSON")


def read_json(*studies: StudyScores) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(report_json(report_of(*studies)), parse_constant=refuse)
    return content


def test_csv_has_a_line_for_each_variant_measure_and_seed(study: StudyScores) -> None:
    lines = read_csv(study)
    assert len(lines) == 3 * 3 * 5
    for line in lines:
        values = study.variants[line["variant"]].cells[line["measure"]].values
        expected = values.get(int(line["seed"]))
        assert line["value"] == ("" if expected is None else repr(expected))
        assert (line["study"], line["finetune_seed"]) == ("nsp", "")
    failed = {
        (e["variant"], e["measure"], e["seed"], e["degenerate"])
        for e in lines
        if e["failed"] == "True"
    }
    assert failed == {
        ("ltr", "qnli accuracy", "3", "one class for every row"),
        ("ltr", NUMBER, "4", ""),
    }
    assert {line["failed"] for line in lines} == {"True", "False"}


def test_csv_has_a_line_for_each_fine_tuning_and_one_for_each_pre_training() -> None:
    study = add_repeats(made_up_study(seeds=3), finetunings=2)
    for found in study.variants.values():
        found.cells[NUMBER].repeats = {}  # of the pre-training
    del study.variants["mlm"].cells["mrpc f1"].repeats[2][1]
    lines = read_csv(study)
    assert len(lines) == 3 * (2 * 3 * 2 + 3)
    for line in lines:
        cell = study.variants[line["variant"]].cells[line["measure"]]
        seed = int(line["seed"])
        if line["measure"] == NUMBER:
            assert (line["finetune_seed"], line["value"]) == ("", repr(cell.values[seed]))
        else:
            expected = cell.repeats[seed].get(int(line["finetune_seed"]))
            assert line["value"] == ("" if expected is None else repr(expected))


def test_csv_joins_studies(study: StudyScores) -> None:
    lines = read_csv(study, made_up_study(seeds=2, names=("a", "b"), name="other"))
    assert [line["study"] for line in lines] == ["nsp"] * 45 + ["other"] * 12


@settings(max_examples=25)
@given(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=12),
    st.sampled_from(["", "=", "+", "-", "@", "\t", "\r\n", "'", "＝"]),
    st.floats(),
)
def test_no_spreadsheet_runs_a_cell_and_each_name_can_be_had_back(
    name: str, start: str, value: float
) -> None:
    text = spreadsheet_csv(("name", "value"), [(start + name, value), (name, None)])
    _, (shown, number), (plain, nothing) = csv.reader(io.StringIO(text, newline=""))
    assert shown.removeprefix("'") == start + name
    assert plain.removeprefix("'") == name
    assert not shown.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"))
    assert number == repr(value)  # a negative number is one
    assert nothing == ""


def test_json_has_the_comparisons(study: StudyScores) -> None:
    (compared,) = report_of(study).comparisons
    content = read_json(study)
    (found,) = content["studies"]
    assert (content["schema"], found["analysis_sha256"]) == (2, "ab" * 32)
    assert len(found["comparisons"]) == len(compared) == 6
    for each in found["comparisons"]:
        one = compared[each["variant"], each["measure"]]
        names = ("difference", "low", "high", "p", "p_adjusted", "detectable", "significant")
        assert [each[name] for name in names] == [getattr(one, name) for name in names]
        assert (each["runs"], each["rows"]) == ([*one.runs], None)
        assert each["of_learned"] == (one.decided is not one)
        assert (each["learned"] is None) == (one.failures is None)
        if one.failures is not None:
            assert each["learned"]["difference"] == one.without_failed.difference
            assert each["learned"]["failed"] == [*one.failures.failed]
    assert [each["significant"] for each in found["comparisons"]] == [
        one.significant for one in compared.values()
    ]
    assert content["findings"] == list(report_of(study).findings)
    assert content["warnings"] == list(report_of(study).warnings)


def test_json_is_strict_and_has_the_values(study: StudyScores) -> None:
    (found,) = read_json(study)["studies"]
    expected = list(run_values(study))
    assert len(found["values"]) == len(expected) == 45
    for each, one in zip(found["values"], expected, strict=True):
        finite = one.value is not None and math.isfinite(one.value)
        assert each["value"] == (one.value if finite else None)
        assert (each["variant"], each["seed"], each["failed"]) == (
            one.variant,
            one.seed,
            one.failed,
        )
    (lost,) = (each for each in found["values"] if each["measure"] == NUMBER and each["failed"])
    assert lost["value"] is None
    assert [each["name"] for each in found["measures"]] == ["qnli accuracy", "mrpc f1", NUMBER]
    assert found["variants"][0]["flops"] == 3.1e16


@pytest.mark.slow
@settings(max_examples=25)
@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12))
def test_json_has_names_as_they_are(name: str) -> None:
    study = made_up_study(seeds=2, names=("the baseline", name), name=name)
    (found,) = read_json(study)["studies"]
    assert found["name"] == name
    assert [each["name"] for each in found["variants"]] == ["the baseline", name]
    assert {each["variant"] for each in found["comparisons"]} == {name}


def test_files_have_the_same_bytes_again(study: StudyScores) -> None:
    assert values_csv([study]) == values_csv([study])
    assert report_json(report_of(study)) == report_json(report_of(study))
