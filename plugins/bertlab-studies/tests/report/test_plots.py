"""Pictures of a study: where each seed's point is, what hovering says, and files for print."""

import io
import math
import re
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bertlab_pages.pictures import Picture, hover, inline_svg, on_white, pdf_of, svg_of
from bertlab_pages.plot_axes import SETTINGS, printable
from bertlab_studies.report import plots
from bertlab_studies.report.curve_plots import finetuning_curves, learning_curves
from bertlab_studies.report.plots import differences, pictures, score_against_compute
from bertlab_studies.report.report import report_of
from bertlab_studies.study_scores import Curve, StudyScores
from made_up_scores import add_groups, made_up_study

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def same_settings():
    with mpl.rc_context(SETTINGS):
        yield


def said(line: Line2D) -> str:
    return bytes.fromhex((line.get_gid() or "").removeprefix("hover-")).decode()


def points_of(axes: Axes) -> dict[str, tuple[float, float]]:
    """Return the last point of each line that says what it is, by variant and seed."""
    lines = [line for line in axes.lines if line.get_gid()]
    return {
        said(line).partition(":")[0]: (float(line.get_xdata()[-1]), float(line.get_ydata()[-1]))
        for line in lines
    }


def titles_of(svg: str) -> list[str]:
    root = ElementTree.parse(io.StringIO(svg)).getroot()
    return [each.text or "" for each in root.iter(f"{SVG}title")]


def drawn(study: StudyScores) -> Figure:
    figure = differences(study, report_of(study).comparisons[0])
    assert figure is not None
    return figure


def test_differences_have_a_point_for_each_seed_of_each_variant() -> None:
    study = made_up_study()
    axes = drawn(study).axes[0]
    values = {name: found.cells["qnli accuracy"].values for name, found in study.variants.items()}
    mean = np.mean(list(values["mlm+nsp"].values()))
    points = points_of(axes)
    assert len(points) == 15
    for row, (variant, by_seed) in enumerate(values.items()):
        for seed, value in by_seed.items():
            x, y = points[f"{variant}, seed {seed}"]
            assert x == pytest.approx(100 * (value - mean))
            assert row < y < row + 0.5  # below the variant's interval
    low, high = axes.get_xlim()
    assert all(low < x < high for x, _ in points.values())


def test_where_seeds_are_paired_points_are_differences_of_the_same_seed() -> None:
    study = made_up_study(seeds=8)
    rng = np.random.default_rng(0)
    luck = rng.normal(0, 0.05, 8)
    for measure in study.measures:
        for found in study.variants.values():
            cell = found.cells[measure.name]
            noise = rng.normal(0, 0.001, 8)
            cell.values = {s: 0.5 + float(luck[s - 1] + noise[s - 1]) for s in study.seeds}
    del study.variants["mlm+nsp"].cells["mrpc f1"].values[2]
    compared = report_of(study).comparisons[0]
    assert all(one.paired for one in compared.values())
    points = points_of(drawn(study).axes[1])
    pairs = {name: found.cells["mrpc f1"].values for name, found in study.variants.items()}
    assert {name: pytest.approx(x) for name, (x, _) in points.items()} == {
        f"{variant}, seed {seed}": 100 * (pairs[variant][seed] - pairs["mlm+nsp"][seed])
        for variant in ("mlm", "ltr")
        for seed in (1, 3, 4, 5, 6, 7, 8)
    }


def test_a_collapsed_run_is_in_the_picture_and_one_that_is_not_finite_is_not() -> None:
    study = made_up_study()
    study.variants["mlm"].cells["qnli accuracy"].values |= {2: 0.1, 3: math.nan}
    axes = drawn(study).axes[0]
    points = points_of(axes)
    assert "mlm, seed 3" not in points
    assert axes.get_xlim()[0] < points["mlm, seed 2"][0] < -70


def test_scores_against_compute_have_a_point_for_each_run_inside_the_axes() -> None:
    study = made_up_study()
    figure = score_against_compute(study)
    assert figure is not None
    for axes, measure in zip(figure.axes, study.measures, strict=True):
        points = points_of(axes)
        assert len(points) == 15
        low, high = axes.get_ylim()
        for name, found in study.variants.items():
            for seed, value in found.cells[measure.name].values.items():
                assert points[f"{name}, seed {seed}"] == (found.flops, value)
                assert low < value < high


def test_learning_curves_have_a_line_for_each_seed_and_their_mean() -> None:
    study = made_up_study(names=("a", "b"))
    figure = learning_curves(study)
    assert figure is not None
    lines = {said(line).partition(":")[0]: line for line in figure.axes[0].lines}
    assert len(lines) == 2 * (5 + 1)
    curves = study.variants["b"].curves["mlm accuracy"]
    for seed, curve in curves.items():
        assert list(lines[f"b, seed {seed}"].get_ydata()) == curve.values
    mean = np.mean([curve.values for curve in curves.values()], axis=0)
    assert lines["b, mean"].get_ydata() == pytest.approx(mean)
    assert said(lines["b, mean"]).endswith(f": {mean[-1]:.1%} at step 10,000")


