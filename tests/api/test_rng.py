import hashlib
import pickle
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bertlab.api.rng import CounterRNG

RNG = CounterRNG(2018, "test")
ALPHA = 1e-4  # the draws are fixed: a failure is a defect or a changed generator
uint64s = st.integers(0, 2**64 - 1)


class SplitMix64:
    """The published sequential generator in plain Python integers."""

    def __init__(self, seed: int):
        self.state = seed

    def next(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)


def reference_bits(seed, stream, counters):
    key = hashlib.blake2b(f"{seed}\0{stream}".encode(), digest_size=8).digest()

    def absorb(state, counter):
        return SplitMix64((state + counter * 0x9E3779B97F4A7C15) % 2**64).next()

    return reduce(absorb, counters, int.from_bytes(key, "little"))


def test_reference_is_splitmix64():
    generator = SplitMix64(0)  # first outputs as published with xoshiro's sources
    assert [generator.next() for _ in range(2)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


@given(st.integers(-(2**70), 2**70), st.text(max_size=8), st.lists(uint64s, min_size=1, max_size=4))
def test_bits_equal_reference(seed, stream, counters):
    bits = CounterRNG(seed, stream).bits(*counters)
    assert bits.dtype == np.uint64
    assert int(bits) == reference_bits(seed, stream, counters)


def test_golden_values():
    rng = CounterRNG(42, "golden")
    assert [hex(int(b)) for b in rng.bits(np.arange(3))] == [
        "0x8489f92a3724fec7",
        "0xeb70293703021d2f",
        "0xa3a4a97b2d77f90f",
    ]
    assert rng.integers(1000, 7, np.arange(5)).tolist() == [383, 24, 649, 460, 965]
    assert rng.permute(np.arange(8), 8, 1).tolist() == [2, 0, 1, 7, 6, 4, 5, 3]
    assert int(rng.child("a").bits(0)) == 0x9588CCC75FDAE4A8


def test_consecutive_counters_are_a_splitmix64_sequence():
    generator = SplitMix64(int(CounterRNG(5, "x").bits()))
    assert CounterRNG(5, "x").bits(np.arange(100)).tolist() == [
        generator.next() for _ in range(100)
    ]


def test_broadcasting_equals_scalars():
    rows, columns = np.arange(5)[:, None], np.arange(7)
    table = RNG.bits(3, rows, columns)
    assert table.shape == (5, 7)
    assert all(table[r, c] == RNG.bits(3, r, c) for r in range(5) for c in range(7))


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, np.uint64])
def test_counter_dtype_does_not_matter(dtype):
    assert np.array_equal(RNG.bits(np.arange(9, dtype=dtype)), RNG.bits(np.arange(9)))


def test_negative_counters_wrap():
    assert RNG.bits(-1) == RNG.bits(2**64 - 1) == RNG.bits(np.array(-1, dtype=np.int8))


def test_arity_and_order_matter():
    draws = {int(RNG.bits(*c)) for c in [(), (0,), (0, 0), (1, 2), (2, 1), (0, 1), (1, 0), (1,)]}
    assert len(draws) == 8


def test_pickle_and_equality():
    rng = RNG.child("masking")
    copy = pickle.loads(pickle.dumps(rng))
    assert copy == rng == CounterRNG(2018, "test/masking")
    assert copy != RNG
    assert np.array_equal(copy.bits(np.arange(10)), rng.bits(np.arange(10)))


def test_uniform_passes_kolmogorov_smirnov():
    for draws in (RNG.uniform(np.arange(200_000)), RNG.uniform(np.arange(200_000), 3)):
        assert draws.dtype == np.float64
        assert 0 <= draws.min() < draws.max() < 1
        assert stats.kstest(draws, "uniform").pvalue > ALPHA


@pytest.mark.parametrize("byte", range(8))
def test_every_byte_is_uniform(byte):
    bits = RNG.bits(np.arange(500)[:, None], np.arange(500))
    values = (bits >> np.uint64(8 * byte)) & np.uint64(255)
    counts = np.bincount(values.ravel().astype(int), minlength=256)
    assert stats.chisquare(counts).pvalue > ALPHA


@pytest.mark.parametrize("high", [1, 2, 3, 10, 1000])
def test_integers_are_uniform(high):
    draws = RNG.integers(high, np.arange(100_000), 1)
    counts = np.bincount(draws, minlength=high)
    assert draws.dtype == np.int64
    assert len(counts) == high
    if high > 1:
        assert stats.chisquare(counts).pvalue > ALPHA


