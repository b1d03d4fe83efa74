"""Warnings about a training that goes wrong without an error."""

from pathlib import Path

import pytest

from bertlab.api.batch import EncoderOutput, PackedBatch
from bertlab.api.task import TaskLoss
from bertlab.objectives.classification import NextSentencePrediction
from bertlab_guard.loss_watch import LossWatch
from tests.conftest import Command


def watch(losses: list[float]) -> LossWatch:
    watching = LossWatch()
    for step, loss in enumerate(losses):
        watching._look_at(loss, step)
    return watching


def test_a_jump_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    falling = [8 - step / 20 + 0.1 * (-1) ** step for step in range(60)]
    watch([*falling, 9.5, 9.4, 9.3, 5.0, 9.5])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "step 60: train loss 9.500 jumped above 5.2" in lines[0]
    assert "step 64" in lines[1]


@pytest.mark.parametrize(
    "losses",
    [
        [8 - step / 20 for step in range(120)],
        [0.05 + 0.9 * (step % 7 == 0) for step in range(120)],  # batches of a small task
        [0.7] * 50 + [1.5],
        [2.0] * 5 + [9.0],  # too few to compare with
    ],
)
def test_what_is_usual_is_not_a_jump(
    losses: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    watch(losses)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_head_without_a_gradient_is_named(
    monkeypatch: pytest.MonkeyPatch, bertlab: Command, tiny_config: Path, tmp_path: Path
) -> None:
    loss = NextSentencePrediction.loss

    def without(
        self: NextSentencePrediction, output: EncoderOutput, batch: PackedBatch
    ) -> TaskLoss:
        found = loss(self, output, batch)
        found.sum = found.sum * 0
        return found

    monkeypatch.setattr(NextSentencePrediction, "loss", without)
    code, _, error = bertlab("fit", "--config", tiny_config, "--run_dir", tmp_path / "run")
    assert code == 0
    assert error.count("nsp has had no gradient at 3 logged steps") == 1
    assert "mlm has had" not in error


@pytest.mark.slow
def test_rows_of_both_splits_are_counted(tiny_run: Path, tmp_path: Path, bertlab: Command) -> None:
    lines = [f"value {n} is {word},{word}" for n in range(9) for word in ("red", "blue")]
    for name, rows in {
        "train": lines,
        "new": ["no such row,red"] * 9 + ["value 1 is red,blue"],
    }.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,label", *rows, ""]))
    fit = (
        *("fit", "--config", "finetune/single-sentence", "--model.init_from", tiny_run),
        *("--data.train", tmp_path / "train.csv", "--data.max_seq_length", 16),
        *("--trainer.max_steps", 1, "--trainer.accelerator", "cpu", "--data.validation"),
    )
    code, _, error = bertlab(*fit, tmp_path / "train.csv", "--run_dir", tmp_path / "same")
    assert code == 0, error
    assert "18 of the 18 rows of validation are training rows as well" in error
    code, _, error = bertlab(*fit, tmp_path / "new.csv", "--run_dir", tmp_path / "other")
    assert code == 0, error
    assert "training rows" not in error  # one in ten
