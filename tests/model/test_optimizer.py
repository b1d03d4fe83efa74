"""AdamW groups and the learning-rate schedule."""

import copy
import inspect
import re
from typing import Any, cast

import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn
from transformers import get_linear_schedule_with_warmup

from bertlab.api.encoder import Encoder
from bertlab.data.module import TaskData
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import ConfigError, PluginError
from bertlab.model.optimizer import (
    build_optimizer,
    build_schedule,
    check_end,
    freeze_layers,
    split_by_weight_decay,
)
from bertlab.model.optimizer_config import AdamW, Constant, OptimizerConfig
from bertlab.plugins.index import forget_installed, installed, load_class
from tests.plugins.core_alone import leave_the_core_alone


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
    ours = build_optimizer(OptimizerConfig(learning_rate=1.0), nn.Linear(2, 2))
    peer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=1.0)
    schedule = build_schedule(OptimizerConfig(learning_rate=1.0, warmup_steps=warmup), ours, steps)
    whole = int(warmup if warmup >= 1 else warmup * steps)
    expected = get_linear_schedule_with_warmup(peer, whole, steps)
    for _ in range(steps):
        assert schedule.get_last_lr()[0] == pytest.approx(expected.get_last_lr()[0])
        ours.step()
        peer.step()
        schedule.step()
        expected.step()


def test_a_schedule_that_needs_an_end_refuses_an_endless_run() -> None:
    optimizer = build_optimizer(OptimizerConfig(), nn.Linear(2, 2))
    with pytest.raises(ConfigError, match=r"trainer\.max_steps"):
        build_schedule(OptimizerConfig(), optimizer, float("inf"))
    constant = OptimizerConfig(schedule=Constant(), warmup_steps=5)
    assert build_schedule(constant, optimizer, float("inf")).get_last_lr()[0] == 0.0


class Rows:
    """Data of which an epoch is five steps."""

    requires_steps = ()
    total_steps = TaskData.total_steps

    def steps_per_epoch(self) -> int:
        return 5

    def sequences_per_step(self) -> int:
        return 8


def check(config: OptimizerConfig | None = None, done: int = 0, **settings: Any) -> None:
    trainer = Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        **{"max_epochs": 2, "accumulate_grad_batches": 2} | settings,
    )
    check_end(config or OptimizerConfig(), trainer, done, {}, cast("TaskData", Rows()))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"limit_train_batches": 3}, "limit_train_batches: found 3, which is 3 batches"),
        ({"limit_train_batches": 0.5}, "limit_train_batches: found 0.5, which is 5 batches"),
        ({"val_check_interval": 0.5}, "val_check_interval: found 0.5, which is 5 batches"),
        # Lightning evaluates after one batch at the least
        ({"val_check_interval": 0.01}, "val_check_interval: found 0.01, which is 1 batches"),
        (
            {"limit_train_batches": 1000, "val_check_interval": 0.5},
            "val_check_interval: found 0.5, which is 5 batches",
        ),
        (
            {"limit_train_batches": 6, "val_check_interval": 0.5},
            "val_check_interval: found 0.5, which is 3 batches",
        ),
        (
            {"val_check_interval": 3, "check_val_every_n_epoch": None},
            "val_check_interval: found 3, which is 3 batches",
        ),
    ],
)
def test_an_end_within_a_step_is_refused(settings: dict[str, Any], message: str) -> None:
    expected = (
        rf"trainer\.{re.escape(message)}, expected a multiple of .*accumulate_grad_batches, 2"
    )
    with pytest.raises(ConfigError, match=expected):
        check(**settings)
    check(**settings, accumulate_grad_batches=1)
    check(**settings, fast_dev_run=3)  # three batches of its own, and no other end


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"limit_train_batches": 4},
        {"limit_train_batches": 10_001},
        {"limit_train_batches": 0.4, "val_check_interval": 0.5},
        {"val_check_interval": 0.4},
        {"val_check_interval": 4, "check_val_every_n_epoch": None},
    ],
)
def test_ends_between_steps_are_taken(settings: dict[str, Any]) -> None:
    check(**settings)


def test_a_schedule_lasts_as_long_as_the_epochs() -> None:
    for steps in (10, 11):
        check(OptimizerConfig(schedule_steps=steps))
    check(OptimizerConfig(schedule_steps=13), done=3)
    for steps, done, needed in ((9, 0, 10), (12, 3, 13)):
        message = rf"schedule_steps: found {steps}, expected at least {needed}"
        with pytest.raises(ConfigError, match=message):
            check(OptimizerConfig(schedule_steps=steps), done)
    check(OptimizerConfig(schedule_steps=9), max_steps=9)


@pytest.mark.parametrize(
    "bad",
    [
        {"learning_rate": 0.0},
        {"warmup_steps": -1},
        {"layer_decay": 0.0},
        {"layer_decay": 1.1},
        {"layer_decay": float("nan")},
    ],
)
def test_impossible_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"model.optimizer.{next(iter(bad))}"):
        OptimizerConfig(**bad)


