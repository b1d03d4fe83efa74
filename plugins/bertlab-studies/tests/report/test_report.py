"""A study's report: what its tables say, and that every format shows it as it is."""

import io
import re
import shutil
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bertlab.errors import OutputError
from bertlab_pages.escaping import latex_text
from bertlab_pages.pictures import Picture
from bertlab_pages.tables import Grid, table_html
from bertlab_studies.report import plots
from bertlab_studies.report.plots import pictures
from bertlab_studies.report.render import (
    html,
    latex,
    markdown,
    print_report,
    table_markdown,
    write_report,
)
from bertlab_studies.report.report import Report, report_of, runs_of, settings_of
from bertlab_studies.study_scores import Cell, Measure, StudyScores
from made_up_scores import MEASURES, made_up_study
from tests.html_page import Page, assert_alone, assert_only_script, squeeze

# of the template language, in the delimiters of each format
CODE = "{{ 7 * 7 }} {% if %} << 7 * 7 >> <% if %>"
NASTY = ("<script>alert('a')</script>", "_50% & $x_1$ | #{~^\\}", '汉字 "b"--\x07')
MARKUP = st.lists(
    st.sampled_from(
        [
            *("</script>", "<script>x()</script>", "<svg onload=x()>", "</title>", "<img src=x>"),
            *("<!--", "-->", "]]>", "<g>", "</style>", "</text>", "{{ 7 * 7 }}", "&lt;", "&"),
            *('"', "'", '" onclick=x() a="', "javascript:x()", "=1+1", "a", " ", "汉", "\x07"),
        ]
    ),
    min_size=1,
    max_size=5,
).map("".join)
TEXT = st.text(st.characters(exclude_categories=("C",)), max_size=30)
ASCII = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)


@pytest.fixture
def study() -> StudyScores:
    """One with a missing run, a degenerate one and a failure."""
    study = made_up_study()
    del study.variants["mlm"].cells["mrpc f1"].values[2]
    study.variants["ltr"].cells["qnli accuracy"].degenerate[3] = "one class for every row"
    study.variants["ltr"].failures.append("mrpc-ltr-2: exit code 1: out of memory")
    return study


def only(report: Report, variant: str) -> tuple[str, ...]:
    """Return the cells of a variant."""
    (row,) = (row for row in report.scores.rows if row[0] in (variant, f"{variant} (baseline)"))
    return row


# what the tables say


def test_means_and_deviations_are_those_of_the_values(study: StudyScores) -> None:
    values = list(study.variants["mlm+nsp"].cells["qnli accuracy"].values.values())
    mean, deviation = 100 * np.mean(values), 100 * np.std(values, ddof=1)
    assert only(report_of(study), "mlm+nsp")[1] == f"{mean:.2f} ± {deviation:.2f}"
    losses = list(study.variants["ltr"].cells["mlm loss"].values.values())
    expected = f"{np.mean(losses):.3f} ± {np.std(losses, ddof=1):.3f}*"
    assert only(report_of(study), "ltr")[3] == expected


def test_headings_name_unit_and_direction(study: StudyScores) -> None:
    headings = report_of(study).scores.headings
    assert headings == (
        ("variant",),
        ("qnli", "accuracy, %"),
        ("mrpc", "f1, %"),
        ("mlm", "loss ↓"),
    )


def test_marks_are_explained_where_they_are(study: StudyScores) -> None:
    report = report_of(study)
    assert only(report, "mlm+nsp")[0] == "mlm+nsp (baseline)"
    assert only(report, "ltr")[1].endswith("*¶†")  # planted: 8 points lower
    assert only(report, "mlm")[2].endswith(" (n=4)")
    for explained in (
        "* differs",
        "¶ in the runs that learned",
        "† includes a degenerate",
        "n where fewer",
        "↓ lower",
    ):
        assert explained in report.legend
    assert "–" not in report.legend
    plain = report_of(made_up_study(names=("a", "b")))
    assert "†" not in plain.legend
    assert "n where" not in plain.legend
    assert "¶ of the runs that learned" in report.differences_legend
    assert "¶" not in plain.legend + plain.differences_legend