def test_the_mean_has_no_steps_that_few_runs_have() -> None:
    study = made_up_study(seeds=3, names=("a",))
    study.variants["a"].curves = {
        "mlm accuracy": {
            1: Curve([10, 20, 21], [0.1, 0.2, 0.9]),
            2: Curve([10, 20, 22], [0.3, 0.4, 0.1]),
            3: Curve([10], [0.5]),
        }
    }
    figure = learning_curves(study)
    assert figure is not None
    (mean,) = (line for line in figure.axes[0].lines if "mean" in said(line))
    assert list(mean.get_xdata()) == [10, 20]
    assert mean.get_ydata() == pytest.approx([0.3, 0.3])
    apart = {1: Curve([11], [0.1]), 2: Curve([12], [0.3])}  # nothing in common: all of them
    study.variants["a"].curves = {"mlm accuracy": apart}
    figure = learning_curves(study)
    assert figure is not None
    (mean,) = (line for line in figure.axes[0].lines if "mean" in said(line))
    assert list(mean.get_xdata()) == [11, 12]


def test_fine_tuning_curves_have_a_line_for_each_fine_tuning() -> None:
    study = made_up_study(seeds=2, names=("a", "b"))
    assert finetuning_curves(study) is None
    study.variants["b"].finetune_curves["mrpc f1"] = {
        (seed, finetune): Curve([5, 10], [0.5, 0.5 + 0.1 * seed + 0.01 * finetune])
        for seed in (1, 2)
        for finetune in (1, 2)
    }
    study.variants["a"].finetune_curves["mrpc f1"] = {(1, None): Curve([5], [0.25])}
    figure = finetuning_curves(study)
    assert figure is not None
    (axes,) = figure.axes
    assert axes.get_title() == "mrpc f1"
    points = points_of(axes)
    assert points["b, seed 2, fine-tuning 1"] == (10, pytest.approx(0.71))
    assert points["b, mean"] == (10, pytest.approx(0.665))
    assert points["a, mean"] == (5, 0.25)
    assert len(points) == 6  # a single run is its mean


@pytest.mark.nightly
def test_hovering_says_variant_seed_and_value(real_svg: None) -> None:
    study = add_groups(made_up_study(names=("a", "b")))
    found = {p.name: titles_of(p.svg) for p in pictures(study, report_of(study).comparisons[0])}
    value = study.variants["b"].cells["qnli accuracy"].values[3]
    mean = np.mean(list(study.variants["a"].cells["qnli accuracy"].values.values()))
    change = f"{100 * (value - mean):+.2f}".replace("-", "−")
    assert f"b, seed 3: {change}" in found["differences"]
    assert f"b, seed 3: {value:.1%}" in found["score_against_compute"]
    curve = study.variants["b"].curves["mlm loss"][3]
    assert f"b, seed 3: {curve.values[-1]:,.3f} at step 10,000" in found["learning_curves"]
    (groups,) = study.groups
    cell = ", ".join(f"seed {s} {100 * v[1]:.1f}" for s, v in groups.means["b"].items())
    assert f"b, binding: {cell}" in found["heat_map_blimp_phenomenon"]
    words = study.group_curves[0].curves["phenomenon"]["binding"]["b"][3].values[-1]
    assert f"b, seed 3: {100 * words:.1f} % at 100,000,000 words" in found["words_blimp_phenomenon"]


@pytest.mark.nightly
@settings(max_examples=20)
@given(st.text(max_size=30))
def test_hovering_shows_any_text_and_runs_none(text: str) -> None:
    figure = Figure()
    (line,) = figure.subplots().plot([1], [1], "o")
    tags = re.findall(r"<[\w/]+", svg_of(figure))
    hover(line, text)
    svg = svg_of(figure)
    assert [
        each for each in re.findall(r"<[\w/]+", svg) if each not in ("<title", "</title")
    ] == tags
    assert titles_of(svg) == [printable(text)]
    inlined = str(inline_svg(Picture("one", "a caption", svg)))
    assert titles_of(inlined) == [printable(text)]
    assert titles_of(on_white(svg)) == [printable(text)]


@pytest.mark.nightly
def test_a_pdf_is_whole_has_no_date_and_the_same_bytes_again(real_pdf: None) -> None:
    name = "汉 <script> $x$ (\\"
    study = made_up_study(seeds=2, names=("a", name))
    study.name = name
    found = pictures(study, report_of(study).comparisons[0])
    for picture in found:
        assert picture.pdf.startswith(b"%PDF-")
        assert picture.pdf.rstrip().endswith(b"%%EOF")
        for key in (b"CreationDate", b"ModDate", b"Creator", b"/JavaScript", b"/OpenAction"):
            assert key not in picture.pdf
        assert b"/Type3" not in picture.pdf  # which journals refuse
    again = made_up_study(seeds=2, names=("a", name))
    assert [p.pdf for p in pictures(again, report_of(again).comparisons[0])] == [
        p.pdf for p in found
    ]
    assert pdf_of(Figure()).startswith(b"%PDF-")


def test_a_picture_shows_the_first_of_many_variants_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = made_up_study(seeds=2, names=("a", "b", "c"))
    study.baseline = "c"
    figures: list[Figure] = []
    monkeypatch.setattr(plots, "_MOST_VARIANTS", 2)
    monkeypatch.setattr(plots, "svg_of", figures.append)
    first = pictures(study, report_of(study).comparisons[0])[0]
    assert first.caption.endswith("Drawn are the first 2 of 3 variants.")
    shown = [each.get_text() for each in figures[0].axes[0].get_yticklabels()]
    assert sorted(shown) == ["a", "c"]
