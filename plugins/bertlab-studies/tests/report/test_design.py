"""What designs can show: power against simulated studies, pilots, and what must be so of any."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bertlab_studies.report.comparison import LEVEL, Comparison
from bertlab_studies.report.design import (
    Deviations,
    Question,
    evaluate_design,
    limit_of_rows,
    pilot_deviations,
    rows_needed,
    seeds_needed,
)
from bertlab_studies.report.seed_noise import seed_noise
from bertlab_studies.report.statistics import compare, compare_study
from bertlab_studies.study_scores import Cell, Measure, StudyScores, VariantScores
from made_up_scores import SPREADS, add_repeats, made_up_study

DRAWN = 1000  # a share of 0.8 has a standard error of 0.013
NEAR = 0.04


def drawn_study(
    rng: np.random.Generator, deviations: Deviations, variants: int, seeds: int, effect: float
) -> StudyScores:
    """Return a study with two measures; variant 1 is better in the first, all else is equal."""
    study = StudyScores(
        name="drawn",
        baseline="0",
        seeds=list(range(seeds)),
        measures=[Measure("a", "accuracy"), Measure("b", "accuracy")],
        variants={str(number): VariantScores() for number in range(variants)},
    )
    for place, measure in enumerate(study.measures):
        for number, variant in enumerate(study.variants.values()):
            values = rng.normal(effect * (number == 1 and place == 0), 1, seeds)
            cell = Cell(dict(enumerate(map(float, values))))
            if deviations.row and deviations.rows:
                # two variants' rows differ by √2 times this
                rows = rng.normal(0, deviations.row / 2**0.5, deviations.rows)
                noise = rng.normal(0, 1, (seeds, deviations.rows))
                noise -= noise.mean(1, keepdims=True)
                cell.examples = dict(enumerate(values[:, None] + rows + noise))
                cell.values = {seed: float(each.mean()) for seed, each in cell.examples.items()}
            variant.cells[measure.name] = cell
    return study


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("variants", "seeds", "row", "rows", "effect"),
    [
        (2, 3, None, None, 4.0),
        pytest.param(6, 3, None, None, 4.5, marks=pytest.mark.nightly),
        pytest.param(3, 10, None, None, 1.3, marks=pytest.mark.nightly),
        pytest.param(2, 5, 8.0, 100, 2.5, marks=pytest.mark.slow),
    ],
)
def test_power_is_that_of_simulated_studies(
    variants: int, seeds: int, row: float | None, rows: int | None, effect: float
) -> None:
    deviations = Deviations(1.0, row=row, rows=rows)
    question = Question(effect, variants, 2 * (variants - 1))
    rng = np.random.default_rng(5)
    shown = 0
    for _ in range(DRAWN):
        study = drawn_study(rng, deviations, variants, seeds, effect)
        found = compare_study(study, draws=0)["1", "a accuracy"]
        shown += found.significant and (found.difference or 0) > 0
    design = evaluate_design(deviations, question, seeds)
    assert shown / DRAWN == pytest.approx(design.power, abs=NEAR)


@pytest.mark.nightly
@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize(("variants", "family"), [(2, 1), (6, 10)])
def test_what_a_report_says_could_be_shown_is_shown_four_times_in_five(
    variants: int, family: int, seeds: int
) -> None:
    def compared(values: np.ndarray, apart: int) -> Comparison:
        """Compare two of ``(variants, seeds)`` values, whose seeds are the same if not apart."""
        by_seed = [dict(enumerate(row.tolist(), apart * v)) for v, row in enumerate(values)]
        noise = seed_noise({str(v): each for v, each in enumerate(by_seed)})
        cells = {str(v): Cell(each) for v, each in enumerate(by_seed)}
        return replace(compare(noise, cells, "0", "1"), family=family)

    rng = np.random.default_rng(seeds)
    # a report whose noise is that of the studies: each variant's sample deviation is 1
    known = stats.zscore(rng.normal(size=(variants, seeds)), axis=1, ddof=1)
    could = compared(known, apart=seeds).detectable
    assert could is not None
    effect = np.zeros((variants, 1))
    effect[1] = could
    found = [compared(rng.normal(size=(variants, seeds)) + effect, 0) for _ in range(2 * DRAWN)]
    shown = [(one.p or 0) <= LEVEL / family and (one.difference or 0) > 0 for one in found]
    assert np.mean(shown) == pytest.approx(0.8, abs=NEAR)


def test_what_is_shown_is_shown_four_times_in_five() -> None:
    deviations = Deviations(0.8, 1.2, 20.0, 500)
    shows = evaluate_design(deviations, Question(1.0, 4, 6), 5, 3).shows
    assert evaluate_design(deviations, Question(shows, 4, 6), 5, 3).power == pytest.approx(0.8)


def test_many_seeds_are_the_normal_case() -> None:
    design = evaluate_design(Deviations(1.0), Question(0.1, 2, 1), 2000)
    assert design.shows == pytest.approx((1.959964 + 0.841621) * (2 / 2000) ** 0.5, rel=0.005)


def test_fine_tunings_average_their_own_part_away() -> None:
    nested = Deviations(0.8, 1.2)
    single = Deviations(math.hypot(0.8, 1.2 / 3**0.5))
    question = Question(1.0, 3, 2)
    one, other = evaluate_design(nested, question, 5, 3), evaluate_design(single, question, 5)
    assert (one.shows, one.power) == pytest.approx((other.shows, other.power))


@pytest.mark.nightly
@settings(deadline=None, max_examples=20)
@given(
    deviation=st.floats(0.1, 3),
    variants=st.integers(2, 8),
    seeds=st.integers(5, 20),
    row=st.none() | st.floats(10, 40),
)
def test_more_of_anything_shows_more(
    deviation: float, variants: int, seeds: int, row: float | None
) -> None:
    known = Deviations(deviation, 1.0, row, None if row is None else 300)
    question = Question(1.0, variants, variants - 1)
    design = evaluate_design(known, question, seeds)
    assert evaluate_design(known, question, seeds + 5).shows < design.shows
    assert evaluate_design(known, question, seeds, 3).shows < design.shows
    assert evaluate_design(known, Question(1.0, variants, 3 * variants), seeds).shows > design.shows
    if row is not None:
        assert evaluate_design(known.with_rows(3000), question, seeds).shows < design.shows
        assert limit_of_rows(known, question) < evaluate_design(known, question, 500).shows


@pytest.mark.slow
def test_the_fewest_seeds_and_rows() -> None:
    known, question = Deviations(0.8, None, 20.0, 2000), Question(2.0, 3, 2)
    seeds = seeds_needed(known, question)
    assert seeds is not None
    assert evaluate_design(known, question, seeds).power >= 0.8
    assert evaluate_design(known, question, seeds - 1).power < 0.8
    rows = rows_needed(known, question, 25)
    assert rows is not None
    assert evaluate_design(known.with_rows(rows), question, 25).power >= 0.8
    assert evaluate_design(known.with_rows(rows - 1), question, 25).power < 0.8


def test_rows_alone_can_be_too_few() -> None:
    known, question = Deviations(0.8, None, 20.0, 277), Question(1.0, 2, 1)
    noncentrality = limit_of_rows(known, question) / (20 / 277**0.5)
    power = stats.nct.sf(stats.t.isf(0.025, 276), 276, noncentrality)
    assert power == pytest.approx(0.8, abs=0.002)
    assert limit_of_rows(known, question) > 1
    assert seeds_needed(known, question) is None
    assert rows_needed(Deviations(5.0, None, 20.0, 277), question, 3) is None


def test_a_pilot_tells_its_pooled_deviation() -> None:
    study = made_up_study(seeds=5)
    measure = study.measures[0]
    found = pilot_deviations(study, measure)
    values = [list(study.cell(variant, measure).values.values()) for variant in study.variants]
    assert found is not None
    assert found.pretraining == pytest.approx(np.mean(np.var(values, axis=1, ddof=1)) ** 0.5)
    assert (found.finetuning, found.row, found.rows) == (None, None, None)
    assert found.freedom == (12, 0)


def test_a_nested_pilot_tells_both_deviations() -> None:
    study = add_repeats(made_up_study(seeds=200), finetunings=4, noise=1.5)
    found = pilot_deviations(study, study.measures[0])
    assert found is not None
    assert found.finetuning == pytest.approx(1.5 * SPREADS[0], rel=0.05)
    assert found.pretraining == pytest.approx(SPREADS[0], rel=0.1)
    assert found.freedom == (3 * 199, 3 * 200 * 3)


def test_a_pilot_tells_the_deviation_over_rows() -> None:
    rng = np.random.default_rng(2)
    study = drawn_study(rng, Deviations(1.0, row=8.0, rows=4000), variants=4, seeds=4, effect=0)
    found = pilot_deviations(study, study.measures[1])
    assert found is not None
    assert found.row == pytest.approx(8.0, rel=0.05)
    assert found.rows == 4000


def test_a_pilot_of_one_seed_tells_nothing() -> None:
    study = made_up_study(seeds=1)
    assert pilot_deviations(study, study.measures[0]) is None
