"""Schedule-free AdamW and SAM: against direct loops, and in runs with checkpoints."""

import json
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import EMAWeightAveraging
from torch import Tensor

from bertlab.api.optimizer import OptimizerRecipe
from bertlab.model.optimizer import build_optimizer, parameter_groups
from bertlab.model.optimizer_config import OptimizerConfig
from bertlab_modern.modes import OptimizerModes
from bertlab_modern.sam import Sam
from bertlab_modern.schedule_free import ScheduleFree
from tests.conftest import Command
from tests.model.small_module import Module, check_that_a_run_goes_on_bit_by_bit, give_gradients

RATE, DECAY, RHO = 0.01, 0.1, 0.05
FREE = (
    *("--model.optimizer.name", "schedule_free", "--model.optimizer.schedule", "constant"),
    *("--model.optimizer.warmup_steps", "2"),
)
SAM = ("--model.optimizer.name", "sam")
IN_PARTS = ("--trainer.accumulate_grad_batches", "2", "--trainer.val_check_interval", "2")


@pytest.fixture
def module() -> Module:
    torch.manual_seed(0)
    return Module()


def free_loop(weight: Tensor, gradients: list[Tensor], rates: list[float], decay: float) -> Any:
    """Defazio et al. 2024, algorithm 1, with x, y and z kept, in double precision: x and y."""
    x = z = y = weight
    square, total = torch.zeros_like(weight), 0.0
    for step, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        square = 0.999 * square + 0.001 * gradient**2
        move = gradient / ((square / (1 - 0.999**step)).sqrt() + 1e-8) + decay * y
        z = z - rate * move
        total += rate**2
        share = rate**2 / total
        x = (1 - share) * x + share * z
        y = 0.1 * z + 0.9 * x
    return x, y


