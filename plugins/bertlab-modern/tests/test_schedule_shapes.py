"""Schedules beside BERT's: their shapes, and that they are functions of the progress alone."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import get_cosine_schedule_with_warmup, get_wsd_schedule

from bertlab.api.optimizer import Progress, Schedule, factor_at
from bertlab.errors import ConfigError
from bertlab.objectives.changing import make_schedule
from bertlab_modern.schedules import Cosine, InverseSquareRoot, WarmupStableDecay

STEPS, WARMUP = 40, 8
ALL = [
    Cosine(),
    Cosine(0.1),
    InverseSquareRoot(),
    WarmupStableDecay(),
    WarmupStableDecay(1.0, "sqrt"),
    WarmupStableDecay(0.0),
]


def factors(schedule: Schedule, steps: int = STEPS, warmup: int = WARMUP) -> list[float]:
    return [factor_at(schedule, Progress(step, steps, warmup)) for step in range(steps + 1)]


def peer_factors(make: object, **arguments: int) -> list[float]:
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=1.0)
    schedule = make(optimizer, num_warmup_steps=WARMUP, **arguments)  # type: ignore[operator]
    found = []
    for _ in range(STEPS + 1):
        found.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return found


def test_cosine_is_hugging_faces() -> None:
    expected = peer_factors(get_cosine_schedule_with_warmup, num_training_steps=STEPS)
    assert factors(Cosine()) == pytest.approx(expected, abs=1e-12)


def test_warmup_stable_decay_is_hugging_faces() -> None:
    expected = peer_factors(
        get_wsd_schedule,
        num_decay_steps=10,
        num_training_steps=STEPS,
        warmup_type="linear",
        decay_type="linear",
    )
    assert factors(WarmupStableDecay(0.25)) == pytest.approx(expected, abs=1e-12)


def test_the_square_root_of_haegele() -> None:
    found = factors(WarmupStableDecay(0.25, "sqrt"))
    for step in range(30, 41):
        assert found[step] == pytest.approx(1 - math.sqrt((step - 30) / 10))


@pytest.mark.parametrize(
    ("schedule", "settings", "words"),
    [
        ("wsd", {"shape": "Linear"}, "schedule.shape: found 'Linear', expected one of linear"),
        ("plateau", {"mode": "maximum"}, "schedule.mode: found 'maximum', expected one of auto"),
    ],
)
def test_other_words_are_refused(schedule: str, settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_schedule({"name": schedule, **settings})


def test_inverse_square_root_is_vaswanis() -> None:
    model_size, warmup = 512, 8
    peak = model_size**-0.5 * warmup**-0.5
    for step, factor in enumerate(factors(InverseSquareRoot())):
        expected = model_size**-0.5 * min(max(step, 1e-9) ** -0.5, step * warmup**-1.5)
        assert factor * peak == pytest.approx(expected)


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


@pytest.mark.parametrize("schedule", ALL)
def test_after_warm_up_it_falls(schedule: Schedule) -> None:
    found = factors(schedule)
    assert found[WARMUP] == 1 or isinstance(schedule, WarmupStableDecay)
    assert found[:WARMUP] == [step / WARMUP for step in range(WARMUP)]
    assert sorted(found[WARMUP:], reverse=True) == found[WARMUP:]
