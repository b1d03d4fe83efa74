"""Runs whose length is a number of tokens or a time."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from bertlab.errors import ConfigError
from bertlab.model.optimizer import build_optimizer, build_timed_schedule
from bertlab.model.optimizer_config import Constant, OptimizerConfig
from bertlab.training.results import read_curves
from tests.conftest import Command


class FakeTimer:
    """Lightning's Timer, with the clock in our hands."""

    def __init__(self, duration: float, elapsed: float = 0.0) -> None:
        self.duration = duration
        self.elapsed = elapsed

    def time_elapsed(self) -> float:
        return self.elapsed

    def time_remaining(self) -> float:
        return self.duration - self.elapsed


def rates(config: OptimizerConfig, timer: FakeTimer, moments: list[float]) -> list[float]:
    """Return the learning rate at the step that begins at each moment."""
    optimizer = build_optimizer(config, nn.Linear(2, 2))
    schedule = build_timed_schedule(config, optimizer, timer)  # type: ignore[arg-type]
    found = []
    for moment in moments:
        timer.elapsed = moment
        optimizer.step()
        schedule.step()
        found.append(optimizer.param_groups[0]["lr"])
    return found


def test_the_schedule_follows_the_clock() -> None:
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=0.1)
    found = rates(config, FakeTimer(100.0), [0, 0, 5, 10, 55, 56, 90, 100, 101])
    assert found == pytest.approx([0, 0, 0.5, 1, 0.5, 44 / 90, 1 / 9, 0, 0])


def test_the_clock_starts_when_the_first_steps_are_done() -> None:
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=0.1)
    found = rates(config, FakeTimer(100.0), [30, 40, 43, 46, 73, 100])
    assert found == pytest.approx([0, 0, 0.5, 1, 0.5, 0])


def test_a_constant_schedule_warms_up_by_the_clock() -> None:
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=0.5, schedule=Constant())
    assert rates(config, FakeTimer(100.0), [0, 0, 25, 50, 99])[2:] == pytest.approx([0.5, 1, 1])


def test_a_run_that_goes_on_has_the_schedule_of_its_whole_time() -> None:
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=0.0)
    assert rates(config, FakeTimer(100.0, elapsed=40.0), [50, 75]) == pytest.approx([0.5, 0.25])


def test_a_warm_up_in_steps_does_not_go_with_a_time() -> None:
    config = OptimizerConfig(warmup_steps=100)
    with pytest.raises(ConfigError, match="warmup_steps: found 100, expected a share below 1"):
        rates(config, FakeTimer(100.0), [])


@pytest.mark.slow
def test_tokens_are_as_many_steps_as_read_them(
    tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    given = ("--config", tiny_config, "--trainer.max_steps", "-1", "--max_tokens")
    for tokens in (700, 1300):
        run = tmp_path / str(tokens)
        code, _, err = bertlab("fit", *given, tokens, "--run_dir", run)
        assert code == 0, err
        manifest = json.loads((run / "manifest.json").read_text())
        a_step = 8 * manifest["mean_sequence_length"]
        steps = round(tokens / a_step)
        assert len(read_curves(run)["train/loss"][0]) == steps
        assert manifest["training_tokens"] == pytest.approx(steps * a_step)
        assert abs(manifest["training_tokens"] - tokens) <= a_step / 2
        checkpoint = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
        assert checkpoint["global_step"] == steps


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--max_tokens", "1000"], "trainer.max_steps or trainer.max_epochs beside it"),
        (["--max_tokens", "5", "--trainer.max_steps", "-1"], "expected at least a step's"),
        (
            ["--max_tokens", ".nan", "--trainer.max_steps", "-1"],
            "found nan, expected a number above 0",
        ),
    ],
)
def test_tokens_that_make_no_run(
    arguments: list[str], words: str, tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    run = tmp_path / "run"
    code, _, err = bertlab("fit", "--config", tiny_config, *arguments, "--run_dir", run)
    assert code == 2
    assert words in err
    assert not run.exists()


@pytest.mark.slow
def test_a_run_that_a_time_ends(tiny_config: Path, tmp_path: Path, bertlab: Command) -> None:
    run = tmp_path / "run"
    given = ("--trainer.max_steps", "-1", "--trainer.max_time", "00:00:00:01")
    code, _, err = bertlab("fit", "--config", tiny_config, *given, "--run_dir", run)
    assert code == 0, err
    assert (run / "results.json").is_file()
    manifest = json.loads((run / "manifest.json").read_text())
    assert "training_tokens" not in manifest
    assert manifest["mean_sequence_length"] > 8