def test_a_variant_without_values_has_dashes(study: StudyScores) -> None:
    study.variants["ltr"].cells = {}
    report = report_of(study)
    assert only(report, "ltr")[1:] == ("–", "–", "–")
    assert "– no value" in report.legend
    rows = [row for row in report.differences.rows if row[0] == "ltr"]
    assert {row[2:] for row in rows} == {("–", "–", "–", "–", "–", "–", "0 / 5")}


def test_differences_have_sign_interval_and_p(study: StudyScores) -> None:
    report = report_of(study)
    row = next(row for row in report.differences.rows if row[:2] == ("ltr", "mlm loss"))
    found = report.comparisons[0]["ltr", "mlm loss"]
    assert found.difference is not None
    assert found.low is not None
    assert row[2] == f"+{found.difference:.3f}*"
    assert row[3].startswith(f"+{found.low:.3f} … ")
    assert row[4] == "< 0.001"
    low, high = found.detectable_range
    assert row[5] == f"{found.detectable:.3f} ({low:.3f} … {high:.3f})"
    assert row[6] == f"+{found.effect_size:.2f}"
    assert row[7:] == ("–", "5")  # no rows
    missing = next(row for row in report.differences.rows if row[:2] == ("mlm", "mrpc f1, points"))
    assert missing[-1] == "4 / 5"


def test_what_is_only_described_is_not_among_the_differences(study: StudyScores) -> None:
    study.measures[2] = Measure("mlm", "loss", False, False, is_primary=False)
    report = report_of(study)
    assert "Described, not tested: mlm loss." in report.legend
    assert all("mlm loss" not in row for row in report.differences.rows)
    assert not only(report, "ltr")[3].endswith("*")


def test_one_seed_has_values_and_no_deviation() -> None:
    report = report_of(made_up_study(seeds=1))
    assert report.legend.startswith("Values of one seed.")
    assert all("±" not in cell for row in report.scores.rows for cell in row)
    assert any("nothing can be tested" in line for line in report.warnings)


def test_findings_begin_with_the_whole_and_end_with_rows_where_predictions_are() -> None:
    study = made_up_study(names=("a", "b"))
    rng = np.random.default_rng(0)
    for variant in study.variants.values():
        scored = {seed: rng.integers(0, 2, 200).astype(np.float64) for seed in study.seeds}
        variant.cells["qnli accuracy"].examples = scored
    report = report_of(study)
    assert report.findings[0].endswith(".")
    assert report.findings[1].startswith("b, qnli accuracy: lower by")
    assert report.findings[2].startswith("b, qnli accuracy: 200 rows are ")
    assert "; Multi-Bootstrap over seeds and rows: 95 % CI −" in report.findings[2]
    found = report.comparisons[0]["b", "qnli accuracy"]
    row = next(row for row in report.differences.rows if row[1] == "qnli accuracy, points")
    assert row[7] == f"{100 * found.row_share:.0f}"


def test_failed_runs_have_a_sentence(study: StudyScores) -> None:
    report = report_of(study)
    assert any(
        line.startswith("ltr, qnli accuracy: 1 of 5 runs failed (95 % CI 4 … 62 %), of mlm+nsp 0")
        for line in report.findings
    )
    assert not any("failed" in line for line in report_of(made_up_study()).findings)


@pytest.mark.slow
def test_a_legend_names_rows_only_where_stars_are_over_rows(study: StudyScores) -> None:
    assert "(5 %, over seeds, after Holm)" in report_of(study).legend
    rng = np.random.default_rng(0)
    for variant in study.variants.values():
        scored = {seed: rng.integers(0, 2, 200).astype(np.float64) for seed in study.seeds}
        variant.cells["qnli accuracy"].examples = scored
    over = "(5 %, over seeds and, where they have scores, rows, after Holm)"
    assert over in report_of(study).legend
    study.measures = study.measures[:1]
    assert "(5 %, over seeds and rows, after Holm)" in report_of(study).legend


