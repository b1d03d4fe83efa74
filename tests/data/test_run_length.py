"""Steps whose number of sequences changes."""

from typing import Any

import numpy as np
import pytest

from bertlab.data.run_length import StepSettings, StepSizes, check_budget, steps_for_sequences
from bertlab.errors import BertlabError, ConfigError
from bertlab.objectives.changing import ChangingNumber, WholeNumber, moments, read_whole


def size(given: Any) -> WholeNumber:
    return read_whole(given, "data.batch_size")


GROWS = size({"from": 4, "to": 12})


def sizes_of(steps: StepSizes) -> list[int]:
    spans = [steps.span(step) for step in range(int(steps.steps))]
    assert spans[0][0] == 0
    assert [start for start, _ in spans[1:]] == [stop for _, stop in spans[:-1]]
    return [stop - start for start, stop in spans]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (5, [5] * 8),
        ({"from": 4, "to": 12}, [4, 5, 6, 7, 8, 9, 10, 11]),
        ({"from": 12, "to": 4}, [12, 11, 10, 9, 8, 7, 6, 5]),
        ({"from": 4, "to": 12, "until": 0.5}, [4, 6, 8, 10, 12, 12, 12, 12]),
        ({"from": 4, "to": 12, "schedule": {"name": "wsd", "decay_share": 0.25}}, [4] * 7 + [8]),
    ],
)
def test_steps_follow_each_other_with_the_sizes_of_the_schedule(
    given: Any, expected: list[int]
) -> None:
    steps = StepSizes(size(given), 8)
    assert sizes_of(steps) == expected
    assert steps.total() == sum(expected)
    assert steps.mean == np.mean(expected)
    owners = [int(steps.progress(position).done) for position in range(steps.total())]
    assert owners == np.repeat(np.arange(8), expected).tolist()


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd", "inverse_sqrt"])
@pytest.mark.parametrize("ends", [(4, 60), (60, 4), (1, 3)])
def test_fewest_steps_that_read_so_many_sequences(schedule: str, ends: tuple[int, int]) -> None:
    number = size({"from": ends[0], "to": ends[1], "schedule": schedule})
    for sequences in (1, 100, 2311):
        steps = steps_for_sequences(number, sequences)
        assert StepSizes(number, steps).total() >= sequences
        assert steps == 1 or StepSizes(number, steps - 1).total() < sequences
    assert steps_for_sequences(10, 101) == 11


def test_a_mean_is_taken_over_all_of_a_run() -> None:
    assert isinstance(GROWS, ChangingNumber)
    for steps in (1, 7, 1000, 1001, 54_321):
        found = np.mean([GROWS.at(moment) for moment in moments(steps)])
        every = [GROWS.at(moment) for moment in moments(min(steps, 1000))]
        assert found == pytest.approx(np.mean(every), rel=1e-3)
    assert [moment.done for moment in moments(float("inf"))] == [0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"from": 8.5, "to": 16}, "data.batch_size.from: found 8.5, expected a whole number"),
        ({"from": 0, "to": 16}, "data.batch_size: found 0"),
        ({"from": 8}, "data.batch_size: found no to"),
        ({"from": 8, "too": 9}, "did you mean 'to'"),
        ({"from": 8, "to": 9, "until": 0}, "data.batch_size.until: found 0"),
        ({"from": float("nan"), "to": 16}, "data.batch_size.from: found nan, expected a whole"),
        ({"from": 8, "to": float("inf")}, "data.batch_size.to: found inf, expected a whole"),
        ({"from": 8, "to": 9, "until": "half"}, "data.batch_size.until: found half, expected"),
        ({"from": 8, "to": 9, "schedule": "cosin"}, "data.batch_size.schedule: no .* 'cosine'"),
        ({"from": 8, "to": 9, "schedule": {"name": "cosin"}}, "data.batch_size.schedule: no sch"),
        (
            {"from": 8, "to": 9, "until": 0.5, "schedule": "inverse_sqrt"},
            "inverse_sqrt has no end; leave it out",
        ),
    ],
)
def test_sizes_that_are_none(given: Any, words: str) -> None:
    with pytest.raises(BertlabError, match=words):
        StepSettings.read({"max_seq_length": 64, "batch_size": given})


@pytest.mark.parametrize("amount", [float("inf"), float("nan"), 0, -1.0])
@pytest.mark.parametrize("key", ["max_tokens", "max_words"])
def test_an_amount_that_ends_no_run_is_refused(key: str, amount: float) -> None:
    asked = {"max_tokens": None, "max_words": None, "max_steps": -1, "max_epochs": None}
    check_budget(**(asked | {key: 1e9}))
    with pytest.raises(ConfigError, match=f"^{key}: found {amount:g}, expected a number above 0"):
        check_budget(**(asked | {key: amount}))
