"""A signal saves between two steps; the run goes on from there as if nothing had been."""

import csv
import os
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from bertlab.checkpoints.run_checkpoint import read_run_checkpoint
from bertlab.model.module import BertModule
from bertlab_pages.token_throughput import TokenThroughput
from tests.conftest import Command

# 12 steps of two batches each; evaluations after steps 4, 8 and 12
SETTINGS = (
    "--trainer.max_steps", 12, "--trainer.accumulate_grad_batches", 2,
    "--trainer.val_check_interval", 8, "--model.encoder.hidden_dropout_prob", 0.1,
)  # fmt: skip


def figures(run: Path) -> list[dict[str, str]]:
    """Return what was logged, without what a clock says."""
    texts = [path.read_text("utf-8") for path in sorted(run.glob("csv/*/metrics.csv"))]
    rows = [row for text in texts for row in csv.DictReader(text.splitlines())]
    timed = "tokens_per_second"
    return [{key: value for key, value in row.items() if key != timed and value} for row in rows]


@pytest.fixture(scope="module")
def handler() -> object:
    """What handles SIGTERM before this module's runs; Ray leaves its own where its tests ran."""
    return signal.getsignal(signal.SIGTERM)


@pytest.fixture(scope="module")
def undisturbed(
    handler: object, tiny_config: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    from bertlab.cli.main import main

    run = tmp_path_factory.mktemp("undisturbed") / "run"
    arguments = ["fit", "--config", str(tiny_config), "--run_dir", str(run), *map(str, SETTINGS)]
    assert main(arguments) == 0
    return run


# the first; the end of a window; at an evaluation; amid a window between two evaluations
@pytest.mark.first_slow
@pytest.mark.parametrize(
    "batch", [15, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 6, 8))]
)
def test_a_stopped_run_goes_on_bit_by_bit(
    undisturbed: Path,
    tiny_config: Path,
    bertlab: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    batch: int,
) -> None:
    signal_after(batch, signal.SIGTERM, monkeypatch)
    run = tmp_path / "run"
    code, printed, _ = bertlab("fit", "--config", tiny_config, "--run_dir", run, *SETTINGS)
    assert code == 143
    step = -(-batch // 2)  # the window is finished first
    assert f"SIGTERM: saved at step {step}; continue with: bertlab fit --ckpt_path {run}" in printed
    assert read_run_checkpoint(run / "checkpoints" / "last.ckpt").global_step == step
    assert not (run / "results.json").exists()

    code, _, error = bertlab("fit", "--ckpt_path", run)
    assert code == 0, error
    assert (run / "results.json").read_text() == (undisturbed / "results.json").read_text()
    ours, theirs = (
        torch.load(each / "checkpoints" / "last.ckpt", weights_only=True)
        for each in (run, undisturbed)
    )
    for name, weight in theirs["state_dict"].items():
        assert torch.equal(ours["state_dict"][name], weight), name
    one, other = (each["optimizer_states"][0]["state"] for each in (ours, theirs))
    for number, state in other.items():
        assert all(torch.equal(one[number][key], state[key]) for key in state)
    assert figures(run) == figures(undisturbed)


@pytest.mark.first_slow
def test_a_run_killed_in_the_evaluation_behind_a_signal_repeats_both(
    undisturbed: Path,
    tiny_config: Path,
    bertlab: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """No checkpoint stands between a step and its evaluation, which a resumed run would lack."""
    run = tmp_path / "run"
    with monkeypatch.context() as signals:
        signal_after(16, signal.SIGTERM, signals)
        evaluate = BertModule.validation_step

        def die_at_step_8(self: BertModule, *arguments: Any) -> None:
            if self.trainer.global_step == 8:
                raise KilledError
            evaluate(self, *arguments)

        signals.setattr(BertModule, "validation_step", die_at_step_8)
        with pytest.raises(KilledError):
            bertlab("fit", "--config", tiny_config, "--run_dir", run, *SETTINGS)
    assert bertlab("fit", "--ckpt_path", run)[0] == 0
    ours, theirs = (
        torch.load(each / "checkpoints" / "last.ckpt", weights_only=True)
        for each in (run, undisturbed)
    )
    assert ours["bertlab"]["history"] == theirs["bertlab"]["history"]
    for name, weight in theirs["state_dict"].items():
        assert torch.equal(ours["state_dict"][name], weight), name


class KilledError(BaseException):
    """Stands for SIGKILL: nobody can handle it."""


@pytest.mark.slow
def test_the_command_that_is_printed_goes_on_with_callbacks_and_trackers(
    tiny_config: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A checkpoint may not bring them, so the command names the run's config."""
    monitor = "{class_path: lightning.pytorch.callbacks.LearningRateMonitor, init_args: {}}"
    logger = "{class_path: lightning.pytorch.loggers.CSVLogger, init_args: {save_dir: PLACE}}"
    more = [
        f"--trainer.callbacks=[{monitor}]",
        f"--trainer.logger={logger.replace('PLACE', str(tmp_path / 'mine'))}",
    ]
    with monkeypatch.context() as signals:
        signal_after(3, signal.SIGTERM, signals)
        run = tmp_path / "a run"
        code, printed, error = bertlab("fit", "--config", tiny_config, "--run_dir", run, *more)
    assert code == 143, error
    _, fit, *arguments = shlex.split(printed.rpartition("continue with: ")[2].splitlines()[0])
    assert arguments == ["--ckpt_path", str(run), "--config", str(run / "config.yaml")]
    code, printed, error = bertlab(fit, *arguments)
    assert code == 0, error
    assert (run / "results.json").is_file()


def test_the_handler_is_given_back(handler: object, undisturbed: Path) -> None:
    assert undisturbed.is_dir()
    assert signal.getsignal(signal.SIGTERM) is handler


@pytest.mark.slow
def test_without_checkpoints_nothing_is_said_to_be_saved(
    tiny_config: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    signal_after(2, signal.SIGTERM, monkeypatch)
    no = ("--trainer.enable_checkpointing", "false", "--run_dir", tmp_path / "run")
    code, printed, _ = bertlab("fit", "--config", tiny_config, *SETTINGS, *no)
    assert code == 143
    assert "SIGTERM: stopped at step 1; nothing was saved" in printed
    assert not (tmp_path / "run" / "checkpoints").exists()


def signal_after(batch: int, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a signal to this process once, after so many batches."""
    count, seen = TokenThroughput.on_train_batch_end, 0

    def count_and_signal(self: TokenThroughput, *arguments: object) -> None:
        nonlocal seen
        count(self, *arguments)
        seen += 1
        if seen == batch:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(TokenThroughput, "on_train_batch_end", count_and_signal)
