"""Matching tensors to a module."""

import pytest
import torch

from bertlab.checkpoints.tensor_files import load_matching
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import CheckpointError
from tests.checkpoints.peers import SIZES, assert_bit_equal, randomized, tasks_for


def encoder(**changes: int) -> BertEncoder:
    return randomized(BertEncoder(**(SIZES | changes)), seed=len(changes))


def copy_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def refusal(module: torch.nn.Module, state: dict[str, torch.Tensor]) -> str:
    """The message; the module is as it was before."""
    before = copy_of(module)
    with pytest.raises(CheckpointError) as error:
        load_matching(module, state, "runs/7")
    assert_bit_equal(module.state_dict(), before)
    assert str(error.value).startswith("runs/7: ")
    return str(error.value)


def test_loads_equal_tensors_and_reports_each() -> None:
    state, model = copy_of(encoder()), BertEncoder(**SIZES)
    report = load_matching(model, state, "runs/7")
    assert_bit_equal(model.state_dict(), state)
    assert report.loaded == list(state)
    assert report.newly_initialized == report.unused == []


def test_what_may_lack_stays_as_it_was_and_what_is_over_is_named() -> None:
    model = encoder()
    state = copy_of(encoder())
    bias, expected = state.pop("pooler.bias"), model.pooler.bias.clone()
    state["classifier.weight"] = bias
    report = load_matching(model, state, "runs/7", allow_missing=["pooler."])
    assert report.newly_initialized == ["pooler.bias"]
    assert report.unused == ["classifier.weight"]
    assert torch.equal(model.pooler.bias, expected)


def test_missing_tensors_are_listed() -> None:
    state = copy_of(encoder())
    del state["layers.1.output.bias"]
    assert "\n  layers.1.output.bias" in refusal(encoder(), state)


def test_lower_precision_is_converted() -> None:
    state = {name: tensor.bfloat16() for name, tensor in copy_of(encoder()).items()}
    model = encoder()
    load_matching(model, state, "runs/7")
    assert model.pooler.weight.dtype == torch.float32
    assert torch.equal(model.pooler.weight, state["pooler.weight"].float())


def test_integers_do_not_become_weights() -> None:
    state = copy_of(encoder())
    state["pooler.bias"] = torch.zeros(32, dtype=torch.int64)
    assert "pooler.bias: checkpoint (32,) int64, model (32,)" in refusal(encoder(), state)


def test_another_width_lists_the_tensors_and_the_config_key() -> None:
    message = refusal(encoder(), copy_of(encoder(hidden_size=64)))
    assert "token_embedding.weight: checkpoint (97, 64), model (97, 32)" in message
    assert "hidden_size: 64 (not 32)" in message.splitlines()[0]  # which tells the cause
    assert "max_position_embeddings" not in message
    total = len(encoder().state_dict()) - SIZES["num_hidden_layers"]  # intermediate biases agree
    assert f"{total} tensors differ" in message
    assert message.count("checkpoint (") == 3  # the key says it of the others
    assert f"… and {total - 3} more" in message


@pytest.mark.parametrize("layers", [2, 5])
def test_another_depth_is_refused(layers: int) -> None:
    message = refusal(encoder(), copy_of(encoder(num_hidden_layers=layers)))
    assert f"num_hidden_layers: {layers} (not 3)" in message


def test_layers_of_a_task_are_not_taken_for_the_encoders() -> None:
    model = torch.nn.ModuleDict({"encoder": encoder()})
    state = copy_of(model) | {f"tasks.mine.layers.{n}.weight": torch.ones(2) for n in range(7)}
    assert len(load_matching(model, state, "runs/7").unused) == 7


@pytest.mark.parametrize(
    ("key", "value"), [("vocab_size", 98), ("intermediate_size", 128), ("type_vocab_size", 3)]
)
def test_other_sizes_name_their_config_key(key: str, value: int) -> None:
    model = encoder()
    message = refusal(model, copy_of(encoder(**{key: value})))
    assert f"{key}: {value} (not {getattr(model, key)})" in message


@pytest.mark.parametrize("length", [24, 512])
def test_a_position_table_of_another_length_is_refused_with_advice(length: int) -> None:
    message = refusal(encoder(), copy_of(encoder(max_position_embeddings=length)))
    assert f"max_position_embeddings: {length} (not 48)" in message
    assert "two-phase pre-training should keep max_position_embeddings at 512" in message


def test_names_may_have_a_prefix() -> None:
    model, other = (torch.nn.ModuleDict({"encoder": encoder(**c)}) for c in ({}, {"vocab_size": 9}))
    message = refusal(model, copy_of(other))
    assert "encoder.token_embedding.weight: checkpoint (9, 32), model (97, 32)" in message
    assert "vocab_size: 9 (not 97)" in message


def test_a_head_loads_on_its_own() -> None:
    state = copy_of(tasks_for(encoder())["mlm"])
    fresh = tasks_for(encoder(hidden_dropout_prob=0))["mlm"]
    assert load_matching(fresh, state, "runs/7").loaded == list(state)
    assert_bit_equal(fresh.state_dict(), state)
