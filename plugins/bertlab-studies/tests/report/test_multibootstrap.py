"""The Multi-Bootstrap against a direct loop, draw by draw, and by its invariants and figures."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bertlab.errors import DataError
from bertlab_studies.report.multibootstrap import drawn_scores, multibootstrap


def one_by_one(baseline, variant, paired: bool, draws: int, seed: int) -> list[tuple]:
    """Sellam et al.'s procedure as they state it: one draw, one seed and one row at a time."""
    rng = np.random.RandomState(seed)
    rows = baseline.shape[1]
    found = []
    for _ in range(draws):
        before = rng.choice(list(range(len(baseline))), size=len(baseline), replace=True)
        after = before
        if not paired:
            after = rng.choice(list(range(len(variant))), size=len(variant), replace=True)
        chosen = rng.choice(rows, size=rows, replace=True)
        found.append(
            tuple(
                np.mean([np.mean([side[number][row] for row in chosen]) for number in numbers])
                for side, numbers in ((baseline, before), (variant, after))
            )
        )
    return found


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("rows", [2, 37])
def test_draws_equal_a_direct_loop(paired: bool, rows: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bertlab_studies.report.multibootstrap._BATCH", 7 * rows)  # not of draws
    rng = np.random.default_rng(rows)
    baseline, variant = rng.random((4, rows)), rng.random((4 if paired else 3, rows))
    found = drawn_scores(baseline, variant, paired, draws=50, seed=5)
    expected = one_by_one(baseline, variant, paired, draws=50, seed=5)
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    result = multibootstrap(baseline, variant, paired, draws=50, seed=5)
    differences = [after - before for before, after in expected]
    assert (result.low, result.high) == pytest.approx(np.quantile(differences, [0.025, 0.975]))
    assert result.difference == pytest.approx(variant.mean() - baseline.mean())
    smaller = min(sum(each <= 0 for each in differences), sum(each >= 0 for each in differences))
    assert result.p == pytest.approx(min(1, 2 * (smaller + 1) / 51))
    assert (result.rows, result.seeds, result.draws) == (rows, (4, len(variant)), 50)


@pytest.mark.first_fast
@pytest.mark.parametrize("paired", [True, False])
def test_deviation_of_draws_is_that_of_a_crossed_design(paired: bool):
    rng = np.random.default_rng(8)
    seeds, rows = 12, 400

    def side(seed_effects, row_effects):
        return seed_effects[:, None] + row_effects + rng.normal(0, 0.1, (seeds, rows))

    common = rng.normal(0, 1, rows)  # hard rows are hard for both: cancels, as rows are the same
    shared = rng.normal(0, 0.05, seeds)
    one = side(shared + rng.normal(0, 0.02, seeds), common)
    other = side(shared + rng.normal(0, 0.02, seeds), common + rng.normal(0, 0.3, rows))
    difference = np.diff(drawn_scores(one, other, paired, draws=4000, seed=0))
    over_rows = (other.mean(0) - one.mean(0)).var() / rows
    over_seeds = [side.mean(1) for side in (one, other)]
    if paired:
        variance = (over_seeds[1] - over_seeds[0]).var() / seeds
    else:
        variance = sum(each.var() for each in over_seeds) / seeds
    assert difference.std() == pytest.approx((over_rows + variance) ** 0.5, rel=0.05)


scores = arrays.arrays(
    np.float64,
    st.tuples(st.integers(2, 4), st.integers(2, 9)),
    elements=st.sampled_from([0.0, 0.25, 1.0]),
)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(scores, st.booleans())
def test_a_side_against_itself_shows_nothing(side: np.ndarray, paired: bool):
    found = multibootstrap(side, side, paired, draws=99)
    assert found.low <= found.difference == 0 <= found.high
    if paired:
        assert (found.low, found.high) == pytest.approx((0, 0), abs=1e-12)
        assert found.p == 1


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(scores)
def test_paired_sides_swapped_are_mirrored(side: np.ndarray):
    other = side[:, ::-1]
    found = multibootstrap(side, other, True, draws=99)
    swapped = multibootstrap(other, side, True, draws=99)
    assert (found.low, found.high) == pytest.approx((-swapped.high, -swapped.low), abs=1e-12)
    assert found.p == swapped.p


def test_seeds_that_are_not_finite_are_left_out():
    good = np.random.default_rng(1).random((4, 5))
    broken = good[::-1].copy()
    broken[1, 2] = math.nan
    kept = [0, 2, 3]
    assert multibootstrap(good, broken, True) == multibootstrap(good[kept], broken[kept], True)
    assert multibootstrap(good, broken, False) == multibootstrap(good, broken[kept], False)
    assert multibootstrap(good[:2], broken[:2], True) is None


@pytest.mark.parametrize("shape", [(1, 9), (0, 9), (5, 1), (5, 0)])
def test_too_little_gives_nothing(shape: tuple[int, int]):
    side = np.ones(shape)
    assert multibootstrap(side, side, True) is None
    assert multibootstrap(side, side, False) is None


def test_sides_that_do_not_fit_are_refused():
    with pytest.raises(DataError, match="3 seeds × 5 rows and 3 seeds × 4 rows"):
        multibootstrap(np.ones((3, 5)), np.ones((3, 4)), False)
    with pytest.raises(DataError, match="same test set, and the same seeds"):
        multibootstrap(np.ones((3, 5)), np.ones((4, 5)), True)
    assert multibootstrap(np.ones((3, 5)), np.ones((4, 5)), False) is not None
