"""Loggers that a config names stand beside the run's files; Lightning's tools work by config."""

import csv
import importlib.util
import json
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import yaml
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger

from bertlab.checkpoints.run_directory import STUDY_ENVIRONMENT, VARIANT_ENVIRONMENT
from bertlab.training import trainer
from bertlab.training.trainer import make_loggers
from tests.conftest import Command


class Tracker(Logger):
    """Records what a tracking service would get."""

    made: ClassVar[list["Tracker"]] = []

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self.arguments, self.config, self.metrics = arguments, {}, {}
        self.finished = 0
        Tracker.made.append(self)

    @property
    def experiment(self) -> "Tracker":
        return self

    def finish(self) -> None:
        self.finished += 1

    @property
    def name(self) -> str:
        return "tracker"

    @property
    def version(self) -> int:
        return 0

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        self.config = params

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        assert not self.finished
        self.metrics |= metrics


@pytest.fixture
def trackers(monkeypatch: pytest.MonkeyPatch) -> list[Tracker]:
    """Stand in for W&B's and MLflow's loggers, whose packages need not be installed."""
    monkeypatch.setattr(trainer, "WandbLogger", Tracker)
    monkeypatch.setattr(trainer, "MLFlowLogger", Tracker)
    monkeypatch.setattr(trainer, "find_spec", lambda name: object())
    monkeypatch.setattr(Tracker, "made", [])
    return Tracker.made


@pytest.mark.parametrize("given", [None, True, "csv", "tensorboard", ["csv", "tensorboard"]])
def test_files_are_always_written(given: Any, tmp_path: Path) -> None:
    made = make_loggers(given, tmp_path, 1)
    assert [type(each) for each in made] == [CSVLogger, TensorBoardLogger]
    assert [Path(each.log_dir or "").parent.name for each in made] == ["csv", "tensorboard"]


def test_no_logger_at_all(tmp_path: Path) -> None:
    assert make_loggers(False, tmp_path, 1) == []


def test_a_logger_of_ones_own_is_added(tmp_path: Path) -> None:
    own = TensorBoardLogger(tmp_path / "mine")
    made = make_loggers([own], tmp_path, 1)
    assert [type(each) for each in made] == [CSVLogger, TensorBoardLogger]
    assert made[1] is own


def test_trackers_know_the_study(
    trackers: list[Tracker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    run = tmp_path / "run"
    make_loggers("wandb", run, 7)
    assert trackers[0].arguments == {
        "name": "run", "save_dir": run, "project": "bertlab", "group": None, "tags": ["seed-7"],
    }  # fmt: skip
    monkeypatch.setenv(STUDY_ENVIRONMENT, "masking")
    monkeypatch.setenv(VARIANT_ENVIRONMENT, "rate 0.4")
    make_loggers(["wandb", "mlflow", "wandb"], run, 7)
    assert len(trackers) == 3
    assert trackers[1].arguments["group"] == "masking"
    assert trackers[1].arguments["tags"] == ["rate 0.4", "seed-7"]
    mlflow = trackers[2].arguments
    assert mlflow["experiment_name"] == "masking"
    assert mlflow["tags"] == {"study": "masking", "variant": "rate 0.4", "seed": "7"}
    assert mlflow["tracking_uri"] == f"sqlite:///{run}/mlflow.db"


def test_a_fit_with_a_tracker(
    trackers: list[Tracker], bertlab: Command, tiny_config: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    code, _, error = bertlab(
        "fit", tiny_config, "--run_dir", run, "--trainer.logger", "wandb", "--trainer.max_steps", 4
    )
    assert code == 0, error
    tracker = next(each for each in trackers if each.config)
    assert list(tracker.config["model"]["objectives"]) == ["mlm", "nsp"]
    assert {"train/loss", "gradient_norm", "learning_rate", "val/mlm/accuracy"} <= set(
        tracker.metrics
    )
    assert tracker.finished == 1
    with (run / "csv" / "version_0" / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["train/loss"]]
    rates = [float(row["learning_rate"]) for row in rows]
    assert len(rates) == 4
    assert max(rates) == pytest.approx(1e-3)
    assert all(float(row["gradient_norm"]) > 0 for row in rows)
    assert (run / "loss_curve.png").is_file()
    assert yaml.safe_load((run / "config.yaml").read_text())["trainer"]["logger"] == "wandb"


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_is_one_line(
    name: str,
    bertlab: Command,
    tiny_config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trainer, "find_spec", lambda _: None)
    code, _, error = bertlab(
        "fit", tiny_config, "--run_dir", tmp_path / "run", "--trainer.logger", name
    )
    expected = f"trainer.logger: {name} is not installed; pip install {name}"
    assert (code, error) == (2, f"bertlab: error E105: {expected}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_misspelt_logger(bertlab: Command, tiny_config: Path) -> None:
    code, _, error = bertlab("fit", tiny_config, "--trainer.logger", "wanbd")
    assert code == 2
    assert "trainer.logger: found no Logger class called 'wanbd'" in error
    assert "did you mean 'wandb'?" in error


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
        "    - class_path: StochasticWeightAveraging\n"
        "      init_args: {swa_lrs: 1.0e-4, swa_epoch_start: 1}\n"
    )
    run = tmp_path / "run"
    code, output, error = bertlab("fit", tiny_config, extra, "--run_dir", run)
    assert code == 0, error
    assert "step 4 " in output  # the second evaluation is no better by 100 nats
    assert "step 6 " not in output
    assert "val/loss" not in json.loads((run / "results.json").read_text())


def test_a_learning_rate_is_found_by_config(
    bertlab: Command, tiny_config: Path, tmp_path: Path
) -> None:
    common = (
        *("fit", tiny_config, "--trainer.log_every_n_steps", 1),
        *("--model.optimizer.layer_decay", 0.9),
        # the trials draw dropout too, of which nothing is left
        *("--model.encoder.hidden_dropout_prob", 0.1),
    )
    callbacks = "--trainer.callbacks"
    code, output, error = bertlab(
        *common, f"{callbacks}+=LearningRateFinder", f"{callbacks}.num_training_steps=20",
        f"{callbacks}.early_stop_threshold=null", "--run_dir", tmp_path / "looks",
    )  # fmt: skip
    assert code == 0, error
    found = re.search(r"learning rate found: .*(--model.optimizer.learning_rate \S+)", output)
    assert found is not None
    code, _, error = bertlab(*common, *found[1].split(), "--run_dir", tmp_path / "given")
    assert code == 0, error
    ends = [
        torch.load(tmp_path / run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for run in ("looks", "given")
    ]
    # the rates of groups are multiplied in another order: rounding
    assert all(torch.allclose(ends[0][name], ends[1][name], atol=1e-6) for name in ends[1])


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
