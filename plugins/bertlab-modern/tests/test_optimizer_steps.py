"""LAMB, Lion and Muon against direct loops and PyTorch's own."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bertlab.api.optimizer import OptimizerRecipe
from bertlab.config.merge import read_request
from bertlab.config.run_config import resolve_request
from bertlab.errors import BertlabError, ConfigError
from bertlab.model.optimizer import build_optimizer, split_by_weight_decay
from bertlab.model.optimizer_config import (
    PLUGGED_OPTIMIZER_KEYS,
    OptimizerConfig,
    load_recipe,
    read_optimizer,
)
from bertlab_modern.lamb import Lamb
from bertlab_modern.lion import Lion
from bertlab_modern.muon import MuonWithAdamW
from tests.model.small_module import (
    Module,
    check_that_a_run_goes_on_bit_by_bit,
    give_gradients,
    named_kinds,
)

NAMES = ("lamb", "lion", "muon")
RATE, DECAY = 0.01, 0.1


@pytest.fixture
def module() -> Module:
    torch.manual_seed(0)
    return Module()


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


def test_muon_without_a_matrix_is_refused(module: Module) -> None:
    config = read_optimizer({"name": "muon", "frozen_layers": "all"})
    with pytest.raises(ConfigError, match=r"optimizer\.name: muon trains matrices.*frozen_layers"):
        build_optimizer(config, module)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_goes_on_bit_by_bit_from_its_state(module: Module, name: str) -> None:
    check_that_a_run_goes_on_bit_by_bit(module, name)


@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_without_a_gradient_stays(module: Module, name: str) -> None:
    optimizer = build_optimizer(read_optimizer({"name": name, "weight_decay": 0.5}), module)
    before = copy.deepcopy(module.state_dict())
    optimizer.zero_grad()
    optimizer.step()
    assert all(torch.equal(each, before[key]) for key, each in module.state_dict().items())


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"name": "moun"}, "did you mean 'muon'.*of torch.optim: .*SGD"),
        ({"name": "lion", "betas": [0.9, 1.0]}, "betas"),
        ({"name": "muon", "ns_steps": 0}, "ns_steps: found 0"),
        ({"name": "muon", "momentum": 2.0}, "momentum: found 2.0"),
    ],
)
def test_settings_that_make_no_optimizer(section: dict[str, object], words: str) -> None:
    with pytest.raises(BertlabError, match=words):
        read_optimizer(section)


def test_another_optimizer_has_its_own_settings(tmp_path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("model: {optimizer: {name: SGD, momentum: 0.5, learning_rate: 0.3}}")
    second.write_text("model: {optimizer: {name: muon, schedule: cosine}}")
    config = resolve_request(read_request(["--config", str(first), "--config", str(second)]))
    found = config["model"]["optimizer"]
    assert found["name"] == "muon"
    assert found["learning_rate"] == 0.3
    assert found["momentum"] == MuonWithAdamW().momentum


def test_no_argument_of_an_optimizer_is_called_as_one_of_all() -> None:
    common = {
        each for each in OptimizerConfig.__dataclass_fields__ if each not in PLUGGED_OPTIMIZER_KEYS
    }
    for name in NAMES:
        own = {*load_recipe(name).__init__.__code__.co_varnames}
        assert not own & {*common, *PLUGGED_OPTIMIZER_KEYS}
