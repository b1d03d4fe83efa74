"""Names and texts of others, in all that is written: shown as they are, and never run."""

import csv
import io
import json
import re
import shlex
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bertlab.api import EvaluationResult, ScoreGrid
from bertlab.config.yaml_files import read_config
from bertlab.errors import say
from bertlab.files import utf8
from bertlab.training.callbacks import how_to_resume
from bertlab.training.predictions import json_line
from bertlab_evaluations.entries import why_no_file_name
from bertlab_evaluations.evaluation_output import write_evaluation
from bertlab_evaluations.evaluation_page import Evaluated, write_pages
from bertlab_evaluations.evaluation_scores import score_groups
from bertlab_evaluations.minimal_pairs import MinimalPairs
from bertlab_pages.spreadsheets import spreadsheet_csv, spreadsheet_rows
from bertlab_studies.execute.executor import go_on_with
from bertlab_studies.folder import keep_content
from bertlab_studies.report import plots
from bertlab_studies.report.render import latex, print_report, write_report
from bertlab_studies.report.report import report_of
from bertlab_studies.study_scores import Measure, StudyScores
from bertlab_studies.tables import Table
from made_up_scores import add_groups, made_up_study
from small_study import plan_of
from tests.html_page import Page, assert_alone, assert_only_script

PARTS = (
    *("<script>x()</script>", "<img src=x onerror=x()>", "</title>", "-->", "&lt;", '" onclick="x'),
    *("\\input{/etc/passwd}", "\\write18{x}", "$x$", "%", "^^5c", "_", "{", "}", "--", "[", "]"),
    *("=1+1", "+1", "@SUM(A1)", "-1", "\t=1", ";", ",", '"', "'", "`x`", "[x](javascript:x)"),
    *("$(touch x)", "`touch x`", "; rm -rf x", "|", "&", ">x", "*", "~", "!", "\\"),
    *("\n", "\r", "\r\n# x", "\x1b[2J", "\x1b]0;x\x07", "\x9b31m", "\x00", "\x7f"),
    *("\u202e", "\u2028", "\udcff", "../../x", "a/b", ".", "..", "[/b]", "[red]"),
    *("{{ 7 * 7 }}", "<< 7 >>", "汉", "a", " ", "x" * 300),
)  # fmt: skip
NAMES = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("".join)
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
# of a terminal's and a text's; the line break is printed
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# how LaTeX is given what would have a meaning in it
ESCAPES = {
    *("textbackslash", "textasciitilde", "textasciicircum", "textasciigrave", "textless"),
    *("textgreater", "textbar", "symbol"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder for all examples; nothing may appear outside of those that they write to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "pdf_of", lambda _: b"%PDF")  # of which no text is read here
        yield tmp_path_factory.mktemp("names")


def files_in(folder: Path) -> dict[str, str]:
    """Return the texts of a folder's files; each has a name that a shell takes as it is."""
    found = {}
    for path in folder.iterdir():
        assert path.is_file()
        assert FILE_NAME.fullmatch(path.name)
        if path.suffix != ".pdf":
            found[path.name] = path.read_text("utf-8")  # strict
    return found


def assert_no_formula(text: str) -> None:
    for line in csv.reader(io.StringIO(text, newline=""), strict=True):
        for cell in line:
            begins = cell[:1] in tuple("=+-@\t\r\n")
            assert not (cell and begins) or re.fullmatch(r"-?[\d.e+-]+|-?inf", cell), cell


def assert_no_markup(markdown: str) -> None:
    """Fail if Markdown has HTML, links or code but those of the report itself."""
    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        assert token.type != "html_block"
        for child in token.children or []:
            assert child.type != "html_inline"
            if child.type in ("link_open", "image"):
                address = child.attrs.get("href") or child.attrs["src"]
                assert FILE_NAME.fullmatch(str(address)), address


def commands(text: str) -> set[str]:
    return set(re.findall(r"\\([A-Za-z]+)", text.replace("\\\\", "")))


def nasty_study(names: list[str], task: str) -> StudyScores:
    study = made_up_study(seeds=2, names=tuple(names[:2]), name=names[2])
    study.measures[0] = Measure(task, "accuracy")
    for found in study.variants.values():
        found.cells[study.measures[0].name] = found.cells["qnli accuracy"]
        found.settings[names[2]] = names[1]
        found.failures.append(names[2])
        found.curves = {}
    study.manifest["command"] = names[2]
    add_groups(study, tuple(names))
    study.groups[0].measure = study.group_curves[0].measure = Measure(task, "accuracy")
    return study


@pytest.mark.nightly
@settings(max_examples=2, phases=[Phase.generate])
@given(st.lists(NAMES, min_size=3, max_size=3, unique=True), NAMES)
def test_a_studys_report(place, names, task):
    folder = place / f"report-{len(list(place.iterdir()))}"
    study = nasty_study(names, task)
    write_report(report_of(study), folder)
    for name, text in files_in(folder).items():
        kind = name.rpartition(".")[2]
        if kind == "html":
            assert_only_script(Page(text))
            assert {"script", "img", "iframe", "b"} & set(Page(text).tags) == {"script"}
        elif kind == "csv":
            assert_no_formula(text)
        elif kind == "json":
            (found,) = json.loads(text)["studies"]
            assert [each["name"] for each in found["variants"]] == names[:2]
        elif kind == "svg":
            tags = {each.tag.rpartition("}")[2] for each in ElementTree.fromstring(text).iter()}
            assert not tags & {"script", "image", "a", "foreignObject"}
        elif kind == "md":
            assert_no_markup(text)
        else:
            plain = latex(report_of(nasty_study(["a", "b", "c"], "d")))
            assert commands(text) <= commands(plain) | ESCAPES
            assert not CONTROL.search(text)


@pytest.mark.slow
@settings(max_examples=25, phases=[Phase.generate])
@given(st.lists(NAMES, min_size=3, max_size=3, unique=True))
def test_what_is_printed_has_no_commands_of_a_terminal(place, names):
    screen = io.StringIO()
    study = made_up_study(seeds=1, names=tuple(names[:2]), name=names[2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", screen)
        Table(names[0], tuple(names[:2]), ((names[1], names[2]),), note=names[2]).print()
        say(" ".join(names))
        if len(names[2]) < 200:
            print_report(report_of(study))
    assert not CONTROL.search(screen.getvalue())


@pytest.mark.slow
@settings(max_examples=6, phases=[Phase.generate])
@given(st.lists(NAMES, min_size=2, max_size=2, unique=True), NAMES)
def test_an_evaluations_files(place, names, note):
    folder = place / f"evaluation-{len(list(place.iterdir()))}"
    folder.mkdir()
    result = EvaluationResult(
        {"accuracy": 0.5},
        np.array([1.0, 0.0]),
        {names[0]: names},
        grids=[ScoreGrid(note, names, names[::-1], np.eye(2))],
        notes=[note],
    )
    groups = score_groups(result)
    write_evaluation(folder, "x", result, groups)
    write_pages(folder, note, [Evaluated("x", note, MinimalPairs(), result, groups)])
    texts = files_in(folder)
    assert_alone(texts["x.html"])
    for name in ("x.groups.csv", "x.grid-1.csv"):
        assert_no_formula(texts[name])
    rows = [json.loads(line) for line in texts["x.rows.jsonl"].splitlines()]
    assert [row[names[0]] for row in rows] == names
    assert {row["group"] for row in spreadsheet_rows(folder / "x.groups.csv")} == {
        "",
        *shown(names),
    }


def shown(names: list[str]) -> list[str]:
    """Return names as a file of UTF-8 has them."""
    return [utf8(name).decode() for name in names]


def test_pages_of_an_evaluation_stay_in_their_folder(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    names = ["../../x.html", "/x.html", "a/../../x.html", "..", "\x1b.html", "x" * 300 + ".html"]
    result = EvaluationResult({"accuracy": 1.0}, np.ones(1), pages=dict.fromkeys(names, "text"))
    write_evaluation(folder, "x", result, score_groups(result))
    files_in(folder)
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.slow
def test_a_run_has_a_folder_of_its_own_whatever_its_variant_is_called(tmp_path):
    odd = [
        "../../x",
        "a/b",
        ".",
        "..",
        "x" * 300,
        "-rf",
        "$(touch x)",
        "\x1b[2J",
        "a\nb",
        "=1",
        "汉",
    ]
    variants = {name: {"data.batch_size": number} for number, name in enumerate(odd, 1)}
    plan = plan_of(tmp_path, variants=variants, seeds=1)
    assert len(plan.runs) == len(odd)
    for run in plan.runs.values():
        assert FILE_NAME.fullmatch(run.id.replace("=", "a"))
        assert len(run.id) < 100
        assert shlex.split(run.id) == [run.id]
        assert run.directory(tmp_path).parent == tmp_path / "runs"
        assert run.log(tmp_path).parent == tmp_path / "logs"


@given(NAMES)
def test_a_command_to_go_on_with_can_be_pasted(name):
    run = Path("runs") / name.replace("\x00", "")
    command = how_to_resume(run).partition(": ")[2]
    assert shlex.split(command) == ["bertlab", "fit", "--ckpt_path", str(run)]
    assert shlex.split(go_on_with(run, "slurm"))[3:] == [str(run), "--executor", "slurm"]


@pytest.mark.slow
@given(NAMES)
def test_a_study_file_brings_names_back(place, name):
    content = {"name": "s", "variants": {name.replace("\x00", ""): {"a": name.replace("\x00", "")}}}
    keep_content(place / "study", content)
    assert read_config(place / "study" / "study.yaml") == content


@given(NAMES)
def test_rows_read_back_as_they_were(place, name):
    line = json_line({name: name})
    assert json.loads(utf8(line)) == {name: name}
    assert not CONTROL.search(line.rstrip("\n")) or re.search("[\u202a-\u2069\ud800-\udfff]", line)
    path = place / "table.csv"
    path.write_bytes(utf8(spreadsheet_csv(["a", "b"], [[name, 1]])))
    assert spreadsheet_rows(path) == [{"a": utf8(name).decode(), "b": "1"}]


def test_numbers_and_arrays_of_predictions_are_json():
    row = {"a": np.float32(0.5), "b": np.int64(3), "c": np.arange(2), "d": torch.tensor(0.25)}
    assert json.loads(json_line(row | {"when": date(2026, 1, 2)})) == {
        "a": 0.5, "b": 3, "c": [0, 1], "d": 0.25, "when": "2026-01-02"
    }  # fmt: skip


def test_which_names_a_file_can_have():
    for name in ("", ".", "..", "a/b", "../x", "a\\b", "\x1b", "a\n", "x" * 300):
        assert why_no_file_name(name)
    assert why_no_file_name("BLiMP, 汉字 (1).0") is None
