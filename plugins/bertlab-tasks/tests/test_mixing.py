"""How steps are dealt out among heads: shares against their formula, the order by counting."""

from collections import Counter
from itertools import pairwise

import pytest

from bertlab.errors import ConfigError
from bertlab_tasks.mixing import Mixing, StepOrder

BATCHES = {"small": 10, "middle": 100, "large": 1000}


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0, 5.0, 1e6])
def test_shares_are_those_of_the_formula(temperature: float) -> None:
    steps = Mixing(temperature).steps(BATCHES)
    powers = {name: count ** (1 / temperature) for name, count in BATCHES.items()}
    total = sum(BATCHES.values())
    assert sum(steps.values()) == total
    for name, power in powers.items():
        assert abs(steps[name] - total * power / sum(powers.values())) <= 1


def test_the_default_visits_every_row_once() -> None:
    assert Mixing().steps(BATCHES) == BATCHES
    assert Mixing(1.0).steps({"a": 7, "b": 49, "c": 3}) == {"a": 7, "b": 49, "c": 3}


def test_weights_are_shares() -> None:
    steps = Mixing(weights={"small": 3, "middle": 1, "large": 1}).steps(BATCHES)
    assert steps == {"small": 666, "middle": 222, "large": 222}


def test_a_head_with_next_to_no_weight_has_a_step() -> None:
    steps = Mixing(weights={"small": 1e-9, "middle": 1e-9, "large": 1}).steps(BATCHES)
    assert steps == {"small": 1, "middle": 1, "large": 1108}
    assert sum(Mixing(0.01).steps(BATCHES).values()) == 1110  # 1000^100 is no float


@pytest.mark.parametrize(("share", "steps"), [(None, 40), (0.25, 13), (0.2, 10), (0.001, 1)])
def test_objectives_have_their_share_of_all_steps(share: float | None, steps: int) -> None:
    found = Mixing(objectives=share).steps({"a": 30, "b": 10}, has_objectives=True)
    assert found == {"a": 30, "b": 10, "objectives": steps}  # an epoch still reads every row once


@pytest.mark.parametrize("seed", [0, 7])
def test_steps_are_numbered_as_they_come(seed: int) -> None:
    order = StepOrder({"a": 5, "b": 2, "c": 1}, seed)
    seen: Counter[str] = Counter()
    for step in range(5 * len(order)):
        name, number = order.place(step)
        assert number == seen[name]
        seen[name] += 1
        if (step + 1) % len(order) == 0:  # each epoch has all of them
            epochs = (step + 1) // len(order)
            assert seen == {"a": 5 * epochs, "b": 2 * epochs, "c": epochs}


@pytest.mark.slow
def test_the_order_is_a_function_of_seed_and_step() -> None:
    steps = {"a": 30, "b": 20}
    first = [StepOrder(steps, 1).place(step) for step in range(150)]
    fresh = StepOrder(steps, 1)
    assert [fresh.place(step) for step in reversed(range(150))] == first[::-1]
    assert [StepOrder(steps, 2).place(step) for step in range(150)] != first
    names = [name for name, _ in first]
    assert names[:50] != names[50:100]  # another permutation
    # mixed: two of one head follow each other about as often as by chance (0.6² + 0.4² = 0.52)
    alike = sum(one == other for one, other in pairwise(names)) / 149
    assert 0.35 < alike < 0.7


@pytest.mark.parametrize(
    ("mixing", "message"),
    [
        (Mixing(0.0), "data.mixing.temperature: found 0.0, expected a number above 0"),
        (Mixing(-1.0), "temperature: found -1.0"),
        (Mixing(float("nan")), "temperature: found nan"),
        (Mixing(float("inf")), "temperature: found inf"),
        (Mixing(objectives=0.5), "data.mixing.objectives: found 0.5, but there are none"),
        (Mixing(2.0, {"mrpc": 1, "stsb": 1}), "temperature and weights"),
        (
            Mixing(weights={"mrcp": 1, "stsb": 1}),
            r"data.mixing.weights.mrcp: model.heads has no mrcp; did you mean 'mrpc'\?",
        ),
        (Mixing(weights={"mrpc": 1}), "data.mixing.weights.stsb: found none"),
        (Mixing(weights={"mrpc": 0, "stsb": 1}), "weights.mrpc: found 0, expected a number above"),
        (Mixing(weights={"mrpc": 1, "stsb": float("nan")}), "weights.stsb: found nan"),
    ],
)
def test_a_mistake_names_its_key(mixing: Mixing, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        mixing.check(["mrpc", "stsb"])
