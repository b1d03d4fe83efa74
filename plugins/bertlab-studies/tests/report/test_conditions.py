"""Kinds of study that a report names: unstable variants, few runs against many, few seeds."""

import json

import numpy as np
import pytest

from bertlab_studies.report.conditions import conditions
from bertlab_studies.report.report import report_of
from bertlab_studies.report.statistics import compare_study
from bertlab_studies.report.two_groups import one_group_p
from bertlab_studies.report.values import report_json
from bertlab_studies.study_scores import Cell, Measure, StudyScores, VariantScores

MEASURE = Measure("rte", "accuracy")


def scores_of(*variants: np.ndarray) -> StudyScores:
    """Return a study of variants a, b, c, …"""
    found = {
        name: VariantScores({MEASURE.name: Cell(dict(enumerate(map(float, values))))})
        for name, values in zip("abcdefgh", variants, strict=False)
    }
    return StudyScores("s", "a", list(range(max(map(len, variants)))), [MEASURE], found)


def said(*variants: np.ndarray) -> list[str]:
    scores = scores_of(*variants)
    return conditions(scores, compare_study(scores, draws=0))


def normal(variants: int, runs: int) -> np.ndarray:
    return 0.7 + 0.01 * np.random.default_rng(runs).normal(size=(variants, runs))


def test_an_ordinary_study_has_no_conditions():
    values = normal(3, 10)
    assert said(*values) == []
    values[2] += 0.1
    assert said(*values) == []


def test_an_unstable_variant_is_called_so():
    values = normal(3, 10)
    values[2, :5] -= 0.3
    [line] = said(*values)
    assert line.startswith("c, rte accuracy: unstable: 5 of 10 runs failed")
    assert "a star is about the runs that learned" in line
    values[2, :4] += 0.3  # one of ten may happen to any
    assert said(*values) == []
    values = normal(3, 5)
    values[2, :2] -= 0.3
    [line] = said(*values)
    assert "2 of 5 runs failed" in line
    assert "a star needs the difference with and without these runs" in line


def test_few_runs_against_many_name_what_more_would_show():
    values = [*normal(2, 10)]
    [line] = said(values[0], values[1][:2])
    assert line.startswith("b, rte accuracy: 2 runs against 10: tested almost as if both sides")
    shown = [float(part.split()[0]) for part in line.split("have shown ")[1:]]
    more = float(line.split("10 runs of each ")[1].split()[0])
    assert shown[0] > 3 * more
    assert said(values[0], values[1][:7]) == []


@pytest.mark.parametrize(
    ("variants", "words"), [(2, "skewed"), (3, "two groups"), (5, "two groups")]
)
def test_what_few_seeds_cannot_check_is_named_beside_a_star(variants: int, words: str):
    values = normal(variants, 3)
    assert said(*values) == []
    values[-1] += 0.2
    [line] = said(*values)
    assert words in line


@pytest.mark.parametrize(
    ("seeds", "words"), [(10, "up to 13 % of such"), (25, "about 7 % of such"), (50, None)]
)
def test_skewed_noise_is_named_beside_a_star_while_it_does_harm(seeds: int, words: str | None):
    values = normal(2, seeds)
    values[1] += 0.2
    lines = said(*values)
    assert [words in line for line in lines] == [True] * (words is not None)


@pytest.mark.parametrize(("runs", "named"), [(2, False), (3, True), (6, False)])
def test_a_star_of_few_runs_against_many_names_what_it_rests_on(runs: int, named: bool):
    values = [*normal(2, 10)]
    lines = said(values[0], values[1][:runs] + 0.2)
    assert any(f"two variants and {runs} runs of one" in line for line in lines)
    assert (
        any(f"{runs} runs against 10: if the few are far noisier" in line for line in lines)
        == named
    )


def test_runs_in_two_groups_too_close_to_be_told_are_named_beside_a_star():
    rng = np.random.default_rng(3)
    lower = rng.uniform(size=(3, 5)) < 0.5
    values = 0.7 + 0.01 * (rng.normal(size=(3, 5)) - 6 * lower)
    assert said(*values) == []  # no star
    values[2] += 0.3
    [line] = said(*values)
    assert line in json.loads(report_json(report_of(scores_of(*values))))["warnings"]
    assert "look like two groups (p" in line
    assert "7 seeds keep 6 %" in line
    assert said(*(values + 0.06 * lower)) == []


@pytest.mark.parametrize(("depth", "least", "most"), [(0, 0.0, 0.08), (6, 0.7, 1.0)])
def test_two_groups_are_seen_where_they_are_and_rarely_where_not(
    depth: int, least: float, most: float
):
    rng = np.random.default_rng(0)
    seen = 0
    for _ in range(400):
        drawn = rng.normal(size=(2, 3, 5)) - depth * (rng.uniform(size=(2, 3, 5)) < 0.5)
        seen += one_group_p(list(drawn)) <= 0.05
    assert least <= seen / 400 <= most


def test_two_groups_that_are_obvious_have_a_p_near_0_and_no_spread_has_1():
    both = np.array([0.0, 0.1, 9.0, 9.2, 9.3])
    assert one_group_p([[both, both + 1]]) < 0.002
    assert one_group_p([[np.ones(5), np.ones(5)]]) == 1
    assert one_group_p([]) == 1