def test_records_hold_the_figures_of_every_variant_and_measure(study: StudyScores) -> None:
    study.measures[0] = Measure("qnli", "accuracy", margin=0.05)
    report = report_of(study)
    records = {(each["variant"], each["measure"]): each for each in report.records()}
    assert len(records) == 9
    found = report.comparisons[0]["mlm", "qnli accuracy"]
    one = records["mlm", "qnli accuracy"]
    assert one["difference"] == found.difference
    assert (one["p"], one["significant"]) == (found.p_adjusted, found.significant)
    assert one["p_equivalent"] == found.p_equivalent is not None
    baseline = records["mlm+nsp", "qnli accuracy"]
    assert (baseline["difference"], baseline["p_equivalent"]) == (None, None)


@pytest.mark.slow
def test_joined_studies_share_columns_and_are_not_compared(study: StudyScores) -> None:
    other = made_up_study(names=("token", "whole-word"), name="masking")
    extra = Measure("squad", "f1")
    other.measures = [MEASURES[2], extra]
    for variant in other.variants.values():
        variant.cells = {name: cell for name, cell in variant.cells.items() if name == "mlm loss"}
    other.variants["token"].cells[extra.name] = Cell({1: 0.5, 2: 0.6})
    report = report_of(study, other)
    assert [heading[-1] for heading in report.scores.headings] == [
        *("study", "variant", "accuracy, %", "f1, %", "loss ↓", "f1, %")
    ]
    token = next(row for row in report.scores.rows if row[:2] == ("masking", "token (baseline)"))
    assert token[2:4] == ("–", "–")
    assert token[5] == "55.0 ± 7.1 (n=2)"
    assert "nothing is tested across studies" in report.legend
    assert {row[0] for row in report.differences.rows} == {"nsp", "masking"}
    assert any(line.startswith("masking: ") for line in report.findings)
    for text in (markdown(report), latex(report)):
        assert "whole-word" in text


def test_settings_and_costs_of_variants_stand_side_by_side(study: StudyScores) -> None:
    del study.variants["ltr"].settings["model.objectives"]
    grid = settings_of(study)
    assert grid.headings == (("",), ("mlm+nsp",), ("mlm",), ("ltr",))
    assert ("model.objectives", "[mlm, nsp]", "[mlm]", "–") in grid.rows
    assert ("FLOPs of a run", "3.1e+16", "4.34e+16", "5.58e+16") in grid.rows


def test_every_run_is_listed_with_what_it_reached(study: StudyScores) -> None:
    rows = runs_of(study).rows
    assert len(rows) == 15
    assert next(row for row in rows if row[:2] == ("mlm", "2"))[3] == "–"
    assert next(row for row in rows if row[:2] == ("ltr", "3"))[2].endswith("†")


# the terminal


