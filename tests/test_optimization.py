"""AdamW groups and the learning-rate schedule."""

import pytest
import torch
from torch import nn
from transformers import get_linear_schedule_with_warmup

from bertlab.encoders.bert import BertEncoder
from bertlab.errors import ConfigError
from bertlab.optimization import (
    AdamWConfig,
    build_optimizer,
    build_schedule,
    split_by_weight_decay,
)


def test_biases_and_layer_norms_do_not_decay() -> None:
    encoder = BertEncoder(vocab_size=11, preset="tiny")
    decayed, plain = split_by_weight_decay(encoder)
    names = {id(parameter): name for name, parameter in encoder.named_parameters()}
    assert {names[id(parameter)] for parameter in plain} == {
        name for name in names.values() if name.endswith("bias") or "norm" in name
    }
    assert len(decayed) + len(plain) == len(names)


def test_frozen_parameters_are_left_out() -> None:
    layer = nn.Linear(2, 2)
    layer.weight.requires_grad_(False)
    assert split_by_weight_decay(layer) == ([], [layer.bias])


@pytest.mark.parametrize(("warmup", "steps"), [(10, 100), (0.1, 100), (0, 7), (0.0, 1)])
def test_linear_schedule_equals_hugging_face(warmup: float, steps: int) -> None:
    ours = build_optimizer(AdamWConfig(learning_rate=1.0), nn.Linear(2, 2))
    peer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=1.0)
    schedule = build_schedule(AdamWConfig(learning_rate=1.0, warmup_steps=warmup), ours, steps)
    whole = int(warmup if warmup >= 1 else warmup * steps)
    expected = get_linear_schedule_with_warmup(peer, whole, steps)
    for _ in range(steps):
        assert schedule.get_last_lr()[0] == pytest.approx(expected.get_last_lr()[0])
        ours.step()
        peer.step()
        schedule.step()
        expected.step()


def test_a_schedule_that_needs_an_end_refuses_an_endless_run() -> None:
    optimizer = build_optimizer(AdamWConfig(), nn.Linear(2, 2))
    with pytest.raises(ConfigError, match=r"trainer\.max_steps"):
        build_schedule(AdamWConfig(), optimizer, float("inf"))
    constant = AdamWConfig(schedule="constant", warmup_steps=5)
    assert build_schedule(constant, optimizer, float("inf")).get_last_lr()[0] == 0.0


@pytest.mark.parametrize("bad", [{"learning_rate": 0.0}, {"warmup_steps": -1}])
def test_impossible_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"model.optimizer.{next(iter(bad))}"):
        AdamWConfig(**bad)