LAYERS = 3


class Module(nn.Module):
    """What the optimiser is built for: an encoder, and a head that shares the token table."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        head = nn.Module()
        head.classifier = nn.Linear(8, 2)
        head.decoder = encoder.get_submodule("token_embedding")
        self.tasks = nn.ModuleDict({"head": head})


@pytest.fixture
def module() -> Module:
    torch.manual_seed(0)
    return Module(
        BertEncoder(
            vocab_size=11,
            num_hidden_layers=LAYERS,
            hidden_size=8,
            num_attention_heads=2,
            max_position_embeddings=16,
        )
    )


def rates(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, tuple[float, float]]:
    """Learning rate and weight decay of each parameter; fails if one is in two groups."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    found: dict[str, tuple[float, float]] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            name = names[id(parameter)]
            assert name not in found
            found[name] = (group["lr"], group["weight_decay"])
    return found


def does_not_decay(name: str) -> bool:
    return name.endswith("bias") or "norm" in name


def test_by_default_there_are_two_groups_at_one_rate(module: Module) -> None:
    optimizer = build_optimizer(OptimizerConfig(learning_rate=2e-5), module)
    decayed, plain = split_by_weight_decay(module)
    assert [group["params"] for group in optimizer.param_groups] == [decayed, plain]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.0]
    assert [group["lr"] for group in optimizer.param_groups] == [2e-5, 2e-5]
    assert all(parameter.requires_grad for parameter in module.parameters())


def test_layer_decay_gives_each_depth_its_rate(module: Module) -> None:
    config = OptimizerConfig(learning_rate=0.8, layer_decay=0.5)
    found = rates(module, build_optimizer(config, module))
    expected = {"tasks.head.classifier": 0.8, "encoder.pooler": 0.8}
    expected |= {"encoder.layers.2": 0.4, "encoder.layers.1": 0.2, "encoder.layers.0": 0.1}
    embeddings = ("token_embedding", "position_embedding", "token_type_embedding", "embedding_norm")
    expected |= {f"encoder.{name}": 0.05 for name in embeddings}
    assert set(found) == {name for name, _ in module.named_parameters()}
    for name, (rate, weight_decay) in found.items():
        (prefix,) = (prefix for prefix in expected if name.startswith(f"{prefix}."))
        assert rate == pytest.approx(expected[prefix], rel=1e-12), name
        assert weight_decay == (0.0 if does_not_decay(name) else 0.01), name


def test_the_head_s_groups_come_first(module: Module) -> None:
    optimizer = build_optimizer(OptimizerConfig(learning_rate=0.8, layer_decay=0.5), module)
    found = [group["lr"] for group in optimizer.param_groups]
    assert found[:2] == [0.8, 0.8]
    assert found == sorted(found, reverse=True)
    assert len(found) == 2 * (LAYERS + 2)


def test_the_schedule_multiplies_each_group_s_own_rate(module: Module) -> None:
    config = OptimizerConfig(learning_rate=0.8, layer_decay=0.5, warmup_steps=4)
    optimizer = build_optimizer(config, module)
    peaks = [group["lr"] for group in optimizer.param_groups]
    schedule = build_schedule(config, optimizer, total_steps=12)
    for step in range(12):
        factor = step / 4 if step < 4 else (12 - step) / 8
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx(
            [factor * peak for peak in peaks]
        )
        optimizer.step()
        schedule.step()


def test_layer_decay_is_the_size_of_the_first_step(module: Module) -> None:
    # Adam's first step is the learning rate for every weight, whatever its gradient
    config = OptimizerConfig(
        learning_rate=1e-3, layer_decay=0.5, weight_decay=0.0, recipe=AdamW(eps=1e-12)
    )
    before = copy.deepcopy(module.state_dict())
    optimizer = build_optimizer(config, module)
    sum(parameter.sum() for parameter in module.parameters()).backward()
    optimizer.step()
    after = module.state_dict()
    for name, rate in {"layers.2": 5e-4, "layers.0": 1.25e-4, "token_embedding": 6.25e-5}.items():
        for key in before:
            if key.startswith(f"encoder.{name}."):
                step = before[key] - after[key]
                torch.testing.assert_close(step, torch.full_like(step, rate), rtol=2e-3, atol=0)


FROZEN = {
    0: ("token_embedding", "position_embedding", "token_type_embedding", "embedding_norm"),
    1: ("layers.0",),
    2: ("layers.1",),
    "all": ("layers.2", "pooler"),
}


