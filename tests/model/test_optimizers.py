"""Optimisers against direct loops and PyTorch's own, and what a config says of them."""

import copy

import pytest
import torch
from torch import nn

from bertlab.api.optimizer import OptimizerRecipe, ParameterGroup
from bertlab.config.merge import read_request
from bertlab.config.run_config import resolve_request
from bertlab.errors import (
    BertlabError,
    CheckpointError,
    ConfigError,
    DamagedCheckpointError,
    PluginError,
)
from bertlab.model.optimizer import (
    build_optimizer,
    parameter_groups,
    split_by_weight_decay,
)
from bertlab.model.optimizer_config import (
    PLUGGED_OPTIMIZER_KEYS,
    OptimizerConfig,
    load_recipe,
    read_optimizer,
)
from bertlab.plugins.index import forget_installed
from bertlab_modern.torch_optimizers import TORCH_OPTIMIZERS
from bertlab_studies.optimizer_state import OptimizerState
from tests.model.small_module import (
    Module,
    check_that_a_run_goes_on_bit_by_bit,
    give_gradients,
    named_kinds,
)
from tests.plugins.core_alone import leave_the_core_alone

RATE, DECAY = 0.01, 0.1


@pytest.fixture
def module() -> Module:
    torch.manual_seed(0)
    return Module()


def test_what_each_parameter_is(module: Module) -> None:
    for name, kind in named_kinds(module).items():
        if name.endswith("bias") or "norm" in name:
            assert kind == "vector", name
        elif "embedding" in name:
            assert kind == "embedding", name
        else:
            assert kind == ("head" if name.startswith("tasks.") else "matrix"), name
    assert set(named_kinds(module).values()) == {"vector", "embedding", "head", "matrix"}


class PlainNorm(nn.Module):
    """A norm as a plugin may write it."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(2))


class NormalEmbedding(nn.Module):
    """Not a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(2, 2))


def test_all_norms_are_without_decay() -> None:
    norms = [nn.LayerNorm(2), nn.RMSNorm(2), PlainNorm(), nn.LayerNorm((2, 2)), nn.BatchNorm1d(2)]
    module = nn.Sequential(*norms, NormalEmbedding())
    decayed, _ = split_by_weight_decay(module)
    assert [id(each) for each in decayed] == [id(module[-1].gain)]


OTHERS = [name for name in TORCH_OPTIMIZERS if name != "Rprop"]


@pytest.mark.parametrize("name", ["adamw", *OTHERS])
def test_a_run_goes_on_bit_by_bit_from_its_state(module: Module, name: str) -> None:
    check_that_a_run_goes_on_bit_by_bit(module, name)


def test_another_optimizers_moments_are_refused(module: Module) -> None:
    content = {
        "state_dict": module.state_dict(),
        "optimizer_states": [build_optimizer(OptimizerConfig(), module).state_dict()],
        "lr_schedulers": [{"last_epoch": 3}],
    }
    state = OptimizerState.of_checkpoint("earlier", content)
    with pytest.raises(CheckpointError, match=r"trained by adamw, .* is SGD"):
        state.check(module, read_optimizer({"name": "SGD"}))


def test_moments_of_another_size_are_not_taken_over(module: Module) -> None:
    optimizer = build_optimizer(OptimizerConfig(), module)
    give_gradients(module, 0)
    optimizer.step()
    content = {
        "state_dict": module.state_dict(),
        "optimizer_states": [copy.deepcopy(optimizer.state_dict())],
        "lr_schedulers": [{"last_epoch": 3}],
    }
    OptimizerState.of_checkpoint("earlier", content).load(module, optimizer)
    content["optimizer_states"][0]["state"][0]["exp_avg"] = torch.zeros(1)  # type: ignore[index]
    with pytest.raises(DamagedCheckpointError, match=r"earlier: .*state.0.exp_avg: expected num"):
        OptimizerState.of_checkpoint("earlier", content).load(module, optimizer)


@pytest.mark.parametrize("name", OTHERS)
def test_a_class_of_torch_takes_its_own_steps(module: Module, name: str) -> None:
    peer = copy.deepcopy(module)
    config = read_optimizer({"name": name, "learning_rate": RATE, "weight_decay": DECAY})
    optimizer = build_optimizer(config, module)
    decayed, plain = split_by_weight_decay(peer)
    expected = getattr(torch.optim, name)(
        [{"params": decayed, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0.0}],
        lr=RATE,
    )
    for step in range(2):
        for each, steps in ((module, optimizer), (peer, expected)):
            give_gradients(each, step)
            steps.step()
    for one, other in zip(module.parameters(), peer.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"name": "LBFGS"}, "LBFGS.*closure"),
        ({"name": "SparseAdam"}, "sparse gradients"),
        ({"name": "Muon"}, "use muon"),
        ({"name": "Rprop"}, "weight_decay: found 0.01, expected 0: Rprop"),
        ({"name": "adamv"}, "did you mean 'adamw'.*of torch.optim: .*SGD"),
        ({"name": "Optimizer"}, "no optimizer is called 'Optimizer'"),
        ({"betas": [0.9, 1.2]}, r"betas: found \[0.9, 1.2\]"),
        ({"eps": -1.0}, "eps: found -1.0"),
        ({"schedule": "cosin"}, "no schedule is called 'cosin'; did you mean 'cosine'"),
    ],
)
def test_settings_that_make_no_optimizer(section: dict[str, object], words: str) -> None:
    with pytest.raises(BertlabError, match=words):
        read_optimizer(section)


