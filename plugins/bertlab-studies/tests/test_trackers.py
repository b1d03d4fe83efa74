"""Trackers that a config names get the figures and the config, and know the study."""

import csv
import sys
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest
import yaml
from lightning.pytorch.loggers import Logger

from bertlab.checkpoints.run_directory import STUDY_ENVIRONMENT, VARIANT_ENVIRONMENT
from bertlab_studies import trackers as trackers_module
from bertlab_studies.trackers import _tracker
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
    monkeypatch.setattr(trackers_module, "WandbLogger", Tracker)
    monkeypatch.setattr(trackers_module, "MLFlowLogger", Tracker)
    monkeypatch.setattr(trackers_module, "find_spec", lambda name: object())
    monkeypatch.setattr(Tracker, "made", [])

    def finish() -> None:
        Tracker.made[-1].finish()

    monkeypatch.setitem(sys.modules, "wandb", Mock(finish=finish))
    return Tracker.made


def test_trackers_know_the_study(
    trackers: list[Tracker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    run = tmp_path / "run"
    _tracker("wandb", run, 7)
    assert trackers[0].arguments == {
        "name": "run", "save_dir": run, "project": "bertlab", "group": None, "tags": ["seed-7"],
    }  # fmt: skip
    monkeypatch.setenv(STUDY_ENVIRONMENT, "masking")
    monkeypatch.setenv(VARIANT_ENVIRONMENT, "rate 0.4")
    for name in ("wandb", "mlflow"):
        _tracker(name, run, 7)
    assert trackers[1].arguments["group"] == "masking"
    assert trackers[1].arguments["tags"] == ["rate 0.4", "seed-7"]
    mlflow = trackers[2].arguments
    assert mlflow["experiment_name"] == "masking"
    assert mlflow["tags"] == {"study": "masking", "variant": "rate 0.4", "seed": "7"}
    assert mlflow["tracking_uri"] == f"sqlite:///{run}/mlflow.db"


@pytest.mark.slow
def test_a_fit_with_a_tracker(
    trackers: list[Tracker], bertlab: Command, tiny_config: Path, tmp_path: Path, drawn: None
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
    monkeypatch.setattr(trackers_module, "find_spec", lambda _: None)
    code, _, error = bertlab(
        "fit", tiny_config, "--run_dir", tmp_path / "run", "--trainer.logger", name
    )
    expected = f"trainer.logger: {name} is not installed; pip install {name}"
    assert (code, error) == (2, f"bertlab: error E105: {expected}\n")
    assert list(tmp_path.iterdir()) == []
