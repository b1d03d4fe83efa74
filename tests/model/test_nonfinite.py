"""A loss or gradient that is not finite: named, never taken as a step, and skipped if asked."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bertlab.api.batch import EncoderOutput, PackedBatch
from bertlab.api.task import TaskLoss
from bertlab.checkpoints.run_checkpoint import read_run_checkpoint
from bertlab.model import losses as numerical_guard
from bertlab.objectives.classification import NextSentencePrediction
from tests.conftest import Command

Spoil = Callable[..., None]


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Spoil:
    """Spoil the loss of NSP in a training step, counted from 1."""

    def spoil_step(step: int, factor: float) -> None:
        calls = 0
        loss = NextSentencePrediction.loss

        def spoilt(
            self: NextSentencePrediction, output: EncoderOutput, batch: PackedBatch
        ) -> TaskLoss:
            nonlocal calls
            found = loss(self, output, batch)
            calls += torch.is_grad_enabled()
            if calls == step and torch.is_grad_enabled():
                found.sum = found.sum * factor
            return found

        monkeypatch.setattr(NextSentencePrediction, "loss", spoilt)

    return spoil_step


@pytest.fixture(params=["at once", "later"])
def read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """When norms are read; on a GPU that is one step later."""
    when: str = request.param
    if when == "later":

        def read_later(norm: torch.Tensor) -> Callable[[], float]:
            copied = norm.clone()
            return lambda: float(copied)

        monkeypatch.setattr(numerical_guard, "_reads_later", lambda norm, optimizer: True)
        monkeypatch.setattr(numerical_guard, "_read_later", read_later)
    return when


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.usefixtures("read")
@pytest.mark.parametrize("factor", [math.nan, math.inf, 1e38])
@pytest.mark.parametrize("clip", [1.0, "null"])
def test_the_run_stops_before_the_step_and_names_it(
    spoil: Spoil,
    bertlab: Command,
    tiny_config: Path,
    tmp_path: Path,
    factor: float,
    clip: float | str,
) -> None:
    spoil(5, factor)
    run = tmp_path / "run"
    code, _, error = bertlab(
        "fit", "--config", tiny_config, "--run_dir", run, "--trainer.gradient_clip_val", clip
    )
    assert code == 2
    assert "step 5: the gradient's norm is" in error
    assert "nsp" in error
    assert "on sequences 32 (epoch 0) to 39 (epoch 0) of seed 3; the step was not taken" in error
    assert f"bertlab fit --ckpt_path {run} --on_nonfinite skip" in error
    checkpoint = read_run_checkpoint(run / "checkpoints" / "last.ckpt")
    assert checkpoint.global_step == 3
    assert all(each.isfinite().all() for each in checkpoint.state.values())


@pytest.mark.first_fast
@pytest.mark.usefixtures("read")
@pytest.mark.parametrize("step", [3, 6])
def test_nothing_is_saved_or_finished_after_a_step_that_was_not_taken(
    spoil: Spoil, bertlab: Command, tiny_config: Path, tmp_path: Path, step: int
) -> None:
    spoil(step, math.nan)  # evaluations come after steps 3 and 6, the end after step 6
    run = tmp_path / "run"
    code, _, error = bertlab("fit", "--config", tiny_config, "--run_dir", run)
    assert code == 2
    assert f"step {step}: the gradient's norm is nan" in error
    assert not (run / "results.json").exists()
    saved = sorted(path.name for path in (run / "checkpoints").glob("step-*"))
    assert saved == (["step-3.ckpt"] if step == 6 else [])


@pytest.mark.first_slow
@pytest.mark.usefixtures("read")
def test_a_skipped_step_changes_no_weight(
    spoil: Spoil,
    bertlab: Command,
    tiny_config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spoil(4, math.nan)
    followed: list[int] = []  # what a task moves itself stays as well
    monkeypatch.setattr(
        NextSentencePrediction, "after_step", lambda self, step: followed.append(step)
    )
    run = tmp_path / "run"
    code, printed, error = bertlab(
        "fit", "--config", tiny_config, "--run_dir", run, "--on_nonfinite", "skip",
        "--trainer.val_check_interval", 1, "--check_every", 0,
    )  # fmt: skip
    assert code == 0
    assert followed == [1, 2, 3, 5, 6]
    assert "warning: step 4: the gradient's norm is nan" in error
    assert "; skipped" in error
    states = {
        step: read_run_checkpoint(run / "checkpoints" / f"step-{step}.ckpt").state
        for step in (3, 4, 5)
    }
    name = "encoder.token_embedding.weight"
    assert torch.equal(states[3][name], states[4][name])
    assert not torch.equal(states[4][name], states[5][name])
    assert "step 6" in printed


@pytest.mark.slow
def test_rows_are_named_by_file_and_line(
    monkeypatch: pytest.MonkeyPatch, bertlab: Command, tiny_run: Path, tmp_path: Path
) -> None:
    from bertlab.heads.sentences import SingleSentence

    loss = SingleSentence.loss

    def spoilt(self: SingleSentence, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        found = loss(self, output, batch)
        found.sum = found.sum * math.nan
        return found

    monkeypatch.setattr(SingleSentence, "loss", spoilt)
    rows = tmp_path / "rows.tsv"
    lines = [f"{'the list of' if n % 2 else 'a file with'} {n}\t{n % 2}" for n in range(20)]
    rows.write_text("\n".join(["text\tlabel", *lines, ""]))
    code, _, error = bertlab(
        "fit", "--model.head", "single_sentence", "--model.init_from", tiny_run,
        "--data.source", rows, "--data.batch_size", 4, "--data.max_seq_length", 16,
        "--run_dir", tmp_path / "run", "--trainer.max_epochs", 1, "--trainer.accelerator", "cpu",
    )  # fmt: skip
    assert code == 2
    assert "step 1: the gradient's norm is nan (loss: single_sentence nan) on rows" in error
    assert error.count(f"{rows}:") >= 3  # a step of 18 rows in fives
    assert "--ckpt_path" not in error
