"""Effects of axes and other contrasts, against analysis of variance by least squares and loops."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bertlab_studies.errors import StudyError
from bertlab_studies.report.axes import effects_of_axes
from bertlab_studies.report.render import html, latex, markdown
from bertlab_studies.report.report import report_of
from bertlab_studies.report.row_noise import row_noise
from bertlab_studies.report.seed_noise import seed_noise
from bertlab_studies.report.statistics import compare_study, contrast, holm
from bertlab_studies.study_scores import Cell, Measure, StudyScores, VariantScores
from made_up_scores import made_up_study

ACCURACY = Measure("qnli", "accuracy")
# noise of three seeds that has the same deviation in each variant, and no seed effect
NOISE = ([-1, 0, 1], [1, -1, 0], [0, 1, -1], [-1, 1, 0])
RATES, UNITS, DEPTHS = ("0.15", "0.4"), ("token", "span"), ("2", "4")


def factorial(axes: dict[str, tuple[str, ...]], means: list[float], scale: float) -> StudyScores:
    """Return a study of all combinations, with these means."""
    variants = {}
    for number, levels in enumerate(product(*axes.values())):
        noise = scale * np.array(NOISE[number % len(NOISE)])
        values = dict(enumerate((means[number] + noise).tolist()))
        variants[" ".join(levels)] = VariantScores(
            cells={ACCURACY.name: Cell(values)}, levels=dict(zip(axes, levels, strict=True))
        )
    return StudyScores("s", next(iter(variants)), [0, 1, 2], [ACCURACY], variants)


def test_effects_are_those_of_least_squares():
    study = factorial({"rate": RATES, "unit": UNITS}, [0.70, 0.74, 0.71, 0.79], 0.01)
    found = effects_of_axes(study)
    assert [(each.axis, each.level) for each in found] == [
        ("rate", "0.4 against 0.15"),
        ("unit", "span against token"),
        ("rate × unit", "0.4 × span"),
    ]
    # two-way analysis of variance: an effect is twice its coefficient, the interaction 4 times
    design, values = [], []
    for (rate, unit), variant in zip(
        product((-1, 1), repeat=2), study.variants.values(), strict=True
    ):
        for value in variant.cells[ACCURACY.name].values.values():
            design.append((1, rate, unit, rate * unit))
            values.append(value)
    matrix, y = np.array(design), np.array(values)
    coefficients, squares, *_ = np.linalg.lstsq(matrix, y)
    freedom = len(y) - 4
    error = math.sqrt(squares[0] / freedom / len(y))
    p_values = 2 * stats.t.sf(np.abs(coefficients[1:]) / error, freedom)
    for each, factor, coefficient, p, adjusted in zip(
        found, (2, 2, 4), coefficients[1:], p_values, holm(list(p_values)), strict=True
    ):
        one = each.comparisons[ACCURACY.name]
        assert one.difference == pytest.approx(factor * coefficient)
        assert one.error == pytest.approx(factor * error)
        assert one.freedom == pytest.approx(freedom)
        assert (one.p, one.p_adjusted, one.family) == (
            pytest.approx(p),
            pytest.approx(adjusted),
            3,
        )


def test_three_levels_and_three_axes():
    study = factorial({"size": ("s", "m", "l"), "rate": RATES}, [1, 2, 3, 5, 7, 11], 0.1)
    found = {
        f"{e.axis} {e.level}": e.comparisons[ACCURACY.name].difference
        for e in effects_of_axes(study)
    }
    assert found == {  # no interaction: an axis has three levels
        "size m against s": pytest.approx(4 - 1.5),
        "size l against s": pytest.approx(9 - 1.5),
        "rate 0.4 against 0.15": pytest.approx(6 - 11 / 3),
    }
    axes = {"rate": RATES, "unit": UNITS, "depth": DEPTHS}
    means = [1.0, 2, 4, 8, 16, 32, 64, 128]
    mean = dict(zip(product(range(2), repeat=3), means, strict=True))
    interactions = [e for e in effects_of_axes(factorial(axes, means, 0.1)) if "×" in e.axis]
    assert [each.axis for each in interactions] == ["rate × unit", "rate × depth", "unit × depth"]
    expected = np.mean(
        [mean[1, 1, d] - mean[0, 1, d] - mean[1, 0, d] + mean[0, 0, d] for d in range(2)]
    )
    assert interactions[0].comparisons[ACCURACY.name].difference == pytest.approx(expected)


def test_no_effects_without_a_factorial_design():
    one_axis = factorial({"rate": ("0.15", "0.3", "0.4")}, [1, 2, 3], 0.1)
    assert effects_of_axes(one_axis) == []
    assert effects_of_axes(made_up_study()) == []
    some = factorial({"rate": RATES, "unit": UNITS}, [1, 2, 3, 4], 0.1)
    del some.variants["0.4 span"]
    assert effects_of_axes(some) == []


def test_an_axis_with_one_level_is_none():
    study = factorial({"rate": RATES, "fixed": ("x",), "unit": UNITS}, [1, 2, 3, 4], 0.1)
    assert {each.axis for each in effects_of_axes(study)} == {"rate", "unit", "rate × unit"}


def test_a_variant_without_runs_leaves_its_effects_out():
    study = factorial({"rate": RATES, "unit": UNITS}, [1, 2, 3, 4], 0.1)
    study.variants["0.4 span"].cells[ACCURACY.name].values.clear()
    assert {e.comparisons[ACCURACY.name].p for e in effects_of_axes(study)} == {None}
    assert "| rate | 0.4 against 0.15 | qnli accuracy, points | – | – | – | – |" in markdown(
        report_of(study)
    )


def test_an_effect_that_rests_on_failed_runs_is_not_shown():
    study = factorial({"rate": RATES, "unit": UNITS}, [0.5, 0.3, 0.5, 0.5], 0.01)
    cell = study.variants["0.15 span"].cells[ACCURACY.name]
    rate = effects_of_axes(study)[0].comparisons[ACCURACY.name]
    assert rate.significant
    cell.degenerate = dict.fromkeys(cell.values, "one label")
    rate = effects_of_axes(study)[0].comparisons[ACCURACY.name]
    assert rate.p_adjusted is not None
    assert rate.p_adjusted <= 0.05
    assert rate.without_failed is not None
    assert rate.without_failed.p is None
    assert not rate.significant


def test_the_report_has_the_table_in_each_format():
    study = factorial({"rate": RATES, "unit": UNITS}, [0.70, 0.74, 0.71, 0.79], 0.001)
    study.variants["0.4 token"].is_mixed = True
    report = report_of(study)
    text = markdown(report)
    assert "## Effects of the axes" in text
    assert r"| rate | 0.4 against 0.15‡ | qnli accuracy, points | +3.0\* |" in text
    assert "a family of its own" in text
    assert "Effects of the axes" in html(report)
    assert "Effects of the axes" in latex(report)
    assert "Effects of the axes" not in markdown(report_of(made_up_study()))


def test_comparisons_with_the_baseline_do_not_count_effects():
    study = factorial({"rate": RATES, "unit": UNITS}, [0.70, 0.74, 0.71, 0.79], 0.01)
    assert {one.family for one in compare_study(study).values()} == {3}
    assert {e.comparisons[ACCURACY.name].family for e in effects_of_axes(study)} == {3}


seeds_of_four = st.lists(
    st.lists(st.integers(-100, 100).map(float), min_size=4, max_size=4), min_size=4, max_size=8
)


@settings(max_examples=25)
@given(seeds_of_four, st.integers(-1000, 1000))
def test_what_a_seed_adds_to_all_variants_does_not_move_a_paired_contrast(table, shift):
    # (seeds, variants): seed 0 is far from the others, so all variants move together
    values = np.array(table) + 1e4 * np.arange(len(table))[:, None]
    moved = values + shift * np.arange(len(table))[:, None]
    weights = dict(zip("abcd", (-0.5, -0.5, 0.25, 0.75), strict=True))
    found = []
    for each in (values, moved):
        noise = seed_noise({name: dict(enumerate(each[:, n])) for n, name in enumerate("abcd")})
        assert noise.paired
        found.append(noise.contrast(weights))
    assert found[0].value == pytest.approx(found[1].value, abs=1e-6)
    assert found[0].variance == pytest.approx(found[1].variance, abs=1e-4)


def test_a_paired_contrast_with_much_of_its_own_noise_is_a_one_sample_t_test():
    rng = np.random.default_rng(2)
    seeds = 8
    values = 10 * rng.normal(size=seeds)[:, None] + rng.normal(size=(seeds, 6)) * 0.01
    values[:, 3] += rng.normal(size=seeds)  # its variance is above that of all: its own counts
    noise = seed_noise({name: dict(enumerate(values[:, n])) for n, name in enumerate("abcdef")})
    assert noise.paired
    found = noise.contrast({"a": -1, "b": 0.5, "d": 0.5})
    sums = -values[:, 0] + 0.5 * values[:, 1] + 0.5 * values[:, 3]
    assert found.runs == (seeds, 2 * seeds)
    assert found.value == pytest.approx(sums.mean())
    assert found.variance == pytest.approx(sums.var(ddof=1) / seeds)


def test_constant_runs_of_more_than_two_variants_cannot_be_tested():
    values = {name: dict.fromkeys(range(3), 0.1 * n) for n, name in enumerate("abc")}
    cells = {name: Cell(each) for name, each in values.items()}
    noise = seed_noise(values)
    several = contrast(noise, {"a": -0.5, "b": -0.5, "c": 1}, cells)
    assert (several.difference, several.p, several.family) == (pytest.approx(0.15), None, 0)
    assert contrast(noise, {"a": -1, "c": 1}, cells).p == pytest.approx(2 / 20)


@pytest.mark.parametrize("paired", [False, True])
def test_variance_over_rows_of_weights_is_that_of_a_loop(paired: bool):
    rng = np.random.default_rng(3)
    weights, seeds, rows = (-1.0, 0.25, 0.75), 4, 30
    scores = rng.random((3, seeds, rows)) + 2 * rng.random((3, 1, rows))
    sides = [dict(enumerate(each)) for each in scores]
    found = row_noise(sides, weights, paired)
    assert found is not None
    parts = [w * each for w, each in zip(weights, scores, strict=True)]
    parts = [sum(parts)] if paired else parts
    means, single = np.zeros(rows), 0.0
    for part in parts:
        means += part.mean(0)
        left = [
            part[s, r] - part[s].mean() - part[:, r].mean() + part.mean()
            for s in range(seeds)
            for r in range(rows)
        ]
        single += sum(each**2 for each in left) / ((seeds - 1) * (rows - 1)) / seeds
    assert found[:2] == (pytest.approx((means.var(ddof=1) - single) / rows), rows)
    doubled = row_noise(sides, [2 * w for w in weights], paired)
    assert doubled is not None
    assert doubled[0] == pytest.approx(4 * found[0])


def test_any_pair_is_compared_on_its_own():
    study = made_up_study()
    report = report_of(study)
    found, back = report.pair("mlm", "ltr"), report.pair("ltr", "mlm")
    assert list(found) == [measure.name for measure in study.measures if measure.is_primary]
    for name, one in found.items():
        cells = study.variants["ltr"].cells[name], study.variants["mlm"].cells[name]
        means = [np.mean(list(cell.values.values())) for cell in cells]
        assert one.difference == pytest.approx(means[0] - means[1])
        assert (one.p_adjusted, one.family) == (one.p, 1)
        assert back[name].difference == pytest.approx(-one.difference)
        assert back[name].p == pytest.approx(one.p)
    # with the baseline: the report's own, before Holm
    name = "qnli accuracy"
    assert report.pair(study.baseline, "ltr")[name].p == compare_study(study)["ltr", name].p
    pairs = report.comparisons_of_pairs()
    assert list(pairs) == [("mlm+nsp", "mlm"), ("mlm+nsp", "ltr"), ("mlm", "ltr")]
    assert pairs["mlm", "ltr"] == found


@pytest.mark.parametrize(("one", "other"), [("mlm", "lrt"), ("mlm", "mlm")])
def test_a_pair_that_is_none(one: str, other: str):
    with pytest.raises(StudyError, match=f"report nsp: found '{other}'.*expected two variants"):
        report_of(made_up_study()).pair(one, other)


def test_planned_looks_count_in_the_table_of_axes():
    study = factorial({"rate": RATES, "unit": UNITS}, [0.70, 0.74, 0.71, 0.79], 0.01)
    alone = [each.comparisons[ACCURACY.name] for each in effects_of_axes(study)]
    study.looks = 3
    found = [each.comparisons[ACCURACY.name] for each in effects_of_axes(study)]
    for one, other in zip(alone, found, strict=True):
        assert other.p == one.p
        assert other.p_adjusted == pytest.approx(min(1.0, 3 * one.p_adjusted))
        assert other.family == 3 * one.family
    assert any(each.p_adjusted < 1 for each in found)
