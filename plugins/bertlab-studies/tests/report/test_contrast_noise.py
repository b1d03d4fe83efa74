"""Noise of weighted sums: arrays of draws against one study at a time, and power by simulation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bertlab_studies.report.contrast_noise import ContrastNoise, satterthwaite

variance = st.floats(0, 1e3).map(lambda each: round(each, 6))


@settings(deadline=None, max_examples=25)
@given(
    own=arrays.arrays(np.float64, (3, 2, 4), elements=variance),
    of_rows=arrays.arrays(np.float64, (3, 2, 1), elements=variance),
    summed=st.integers(1, 4),
    prior=st.floats(0, 2),
)
def test_draws_are_estimated_as_single_studies_are(own, of_rows, summed: int, prior: float):
    known, shares = (2, 3, 1, 2), (0.5, 0.3, 0.2, 0.1)[:summed]
    found = ContrastNoise((1,) * 4, known, shares, prior, ((1.0, 20),)).over_all(own, of_rows)
    for index in np.ndindex(3, 2):
        rows = ((float(of_rows[index].item()), 20),)
        alone = ContrastNoise(tuple(own[index].tolist()), known, shares, prior, rows)
        assert tuple(each[index] for each in found) == pytest.approx(alone.estimate)


def test_a_part_that_is_0_has_no_degrees_of_freedom():
    assert satterthwaite(np.array([0.0, 2.0]), np.array([0.0, 7.0])) == 7
    assert satterthwaite(np.zeros(2), np.array([3.0, 7.0])) == 0
    assert satterthwaite(np.ones(3), np.full(3, 4.0)) == pytest.approx(12)
