"""The state of loops, optimiser and schedule in a checkpoint, whole and damaged."""

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
import torch
from lightning.pytorch.trainer.connectors.checkpoint_connector import _CheckpointConnector
from torch import Tensor, nn

from bertlab.checkpoints.training_state import (
    check_optimizer_state,
    is_of_type,
    kinds_of_training_state,
    refusing_other_state,
)
from bertlab.errors import DamagedCheckpointError
from bertlab.model.module import BertModule

State = dict[str, Any]


def stepped(
    kind: Callable[..., torch.optim.Optimizer], **settings: object
) -> torch.optim.Optimizer:
    """An optimiser of two groups that has taken a step."""
    layer = nn.Linear(3, 2)
    one = nn.Parameter(torch.tensor([-1.0]))  # its average is a number below 0
    groups = [{"params": [layer.weight]}, {"params": [layer.bias, one], "weight_decay": 0.0}]
    optimizer = kind(groups, lr=0.1, **settings)
    (layer(torch.ones(1, 3)).sum() - one.sum()).backward()
    optimizer.step()
    return optimizer


def load(state: State, kind: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW) -> None:
    fresh = stepped(kind)
    check_optimizer_state(fresh, state, "a.ckpt")
    fresh.load_state_dict(state)


@pytest.mark.parametrize(
    "kind",
    [
        torch.optim.Adadelta,
        torch.optim.Adafactor,
        torch.optim.Adagrad,
        torch.optim.Adam,
        torch.optim.AdamW,
        torch.optim.Adamax,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.RMSprop,
        torch.optim.Rprop,
        torch.optim.SGD,
    ],
)
def test_what_an_optimizer_wrote_is_taken(kind: Callable[..., torch.optim.Optimizer]) -> None:
    state = stepped(kind).state_dict()
    load(copy.deepcopy(state), kind)
    for group in state["param_groups"]:
        group["lr"] = 0.0  # at the end of its schedule
        group.pop("decoupled_weight_decay", None)  # of an older torch
    load(state, kind)


def test_switches_go_with_the_device() -> None:
    load(stepped(torch.optim.AdamW, fused=True).state_dict())
    load(stepped(torch.optim.AdamW, foreach=False).state_dict())


DAMAGES: dict[str, Callable[[State], object]] = {
    "state: expected a mapping from 0 to 2": lambda s: s.update(state=[1]),
    "state.0: expected a mapping": lambda s: s["state"].update({0: None}),
    "state.0: has no exp_avg_sq": lambda s: s["state"][0].pop("exp_avg_sq"),
    "state.0.exp_avg: expected numbers for a parameter of [2, 3]": (
        lambda s: s["state"][0].update(exp_avg=torch.zeros(3))
    ),
    "state.1.exp_avg: expected numbers for a parameter of [2]": (
        lambda s: s["state"][1].update(exp_avg=torch.zeros(2, dtype=torch.int32))
    ),
    # the fused step would read and write what lies behind these
    "state.2.exp_avg: expected numbers for a parameter of [1]": (
        lambda s: s["state"][2].update(exp_avg=0)
    ),
    "state.0.exp_avg_sq: expected numbers for a parameter of [2, 3]": (
        lambda s: s["state"][0].update(exp_avg_sq=torch.zeros(2, 1))
    ),
    "state.1.exp_avg_sq: expected numbers for a parameter of [2]": (
        lambda s: s["state"][1].update(exp_avg_sq=torch.zeros(1))
    ),
    "state.1.exp_avg: expected numbers": lambda s: s["state"][1].update(exp_avg=None),
    "state.1.step: expected numbers": lambda s: s["state"][1].update(step=torch.tensor(math.nan)),
    "state.0.step: expected numbers": lambda s: s["state"][0].update(step=torch.tensor(-1.0)),
    "state.1.exp_avg_sq: expected numbers": lambda s: s["state"][1].update(exp_avg_sq="x"),
    "param_groups: expected 2 mappings": lambda s: s.update(param_groups=[{}]),
    "param_groups.0.params: expected the numbers of 1 parameters": (
        lambda s: s["param_groups"][0].update(params=[1])
    ),
    "param_groups.1.lr: missing": lambda s: s["param_groups"][1].pop("lr"),
    "param_groups.0.lr: found nan": lambda s: s["param_groups"][0].update(lr=math.nan),
    "param_groups.0.betas: found 3": lambda s: s["param_groups"][0].update(betas=3),
    "param_groups.0.eps: found -1": lambda s: s["param_groups"][0].update(eps=-1),
    "param_groups.0.foreach: found 'x'": lambda s: s["param_groups"][0].update(foreach="x"),
    "param_groups.0.maximize: found True": lambda s: s["param_groups"][0].update(maximize=True),
}