@pytest.mark.parametrize("measures", [3, 9])
def test_the_terminal_shows_every_column_whole(
    measures: int,
    study: StudyScores,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for number in range(3, measures):
        measure = Measure(f"task_{number}", "exact_match")
        study.measures.append(measure)
        for variant in study.variants.values():
            variant.cells[measure.name] = Cell({1: 0.5, 2: 0.5 + 0.001 * number})
    report = report_of(study)
    print_report(report)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    for row in report.scores.rows:
        lines = [line for line in text.splitlines() if line.startswith(f"│ {row[0]} ")]
        shown = [cell.strip() for line in lines for cell in line.split("│")[2:-1]]
        assert shown == list(row[1:])
    assert ("nsp (continued)" in text) == (measures > 3)
    joined = " ".join(text.split())
    assert all(line in joined for line in (*report.findings, *report.warnings, report.legend))


# Markdown


def rendered_cells(text: str) -> list[str]:
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    cells = [token for token in tokens if token.type == "inline"]
    for cell in cells:  # nothing in it may be markup
        assert all(child.type in ("text", "text_special") for child in cell.children or [])
    return ["".join(child.content for child in cell.children or []) for cell in cells]


@settings(max_examples=25)
@given(TEXT, TEXT)
def test_markdown_shows_names_as_they_are(name: str, value: str) -> None:
    table = table_markdown(Grid((("a",), ("b", "c")), ((name, value),), figures=1))
    expected = [" ".join(text.split()) for text in (name, value)]
    assert rendered_cells(table) == ["a", "b c", *expected]


def test_markdown_has_everything(study: StudyScores) -> None:
    text = markdown(report_of(study))
    cells = rendered_cells(text)
    for expected in ("mlm+nsp (baseline)", "mlm loss ↓", "−8.2*¶", "model.encoder.causal"):
        assert expected in cells
    assert "\n    bertlab study run configs/studies/nsp.yaml\n" in text
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Differences to the baseline",
        "## Findings",
        "## Warnings",
        "## Over all tasks",
        "## What each measure can see",
        "## Variants of nsp",
        "## To repeat nsp",
    ]


# LaTeX

COMMANDS = {
    r"\textbackslash{}": "\\",
    r"\textasciitilde{}": "~",
    r"\textasciicircum{}": "^",
    r"\textasciigrave{}": "`",
    r"\textless{}": "<",
    r"\textgreater{}": ">",
    r"\textbar{}": "|",
    r"\symbol{34}": '"',
    **{f"\\{char}": char for char in "{}$&#%_"},
    **{f"{{{char}}}": char for char in "[]*"},
    **{f"{char}{{}}": char for char in "-',"},
}


def read_latex(text: str) -> str:
    """Return what LaTeX would show of it, refusing all that has a meaning of its own there."""
    shown = []
    while text:
        command = next((c for c in COMMANDS if text.startswith(c)), None)
        assert command or text[0] not in '\\{}$&#%_~^`"<>|[]*', text
        assert command or text[:2] not in ("--", "''", ",,"), text
        shown.append(COMMANDS[command] if command else text[0])
        text = text[len(command or " ") :]
    return "".join(shown)


@settings(max_examples=25)
@given(ASCII)
def test_latex_shows_names_as_they_are(name: str) -> None:
    assert read_latex(latex_text(name)) == " ".join(name.split())


@pytest.mark.slow
def test_latex_has_a_row_for_each_variant(study: StudyScores) -> None:
    text = latex(report_of(study))
    assert r"80.99 $\pm$ 0.51{*} & 87.92 $\pm$ 0.62 (n=4) & 2.293 $\pm$ 0.018 \\" in text
    assert r"& accuracy, \% & f1, \% & loss $\downarrow$ \\" in text
    # variants, differences, over all tasks, what measures see; findings and warnings
    for environment, count in (("table", 4), ("tabular", 4), ("itemize", 2)):
        begun = text.count(f"\\begin{{{environment}}}")
        assert begun == text.count(f"\\end{{{environment}}}") == count


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_latex_compiles(tmp_path: Path) -> None:
    ascii_names = (NASTY[0], NASTY[1], '[mlm]--"a" *b*')
    report = latex(report_of(made_up_study(names=ascii_names, name="100 %_of $\\")))
    head = "\\documentclass{article}\\usepackage{booktabs,graphicx}\\begin{document}"
    (tmp_path / "paper.tex").write_text(f"{head}\n{report}\\end{{document}}", encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout


# pictures


def drawn_names(study: StudyScores) -> list[str]:
    return [picture.name for picture in pictures(study, report_of(study).comparisons[0])]


def test_there_are_only_pictures_of_what_is_known() -> None:
    study = made_up_study(seeds=2, names=("a", "b"))
    for variant in study.variants.values():
        variant.curves = {}
        variant.flops = 1e15
    assert drawn_names(study) == ["differences"]  # the cost is the same for both
    for variant in study.variants.values():
        variant.cells = {}
    assert drawn_names(study) == []


def nasty_study() -> StudyScores:
    study = made_up_study(seeds=3, names=NASTY, name="</title><script>x</script>")
    study.manifest["<img src=x>"] = {"a": "</pre><script>"}
    study.variants[NASTY[0]].failures.append("<b>failed</b>")
    study.variants[NASTY[1]].settings["<i>"] = "<u>"
    return study


@pytest.fixture(scope="module")
def nasty_pictures() -> list[Picture]:
    study = nasty_study()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "pdf_of", lambda _: b"%PDF")  # test_plots draws them
        return pictures(study, report_of(study).comparisons[0])


