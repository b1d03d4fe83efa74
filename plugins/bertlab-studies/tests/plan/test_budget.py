"""Tokens and floating-point operations, against PyTorch's own count of them."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from bertlab.api.batch import pack
from bertlab.model.build import build_encoder
from bertlab.objectives.masked_lm import MaskedLM
from bertlab_studies.plan.budget import cost_of, measured_cost, pretraining_cost
from bertlab_studies.plan.flops import encoder_flops, task_flops


def config(**more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "model": {"encoder": {"name": "bert", "preset": "mini"}, "objectives": {"mlm": {}}},
        "data": {"max_seq_length": 64, "batch_size": 8, "batch_tokens": None, "vocab_size": 1000},
        "trainer": {"max_steps": 10},
        "max_tokens": None,
    }
    for key, value in more.items():
        section, _, name = key.partition("__")
        found[section] = {**found[section], name: value} if name else value
    return found


@pytest.mark.parametrize(
    ("more", "tokens"),
    [
        ({}, 10 * 8 * 64),
        ({"data__batch_tokens": 900}, 10 * 900),
        ({"max_tokens": 12345.0, "trainer__max_steps": -1}, 12345),
        ({"trainer__max_steps": -1}, None),
        ({"model__init_from": "runs/x"}, None),
        ({"model__head": {"name": "span"}}, None),
    ],
)
def test_tokens_that_a_config_asks_for(more: dict[str, Any], tokens: float | None) -> None:
    cost = pretraining_cost(config(**more))
    assert (None if cost is None else cost.tokens) == tokens


@pytest.mark.parametrize("shared", [False, True])
def test_an_encoder_costs_what_pytorch_counts(shared: bool) -> None:
    section = {"name": "bert", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 2}
    encoder: Any = build_encoder(section, 100).eval()
    if shared:  # as ALBERT's
        encoder.layers = nn.ModuleList([encoder.layers[0]] * 3)
    sequences, length = 4, 48  # 192 tokens, to which a CPU adds none
    batch = pack([list(range(length))] * sequences)
    with (
        torch.no_grad(),
        sdpa_kernel(SDPBackend.MATH),  # others are not counted on a CPU
        FlopCounterMode(display=False) as counter,
    ):
        encoder(batch)
    own = encoder_flops(encoder, length) * sequences * length
    assert own == pytest.approx(counter.get_total_flops(), rel=0.01)
    if shared:  # a list may have it once
        encoder.layers = encoder.layers[:1]
        assert encoder_flops(encoder, length) * sequences * length == own


def test_predictions_cost_more_where_there_are_more_of_them() -> None:
    def flops(objectives: dict[str, Any]) -> float:
        model = {"encoder": {"name": "bert", "preset": "mini"}, "objectives": objectives}
        return cost_of(config(model=model), 1.0, 64.0).flops

    few, more, all_of_them = (flops({"mlm": {"rate": r}}) for r in (0.15, 0.3, 1.0))
    assert few < more < all_of_them
    assert flops({"mlm": {"rate": 0.15}, "nsp": {}}) == few
    assert flops({"clm": {}}) == all_of_them
    # the projection on 1,000 words and the layer before it, forward and backward
    assert more - few == pytest.approx(3 * 0.15 * 2 * 256 * (256 + 1000))


def test_a_task_counts_its_forward_and_backward_pass_apart() -> None:
    encoder = build_encoder({"name": "bert", "preset": "tiny"}, 100)
    task = MaskedLM()
    for own, total in ((10.0, 30.0), ((10.0, 0.0), 10.0), ((10.0, 25.0), 35.0)):
        task.flops_per_token = lambda *_, own=own: own  # type: ignore[assignment]
        assert task_flops(task, encoder, 64.0, 100.0) == total


def test_a_run_that_was_begun_costs_what_its_record_says() -> None:
    facts = {"training_tokens": 4000.0, "mean_sequence_length": 40.0}
    asked, measured = pretraining_cost(config()), measured_cost(config(), facts)
    assert asked is not None
    assert measured.tokens == 4000
    assert measured.flops / measured.tokens < asked.flops / asked.tokens  # shorter sequences
