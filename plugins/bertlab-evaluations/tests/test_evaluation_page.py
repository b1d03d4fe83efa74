"""The page of ``bertlab evaluate``: what its tables say and its pictures show."""

import json

import numpy as np
import pytest
from scipy import stats

from bertlab.api import EvaluationResult, ScoreGrid
from bertlab.cli.main import main
from bertlab_evaluations.evaluation_page import Evaluated, write_pages
from bertlab_evaluations.evaluation_scores import score_groups
from bertlab_evaluations.minimal_pairs import MinimalPairs
from bertlab_evaluations.sentence_similarity import SentenceSimilarity
from tests.html_page import Page, assert_alone, squeeze

pytestmark = pytest.mark.usefixtures("real_svg")
NASTY = ("<script>alert('a')</script>", "{{ 7 * 7 }} {% if %}", '"><img src=x onerror=y>', "$a_$")


def evaluated(name="blimp", groups=("a", "a", "b", "b"), **more):
    result = EvaluationResult(
        metrics={"accuracy": 0.75, "ties": 0.25},
        scores=np.array([1.0, 0.0, 1.0, 1.0]),
        groups={"phenomenon": groups, "row": ("1", "2", "3", "4"), "same": ("x",) * 4},
        **more,
    )
    return Evaluated(name, "pairs.tsv", MinimalPairs(), result, score_groups(result))


def read(path):
    text = path.read_text("utf-8")
    return text, Page(text)


def wilson(right, rows):
    interval = stats.binomtest(right, rows).proportion_ci(method="wilson")
    return f"{interval.low:.1%}to{interval.high:.1%}"


def test_a_page_says_what_is_printed(tmp_path):
    grid = ScoreGrid("by layer", ["0", "1"], ["tags", "length"], np.array([[0.5, np.nan], [1, 0]]))
    found = evaluated(grids=[grid], notes=["1 tie counts one half"], pages={"maps.html": "<p>"})
    (file,) = write_pages(tmp_path, "runs/mini", [found])
    assert file == tmp_path / "blimp.html"
    text, page = read(file)
    assert_alone(text)
    for said in ("runs/mini", "4 rows of pairs.tsv", "1 tie counts one half", "50.0%", "25.0%"):
        assert said in page.text
    # accuracy, the groups of a kind, the cells of the grid
    assert f"accuracy75.0%{wilson(3, 4)}ties25.0%" in page.squeezed
    assert f"a250.0%{wilson(1, 2)}b2100.0%{wilson(2, 2)}" in page.squeezed
    assert "050.0%1100.0%0.0%" in page.squeezed
    assert page.tags["svg"] == 3  # two kinds of groups, a grid; not the kind of one group
    assert page.text.count("Dotted: chance, 50 %.") == 2
    assert "By same" not in page.text
    assert page.links.count("./blimp.maps.html") == 1


def test_scores_without_chance_or_percent(tmp_path):
    grid = ScoreGrid("by layer", ["0"], ["mean"], np.array([[0.25]]), share=False)
    result = EvaluationResult({"spearman": 0.5}, np.array([2.0, -1.0]), grids=[grid])
    found = Evaluated("sts", "x", SentenceSimilarity(), result, score_groups(result))
    text, page = read(write_pages(tmp_path, "m", [found])[0])
    assert_alone(text)
    assert page.tags["svg"] == 1
    assert "0.250" in page.text
    assert "%" not in page.text.partition("\n</style>")[2].replace("95 %", "")
    assert "chance" not in page.text


@pytest.mark.slow
def test_several_evaluations_have_a_page_each_and_one_of_all(tmp_path):
    files = write_pages(tmp_path, "m", [evaluated("one"), evaluated("two")])
    assert [file.name for file in files] == ["one.html", "two.html", "report.html"]
    text, page = read(files[2])
    assert_alone(text)
    assert page.tags["svg"] == 4
    assert page.tags["h2"] == 2
    assert text.count("4 rows of") == 2


@pytest.mark.slow
def test_names_are_shown_as_they_are_and_nothing_runs(tmp_path):
    grid = ScoreGrid(NASTY[0], NASTY[:2], NASTY[2:], np.array([[0.5, 0.25], [1, 0]]))
    found = evaluated(
        "x y", groups=NASTY, grids=[grid], notes=NASTY, pages={"javascript:alert(1)//<b>": "x"}
    )
    text, page = read(write_pages(tmp_path, NASTY[2], [found])[0])
    assert_alone(text)
    for name in NASTY:
        assert page.squeezed.count(squeeze(name)) >= 4  # chart, table, notes, grid


@pytest.mark.slow
def test_curves_of_the_checkpoints_along_a_run(tmp_path):
    lines = ["words,kind,group,rows,mean,low,high"]
    for words in (1_000_000, 10_000_000):
        for kind, group in (("all", ""), ("phenomenon", "<b>a</b>"), ("phenomenon", "b")):
            lines.append(f"{words},{kind},{group},2,0.5,0.25,0.75")
    (tmp_path / "blimp.words.csv").write_text("\n".join(lines) + "\n", "utf-8")
    text, page = read(write_pages(tmp_path, "m", [evaluated(), evaluated("other")])[0])
    assert_alone(text)
    assert page.tags["svg"] == 3
    assert "Against words seen, by phenomenon" in page.text
    shown = page.squeezed
    assert all(name in shown for name in ("allrows", "<b>a</b>", "wordsseen", "10M"))
    assert "Against words" not in read(tmp_path / "other.html")[1].text


def test_kinds_of_many_groups_and_large_grids_are_tables_only(tmp_path):
    many = [f"g{number}" for number in range(41)]
    grid = ScoreGrid("large", many, list(map(str, range(61))), np.ones((41, 61)))
    result = EvaluationResult({"accuracy": 1.0}, np.ones(41), {"kind": many}, grids=[grid])
    found = Evaluated("x", "x", MinimalPairs(), result, score_groups(result))
    _, page = read(write_pages(tmp_path, "m", [found])[0])
    assert page.tags["svg"] == 0
    assert page.tags["table"] == 3
    assert "g40" in page.text


@pytest.mark.slow
def test_the_command_writes_the_page(tiny_run, tmp_path, capsys):
    pairs = tmp_path / "order.jsonl"
    rows = [("a statement", "statement a", "x"), ("the name", "name the", "<b>y")]
    content = [{"good": good, "bad": bad, "field": field} for good, bad, field in rows]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in content), "utf-8")
    out = tmp_path / "out"
    arguments = ["--evaluation", "minimal_pairs", "--data", str(pairs), "--name", "order"]
    assert main(["evaluate", "--ckpt_path", str(tiny_run), *arguments, "--output", str(out)]) == 0
    assert str(out / "order.html") in capsys.readouterr().out
    text, page = read(out / "order.html")
    assert_alone(text)
    assert "<b>y" in page.text
    assert not (out / "report.html").exists()