@pytest.mark.nightly
def test_pictures_draw_names_as_they_are_and_the_same_bytes_again(
    nasty_pictures: list[Picture], real_svg: None
) -> None:
    assert [picture.name for picture in nasty_pictures] == [
        "differences",
        "learning_curves",
        "score_against_compute",
    ]
    for picture in nasty_pictures:
        texts = "".join(ElementTree.parse(io.StringIO(picture.svg)).getroot().itertext())
        squeezed = re.sub(r"\s", "", texts)
        for name in NASTY[picture.name == "differences" :]:  # the first is the baseline
            assert re.sub(r"\s", "", name.replace("\x07", "�")) in squeezed
        assert "dc:date" not in picture.svg
    study = nasty_study()
    assert pictures(study, report_of(study).comparisons[0]) == nasty_pictures


@pytest.mark.slow
def test_broken_curves_and_single_seeds_are_drawn(real_svg: None) -> None:
    study = made_up_study(seeds=1, names=("a", "b"))
    curve = study.variants["a"].curves["mlm loss"][1]
    curve.values[3:] = [float("nan")] * len(curve.values[3:])
    study.variants["b"].cells["mlm loss"].values[1] = float("inf")
    found = {p.name: p.svg for p in pictures(study, report_of(study).comparisons[0])}
    assert len(found) == 3
    assert ">percentage points (→ better)<" in found["differences"]
    assert "mlm loss" not in found["differences"]  # nothing to compare
    assert ">40%<" in found["learning_curves"]


# the page and the files


@pytest.mark.slow
def test_the_page_needs_nothing_else_and_runs_its_own_script_only(
    nasty_pictures: list[Picture],
) -> None:
    text = html(report_of(nasty_study()), nasty_pictures)
    assert_alone(text)
    page = Page(text)
    assert page.tags["svg"] == 3
    assert "url(#" in text
    for picture in nasty_pictures:
        assert {f"./{picture.name}.svg", f"./{picture.name}.pdf"} <= set(page.links)
    for name in (NASTY[0], NASTY[1], "<b>failed</b>", "<img src=x>", "<u>"):
        assert name in page.text


def page_of(variants: tuple[str, ...], measure: str, failure: str) -> Page:
    """The page of a study whose numbers are always the same."""
    study = made_up_study(seeds=2, names=variants, name=failure)
    study.measures[0] = Measure(measure, "accuracy")
    for found in study.variants.values():
        found.cells[study.measures[0].name] = found.cells["qnli accuracy"]
        found.curves, found.flops, found.tokens = {}, None, None  # one picture: the differences
    study.variants[variants[1]].failures.append(failure)
    report = report_of(study)
    page = Page(html(report, pictures(study, report.comparisons[0])))
    assert_only_script(page)
    assert all(squeeze(each) in page.squeezed for each in (*variants, measure, failure))
    return page


plain_page = cache(lambda: page_of(("a", "b", "c"), "d", "e"))