def test_torch_names_what_is_wrong_with_a_setting(module: Module) -> None:
    config = read_optimizer({"name": "SGD", "nesterov": True})
    with pytest.raises(ConfigError, match=r"torch\.optim\.SGD: Nesterov momentum requires"):
        build_optimizer(config, module)


def test_rprop_runs_without_weight_decay(module: Module) -> None:
    optimizer = build_optimizer(read_optimizer({"name": "Rprop", "weight_decay": 0.0}), module)
    assert "weight_decay" not in optimizer.param_groups[0]


class Forgetful(OptimizerRecipe):
    """Trains half of what it is given."""

    def build(
        self, groups: list[ParameterGroup], learning_rate: float, fused: bool
    ) -> torch.optim.Optimizer:
        del fused
        return torch.optim.SGD([groups[0].settings()], lr=learning_rate)


def test_an_optimizer_that_leaves_parameters_out_is_refused(module: Module) -> None:
    with pytest.raises(PluginError, match=r"Forgetful.*leaves out .*bias"):
        build_optimizer(OptimizerConfig(recipe=Forgetful()), module)


@pytest.mark.parametrize("name", ["adamw", "SGD"])
def test_a_parameter_without_a_gradient_stays(module: Module, name: str) -> None:
    optimizer = build_optimizer(read_optimizer({"name": name, "weight_decay": 0.5}), module)
    before = copy.deepcopy(module.state_dict())
    optimizer.zero_grad()
    optimizer.step()
    assert all(torch.equal(each, before[key]) for key, each in module.state_dict().items())


def test_of_a_group_only_some_kinds(module: Module) -> None:
    group = parameter_groups(OptimizerConfig(), module)[0]
    heads = group.of_kinds("head")
    assert [id(each) for each in heads.parameters] == [id(module.tasks["head"].classifier.weight)]
    assert (heads.learning_rate, heads.weight_decay) == (1e-4, 0.01)
    assert len(group.of_kinds("head", "matrix", "embedding").parameters) == len(group.parameters)


def plain(*arguments: str) -> dict[str, object]:
    config = resolve_request(read_request([f"--model.optimizer{each}" for each in arguments]))
    found: dict[str, object] = config["model"]["optimizer"]
    return found


@pytest.mark.slow
def test_adamws_section_is_as_it_was_before_there_were_others() -> None:
    keys = {"learning_rate", "betas", "eps", "weight_decay", "warmup_steps", "schedule"}
    keys |= {"schedule_steps", "layer_decay", "frozen_layers"}
    assert set(plain()) == keys
    assert plain()["schedule"] == "linear"
    assert plain(".name=adamw") == plain("=adamw") == plain()


@pytest.mark.slow
def test_an_optimizer_and_its_schedule_are_named_in_several_ways() -> None:
    named = plain(".name=NAdam", ".betas=[0.8, 0.9]", ".schedule={name: wsd, decay_share: 0.3}")
    assert named["name"] == "NAdam"
    assert named["betas"] == [0.8, 0.9]
    assert named["schedule"] == {"name": "wsd", "decay_share": 0.3, "shape": "linear"}
    again = plain("={name: NAdam, betas: [0.8, 0.9]}", ".schedule=wsd", ".schedule.decay_share=0.3")
    assert again == named
    assert read_optimizer(named).recipe.betas == [0.8, 0.9]


def test_another_optimizer_keeps_what_all_have(tmp_path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(
        "model: {optimizer: {name: SGD, momentum: 0.5, learning_rate: 0.3, "
        "schedule: {name: wsd, decay_share: 0.4}}}"
    )
    second.write_text("model: {optimizer: {name: RMSprop, schedule: cosine}}")
    config = resolve_request(read_request(["--config", str(first), "--config", str(second)]))
    found = config["model"]["optimizer"]
    assert found["name"] == "RMSprop"
    assert found["learning_rate"] == 0.3
    assert found["momentum"] == 0, "the default of RMSprop"
    assert found["schedule"] == {"name": "cosine", "final": 0.0}


def test_no_argument_of_an_optimizer_is_called_as_one_of_all() -> None:
    common = {
        each for each in OptimizerConfig.__dataclass_fields__ if each not in PLUGGED_OPTIMIZER_KEYS
    }
    for name in ("adamw", *TORCH_OPTIMIZERS):
        own = {*load_recipe(name).__init__.__code__.co_varnames}
        assert not own & {*common, *PLUGGED_OPTIMIZER_KEYS}


@pytest.mark.parametrize("name", ["lamb", "lion", "muon"])
def test_an_optimizer_of_a_missing_package_names_the_package(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    leave_the_core_alone(monkeypatch)
    try:
        with pytest.raises(PluginError, match="pip install bertlab-modern"):
            load_recipe(name)
    finally:
        monkeypatch.undo()
        forget_installed()
