"""Whether a held-out text is of the domain of the training text."""

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon

from bertlab import Example, load
from bertlab.extend import read_manifest
from bertlab_evaluations.domain import (
    divergence,
    divergence_of_parts,
    is_far,
    natural_divergence,
    parts_in,
)
from bertlab_evaluations.held_out_loss import HeldOutLoss


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def drawn(rng: np.random.Generator, count: int, first: int = 0) -> np.ndarray:
    shares = 1 / np.arange(1, 2001)
    return first + rng.choice(2000, count, p=shares / shares.sum())


def test_the_divergence_is_scipys(rng: np.random.Generator):
    for _ in range(20):
        one, other = rng.integers(0, 5, (2, 30))
        one[0] = other[1] = 1
        assert divergence(one, other) == pytest.approx(jensenshannon(one, other, 2) ** 2)
    assert divergence(one, one * 7) == pytest.approx(0, abs=1e-12)
    assert divergence(np.array([1, 0]), np.array([0, 3])) == pytest.approx(1)


def test_texts_of_one_source_are_near_and_of_others_far_at_any_size(rng: np.random.Generator):
    parts = divergence_of_parts(drawn(rng, 100_000))
    assert list(parts) == [1024, 4096, 16384]
    assert list(parts.values()) == sorted(parts.values(), reverse=True)
    trained = np.bincount(drawn(rng, 100_000), minlength=4000)
    for size in (1024, 3000, 20_000):
        natural = natural_divergence(parts, size)
        assert natural is not None
        same, other = drawn(rng, size), drawn(rng, size, first=1000)
        assert not is_far(divergence(np.bincount(same, minlength=4000), trained), natural)
        assert is_far(divergence(np.bincount(other, minlength=4000), trained), natural)


def test_short_texts_have_no_parts():
    assert divergence_of_parts(np.zeros(2000, np.int64)) == {}
    assert natural_divergence({}, 100) is None
    assert parts_in({}) == {}
    assert natural_divergence({1024: 0.4, 4096: 0.2}, 2048) == pytest.approx(0.3)
    assert natural_divergence({1024: 0.4, 4096: 0.2}, 1) == 0.4


def test_a_very_long_text_is_compared_by_its_parts(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
):
    words = drawn(rng, 60_000)
    whole = divergence_of_parts(words)
    monkeypatch.setattr("bertlab_evaluations.domain._SIZES", (1024,))
    assert divergence_of_parts(words)[1024] == pytest.approx(whole[1024], rel=0.2)


def test_a_run_tells_its_parts_and_an_evaluation_its_domain(tiny_run: Path):
    parts = parts_in(read_manifest(tiny_run))
    model = load(tiny_run).evaluated()
    assert model.training_parts == parts
    assert all(0 < each < 1 for each in parts.values())
    assert parts
    rows = [Example({"text": "zzz qqq xxx " * 50}, "text.txt:1")]
    result = HeldOutLoss(max_seq_length=16, single_tokens=0).evaluate(model, rows)
    assert result.metrics["unigram_divergence"] > 2 * result.metrics["natural_divergence"]
    assert any(note.startswith("not of the domain of the training text") for note in result.notes)
