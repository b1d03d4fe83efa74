"""``model.init_optimizer``: the optimiser and the schedule of an earlier run go on."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import get_linear_schedule_with_warmup

from bertlab.errors import CheckpointError, ConfigError, DamagedCheckpointError
from bertlab.model.optimizer import (
    build_optimizer,
    build_schedule,
    check_schedule_steps,
    parameter_names,
)
from bertlab.model.optimizer_config import Constant, OptimizerConfig
from bertlab_studies.optimizer_state import OptimizerState
from tests.conftest import Command

STEPS = 6  # of tiny_run


def train(module: nn.Module, config: OptimizerConfig, steps: range, earlier: dict[str, Any]) -> Any:
    """Take steps whose gradients depend on their numbers; return what a checkpoint would hold."""
    optimizer, done = build_optimizer(config, module), 0
    if earlier:
        state = OptimizerState.of_checkpoint("earlier", earlier)
        state.check(module, config)
        state.load(module, optimizer)
        done = state.steps
    schedule = build_schedule(config, optimizer, len(steps), done)
    for step in steps:
        inputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(step))
        module(inputs).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return {
        "state_dict": module.state_dict(),
        "optimizer_states": [optimizer.state_dict()],
        "lr_schedulers": [schedule.state_dict()],
    }


def test_two_runs_of_four_steps_are_one_of_eight() -> None:
    config = OptimizerConfig(learning_rate=0.1, warmup_steps=3, schedule_steps=10)
    torch.manual_seed(0)
    whole, parts = nn.Linear(3, 2), nn.Linear(3, 2)
    parts.load_state_dict(whole.state_dict())
    train(whole, config, range(8), {})
    train(parts, config, range(4, 8), train(parts, config, range(4), {}))
    assert torch.equal(whole.weight, parts.weight)
    assert torch.equal(whole.bias, parts.bias)


def test_the_schedule_of_both_phases_equals_hugging_faces() -> None:
    peer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=1.0)
    expected = get_linear_schedule_with_warmup(peer, 10, 100)
    rates = []
    for _ in range(100):
        rates.append(expected.get_last_lr()[0])
        peer.step()
        expected.step()
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=0.1, schedule_steps=100)
    for done, steps in ((0, 90), (90, 10)):
        optimizer = build_optimizer(config, nn.Linear(2, 2))
        schedule = build_schedule(config, optimizer, steps, done)
        for step in range(done, done + steps):
            assert schedule.get_last_lr()[0] == pytest.approx(rates[step])
            optimizer.step()
            schedule.step()


def test_a_second_phase_takes_moments_and_schedule_and_resumes(
    tiny_run: Path, tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    fit = ("fit", "--config", tiny_config, "--trainer.max_steps", 3)
    phase = ("--model.init_from", tiny_run, "--model.init_optimizer", "true")
    rest = ("--model.optimizer.schedule_steps", 9, "--trainer.val_check_interval", 1)
    slow = ("--model.optimizer.betas", "[0.99999999, 0.99999999]")  # moments stay as they were
    keep = ("--checkpoint.save_top_k", "-1", "--data.max_seq_length", 24)
    code, output, error = bertlab(
        *fit, *phase, *rest, *slow, *keep, "--run_dir", tmp_path / "second"
    )
    assert code == 0, error
    assert f"its optimiser continues too, at step {STEPS} of the schedule" in output
    first, second = (checkpoint(run) for run in (tiny_run, tmp_path / "second"))
    assert second["lr_schedulers"][0]["last_epoch"] == 9
    for number, ours in second["optimizer_states"][0]["state"].items():
        theirs = first["optimizer_states"][0]["state"][number]
        assert ours["step"] == 9
        torch.testing.assert_close(ours["exp_avg"], theirs["exp_avg"], rtol=1e-3, atol=1e-8)
    assert second["optimizer_states"][0]["param_groups"][0]["lr"] == 0

    step = tmp_path / "second" / "checkpoints" / "step-1.ckpt"
    code, _, error = bertlab("fit", "--ckpt_path", step, "--run_dir", tmp_path / "resumed")
    assert code == 0, error
    resumed = checkpoint(tmp_path / "resumed")
    assert all(torch.equal(resumed["state_dict"][k], v) for k, v in second["state_dict"].items())


def checkpoint(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    return content


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--model.init_optimizer true", ["model.init_optimizer", "model.init_from"]),
        ("RUN --model.optimizer.schedule_steps 8", ["schedule_steps: found 8", "at least 9"]),
        ("--model.optimizer.schedule_steps 2", ["schedule_steps: found 2", "at least 3"]),
        ("--model.optimizer.schedule_steps 0", ["schedule_steps: found 0"]),
        ("RUN --model.optimizer.name lion", ["model.init_optimizer", "last.ckpt", "adamw"]),
    ],
)
def test_what_cannot_go_on_is_said(
    arguments: str,
    words: list[str],
    tiny_run: Path,
    tiny_config: Path,
    tmp_path: Path,
    bertlab: Command,
) -> None:
    run = f"--model.init_from {tiny_run} --model.init_optimizer true"
    given = arguments.replace("RUN", run).split()
    place = ("--trainer.max_steps", 3, "--run_dir", tmp_path / "run")
    code, _, error = bertlab("fit", "--config", tiny_config, *given, *place)
    assert code == 2
    assert all(word in error for word in words), error
    assert not (tmp_path / "run").exists()


class Pair(nn.Module):
    """Two layers, in an order of choice."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names:
            self.add_module(name, nn.Linear(3, 2))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.stack([layer(inputs) for layer in self.children()]).sum(0)