@pytest.mark.slow
@pytest.mark.usefixtures("real_svg")
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(MARKUP, min_size=3, max_size=3, unique=True), MARKUP, MARKUP)
def test_names_change_no_tag_of_the_page(names: list[str], task: str, said: str) -> None:
    # titles of points; names of two lines have more of <text>
    plain, other = (
        {**page.tags, "text": 0, "g": 0} for page in (plain_page(), page_of((*names,), task, said))
    )
    assert plain == other


def test_the_page_has_everything(study: StudyScores) -> None:
    report = report_of(study)
    page = Page(html(report))
    for grid in (report.scores, report.differences, settings_of(study), runs_of(study)):
        for row in grid.rows:
            assert all(cell in page.text for cell in row)
    for line in (*report.findings, *report.warnings, study.variants["ltr"].failures[0]):
        assert line in page.text
    assert "bertlab study run configs/studies/nsp.yaml" in page.text
    assert "{bertlab: 0.1.0, torch: 2.13.0}" in page.text


def test_names_that_look_like_template_code_are_text() -> None:
    report = report_of(made_up_study(seeds=2, names=("a", CODE), name=CODE))
    page = Page(html(report))
    assert page.text.count(CODE) >= 3
    assert CODE in rendered_cells(markdown(report))
    rows = [line for line in latex(report).splitlines() if " & " in line]
    assert CODE in [read_latex(line.partition(" & ")[0].strip()) for line in rows[2:]]


@settings(max_examples=25)
@given(TEXT, TEXT)
def test_a_table_of_html_shows_names_as_they_are(name: str, value: str) -> None:
    page = Page(table_html(Grid((("a",), ("b", "c")), ((name, value),), figures=1)))
    assert page.text.replace("\n", "") == f"abc{name}{value}"
    breaks = Counter(wbr=name.count("_") + value.count("_"))  # where a line may end
    assert page.tags == Counter(div=1, table=1, thead=1, tbody=1, tr=2, th=3, br=1, td=1) + breaks


@pytest.mark.slow
def test_files_are_written_whole(
    study: StudyScores, tmp_path: Path, real_svg: None, real_pdf: None
) -> None:
    other = made_up_study(seeds=2, names=("a", "b"), name="other")
    for variant in (*study.variants.values(), *other.variants.values()):
        variant.curves, variant.flops, variant.tokens = {}, None, None
    other.seeds = []
    for variant in other.variants.values():
        variant.cells = {}
    files = write_report(report_of(study, other), tmp_path / "report")
    assert [file.name for file in files] == [
        *("report.html", "report.md", "report.tex", "values.csv", "report.json"),
        *("1_differences.svg", "1_differences.pdf"),
    ]
    assert sorted((tmp_path / "report").iterdir()) == sorted(files)
    assert "](1_differences.svg)\n" in files[1].read_text(encoding="utf-8")
    assert "background: white" in files[5].read_text(encoding="utf-8")
    assert files[6].read_bytes().startswith(b"%PDF")
    before = [file.read_bytes() for file in files]
    write_report(report_of(study, other), tmp_path / "report")
    assert [file.read_bytes() for file in files] == before


def test_what_cannot_be_written_is_named_and_nothing_is_half_there(tmp_path: Path) -> None:
    study = made_up_study(seeds=1, names=("a", "b"))
    for variant in study.variants.values():
        variant.cells, variant.curves = {}, {}
    (tmp_path / "report.md").mkdir()
    with pytest.raises(OutputError, match=r"report\.md"):
        write_report(report_of(study), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.md"]


@pytest.mark.nightly
@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.integers(0, 6))
def test_any_values_make_a_report(values: list[float], missing: int) -> None:
    study = made_up_study(seeds=len(values), names=("a", "b"))
    found = dict(enumerate(values[missing:], 1))
    study.variants["b"].cells["qnli accuracy"] = Cell(found)
    report = report_of(study)
    assert only(report, "b")[1].startswith("–") == (not found)
    assert "nan" not in markdown(report)
