"""Training on a GPU, where nothing waits for it but for figures that are shown; needs one."""

import json
import math
import warnings
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from bertlab.api.batch import EncoderOutput, PackedBatch
from bertlab.api.task import TaskLoss
from bertlab.checkpoints.run_checkpoint import read_run_checkpoint
from bertlab.objectives.classification import NextSentencePrediction
from tests.conftest import Command

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
ON_GPU = ("--trainer.accelerator", "gpu", "--trainer.devices", 1)
IN_BF16 = (*ON_GPU, "--trainer.precision", "bf16-mixed")


def losses(run: Path) -> dict[str, float]:
    results = json.loads((run / "results.json").read_text("utf-8"))
    return {name: value for name, value in results.items() if name.endswith("/loss")}


@pytest.mark.filterwarnings("ignore")  # of torch's compiler about itself
def test_precision_and_compilation_change_little(
    tiny_run: Path, tiny_config: Path, bertlab: Command, tmp_path: Path
) -> None:
    kinds = {
        "fp32": ON_GPU,
        "bf16": IN_BF16,
        "compiled": (*IN_BF16, "--compile", "true", "--data.num_workers", 2),
    }
    expected = losses(tiny_run)
    assert expected
    for name, options in kinds.items():
        code, _, error = bertlab(
            "fit", "--config", tiny_config, "--run_dir", tmp_path / name, *options
        )
        assert code == 0, error
        for key, value in losses(tmp_path / name).items():
            assert value == pytest.approx(expected[key], rel=1e-4 if name == "fp32" else 2e-2)


@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_a_step_with_a_gradient_that_is_not_finite_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
    tiny_config: Path,
    bertlab: Command,
    tmp_path: Path,
    policy: str,
) -> None:
    calls, loss = 0, NextSentencePrediction.loss

    def spoilt(self: NextSentencePrediction, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        nonlocal calls
        found = loss(self, output, batch)
        calls += torch.is_grad_enabled()
        if calls == 4 and torch.is_grad_enabled():
            found.sum = found.sum * math.nan
        return found

    monkeypatch.setattr(NextSentencePrediction, "loss", spoilt)
    run = tmp_path / "run"
    code, _, error = bertlab(
        "fit", "--config", tiny_config, "--run_dir", run, *IN_BF16, "--on_nonfinite", policy,
        "--trainer.val_check_interval", 1,
    )  # fmt: skip
    assert "step 4: the gradient's norm is nan" in error
    assert code == (2 if policy == "stop" else 0)
    checkpoints = sorted(path.name for path in (run / "checkpoints").glob("step-*.ckpt"))
    if policy == "stop":
        assert checkpoints[-1] == "step-3.ckpt"
        return
    before, after, later = (
        read_run_checkpoint(run / "checkpoints" / f"step-{step}.ckpt").state for step in (3, 4, 5)
    )
    name = "encoder.token_embedding.weight"
    assert torch.equal(before[name], after[name])
    assert not torch.equal(after[name], later[name])


class SeeWaits(Callback):
    """Lets torch warn of whatever waits for the GPU between two steps that log nothing."""

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: PackedBatch, batch_idx: int
    ) -> None:
        """Switch the warnings on after some steps, and off again."""
        torch.cuda.set_sync_debug_mode("warn" if 3 <= batch_idx < 8 else "default")


def test_no_step_waits_for_the_gpu(tiny_config: Path, bertlab: Command, tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        code, _, error = bertlab(
            "fit", "--config", tiny_config, "--run_dir", tmp_path / "run", *IN_BF16,
            "--trainer.max_steps", 10, "--trainer.log_every_n_steps", 100,
            "--trainer.val_check_interval", 100, "--data.num_workers", 1,
            "--trainer.callbacks", "[{class_path: test_gpu.SeeWaits}]",
        )  # fmt: skip
    torch.cuda.set_sync_debug_mode("default")
    assert code == 0, error
    waits = [f"{w.filename}:{w.lineno}" for w in caught if "a synchronizing" in str(w.message)]
    allowed = [where for where in waits if "losses.py" in where]  # one step later
    assert waits == allowed


NO_DROPOUT = (
    "--model.encoder.hidden_dropout_prob", 0, "--model.encoder.attention_probs_dropout_prob", 0
)  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # of torch's compiler about itself
def test_replayed_steps_are_those_of_every_kernel_by_itself(
    tiny_config: Path, bertlab: Command, tmp_path: Path
) -> None:
    found = []
    for name, compiles in (("eager", "false"), ("replayed", "true")):
        code, output, error = bertlab(
            "fit", "--config", tiny_config, "--run_dir", tmp_path / name, *IN_BF16, *NO_DROPOUT,
            "--compile", compiles, "--trainer.accumulate_grad_batches", 2,
            "--trainer.val_check_interval", 4,
        )  # fmt: skip
        assert code == 0, error
        assert "without CUDA graphs" not in output
        found.append(losses(tmp_path / name))
    assert found[1] == pytest.approx(found[0], rel=5e-3)


@pytest.mark.filterwarnings("ignore")
def test_a_task_that_waits_for_the_gpu_is_not_recorded(
    monkeypatch: pytest.MonkeyPatch, tiny_config: Path, bertlab: Command, tmp_path: Path
) -> None:
    loss = NextSentencePrediction.loss

    def waiting(
        self: NextSentencePrediction, output: EncoderOutput, batch: PackedBatch
    ) -> TaskLoss:
        found = loss(self, output, batch)
        assert math.isfinite(found.sum.item())
        return found

    monkeypatch.setattr(NextSentencePrediction, "loss", waiting)
    code, output, error = bertlab(
        "fit", "--config", tiny_config, "--run_dir", tmp_path / "run", *IN_BF16, "--compile", "true"
    )
    assert code == 0, error
    assert output.count("training continues without CUDA graphs: ") == 1