def test_moments_go_by_the_names_of_parameters() -> None:
    config = OptimizerConfig(learning_rate=0.1)
    earlier = Pair("encoder", "clm")
    content = train(earlier, config, range(4), {})
    names = parameter_names(earlier, build_optimizer(config, earlier))
    state = OptimizerState.of_checkpoint("earlier", content, parameters=names)
    later = Pair("mlm", "encoder")
    state.check(later, config)
    optimizer = build_optimizer(config, later)
    state.load(later, optimizer)
    theirs = content["optimizer_states"][0]["state"]
    for part in ("weight", "bias"):
        ours = optimizer.state[getattr(later.encoder, part)]
        assert ours["step"] == 4
        assert torch.equal(ours["exp_avg"], theirs[names.index(f"encoder.{part}")]["exp_avg"])
        assert getattr(later.mlm, part) not in optimizer.state  # it starts anew
    with pytest.raises(CheckpointError, match="none of the parameters"):
        state.check(Pair("head"), config)


def test_names_that_are_not_those_of_the_parameters_are_damage() -> None:
    content = train(nn.Linear(3, 2), OptimizerConfig(), range(1), {})
    for wrong in (["weight"], "weight", ["weight", 3]):
        with pytest.raises(DamagedCheckpointError, match="names of 2 parameters"):
            OptimizerState.of_checkpoint("a.ckpt", content, parameters=wrong)


def test_without_names_the_tensors_must_be_the_same() -> None:
    content = train(Pair("encoder", "clm"), OptimizerConfig(), range(1), {})
    state = OptimizerState.of_checkpoint("older", content)
    state.check(Pair("encoder", "clm"), OptimizerConfig())
    with pytest.raises(CheckpointError, match="older trained other tensors"):
        state.check(Pair("encoder", "mlm"), OptimizerConfig())


def test_the_schedule_begins_anew_where_no_length_of_both_is_given() -> None:
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=0)
    for done in (0, 90):
        optimizer = build_optimizer(config, nn.Linear(2, 2))
        assert build_schedule(config, optimizer, 10, done).get_last_lr()[0] == 1.0


def test_weights_alone_have_no_optimizer() -> None:
    with pytest.raises(CheckpointError, match="weights only"):
        OptimizerState.of_checkpoint("a.ckpt", {"state_dict": {}, "optimizer_states": []})


def test_a_constant_schedule_has_no_end() -> None:
    config = OptimizerConfig(schedule=Constant(), schedule_steps=5)
    check_schedule_steps(config, 90, 10)
    with pytest.raises(ConfigError, match="at least 11"):
        check_schedule_steps(OptimizerConfig(schedule_steps=5), 10, -1)
