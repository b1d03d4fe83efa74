"""Optimisers against direct loops and PyTorch's own, and what a config says of them."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from bertlab.api.optimizer import OptimizerRecipe, ParameterGroup
from bertlab.config.request import OF_EVERY_OPTIMIZER
from bertlab.config.run_config import resolve_arguments
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import BertlabError, CheckpointError, ConfigError, PluginError
from bertlab.model.optimizer import OptimizerState, build_optimizer
from bertlab.model.optimizer_config import (
    PLUGGED,
    OptimizerConfig,
    load_recipe,
    read_optimizer,
)
from bertlab.model.optimizers.torch_classes import torch_names
from bertlab.model.parameter_groups import parameter_groups, parameter_kinds, split_by_weight_decay
from bertlab_modern.lamb import Lamb
from bertlab_modern.lion import Lion
from bertlab_modern.muon import MuonWithAdamW

RATE, DECAY = 0.01, 0.1
SIZE = 8


class Module(nn.Module):
    """A small encoder and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = BertEncoder(
            vocab_size=11,
            num_hidden_layers=2,
            hidden_size=SIZE,
            num_attention_heads=2,
            max_position_embeddings=16,
        )
        head = nn.Module()
        head.classifier = nn.Linear(SIZE, 2)
        head.decoder = self.encoder.token_embedding
        self.tasks = nn.ModuleDict({"head": head})


@pytest.fixture
def module() -> Module:
    torch.manual_seed(0)
    return Module()


def give_gradients(module: nn.Module, step: int) -> None:
    rng = torch.Generator().manual_seed(step)
    for parameter in module.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=rng)


Loop = Callable[[Tensor, list[Tensor], bool], Tensor]


def lion_loop(weight: Tensor, gradients: list[Tensor], decays: bool) -> Tensor:
    """Chen et al. 2023, algorithm 2, in double precision."""
    momentum = torch.zeros_like(weight)
    for gradient in gradients:
        update = torch.sign(0.9 * momentum + 0.1 * gradient)
        momentum = 0.99 * momentum + 0.01 * gradient
        weight = weight - RATE * (update + (DECAY if decays else 0) * weight)
    return weight


def lamb_loop(weight: Tensor, gradients: list[Tensor], decays: bool) -> Tensor:
    """You et al. 2020, algorithm 2, in double precision; biases and norms take Adam's steps."""
    mean, square = torch.zeros_like(weight), torch.zeros_like(weight)
    for step, gradient in enumerate(gradients, 1):
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        adam = (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + 1e-6)
        if not decays:
            weight = weight - RATE * adam
            continue
        update = adam + DECAY * weight
        norm = math.sqrt(float((weight**2).sum()))
        ratio = norm / math.sqrt(float((update**2).sum())) if norm else 1.0
        weight = weight - RATE * ratio * update
    return weight


@pytest.mark.parametrize(("recipe", "loop"), [(Lion(), lion_loop), (Lamb(), lamb_loop)])
def test_a_direct_loop_takes_the_same_steps(
    module: Module, recipe: OptimizerRecipe, loop: Loop
) -> None:
    with torch.no_grad():
        module.tasks["head"].classifier.weight.zero_()  # a norm of 0
    config = OptimizerConfig(learning_rate=RATE, weight_decay=DECAY, recipe=recipe)
    optimizer = build_optimizer(config, module)
    _, plain = split_by_weight_decay(module)
    before = {name: each.detach().double() for name, each in module.named_parameters()}
    gradients: dict[str, list[Tensor]] = {name: [] for name in before}
    for step in range(7):
        give_gradients(module, step)
        for name, parameter in module.named_parameters():
            gradients[name].append(parameter.grad.double())
        optimizer.step()
    for name, parameter in module.named_parameters():
        decays = all(parameter is not each for each in plain)
        expected = loop(before[name], gradients[name], decays)
        torch.testing.assert_close(parameter.detach().double(), expected, rtol=1e-5, atol=1e-6)


def test_lamb_can_scale_biases_too(module: Module) -> None:
    config = OptimizerConfig(recipe=Lamb(adapt_all=True))
    assert all(group["adapt"] for group in build_optimizer(config, module).param_groups)


def test_muon_takes_the_encoders_matrices_and_adamw_the_rest(module: Module) -> None:
    peer = copy.deepcopy(module)
    recipe = MuonWithAdamW(matrix_learning_rate=0.03)
    config = OptimizerConfig(learning_rate=RATE, weight_decay=DECAY, layer_decay=0.5, recipe=recipe)
    optimizer = build_optimizer(config, module)
    ours = dict(peer.named_parameters())
    found = [name for name, kind in named_kinds(module).items() if kind == "matrix"]
    groups = [
        {"params": [ours[name]], "lr": 0.03 * rate_of(name), "weight_decay": DECAY}
        for name in found
    ]
    muon = torch.optim.Muon(groups, lr=0.03, adjust_lr_fn="match_rms_adamw")
    rest = [name for name in ours if name not in found]
    adamw = torch.optim.AdamW(
        [
            {
                "params": [ours[name]],
                "lr": RATE * rate_of(name),
                "weight_decay": 0.0 if name.endswith("bias") or "norm" in name else DECAY,
            }
            for name in rest
        ],
        betas=(0.9, 0.999),
        eps=1e-6,
        fused=True,
    )
    for step in range(4):
        for each in (module, peer):
            give_gradients(each, step)
        optimizer.step()
        muon.step()
        adamw.step()
    for name, parameter in module.named_parameters():
        assert torch.equal(parameter, ours[name]), name