def test_integers_take_an_array_of_bounds():
    highs = np.array([1, 5, 2**40, 2**62])[:, None]
    draws = RNG.integers(highs, np.arange(1000))
    assert draws.shape == (4, 1000)
    assert ((draws >= 0) & (draws < highs)).all()
    assert (draws.max(axis=1) >= 0.98 * (highs[:, 0] - 1)).all()


@pytest.mark.parametrize("shift", [(1, 0), (0, 1), (1, 1), (1, -1), (1024, 0), (0, 1024)])
def test_neighbouring_counters_are_uncorrelated(shift):
    rows, columns = np.arange(2000, 2400)[:, None], np.arange(2000, 2400)
    first = RNG.uniform(rows, columns).ravel()
    second = RNG.uniform(rows + shift[0], columns + shift[1]).ravel()
    assert abs(np.corrcoef(first, second)[0, 1]) * np.sqrt(first.size) < 4
    table, *_ = np.histogram2d(first, second, bins=16)
    assert stats.chisquare(table.ravel()).pvalue > ALPHA


def test_rows_share_what_leads():
    epochs, indices = np.array([0, 0, 3]), np.array([7, 8, 7])
    rows, places = np.array([0, 0, 1, 2, 2]), np.array([0, 1, 0, 0, 5])
    shared = RNG.bits(epochs, indices, places, rows=rows)
    assert np.array_equal(shared, RNG.bits(epochs[rows], indices[rows], places))


@pytest.mark.parametrize("place", [0, 1])
def test_avalanche(place):
    """Flipping any bit of a counter flips each of 64 output bits with probability 1/2."""
    samples = 4000
    counters = [np.arange(samples), np.arange(samples) * 7]
    base = RNG.bits(*counters)
    for bit in range(0, 64, 3):
        flipped = list(counters)
        flipped[place] = counters[place].astype(np.uint64) ^ np.uint64(1 << bit)
        changed = (RNG.bits(*flipped) ^ base)[:, None] >> np.arange(64, dtype=np.uint64)
        share = (changed & np.uint64(1)).mean(axis=0)
        assert np.abs(share - 0.5).max() < 5 * 0.5 / np.sqrt(samples)


def test_streams_and_seeds_are_independent():
    generators = [RNG, RNG.child("a"), RNG.child("b"), CounterRNG(2019, "test")]
    generators += [CounterRNG(2018, "tesu"), RNG.child("a").child("b")]
    draws = np.stack([rng.uniform(np.arange(50_000)) for rng in generators])
    correlations = np.corrcoef(draws) - np.eye(len(draws))
    assert np.abs(correlations).max() * np.sqrt(50_000) < 4.5


@given(st.integers(1, 3000), st.integers(0, 2**63), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_permute_is_a_bijection(size, seed, key):
    image = CounterRNG(seed, "p").permute(np.arange(size), size, key)
    assert image.dtype == np.int64
    assert np.array_equal(np.sort(image), np.arange(size))


@given(st.integers(1, 2**40), st.integers(0, 99))
@settings(deadline=None)
def test_permute_of_a_large_domain_stays_inside_without_collisions(size, key):
    index = np.unique(np.linspace(0, size - 1, 500).astype(np.int64))
    image = RNG.permute(index, size, key)
    assert image.min() >= 0
    assert image.max() < size
    assert len(np.unique(image)) == len(index)


def test_permute_broadcasts_keys():
    epochs, index = np.arange(3)[:, None], np.arange(100)
    table = RNG.permute(index, 100, epochs)
    assert table.shape == (3, 100)
    for epoch in range(3):
        assert np.array_equal(table[epoch], RNG.permute(index, 100, epoch))
    assert (table[0] != table[1]).mean() > 0.9
    assert RNG.permute(0, 1) == 0


@pytest.mark.first_fast
@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 12, 37, 300])
def test_permute_sends_every_place_everywhere(size):
    """Over many keys, position i goes to each j equally often, and neighbours are unrelated."""
    keys = 20_000 if size < 100 else 6_000  # a place is expected at least 20 times
    image = RNG.permute(np.arange(size), size, np.arange(keys)[:, None])
    for place in (0, size // 2, size - 1):
        assert stats.chisquare(np.bincount(image[:, place], minlength=size)).pvalue > ALPHA
    if size > 2:
        step = (image[:, 1] - image[:, 0]) % size
        assert stats.chisquare(np.bincount(step, minlength=size)[1:]).pvalue > ALPHA


def test_permutations_of_four_are_all_equally_likely():
    image = RNG.permute(np.arange(4), 4, np.arange(24_000)[:, None])
    _, counts = np.unique(image, axis=0, return_counts=True)
    assert len(counts) == 24
    assert counts.min() > 850
    assert counts.max() < 1150