@pytest.mark.parametrize("words", DAMAGES)
def test_another_state_is_refused_before_it_is_taken(words: str) -> None:
    state = stepped(torch.optim.AdamW).state_dict()
    DAMAGES[words](state)
    with pytest.raises(DamagedCheckpointError) as failure:
        load(state)
    assert f"a.ckpt: a damaged bertlab checkpoint: optimizer_states: {words}" in str(failure.value)


def test_means_over_a_dimension_are_of_matrices() -> None:
    state = stepped(torch.optim.Adafactor).state_dict()
    load(copy.deepcopy(state), torch.optim.Adafactor)
    for number, name, wrong in ((1, "col_var", (1,)), (0, "row_var", (1, 3)), (0, "col_var", ())):
        damaged = copy.deepcopy(state)
        damaged["state"][number][name] = torch.zeros(wrong)
        with pytest.raises(
            DamagedCheckpointError, match=f"state.{number}.{name}: expected numbers"
        ):
            load(damaged, torch.optim.Adafactor)


def test_moments_that_were_cut_out_are_missed() -> None:
    optimizer = stepped(torch.optim.AdamW)
    never = nn.Parameter(torch.zeros(2))  # it had no gradient, and has no moments
    optimizer.add_param_group({"params": [never]})
    checkpoint = {"optimizer_states": [optimizer.state_dict()]}
    BertModule.on_save_checkpoint(MagicMock(), checkpoint)
    state = checkpoint["optimizer_states"][0]
    check = partial(check_optimizer_state, source="a.ckpt")
    optimizer.register_load_state_dict_pre_hook(check)
    optimizer.load_state_dict(copy.deepcopy(state))
    del state["state"][1]
    with pytest.raises(DamagedCheckpointError, match="state: found 2 parameters, expected 3 as"):
        optimizer.load_state_dict(state)
    del state["entries"]  # of an older version: nothing tells
    optimizer.load_state_dict(state)


def test_what_a_strangers_optimizer_remembers_is_its_own() -> None:
    class Sketch(torch.optim.SGD):
        """Remembers something of another size."""

    state = stepped(Sketch).state_dict()
    state["state"] = {0: {"sketch": torch.zeros(7, dtype=torch.uint8)}}
    load(state, Sketch)


SCHEDULE = torch.optim.lr_scheduler.LambdaLR(
    stepped(torch.optim.AdamW), lambda step: 1 / (1 + step)
).state_dict()
WHOLE = {
    "epoch": 0,
    "loops": {
        "fit_loop": {
            "state_dict": {"combined_loader": [{"any": "thing"}]},
            "epoch_progress": {"total": {"ready": 1}, "is_last_batch": False},
        }
    },
    "callbacks": {},
    "optimizer_states": [stepped(torch.optim.AdamW).state_dict()],
    "lr_schedulers": [SCHEDULE],
}