@pytest.mark.parametrize("layer_decay", [1.0, 0.9])
@pytest.mark.parametrize("frozen", list(FROZEN))
def test_frozen_layers_stay_bit_identical(
    module: Module, frozen: int | str, layer_decay: float
) -> None:
    number = list(FROZEN).index(frozen)
    prefixes = tuple(
        f"encoder.{name}." for names in list(FROZEN.values())[: number + 1] for name in names
    )
    expected = {name for name, _ in module.named_parameters() if name.startswith(prefixes)}
    config = OptimizerConfig(learning_rate=0.1, frozen_layers=frozen, layer_decay=layer_decay)
    optimizer = build_optimizer(config, module)
    assert {n for n, p in module.named_parameters() if not p.requires_grad} == expected
    found = rates(module, optimizer)
    assert set(found) == {name for name, _ in module.named_parameters()} - expected
    assert all((decay == 0.0) == does_not_decay(name) for name, (_, decay) in found.items())
    before = {name: parameter.clone() for name, parameter in module.named_parameters()}
    for _ in range(3):
        optimizer.zero_grad()
        sum((p * p).sum() + p.sum() for p in module.parameters()).backward()
        optimizer.step()
    for name, parameter in module.named_parameters():
        assert torch.equal(parameter, before[name]) == (name in expected), name


def test_freezing_twice_is_freezing_once(module: Module) -> None:
    config = OptimizerConfig(frozen_layers=1)
    freeze_layers(config, module)
    trained = [name for name, p in module.named_parameters() if p.requires_grad]
    found = rates(module, build_optimizer(config, module))
    assert sorted(found) == sorted(trained)


@pytest.mark.parametrize("frozen", [-1, LAYERS, 12])
def test_more_frozen_layers_than_there_are(module: Module, frozen: int) -> None:
    with pytest.raises(ConfigError, match=rf"optimizer\.frozen_layers: found {frozen}, .* to 2,"):
        build_optimizer(OptimizerConfig(frozen_layers=frozen), module)
    assert all(parameter.requires_grad for parameter in module.parameters())


@pytest.mark.parametrize("option", [{"layer_decay": 0.9}, {"frozen_layers": 0}])
def test_an_encoder_without_layers(option: dict[str, float]) -> None:
    encoder = nn.Module()
    encoder.token_embedding = nn.Embedding(11, 8)
    module = Module(encoder)
    with pytest.raises(ConfigError, match=rf"model\.optimizer\.{next(iter(option))}: .*layers\.0"):
        build_optimizer(OptimizerConfig(**option), module)
    build_optimizer(OptimizerConfig(), module)
    build_optimizer(OptimizerConfig(frozen_layers="all"), module)
    assert not encoder.token_embedding.weight.requires_grad


@pytest.mark.parametrize("option", [{"layer_decay": 0.9}, {"frozen_layers": 0}])
def test_both_come_with_bertlab_modern(
    module: Module, option: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        leave_the_core_alone(patch)
        message = rf"optimizer\.{next(iter(option))}: comes with bertlab-modern: pip install"
        with pytest.raises(ConfigError, match=message):
            build_optimizer(OptimizerConfig(**option), module)
    forget_installed()


class Gain(nn.Module):
    """A norm that is not called one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.temperature = nn.Parameter(torch.ones(()))


class GatedEncoder(BertEncoder):
    """An encoder with parameters that the rule alone would not get right."""

    def __init__(self) -> None:
        super().__init__(vocab_size=11, preset="tiny", hidden_size=8, num_attention_heads=2)
        self.decays = {"gates": False, "gates.table": True, "gain.weight": True}
        self.gain = Gain()
        self.gates = nn.ParameterDict({"table": torch.ones(2, 3), "matrix": torch.ones(3, 3)})


def test_vectors_do_not_decay_whatever_their_module_is_called() -> None:
    gain = Gain()
    assert split_by_weight_decay(gain) == ([], [gain.weight, gain.temperature])


def test_an_encoder_says_which_of_its_parameters_decay() -> None:
    encoder = GatedEncoder()
    module = Module(encoder)
    found = rates(module, build_optimizer(OptimizerConfig(), module))
    own = {name: found[f"encoder.{name}"][1] for name, _ in encoder.named_parameters()}
    assert own["gates.table"] == own["gain.weight"] == 0.01
    assert own["gates.matrix"] == own["gain.temperature"] == 0.0
    others = {name: decay for name, decay in own.items() if not name.startswith("ga")}
    assert all(decay == (0.0 if does_not_decay(name) else 0.01) for name, decay in others.items())


def test_a_name_in_decays_that_there_is_not_is_refused() -> None:
    encoder = GatedEncoder()
    encoder.decays = {"gates.tabel": False}
    with pytest.raises(PluginError, match=r"GatedEncoder.decays: .*'gates.tabel'.*'gates.table'"):
        build_optimizer(OptimizerConfig(), Module(encoder))


@pytest.mark.parametrize("name", sorted(installed("encoder")))
def test_all_that_has_two_dimensions_decays_in_installed_encoders(name: str) -> None:
    cls = load_class("encoder", name, Encoder)
    tiny = {"preset": "tiny"} if "preset" in inspect.signature(cls).parameters else {}
    encoder = cls(vocab_size=11, **tiny)
    decayed, _ = split_by_weight_decay(encoder)
    expected = [each for each in encoder.parameters() if each.ndim > 1 and each.requires_grad]
    assert [id(each) for each in decayed] == [id(each) for each in expected]
