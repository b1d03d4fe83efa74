"""Every argument and callback of Lightning's: the steps stay as they are, or it is refused."""

from inspect import signature
from pathlib import Path
from shlex import split

import lightning.pytorch.callbacks as shipped
import pytest
import torch
from lightning.pytorch import Trainer

from tests.conftest import Command

REFERENCE = Path(__file__).parents[2] / "docs" / "pretraining.md"


def test_the_reference_names_all() -> None:
    text = (
        REFERENCE.read_text("utf-8").partition("## Lightning's arguments")[2].partition("\n## ")[0]
    )
    arguments = set(signature(Trainer.__init__).parameters) - {"self"}
    missing = [name for name in {*arguments, *shipped.__all__} if f"`{name}`" not in text]
    assert missing == []


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize(
    "settings",
    [
        "--trainer.limit_train_batches 2 --trainer.val_check_interval 2",
        "--trainer.limit_val_batches 0 --trainer.benchmark true "
        "--trainer.use_distributed_sampler true",
        "--trainer.num_sanity_val_steps 2 --trainer.reload_dataloaders_every_n_epochs 1",
        "--trainer.check_val_every_n_epoch 2 --trainer.val_check_interval 1.0",
        "--trainer.inference_mode false --trainer.detect_anomaly true "
        "--trainer.limit_val_batches 1 "
        "--trainer.callbacks+=LearningRateMonitor --trainer.callbacks+=DeviceStatsMonitor",
        "--trainer.deterministic true --trainer.profiler simple "
        "--trainer.callbacks+ '{class_path: Timer, init_args: {duration: \"00:01:00:00\"}}' "
        "--trainer.callbacks+ '{class_path: ModelSummary, init_args: {max_depth: 3}}'",
    ],
)
def test_what_leaves_the_steps_as_they_are(
    tiny_config: Path, tiny_run: Path, tmp_path: Path, bertlab: Command, settings: str
) -> None:
    run = tmp_path / "run"
    code, _, error = bertlab("fit", "--config", tiny_config, *split(settings), "--run_dir", run)
    assert code == 0, error
    found, expected = (
        torch.load(each / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
        for each in (run, tiny_run)
    )
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (["--trainer.overfit_batches", "2"], "trainer.overfit_batches: found 2, expected 0"),
        (["--trainer.barebones", "true"], "trainer.barebones: found True, expected false"),
        (["--trainer.limit_train_batches", "0"], "trainer.limit_train_batches: found 0"),
        (["--trainer.callbacks", "BatchSizeFinder"], "trainer.callbacks: found BatchSizeFinder"),
        (["--trainer.callbacks", "SpikeDetection"], "found SpikeDetection: it leaves out batches"),
        (
            [
                "--trainer.callbacks",
                "{class_path: ModelPruning, init_args: {pruning_fn: l1_unstructured}}",
            ],
            "found ModelPruning: it gives weights other names",
        ),
        (
            [
                "--trainer.callbacks",
                "{class_path: StochasticWeightAveraging, init_args: {swa_lrs: 1.0}}",
            ],
            "found StochasticWeightAveraging: it averages when the last weights are saved",
        ),
        (
            [
                "--trainer.callbacks",
                "{class_path: OnExceptionCheckpoint, init_args: {dirpath: kept}}",
            ],
            "found OnExceptionCheckpoint: a new run would start from the file that an earlier",
        ),
        (
            ["--trainer.callbacks", "[EMAWeightAveraging, EMAWeightAveraging]"],
            "trainer.callbacks: Found more than one stateful callback of type `EMAWeightAveraging`",
        ),
        (
            ["--trainer.limit_val_batches", "0", "--checkpoint.monitor", "val/loss"],
            "checkpoint.monitor: found val/loss, but trainer.limit_val_batches 0 evaluates nothing",
        ),
        (
            ["--trainer.callbacks", "[TQDMProgressBar, RichProgressBar]"],
            "trainer.callbacks: You added multiple progress bar callbacks",
        ),
        (["--trainer.callbacks", "BackboneFinetuning"], "found BackboneFinetuning: it freezes"),
        (
            [
                "--trainer.callbacks",
                "{class_path: GradientAccumulationScheduler, init_args: {scheduling: {0: 2}}}",
            ],
            "found GradientAccumulationScheduler: a step has the same number of parts",
        ),
    ],
)
def test_what_would_make_other_steps_is_refused(
    tiny_config: Path, tmp_path: Path, bertlab: Command, settings: list[str], key: str
) -> None:
    run = tmp_path / "run"
    code, _, error = bertlab("fit", "--config", tiny_config, *settings, "--run_dir", run)
    assert code == 2
    assert key in error
    assert not run.exists()
