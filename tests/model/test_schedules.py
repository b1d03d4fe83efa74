"""Schedules: their shapes, and that they are functions of the progress alone."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertlab.api.optimizer import Progress, Schedule, factor_at
from bertlab.errors import BertlabError, ConfigError, PluginError
from bertlab.model.optimizer import check_schedule, check_schedule_steps
from bertlab.model.optimizer_config import (
    Constant,
    Linear,
    OptimizerConfig,
    read_optimizer,
)
from bertlab.objectives.changing import ChangingNumber

STEPS, WARMUP = 40, 8
ALL = [Constant(), Linear()]


def factors(schedule: Schedule, steps: int = STEPS, warmup: int = WARMUP) -> list[float]:
    return [factor_at(schedule, Progress(step, steps, warmup)) for step in range(steps + 1)]


@given(
    schedule=st.sampled_from(ALL),
    end=st.floats(1, 1e9),
    warmup=st.floats(0, 1),
    done=st.floats(0, 2),
)
def test_factors_are_finite_and_in_range(
    schedule: Schedule, end: float, warmup: float, done: float
) -> None:
    factor = factor_at(schedule, Progress(done * end, end, warmup * end))
    assert 0 <= factor <= 1
    assert factor_at(schedule, Progress(done * end, end, warmup * end)) == factor


@pytest.mark.parametrize("found", [-1.0, math.nan, math.inf, None])
def test_a_factor_that_is_none_is_refused(found: float) -> None:
    class Odd(Schedule):
        def factor(self, progress: Progress) -> float:
            return found

    with pytest.raises(PluginError, match=rf"Odd\.factor\(\): found {found} at step 3"):
        factor_at(Odd(), Progress(3, 10, 0))


@pytest.mark.parametrize("schedule", ALL)
def test_after_warm_up_it_falls(schedule: Schedule) -> None:
    found = factors(schedule)
    assert found[WARMUP] == 1
    assert found[:WARMUP] == [step / WARMUP for step in range(WARMUP)]
    assert sorted(found[WARMUP:], reverse=True) == found[WARMUP:]


@pytest.mark.parametrize("name", ["linear", "cosine", "wsd"])
def test_a_schedule_without_an_end_is_refused(name: str) -> None:
    config = read_optimizer({"schedule": name, "warmup_steps": 10})
    with pytest.raises(ConfigError, match=r"model\.optimizer\.schedule: .*trainer\.max_steps"):
        check_schedule(config, endless=True)
    with pytest.raises(ConfigError, match="schedule_steps: found 5, expected at least 6"):
        check_schedule_steps(OptimizerConfig(schedule=config.schedule, schedule_steps=5), 0, 6)


@pytest.mark.parametrize("name", ["constant", "inverse_sqrt"])
def test_a_schedule_that_needs_no_end(name: str) -> None:
    config = read_optimizer({"schedule": name, "warmup_steps": 10})
    check_schedule(config, endless=True)
    assert factor_at(config.schedule, Progress(20, math.inf, 10)) in (1.0, math.sqrt(0.5))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "wsd", "decay_share": 2}, "decay_share: found 2"),
        ({"name": "cosine", "final": -1}, "final: found -1"),
        ("wds", "no schedule is called 'wds'; did you mean 'wsd'"),
    ],
)
def test_settings_that_make_no_schedule(given: object, words: str) -> None:
    with pytest.raises(BertlabError, match=words):
        read_optimizer({"schedule": given})


def test_a_number_goes_from_one_end_to_the_other() -> None:
    number = ChangingNumber.read({"from": 0.4, "to": 0.15}, "rate")
    found = [number.at(Progress(step, 100)) for step in (0, 50, 100, 200)]
    assert found == pytest.approx([0.4, 0.275, 0.15, 0.15])
    assert number.at(None) == 0.4
    stepped = {"name": "wsd", "decay_share": 0.5}
    number = ChangingNumber.read({"from": 1, "to": 3, "schedule": stepped}, "rate")
    assert [number.at(Progress(step, 100)) for step in (0, 50, 75, 100)] == [1, 1, 2, 3]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"from": 0.4}, "rate: found no to"),
        ({}, "found no from and no to"),
        ({"from": 1, "too": 2}, r"rate\.too: no such key.*did you mean 'to'"),
        ({"from": 1, "to": 2, "schedule": 3}, r"rate\.schedule: found 3"),
        ({"from": 1, "to": 2, "schedule": {"decay_share": 0.5}}, r"rate\.schedule: found \{"),
        ({"from": 1, "to": 2, "schedule": "linaer"}, "did you mean 'linear'"),
        ({"from": 1, "to": 2, "schedule": {"name": "wsd", "share": 1}}, r"schedule: wsd: .*share"),
    ],
)
def test_a_change_that_is_none(given: object, words: str) -> None:
    with pytest.raises(BertlabError, match=words):
        ChangingNumber.read(given, "rate")  # type: ignore[arg-type]
