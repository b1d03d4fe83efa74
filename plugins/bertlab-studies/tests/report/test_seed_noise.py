"""Noise over seeds against scipy, a published table and plain loops; simulated error and power."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from bertlab_studies.report.seed_noise import (
    EarlierNoise,
    SeedContrast,
    SeedNoise,
    noise_ratios,
    seed_noise,
)
from bertlab_studies.report.statistics import holm

# Shrout and Fleiss (1979), table 2: six targets (here seeds) by four judges (here variants)
JUDGES = {
    "1": dict(enumerate([9, 6, 8, 7, 10, 6])),
    "2": dict(enumerate([2, 1, 4, 1, 5, 2])),
    "3": dict(enumerate([5, 3, 6, 2, 6, 4])),
    "4": dict(enumerate([8, 2, 8, 6, 9, 7])),
}

number = st.integers(-1000, 1000).map(lambda each: each / 1000)
study = st.lists(st.dictionaries(st.integers(0, 5), number, max_size=6), min_size=2, max_size=4)
sides = st.tuples(*2 * [st.lists(number, min_size=2, max_size=6)])


def apart(*sides) -> dict[str, dict[int, float]]:
    """Name variants a, b, c, and give each seeds of its own."""
    return {
        name: {100 * place + seed: float(value) for seed, value in enumerate(values)}
        for place, (name, values) in enumerate(zip("abcdefgh", sides, strict=False))
    }


def p_of(found: SeedContrast) -> float:
    return float(2 * stats.t.sf(abs(found.value) / math.sqrt(found.variance), found.freedom))


def by_hand(values, one: str, other: str) -> tuple[float, float, float]:
    """Return difference, variance and freedom of unpaired variants, with all the steps spelled."""
    several = {name: list(v.values()) for name, v in values.items() if len(v) > 1}
    own = {name: np.var(v, ddof=1) for name, v in several.items()}
    total = sum(len(v) - 1 for v in several.values())
    pooled = sum((len(v) - 1) * own[name] for name, v in several.items()) / total
    prior = min(2, (len(several) - 2) * (min(map(len, several.values())) - 1) * 0.375)
    variance = below = 0.0
    of_own = {}
    for name in (one, other):
        n = len(several[name])
        moderated = ((n - 1) * own[name] + prior * pooled) / (n - 1 + prior)
        part = max(own[name], moderated) / n
        variance += part
        of_own[n] = n - 1 + prior * min(1, pooled / own[name])
        below += part**2 / of_own[n]
    difference = np.mean(several[other]) - np.mean(several[one])
    freedom, few, many = min(variance**2 / below, total), min(of_own), max(of_own)
    if few < many:
        share = min(1, 1.5 * (1 - few / many) / (few - 1))
        freedom = min(freedom, of_own[few] ** share * freedom ** (1 - share))
    return float(difference), variance, freedom


@settings(deadline=None, max_examples=25)
@given(sides)
def test_two_variants_are_welchs_test(pair):
    assume(min(map(np.ptp, pair)) > 0)
    found = seed_noise(apart(*pair)).contrast({"a": -1, "b": 1})
    scipys = stats.ttest_ind(pair[1], pair[0], equal_var=False)
    assert found.runs == (len(pair[0]), len(pair[1]))
    assert found.value / math.sqrt(found.variance) == pytest.approx(scipys.statistic)
    if found.runs[0] != found.runs[1]:  # few against many know less
        assert min(found.runs) - 1 - 1e-9 <= found.freedom <= scipys.df + 1e-9
        return
    assert found.freedom == pytest.approx(scipys.df)
    assert p_of(found) == pytest.approx(scipys.pvalue)
    interval = stats.t.interval(0.95, found.freedom, found.value, math.sqrt(found.variance))
    assert interval == pytest.approx(tuple(scipys.confidence_interval()))


@pytest.mark.parametrize("n", [2, 3, 5, 12])
def test_two_variants_that_move_together_are_the_paired_test(n: int):
    rng = np.random.default_rng(n)
    one = rng.permutation(n) + rng.normal(0, 0.001, n)
    other = one + rng.normal(0.001, 0.001, n)
    noise = seed_noise({"a": dict(enumerate(one)), "b": dict(enumerate(other))})
    found, scipys = noise.contrast({"a": -1, "b": 1}), stats.ttest_rel(other, one)
    assert noise.paired
    assert found.value / math.sqrt(found.variance) == pytest.approx(scipys.statistic)
    assert found.freedom == scipys.df == n - 1
    assert p_of(found) == pytest.approx(scipys.pvalue)


def test_seeds_of_the_same_number_do_not_pair_by_themselves():
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(2, 6))
    noise = seed_noise({"a": dict(enumerate(one)), "b": dict(enumerate(other))})
    assert not noise.paired
    found = noise.contrast({"a": -1, "b": 1})
    assert p_of(found) == pytest.approx(stats.ttest_ind(other, one, equal_var=False).pvalue)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.lists(number, min_size=2, max_size=6), min_size=2, max_size=5))
def test_any_variants_are_the_formula(variants):
    assume(all(np.ptp(each) > 0 for each in variants))
    values = apart(*variants)
    found = seed_noise(values).contrast({"a": -1, "b": 1})
    expected = by_hand(values, "a", "b")
    assert (found.value, found.variance, found.freedom) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("variants", "n", "freedom"), [(6, 3, 8), (3, 3, 5.5), (3, 2, 2.75), (4, 2, 3.5), (4, 5, 12)]
)
def test_equally_noisy_variants_know_more_together(variants: int, n: int, freedom: float):
    values = apart(*(np.arange(n) + 10 * place for place in range(variants)))
    found = seed_noise(values).contrast({"a": -1, "b": 1})
    # each has n - 1 degrees of freedom and up to two of the others; no more than all together
    assert found.freedom == pytest.approx(freedom)
    assert found.variance == pytest.approx(2 * np.var(np.arange(n), ddof=1) / n)
    assert found.value == pytest.approx(10)


def test_a_noisy_variant_keeps_its_noise_and_quiet_ones_get_some():
    noise = seed_noise(apart([1, 2, 3], [1, 2, 3], [1, 2, 3], [10, 40, 70]))
    pooled = (3 * 1 + 900) / 4
    moderated = (2 * 1 + 1.5 * pooled) / 3.5
    quiet, mixed = noise.contrast({"a": -1, "b": 1}), noise.contrast({"a": -1, "d": 1})
    assert quiet.variance == pytest.approx(2 * moderated / 3)
    assert quiet.freedom == 3.5 + 3.5
    assert mixed.variance == pytest.approx((moderated + 900) / 3)
    # what the others know is lent less to a variant that is not like them
    below = moderated**2 / 3.5 + 900**2 / (2 + 1.5 * pooled / 900)
    assert mixed.freedom == pytest.approx((moderated + 900) ** 2 / below)


def test_earlier_studies_count_as_another_variant_does():
    three, again = [1.0, 2.0, 4.0], [3.0, 1.0, 2.0]
    alone = seed_noise(apart(three, again)).contrast({"a": -1, "b": 1})
    earlier = EarlierNoise(variance=6.0, freedom=12)
    found = seed_noise(apart(three, again), earlier=earlier).contrast({"a": -1, "b": 1})
    own = [np.var(each, ddof=1) for each in (three, again)]
    pooled = (2 * sum(own) + 12 * 6) / 16
    assert found.variance == pytest.approx(sum((2 * each + 2 * pooled) / 4 for each in own) / 3)
    assert found.freedom > alone.freedom
    nothing = seed_noise(apart(three, again), earlier=replace(earlier, freedom=0))
    assert nothing.contrast({"a": -1, "b": 1}) == alone


def several_measures(noisy: float, tasks: int) -> dict[str, dict[str, dict[int, float]]]:
    rng = np.random.default_rng(0)
    return {
        str(task): apart(noisy * rng.normal(size=3), *rng.normal(size=(5, 3)))
        for task in range(tasks)
    }


def test_ratios_are_of_the_other_measures():
    measures = several_measures(5.0, 3)
    own = {
        name: [np.var(list(v.values()), ddof=1) for v in each.values()]
        for name, each in measures.items()
    }
    ratios = [own[name][0] / np.mean(own[name][1:]) for name in "12"]
    expected = np.mean(ratios) / stats.f.ppf(0.85, 4, 20)
    found = noise_ratios(measures)
    assert found["0"]["a"] == pytest.approx(expected)
    assert found["0"]["a"] > 2 > max(ratio for name, ratio in found["0"].items() if name != "a")
    assert noise_ratios({"0": measures["0"]}) == {}
    assert noise_ratios({"0": {"a": {}}, "1": {"a": {}}}) == {"0": {}, "1": {}}


def test_a_variant_that_is_noisy_elsewhere_is_taken_to_be_noisy():
    values = apart([1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2, 3])
    found = seed_noise(values, {"a": 9.0, "b": 0.5}).contrast({"a": -1, "b": 1})
    assert found.variance == pytest.approx(((2 * 1 + 2 * 9) / 4 + 1) / 3)
    assert seed_noise(values, {}).contrast({"a": -1, "b": 1}).variance == pytest.approx(2 / 3)


def test_values_that_are_not_finite_are_left_out():
    whole = apart([1, 2, 4], [3, 5, 4], [2, 2, 5])
    broken = {name: by_seed | {77: math.nan, 78: math.inf} for name, by_seed in whole.items()}
    assert seed_noise(broken) == seed_noise(whole)


def test_too_few_runs():
    noise = seed_noise(apart([1.0, 2.0], [4.0], []))
    assert noise.contrast({"a": -1, "b": 1}) == SeedContrast((2, 1), 2.5)
    assert noise.contrast({"a": -1, "c": 1}) == SeedContrast((2, 0))
    assert seed_noise(apart([1.0], [4.0])).contrast({"a": -1, "b": 1}) == SeedContrast((1, 1), 3.0)
    assert seed_noise({"a": {}, "b": {}}).correlation is None


def test_a_variant_of_one_run_knows_nothing_of_noise():
    three, again = [1.0, 2.0, 4.0], [3.0, 1.0, 2.0]
    noise = seed_noise(apart(three, [4.0], again))
    assert noise.contrast({"a": -1, "b": 1}).variance is None
    welch = stats.ttest_ind(again, three, equal_var=False)
    assert p_of(noise.contrast({"a": -1, "c": 1})) == pytest.approx(welch.pvalue)


@pytest.mark.parametrize(("n", "m"), [(3, 3), (4, 4), (2, 5)])
def test_constants_are_a_permutation_test(n: int, m: int):
    found = seed_noise(apart([0.5] * n, [0.7] * m)).contrast({"a": -1, "b": 1})
    scipys = stats.permutation_test(
        ([0.5] * n, [0.7] * m), lambda x, y, axis: y.mean(axis) - x.mean(axis), vectorized=True
    )
    assert (found.variance, found.freedom) == (0, 0)
    assert found.p_constant == pytest.approx(scipys.pvalue)


def test_constants_that_move_together_are_a_sign_test():
    one = {seed: 0.1 * seed for seed in range(6)}
    noise = seed_noise({"a": one, "b": {seed: value + 0.2 for seed, value in one.items()}})
    found = noise.contrast({"a": -1, "b": 1})
    assert (noise.correlation, noise.paired, found.variance) == (1, True, 0)
    assert found.p_constant == stats.binomtest(6, 6).pvalue


def test_sides_that_differ_by_rounding_are_the_same():
    # the mean of three is 0.10000000000000002
    found = seed_noise(apart([0.1] * 3, [0.1] * 4)).contrast({"a": -1, "b": 1})
    assert found.p_constant == 1
    one = {seed: seed / 7 for seed in range(8)}
    moved = {seed: (value + 5) - 5 for seed, value in one.items()}
    assert seed_noise({"a": one, "b": moved}).contrast({"a": -1, "b": 1}).p_constant == 1


def test_one_constant_side_has_the_noise_of_the_other():
    found = seed_noise(apart([0.5] * 4, [0.6, 0.7, 0.8])).contrast({"a": -1, "b": 1})
    assert found.variance == pytest.approx(0.01 / 3)
    assert found.freedom == pytest.approx(2)


def test_correlation_as_published():
    noise = seed_noise(JUDGES)
    assert noise.correlation == pytest.approx(0.71, abs=0.005)  # table 4, ICC(3,1)
    assert noise.paired


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 4).flatmap(lambda n: st.lists(st.tuples(*n * [number]), min_size=2)))
def test_correlation_is_the_analysis_of_variance(rows):
    table = np.array(rows)  # seeds, variants
    count, variants = table.shape
    grand, of_seed, of_variant = table.mean(), table.mean(1), table.mean(0)
    error = sum(
        (table[s, v] - of_seed[s] - of_variant[v] + grand) ** 2
        for s in range(count)
        for v in range(variants)
    ) / ((count - 1) * (variants - 1))
    assume(error > 1e-12)
    between = variants * sum((mean - grand) ** 2 for mean in of_seed) / (count - 1)
    noise = seed_noise({str(v): dict(enumerate(table[:, v])) for v in range(variants)})
    expected = (between - error) / (between + (variants - 1) * error)
    assert noise.correlation == pytest.approx(expected, abs=1e-9)
    p = stats.f.sf(between / error, count - 1, (count - 1) * (variants - 1))
    assert noise.paired == (p <= 0.02)


@pytest.mark.parametrize(("quiet", "noisy"), [("1", "4"), ("2", "3")])
def test_several_variants_that_move_together_are_moderated_too(quiet: str, noisy: str):
    noise = seed_noise(JUDGES)
    one, other = (np.array(list(JUDGES[name].values())) for name in (quiet, noisy))
    own, found = np.var(other - one, ddof=1), noise.contrast({quiet: -1, noisy: 1})
    # table 3: mean square of the residual, of which a difference has two
    moderated = (5 * own + 2 * 2 * 1.02) / 7
    assert found.variance * 6 == pytest.approx(max(own, moderated), rel=1e-3)
    assert found.freedom == pytest.approx(5 + 2 * min(1, 2 * 1.02 / own), rel=1e-3)
    assert found.runs == (6, 6)


def test_pairing_needs_seeds_that_all_have():
    judges = {name: dict(values) for name, values in JUDGES.items()}
    judges["2"] = {0: 2.0, 100: 1.0}
    assert seed_noise(judges).correlation is None
    judges["2"] = {}  # a variant without values is no reason
    assert seed_noise(judges).paired


def test_pairs_beyond_the_seeds_that_all_have_count():
    shared = np.arange(10.0)
    rng = np.random.default_rng(0)
    one, other = shared + rng.normal(0, 0.001, (2, 10))
    late = {0: one[0] + 0.2, 1: one[1] + 0.2001}
    noise = seed_noise({"a": dict(enumerate(one)), "b": dict(enumerate(other)), "c": late})
    found = noise.contrast({"a": -1, "b": 1})
    assert noise.paired
    assert found.runs == (10, 10)
    assert found.freedom == 9
    assert found.variance == pytest.approx(np.var(other - one, ddof=1) / 10)


def differences(noise: SeedNoise) -> dict[tuple[str, str], SeedContrast]:
    return {
        (a, b): noise.contrast({a: -1, b: 1}) for a in noise.values for b in noise.values if a != b
    }


def assert_same(one: SeedContrast, other: SeedContrast, factor: float) -> None:
    assert one.runs == other.runs
    for name, power in (("value", 1), ("variance", 2), ("freedom", 0), ("p_constant", 0)):
        before, after = getattr(one, name), getattr(other, name)
        assert (before is None) == (after is None)
        if before is not None:
            assert after == pytest.approx(before * factor**power, rel=1e-6, abs=1e-9 * factor)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(study, st.integers(-50, 50), st.integers(1, 1000))
def test_shift_and_order_change_nothing_and_scale_scales(variants, shift: int, scale: int):
    values = dict(zip("abcd", variants, strict=False))
    noise = seed_noise(values)
    moved = seed_noise(
        {
            name: {s: (v + shift) * scale for s, v in reversed(by_seed.items())}
            for name, by_seed in reversed(values.items())
        }
    )
    assert moved.paired == noise.paired
    before, after = differences(noise), differences(moved)
    for pair in before:
        assert_same(before[pair], after[pair], scale)


@settings(deadline=None, max_examples=25)
@given(study)
def test_swapping_sides_turns_signs_and_nothing_is_negative(variants):
    noise = seed_noise(dict(zip("abcd", variants, strict=False)))
    found = differences(noise)
    for (a, b), one in found.items():
        other = found[b, a]
        assert one.runs == other.runs[::-1]
        assert (one.value is None) == (other.value is None)
        if one.value is not None:
            assert one.value == pytest.approx(-other.value)
        if one.variance is not None:
            assert one.variance == pytest.approx(other.variance)
            assert one.freedom == pytest.approx(other.freedom)
            assert one.variance >= 0
            assert one.freedom >= 0


def p_values(draws: np.ndarray) -> list[list[float]]:
    """Return a list for each study of ``(studies, variants, seeds)``: all against the first."""
    found = []
    for each in draws:
        noise = seed_noise({str(v): dict(enumerate(row)) for v, row in enumerate(each.tolist())})
        found.append([noise.contrast({"0": -1, name: 1}) for name in list(noise.values)[1:]])
    t = np.array([[abs(d.value) / math.sqrt(d.variance) for d in each] for each in found])
    return (2 * stats.t.sf(t, [[d.freedom for d in each] for each in found])).tolist()


@pytest.mark.nightly
@pytest.mark.parametrize("noisy", [1, 3])
@pytest.mark.parametrize("shared", [0, 2])
def test_false_alarms_of_a_study_are_what_is_promised(noisy: int, shared: int):
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(2000, 6, 3)) * np.array([1, 1, 1, 1, 1, noisy])[:, None]
    draws += shared * rng.normal(size=(2000, 1, 3))
    alarms = sum(min(holm(p)) <= 0.05 for p in p_values(draws))
    assert stats.binomtest(alarms, 2000, 0.05, alternative="greater").pvalue > 0.025


@pytest.mark.slow
def test_three_seeds_see_an_effect_of_four_deviations():
    rng = np.random.default_rng(2)
    draws = rng.normal(size=(500, 6, 3))
    draws[:, 5] += 4
    assert np.mean([holm(p)[4] <= 0.05 for p in p_values(draws)]) > 0.7


def share_of_false_alarms(draws: np.ndarray) -> float:
    """Return it of ``(studies, measures, variants, seeds)``, NaN for no run."""
    alarms = 0
    for each in draws:
        measures = {
            str(task): {str(v): dict(enumerate(row)) for v, row in enumerate(values.tolist())}
            for task, values in enumerate(each)
        }
        ratios = noise_ratios(measures)
        noises = [seed_noise(values, ratios.get(name)) for name, values in measures.items()]
        found = [
            noise.contrast({"0": -1, v: 1}) for noise in noises for v in list(noise.values)[1:]
        ]
        alarms += min(holm([p_of(one) for one in found])) <= 0.05
    return alarms / len(draws)


@pytest.mark.slow
def test_a_baseline_that_is_noisy_in_all_measures_finds_nothing():
    draws = np.random.default_rng(4).normal(size=(150, 4, 5, 3))
    draws[:, :, 0] *= 5
    assert share_of_false_alarms(draws) <= 0.05


@pytest.mark.parametrize("few", [2, 3])
def test_few_runs_against_ten_find_nothing(few: int):
    draws = np.random.default_rng(few).normal(size=(600, 1, 2, 10))
    draws[:, :, 0, few:] = np.nan
    assert share_of_false_alarms(draws) <= 0.055
