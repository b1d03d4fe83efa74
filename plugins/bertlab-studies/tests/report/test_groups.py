"""Scores by group of a study: from the files of its runs to heat maps, tables, curves and CSV."""

import csv
import io
import json
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from bertlab_pages.plot_axes import SETTINGS
from bertlab_studies.errors import StudyError
from bertlab_studies.plan.study_file import BASE
from bertlab_studies.report.collect import collect
from bertlab_studies.report.group_report import (
    difference_of,
    group_csv_files,
    group_figures,
    group_tables,
    mean_of,
)
from bertlab_studies.report.plots import pictures
from bertlab_studies.report.render import html, latex, markdown, write_report
from bertlab_studies.report.report import report_of
from bertlab_studies.study import Study
from bertlab_studies.study_scores import GroupScores, Measure, StudyScores
from made_up_scores import PHENOMENA, add_groups, made_up_study
from small_study import finish, opened
from tests.html_page import Page, assert_alone, squeeze

ENTRY = {"evaluation": "minimal_pairs", "data": "pairs.jsonl"}
FIELDS = ("b", "a", "b", "b")
WORDS = "words,kind,group,rows,mean,low,high\n"


def leave(
    study: Study, variant: str, seed: int, scores: list[float | None], words: str = ""
) -> None:
    """Leave what ``bertlab evaluate`` leaves."""
    run = study.planned.run_of(variant, "blimp", seed)
    known = [each for each in scores if each is not None]
    finish(study, run, {"blimp/accuracy": float(np.mean(known))})
    folder = run.directory(study.study_dir)
    rows = [
        {"row": number, "score": score, "field": field, "detail": 1.5}
        for number, (score, field) in enumerate(zip(scores, FIELDS, strict=False))
    ]
    (folder / "blimp.rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "blimp.groups.csv").write_text("kind,group\nall,\nfield,b\nfield,a\n", "utf-8")
    if words:
        (folder / "blimp.words.csv").write_text(WORDS + words, "utf-8")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return opened(tmp_path, evaluate={"blimp": ENTRY})


def collected(study: Study) -> StudyScores:
    return collect(study.config, study.planned, study.study_dir)


def test_values_of_a_report_are_over_the_rows_that_all_runs_scored(study: Study) -> None:
    leave(study, "both", 1, [1.0, 0.5, 0.0, 1.0])
    leave(study, "mlm", 1, [0.0, None, 1.0, 1.0])
    found = study.scores()
    assert found.variants["both"].cells["blimp accuracy"].values == {1: pytest.approx(2 / 3)}
    assert found.variants["mlm"].cells["blimp accuracy"].values == {1: pytest.approx(2 / 3)}
    (line,) = [each for each in report_of(found).warnings if "could not score" in each]
    assert line.startswith("blimp accuracy: 1 rows that some run could not score are left out")
    leave(study, "mlm", 2, [None, 0.0, None, None])
    with pytest.raises(StudyError, match=r"study study: blimp accuracy: no row was scored by all"):
        study.scores()


def test_means_are_over_the_rows_that_all_runs_scored(study: Study) -> None:
    leave(study, "both", 1, [1.0, 0.5, 0.0, 1.0])
    leave(study, "both", 2, [1.0, 1.0, 1.0, None])
    leave(study, "mlm", 2, [0.0, 0.0, 1.0, 1.0])
    found = collected(study)
    (groups,) = found.groups
    assert (groups.measure.name, groups.kind) == ("blimp accuracy", "field")
    assert (groups.groups, groups.rows) == (["b", "a"], [2, 1])
    means = {
        variant: {seed: values.tolist() for seed, values in by_seed.items()}
        for variant, by_seed in groups.means.items()
    }
    assert means == {"both": {1: [0.5, 0.5], 2: [1.0, 1.0]}, "mlm": {2: [0.5, 0.0]}}
    assert mean_of(groups, "both").tolist() == [0.75, 0.75]
    # seed 2 only: the other has no pair
    assert difference_of(groups, "mlm", "both").tolist() == [-0.5, -1.0]
    assert found.group_curves == []


def test_any_metric_may_decide_and_runs_without_files_are_left_out(tmp_path: Path) -> None:
    study = opened(tmp_path, evaluate={"blimp": ENTRY | {"metric": "field_accuracy"}})
    run = study.planned.run_of("both", "blimp", 1)
    finish(study, run, {"blimp/field_accuracy": 0.75})
    assert collected(study).groups == []
    leave(study, "both", 2, [1.0, 0.5, 0.0, 1.0])
    leave(study, "mlm", 1, [1.0, 0.5])  # of other data
    for number in (("both", 2), ("mlm", 1)):
        directory = study.planned.run_of(number[0], "blimp", number[1]).directory(study.study_dir)
        (directory / "results.json").write_text('{"blimp/field_accuracy": 0.5}')
    (groups,) = collected(study).groups
    assert groups.measure.metric == "accuracy"
    assert {variant: list(by_seed) for variant, by_seed in groups.means.items()} == {"both": [2]}


def test_curves_by_kind_group_variant_and_seed(study: Study) -> None:
    lines = "".join(
        f"{words},{kind},{group},2,{0.5 + words / 1e8},0.1,0.9\n"
        for words in (10_000_000, 1_000_000)
        for kind, group in (("all", ""), ("field", "a"), ("field", "b"))
    )
    leave(study, "both", 1, [1.0, 0.5, 0.0, 1.0], words=lines)
    leave(study, "mlm", 1, [1.0, 0.5, 0.0, 1.0])
    (found,) = collected(study).group_curves
    assert found.chance == 0.5
    assert list(found.curves) == ["all", "field"]
    curve = found.curves["field"]["a"]["both"][1]
    assert (curve.steps, curve.values) == ([1_000_000, 10_000_000], [0.51, 0.6])
    assert list(found.curves["all"][""]) == ["both"]


def test_a_study_of_fine_tunings_has_none(tmp_path: Path) -> None:
    study = opened(tmp_path, evaluate={"x": "task.yaml"})
    finish(study, study.planned.run_of("both", BASE, 1), {"mlm/loss": 5.0})
    found = collected(study)
    assert (found.groups, found.group_curves) == ([], [])


def small() -> StudyScores:
    study = made_up_study(seeds=2, names=("base", "other", "none"))
    means = {
        "base": {1: np.array([0.5, 0.25]), 2: np.array([0.75, 0.25])},
        "other": {2: np.array([0.5, 0.5])},
    }
    study.groups.append(
        GroupScores(Measure("blimp", "accuracy"), "field", ["x", "y"], [8, 4], means)
    )
    return study


def test_the_table_has_means_and_differences() -> None:
    (table,) = group_tables(small())
    assert table.title == "blimp by field"
    assert table.grid.headings == (("field",), ("rows",), ("base",), ("other",), ("none",))
    assert table.grid.rows == (
        ("x", "8", "62.5", "50.0 (−25.0)", "–"),
        ("y", "4", "25.0", "50.0 (+25.0)", "–"),
    )
    assert "percentage points of accuracy" in table.legend


def test_the_csv_has_every_kind() -> None:
    study = small()
    many = [f"g{number}" for number in range(67)]
    means = {"base": {1: np.full(67, 0.5)}}
    study.groups.append(
        GroupScores(Measure("blimp", "accuracy"), "paradigm", many, [1] * 67, means)
    )
    assert [table.title for table in group_tables(study)] == ["blimp by field"]
    ((name, text),) = group_csv_files(study).items()
    assert name == "groups_blimp.csv"
    lines = text.splitlines()
    assert lines[:5] == [
        "kind,group,rows,variant,seeds,mean,lowest,highest,difference",
        "field,x,8,base,2,0.625,0.5,0.75,",
        "field,y,4,base,2,0.25,0.25,0.25,",
        "field,x,8,other,1,0.5,0.5,0.5,-0.25",
        "field,y,4,other,1,0.5,0.5,0.5,0.25",
    ]
    assert len(lines) == 5 + 67
    assert lines[5] == "paradigm,g0,1,base,1,0.5,0.5,0.5,"


def test_the_heat_map_has_means_above_differences() -> None:
    with mpl.rc_context(SETTINGS):
        ((name, caption, figure),) = group_figures(small())
    assert name == "heat_map blimp field"
    assert "difference to base in percentage points: blue is better" in caption
    means, changes = figure.axes
    assert [text.get_text() for text in means.texts] == ["62.5", "25.0", "50.0", "50.0"]
    assert [text.get_text() for text in changes.texts] == ["−25.0", "+25.0"]
    assert [label.get_text() for label in means.get_yticklabels()] == ["base", "other", "none"]
    assert [label.get_text() for label in changes.get_yticklabels()] == ["other", "none"]


def test_one_variant_and_scores_that_are_no_shares() -> None:
    study = made_up_study(seeds=1, names=("only",))
    measure = Measure("sts", "spearman", is_share=False)
    means = {"only": {1: np.array([0.5, -0.25])}}
    study.groups.append(GroupScores(measure, "genre", ["x", "y"], [8, 4], means))
    (table,) = group_tables(study)
    assert table.grid.rows == (("x", "8", "0.500"), ("y", "4", "−0.250"))
    with mpl.rc_context(SETTINGS):
        ((_, caption, figure),) = group_figures(study)
    assert len(figure.axes) == 1
    assert "difference" not in caption
    assert "percent" not in caption + table.legend


def test_the_band_goes_from_the_lowest_to_the_highest_seed() -> None:
    study = add_groups(made_up_study(seeds=3, names=("a", "b")))
    with mpl.rc_context(SETTINGS):
        _, (name, caption, figure) = group_figures(study)
    assert name == "words blimp phenomenon"
    assert "a band from the lowest to the highest, and a thin line for each. Dotted:" in caption
    panels = figure.axes
    assert [axes.get_title() for axes in panels] == ["all rows", *PHENOMENA]
    for group, axes in zip(PHENOMENA, panels[1:], strict=True):
        by_seed = study.group_curves[0].curves["phenomenon"][group]["b"]
        values = np.array([curve.values for curve in by_seed.values()])  # (seeds, words)
        *_, one, two, three, mean, _ = axes.lines  # of the last variant, and chance
        assert np.allclose(mean.get_ydata(), values.mean(0))
        assert [list(line.get_ydata()) for line in (one, two, three)] == values.tolist()
        edges = axes.collections[1].get_paths()[0].vertices
        last = edges[edges[:, 0] == 1e8, 1]
        assert (last.min(), last.max()) == pytest.approx((values[:, -1].min(), values[:, -1].max()))


NASTY = ("<script>alert('a')</script>", "../{{ 7 * 7 }}", '"><img src=x onerror=y>', "_50% & $x$")


def nasty() -> StudyScores:
    study = add_groups(made_up_study(seeds=2, names=("a", NASTY[0])), NASTY)
    (groups,), (curves,) = study.groups, study.group_curves
    groups.measure = curves.measure = Measure(NASTY[2], "accuracy")
    groups.kind = NASTY[1]
    curves.curves[NASTY[1]] = curves.curves.pop("phenomenon")
    return study


@pytest.mark.nightly
def test_names_are_shown_as_they_are_and_nothing_runs(real_svg: None) -> None:
    study = nasty()
    report = report_of(study)
    drawn = pictures(study, report.comparisons[0])
    text = html(report, drawn)
    assert_alone(text)
    page = Page(text)
    assert page.tags["svg"] == 5
    for name in NASTY:
        assert page.squeezed.count(squeeze(name)) >= 3  # heat map, curves, table


@pytest.mark.slow
def test_files_have_names_of_letters_and_digits(tmp_path: Path) -> None:
    files = write_report(report_of(nasty()), tmp_path / "report")
    assert sorted(file.name for file in files) == sorted(
        path.name for path in (tmp_path / "report").iterdir()
    )
    others = [file for file in files if file.suffix != ".pdf"]
    assert [file.name for file in others][-3:] == [
        "heat_map_img_src_x_onerror_y_7_7.svg",
        "words_img_src_x_onerror_y_7_7.svg",
        "groups_img_src_x_onerror_y.csv",
    ]
    rows = list(csv.DictReader(io.StringIO(others[-1].read_text("utf-8"))))
    assert {row["group"] for row in rows} == set(NASTY)
    assert {row["variant"] for row in rows} == {"a", NASTY[0]}


@pytest.mark.slow
def test_every_format_has_the_table() -> None:
    report = report_of(small())
    assert "| x | 8 | 62.5 | 50.0 (−25.0) | – |" in markdown(report)
    assert r"x & 8 & 62.5 & 50.0 ($-$25.0) & -- \\" in latex(report)
    assert "blimp by field" in Page(html(report)).text
    assert "blimp by" not in markdown(report_of(made_up_study(names=("a", "b"))))


@pytest.mark.slow
def test_several_studies_have_files_of_their_own(tmp_path: Path) -> None:
    one, two = small(), small()
    two.name = "second"
    files = write_report(report_of(one, two), tmp_path)
    names = [file.name for file in files]
    assert {"1_groups_blimp.csv", "2_groups_blimp.csv", "2_heat_map_blimp_field.svg"} <= set(names)
    assert "second: blimp by field" in Page(files[0].read_text("utf-8")).text
