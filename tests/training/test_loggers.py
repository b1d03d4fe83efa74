"""Loggers that a config names stand beside the run's files; Lightning's tools work by config."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from bertlab.errors import TrainerError
from bertlab.training.trainer import make_loggers
from tests.conftest import Command


@pytest.mark.parametrize("given", [None, True, "csv", "tensorboard", ["csv", "tensorboard"]])
def test_files_are_always_written(given: Any, tmp_path: Path) -> None:
    made = make_loggers(given, tmp_path)
    assert [type(each) for each in made] == [CSVLogger, TensorBoardLogger]
    assert [Path(each.log_dir or "").parent.name for each in made] == ["csv", "tensorboard"]


def test_no_logger_at_all(tmp_path: Path) -> None:
    assert make_loggers(False, tmp_path) == []


def test_a_logger_of_ones_own_is_added(tmp_path: Path) -> None:
    own = TensorBoardLogger(tmp_path / "mine")
    made = make_loggers([own], tmp_path)
    assert [type(each) for each in made] == [CSVLogger, TensorBoardLogger]
    assert made[1] is own


def test_a_tracker_needs_its_package(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="found wandb; it comes with bertlab-studies: pip"):
        make_loggers(["csv", "wandb"], tmp_path)


def test_a_misspelt_logger(bertlab: Command, tiny_config: Path) -> None:
    code, _, error = bertlab("fit", tiny_config, "--trainer.logger", "wanbd")
    assert code == 2
    assert "trainer.logger: found no Logger class called 'wanbd'" in error
    assert "did you mean 'wandb'?" in error


@pytest.mark.slow
def test_early_stopping_and_weight_averaging_by_config(
    bertlab: Command, tiny_config: Path, tmp_path: Path
) -> None:
    extra = tmp_path / "extra.yaml"
    extra.write_text(
        "trainer:\n"
        "  max_steps: -1\n"
        "  max_epochs: 4\n"
        "  val_check_interval: 1.0\n"
        "  limit_train_batches: 2\n"
        "  callbacks:\n"
        "    - class_path: EarlyStopping\n"
        "      init_args: {monitor: val/loss, patience: 0, min_delta: 100.0}\n"
    )
    run = tmp_path / "run"
    code, output, error = bertlab("fit", tiny_config, extra, "--run_dir", run)
    assert code == 0, error
    assert "step 4 " in output  # the second evaluation is no better by 100 nats
    assert "step 6 " not in output
    assert "val/loss" not in json.loads((run / "results.json").read_text())


@pytest.mark.first_fast
@pytest.mark.parametrize("name", ["simple", "advanced"])
def test_a_profile_is_in_the_run(
    name: str, bertlab: Command, tiny_config: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    code, _, error = bertlab(
        "fit", tiny_config, "--run_dir", run, "--trainer.max_steps", 2, "--trainer.profiler", name
    )
    assert code == 0, error
    assert "training_step" in (run / "fit-profile.txt").read_text()


@pytest.mark.parametrize("given", ["WandbLogger", "[csv, WandbLogger]"])
def test_a_class_whose_package_is_missing(
    tiny_config: Path, tmp_path: Path, bertlab: Command, given: str
) -> None:
    if importlib.util.find_spec("wandb") is not None:
        pytest.skip("wandb is installed")
    logger = ("--trainer.logger", given)
    code, _, error = bertlab("fit", tiny_config, "--run_dir", tmp_path / "run", *logger)
    assert code == 2
    assert "trainer.logger: wandb is not installed; pip install wandb" in error