def test_schedule_free_takes_the_steps_of_a_direct_loop(module: Module) -> None:
    config = OptimizerConfig(learning_rate=RATE, weight_decay=DECAY, recipe=ScheduleFree())
    optimizer = build_optimizer(config, module)
    decays = {id(p): g["weight_decay"] for g in optimizer.param_groups for p in g["params"]}
    before = {name: each.detach().double() for name, each in module.named_parameters()}
    gradients: dict[str, list[Tensor]] = {name: [] for name in before}
    rates = [RATE * share for share in (0.25, 0.5, 0.75, 1, 1, 1, 0.5)]
    for step, rate in enumerate(rates):
        give_gradients(module, step)
        for name, parameter in module.named_parameters():
            gradients[name].append(parameter.grad.double())
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    trained = {name: each.detach().clone() for name, each in module.named_parameters()}
    optimizer.eval()
    shown = {name: each.detach().clone() for name, each in module.named_parameters()}
    optimizer.eval()  # a second time: nothing
    with pytest.raises(RuntimeError, match="train"):
        optimizer.step()
    for name, parameter in module.named_parameters():
        x, y = free_loop(before[name], gradients[name], rates, decays[id(parameter)])
        torch.testing.assert_close(trained[name].double(), y, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(shown[name].double(), x, rtol=1e-5, atol=1e-6)
        assert torch.equal(parameter, shown[name])
    optimizer.train()
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(parameter.detach(), trained[name])


@pytest.mark.parametrize("name", ["schedule_free", "sam"])
def test_a_run_goes_on_bit_by_bit_from_its_state(module: Module, name: str) -> None:
    check_that_a_run_goes_on_bit_by_bit(module, name)


def checkpoint(run: Path, name: str = "last") -> dict[str, Any]:
    found: dict[str, Any] = torch.load(run / f"checkpoints/{name}.ckpt", weights_only=True)
    return found


def test_averages_of_the_weights_stay_in_a_checkpoint(module: Module) -> None:
    config = OptimizerConfig(learning_rate=RATE, recipe=ScheduleFree())
    optimizer = build_optimizer(config, module)
    owner = LightningModule()
    owner.model = module
    trainer: Any = SimpleNamespace(
        optimizers=[optimizer],
        strategy=SimpleNamespace(lightning_module_state_dict=owner.state_dict),
    )
    averages = EMAWeightAveraging(decay=0.5)
    averages.setup(trainer, owner, "fit")
    assert averages._average_model is not None
    expected = {name: each.clone() for name, each in owner.state_dict().items()}  # of the start
    for step in range(2):
        give_gradients(module, step)
        optimizer.step()
    content: dict[str, Any] = {"state_dict": owner.state_dict()}
    averages.on_save_checkpoint(trainer, owner, content)
    OptimizerModes().on_save_checkpoint(trainer, owner, content)
    assert content["state_dict"].keys() == expected.keys()
    assert all(torch.equal(content["state_dict"][name], expected[name]) for name in expected)
    trained = content["trained_weights"]
    assert all(torch.equal(trained[name], content["current_model_state"][name]) for name in trained)
    assert not all(torch.equal(trained[name], expected[name]) for name in trained)


@pytest.mark.slow
def test_a_finished_run_is_scored_again(
    tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    run = tmp_path / "run"
    off = ("--trainer.val_check_interval", 4)  # so that the end is saved after training
    assert bertlab("fit", "--config", tiny_config, *FREE, *off, "--run_dir", run)[0] == 0
    before = (run / "results.json").read_bytes()
    code, _, error = bertlab("fit", "--ckpt_path", run)
    assert code == 0, error
    assert (run / "results.json").read_bytes() == before


@pytest.mark.slow
def test_what_is_evaluated_and_saved_is_the_average(
    tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    run = tmp_path / "run"
    code, _, error = bertlab("fit", "--config", tiny_config, *FREE, "--run_dir", run)
    assert code == 0, error
    saved = checkpoint(run)
    (state,) = saved["optimizer_states"]
    moments = [state["state"][each] for group in state["param_groups"] for each in group["params"]]
    names = saved["trained_weights"]
    shapes = sorted(tuple(each["z"].shape) for each in moments)
    assert shapes == sorted(tuple(each.shape) for each in names.values())
    moved = [name for name in names if not torch.equal(names[name], saved["state_dict"][name])]
    assert moved
    # x = y + (1 - 1 / 0.9) (z - y), for whichever z is the parameter's
    for name in moved:
        y, x = names[name], saved["state_dict"][name]
        fitting = [each["z"] for each in moments if each["z"].shape == y.shape]
        assert any(torch.allclose(y.lerp(z, 1 - 1 / 0.9), x, atol=1e-7) for z in fitting), name
    # what the run said of its last step is what the file gives
    results = json.loads((run / "results.json").read_text())
    code, _, error = bertlab("validate", "--ckpt_path", run)
    assert code == 0, error
    code, _, error = bertlab("fit", "--ckpt_path", run)  # scored again, and not changed
    assert code == 0, error
    assert json.loads((run / "results.json").read_text()) == results
    again = checkpoint(run)["state_dict"]
    assert all(torch.equal(again[name], each) for name, each in saved["state_dict"].items())


@pytest.mark.nightly
@pytest.mark.parametrize("settings", [FREE, SAM])
def test_evaluations_and_kills_change_no_step(
    tiny_config: Path, tmp_path: Path, bertlab: Command, settings: tuple[str, ...]
) -> None:
    fit = ("fit", "--config", tiny_config, *settings, "--trainer.max_steps")
    often = ("--trainer.val_check_interval", 1, "--checkpoint.every_n_train_steps", 1)
    often += ("--checkpoint.save_top_k", -1)
    runs = {name: tmp_path / name for name in ("rarely", "often", "in_parts")}
    assert bertlab(*fit, 6, "--trainer.val_check_interval", 6, "--run_dir", runs["rarely"])[0] == 0
    assert bertlab(*fit, 6, *often, "--run_dir", runs["often"])[0] == 0
    copytree(runs["often"], runs["in_parts"])
    (runs["in_parts"] / "checkpoints/last.ckpt").unlink()
    step = runs["in_parts"] / "checkpoints/step-3.ckpt"
    code, _, error = bertlab("fit", "--ckpt_path", step)
    assert code == 0, error
    expected = checkpoint(runs["rarely"])
    for name in ("often", "in_parts"):
        found = checkpoint(runs[name])
        for key in ("state_dict", "trained_weights"):
            there = expected.get(key, {})
            assert all(torch.equal(found[key][each], there[each]) for each in there), (name, key)


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ((*SAM, *IN_PARTS), "accumulate_grad_batches: found 2"),
        ((*FREE, "--checkpoint.save_weights_only", "true"), "checkpoint.save_weights_only"),
        ((*FREE, "--model.optimizer.schedule", "linear"), "model.optimizer.schedule: expected con"),
        ((*FREE, "--model.optimizer.betas", "[0, 0.9]"), "model.optimizer.betas"),
        (
            (*FREE, "--schedules", "{optimizer: {betas: {from: [0.9, 0.9], to: [0.95, 0.9]}}}"),
            "schedules.optimizer.betas: found 0.9 to 0.95 first, expected one value",
        ),
        ((*SAM, "--model.optimizer.rho", "-1"), "model.optimizer.rho"),
    ],
)
def test_what_does_not_go_together(
    tiny_config: Path, tmp_path: Path, bertlab: Command, settings: tuple[str, ...], words: str
) -> None:
    run = tmp_path / "run"
    code, _, error = bertlab("fit", "--config", tiny_config, *settings, "--run_dir", run)
    assert code == 2, error
    assert words in error


@pytest.mark.parametrize("rho", [0.0, RHO])
def test_sam_takes_adamws_step_with_the_gradient_nearby(module: Module, rho: float) -> None:
    recipe: OptimizerRecipe = Sam(rho)
    optimizer = build_optimizer(
        OptimizerConfig(learning_rate=RATE, weight_decay=DECAY, recipe=recipe), module
    )
    torch.manual_seed(0)
    peer = Module()
    adamw = build_optimizer(OptimizerConfig(learning_rate=RATE, weight_decay=DECAY), peer)
    ours, theirs = [*module.parameters()], [*peer.parameters()]
    drawn: list[float] = []

    def loss_of(weights: list[torch.nn.Parameter], noise: float) -> Tensor:
        return torch.stack([((each * (1 + noise)) ** 3).sum() for each in weights]).sum()

    def closure() -> float:
        optimizer.zero_grad()
        drawn.append(float(torch.rand(())))  # as dropout does
        loss = loss_of(ours, drawn[-1])
        loss.backward()
        return float(loss.detach())

    for _ in range(3):
        drawn.clear()
        found = optimizer.step(closure)
        first, second = drawn
        assert first == second
        assert found == float(loss_of(theirs, first).detach())
        gradients = torch.autograd.grad(loss_of(theirs, first), theirs)
        norm = torch.sqrt(sum((each**2).sum() for each in gradients))
        moved = [
            torch.nn.Parameter((w + rho * g / norm).detach())
            for w, g in zip(theirs, gradients, strict=True)
        ]
        nearby = torch.autograd.grad(loss_of(moved, first), moved)
        for weight, gradient in zip(theirs, nearby, strict=True):
            weight.grad = gradient
        adamw.step()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


def test_groups_have_the_names_of_their_parameters(module: Module) -> None:
    groups = parameter_groups(OptimizerConfig(), module)
    named = dict(module.named_parameters())
    for group in (*groups, *(each.of_kinds("matrix", "head") for each in groups)):
        assert all(named[n] is p for n, p in zip(group.names, group.parameters, strict=True))
    assert sorted(name for group in groups for name in group.names) == sorted(named)