def rate_of(name: str) -> float:
    """Share of the peak where ``layer_decay`` is a half and there are two layers."""
    if name.startswith("encoder.layers."):
        return 0.5 ** (2 - int(name.split(".")[2]))
    return 1.0 if name.startswith(("encoder.pooler", "tasks")) else 0.125


def named_kinds(module: nn.Module) -> dict[str, str]:
    kinds = parameter_kinds(module)
    return {name: kinds[each] for name, each in module.named_parameters()}


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


OTHERS = [name for name in torch_names() if name != "Rprop"]


@pytest.mark.parametrize("name", ["adamw", "lamb", "lion", "muon", *OTHERS])
def test_a_run_goes_on_bit_by_bit_from_its_state(module: Module, name: str) -> None:
    config = read_optimizer({"name": name, "learning_rate": 1e-2, "layer_decay": 0.9})
    peer = copy.deepcopy(module)
    optimizer = build_optimizer(config, module)
    for step in range(3):
        give_gradients(module, step)
        optimizer.step()
    peer.load_state_dict(module.state_dict())
    resumed = build_optimizer(config, peer)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    content = {
        "state_dict": module.state_dict(),
        "optimizer_states": [optimizer.state_dict()],
        "lr_schedulers": [{"last_epoch": 3}],
    }
    second = copy.deepcopy(module)  # the second phase of model.init_optimizer
    state = OptimizerState.of_checkpoint("earlier", copy.deepcopy(content), name)
    state.check(second, config)
    continued = build_optimizer(config, second)
    state.load(second, continued)
    for step in range(3, 6):
        for each, steps in ((module, optimizer), (peer, resumed), (second, continued)):
            give_gradients(each, step)
            steps.step()
    for one, other, third in zip(
        module.parameters(), peer.parameters(), second.parameters(), strict=True
    ):
        assert torch.equal(one, other)
        assert torch.equal(one, third)


def test_another_optimizers_moments_are_refused(module: Module) -> None:
    content = {
        "state_dict": module.state_dict(),
        "optimizer_states": [build_optimizer(OptimizerConfig(), module).state_dict()],
        "lr_schedulers": [{"last_epoch": 3}],
    }
    state = OptimizerState.of_checkpoint("earlier", content)
    with pytest.raises(CheckpointError, match=r"trained by adamw, .* is muon"):
        state.check(module, read_optimizer({"name": "muon"}))


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
        ({"name": "moun"}, "did you mean 'muon'.*of torch.optim: .*SGD"),
        ({"name": "Optimizer"}, "no optimizer is called 'Optimizer'"),
        ({"betas": [0.9, 1.2]}, r"betas: found \[0.9, 1.2\]"),
        ({"eps": -1.0}, "eps: found -1.0"),
        ({"name": "lion", "betas": [0.9, 1.0]}, "betas"),
        ({"name": "muon", "ns_steps": 0}, "ns_steps: found 0"),
        ({"name": "muon", "momentum": 2.0}, "momentum: found 2.0"),
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


def test_muon_without_a_matrix_is_refused(module: Module) -> None:
    config = read_optimizer({"name": "muon", "frozen_layers": "all"})
    with pytest.raises(ConfigError, match=r"optimizer\.name: muon trains matrices.*frozen_layers"):
        build_optimizer(config, module)


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


@pytest.mark.parametrize("name", ["adamw", "lamb", "lion", "muon", "SGD"])
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
    _, config = resolve_arguments([f"--model.optimizer{each}" for each in arguments])
    found: dict[str, object] = config["model"]["optimizer"]
    return found


def test_adamws_section_is_as_it_was_before_there_were_others() -> None:
    keys = {"learning_rate", "betas", "eps", "weight_decay", "warmup_steps", "schedule"}
    keys |= {"schedule_steps", "layer_decay", "frozen_layers"}
    assert set(plain()) == keys
    assert plain()["schedule"] == "linear"
    assert plain(".name=adamw") == plain("=adamw") == plain()


def test_an_optimizer_and_its_schedule_are_named_in_several_ways() -> None:
    named = plain(".name=lion", ".betas=[0.8, 0.9]", ".schedule={name: wsd, decay_share: 0.3}")
    assert named["name"] == "lion"
    assert named["betas"] == [0.8, 0.9]
    assert named["schedule"] == {"name": "wsd", "decay_share": 0.3, "shape": "linear"}
    again = plain("={name: lion, betas: [0.8, 0.9]}", ".schedule=wsd", ".schedule.decay_share=0.3")
    assert again == named
    assert read_optimizer(named).recipe.betas == [0.8, 0.9]


def test_another_optimizer_keeps_what_all_have(tmp_path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(
        "model: {optimizer: {name: SGD, momentum: 0.5, learning_rate: 0.3, "
        "schedule: {name: wsd, decay_share: 0.4}}}"
    )
    second.write_text("model: {optimizer: {name: muon, schedule: cosine}}")
    _, config = resolve_arguments(["--config", str(first), "--config", str(second)])
    found = config["model"]["optimizer"]
    assert found["name"] == "muon"
    assert found["learning_rate"] == 0.3
    assert found["momentum"] == MuonWithAdamW().momentum
    assert found["schedule"] == {"name": "cosine", "final": 0.0}


def test_no_argument_of_an_optimizer_is_called_as_one_of_all() -> None:
    common = {each for each in OptimizerConfig.__dataclass_fields__ if each not in PLUGGED}
    assert {*OF_EVERY_OPTIMIZER} == {*common, "schedule"}
    for name in ("adamw", "lamb", "lion", "muon", *torch_names()):
        own = {*load_recipe(name).__init__.__code__.co_varnames}
        assert not own & {*common, *PLUGGED}