@pytest.mark.parametrize(
    ("key", "found"),
    [
        *[(key, value) for key in WHOLE for value in (None, -1, "x", [1, 2], Tensor())],
        ("optimizer_states", [{}, {}]),
        ("optimizer_states", [{"param_groups": 3}]),
        ("optimizer_states", [{"param_groups": [3, 3]}]),
        ("lr_schedulers", [{"last_epoch": "3"}]),
        # torch would make each key an attribute of the schedule
        ("lr_schedulers", [SCHEDULE | {"get_lr": 5}]),
        ("lr_schedulers", [SCHEDULE | {"optimizer": None}]),
        ("lr_schedulers", [SCHEDULE | {"_step_count": "3"}]),
        ("lr_schedulers", [SCHEDULE | {"base_lrs": "x"}]),
        ("lr_schedulers", [SCHEDULE | {"base_lrs": [0.1]}]),  # the other group's would stand still
        ("lr_schedulers", [SCHEDULE | {"base_lrs": [0.1, math.inf]}]),
        ("lr_schedulers", [SCHEDULE | {"_last_lr": [-0.1, 0.1]}]),
        ("lr_schedulers", [SCHEDULE | {"lr_lambdas": [None, {"factor": 1}]}]),
        ("lr_schedulers", [SCHEDULE | {"lr_lambdas": [None, Tensor(3)]}]),
        ("lr_schedulers", [SCHEDULE | {"lr_lambdas": 2}]),
        ("lr_schedulers", [{**SCHEDULE, "base_lrs": [], "_last_lr": [], "lr_lambdas": []}]),
        ("loops", {"fit_loop": 3}),
        ("loops", {"fit_loop": {"epoch_progress": {"current": {"completed": "x"}}}}),
        ("loops", {"fit_loop": {"epoch_progress": {"current": {"completed": -1}}}}),
        ("loops", {"fit_loop": {"epoch_progress": {"current": [1]}}}),
        ("loops", {"fit_loop": {7: {8: "x"}}}),
    ],
)
def test_parts_of_another_kind_are_named(key: str, found: object) -> None:
    assert all(kinds_of_training_state(WHOLE).values())
    assert all(kinds_of_training_state({}).values())  # weights alone
    older = {**SCHEDULE, "lr_lambdas": [{}, {}], "verbose": False}
    assert all(kinds_of_training_state({**WHOLE, "lr_schedulers": [older]}).values())
    wrong = [
        name for name, fits in kinds_of_training_state({**WHOLE, key: found}).items() if not fits
    ]
    assert wrong == [key]


@pytest.mark.parametrize(
    ("found", "expected", "is_one"),
    [
        ({"a": {"b": [1]}}, dict[str, dict[str, list[int]]], True),
        ({"a": {"b": [1.5]}}, dict[str, dict[str, list[int]]], False),
        ({"a": {1: [1]}}, dict[str, dict[str, list[int]]], False),
        ({7: {"loss": 2}}, dict[int, dict[str, float]], True),
        ({7: {"loss": True}}, dict[int, dict[str, float]], False),
        ({True: {}}, dict[int, dict[str, float]], False),
        ({7: None}, dict[int, dict[str, float]], False),
        ([Tensor(3)], list[Tensor], True),
        ("ab", list[str], False),
        (["ab"], list[str], True),
        ([{"a": Tensor(3)}], list[dict[str, object]], True),
        ([{"a": True}], list[dict[str, object]], True),
        ([2.5], list[int], False),
    ],
)
def test_types_of_stored_values(found: object, expected: object, is_one: bool) -> None:
    assert is_of_type(found, expected) is is_one


def test_only_what_fails_while_restoring_is_the_checkpoints() -> None:
    with pytest.raises(KeyError), refusing_other_state("a.ckpt"):
        raise KeyError("a bug of ours")
    trainer = Mock()
    trainer.strategy.lightning_module_state_dict.side_effect = KeyError("a bug of a model's")
    with pytest.raises(KeyError), refusing_other_state("a.ckpt"):  # when the next one is saved
        _CheckpointConnector(trainer).dump_checkpoint()
