"""The loggers of a run: CSV and TensorBoard always, and beside them those that a config names."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import (
    CSVLogger,
    Logger,
    MLFlowLogger,
    TensorBoardLogger,
    WandbLogger,
)
from lightning.pytorch.profilers import AdvancedProfiler, Profiler, PyTorchProfiler, SimpleProfiler

from bertlab.checkpoints.run_directory import STUDY_ENVIRONMENT, VARIANT_ENVIRONMENT
from bertlab.config.parser import LoggerChoice
from bertlab.errors import TrainerError

_PROJECT = "bertlab"
_TRACKERS = ("wandb", "mlflow")  # each is also the name of its package


def make_loggers(given: LoggerChoice, directory: Path, seed: int) -> list[Logger]:
    """Return the loggers of a run; all write into its directory."""
    if given is False:
        return []
    listed = given if isinstance(given, list) else [given]
    own: list[Logger] = [CSVLogger(directory, name="csv")]
    if not any(isinstance(each, TensorBoardLogger) for each in listed):
        own.append(TensorBoardLogger(directory, name="tensorboard"))
    # a name twice is one logger; csv, tensorboard and true are there already
    named = dict.fromkeys(each for each in listed if each in _TRACKERS)
    own += [_tracker(str(name), directory, seed) for name in named]
    return own + [each for each in listed if isinstance(each, Logger)]


def profiler_in(directory: Path, name: str) -> Profiler | str:
    """Return a profiler of Lightning's by its short name, which writes into a run's directory.

    By itself it prints its table as a note of Lightning's, which bertlab keeps quiet.
    """
    known: dict[str, type[SimpleProfiler | AdvancedProfiler | PyTorchProfiler]] = {
        "simple": SimpleProfiler,
        "advanced": AdvancedProfiler,
        "pytorch": PyTorchProfiler,
    }
    return known[name](dirpath=directory, filename="profile") if name in known else name


def _tracker(name: str, directory: Path, seed: int) -> Logger:
    """Return the logger of a tracking service; group and tags say which study a run belongs to."""
    if find_spec(name) is None:
        raise TrainerError(f"trainer.logger: {name} is not installed; pip install {name}")
    study, variant = os.environ.get(STUDY_ENVIRONMENT), os.environ.get(VARIANT_ENVIRONMENT)
    if name == "wandb":
        tags = [each for each in (variant, f"seed-{seed}") if each]
        project = os.environ.get("WANDB_PROJECT", _PROJECT)
        run_name = directory.name
        return WandbLogger(
            name=run_name, save_dir=directory, project=project, group=study, tags=tags
        )
    found = {"study": study, "variant": variant, "seed": str(seed)}
    place = os.environ.get("MLFLOW_TRACKING_URI")
    if not place:  # MLflow makes its database at once, in a folder that is there
        directory.mkdir(parents=True, exist_ok=True)
        place = f"sqlite:///{directory.resolve() / 'mlflow.db'}"
    try:
        return MLFlowLogger(
            experiment_name=study or _PROJECT,
            run_name=directory.name,
            tracking_uri=place,
            tags={key: value for key, value in found.items() if value},
        )
    except Exception as error:  # of its own kinds, by database and server
        reason = " ".join(str(error).split())
        raise TrainerError(f"trainer.logger: mlflow at {place}: {reason}") from error


class ConfigLog(Callback):
    """Gives the resolved config to trackers, once training starts.

    Args:
        config: of the run; files keep it as ``config.yaml``.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the config; Lightning does it on the first device only."""
        for logger in trainer.loggers:
            if not isinstance(logger, CSVLogger | TensorBoardLogger):
                logger.log_hyperparams(dict(self.config))


def close_trackers(trainer: Trainer) -> None:
    """End the run of W&B, which would go on with the next run of the same Python process."""
    for logger in trainer.loggers:
        if isinstance(logger, WandbLogger) and trainer.is_global_zero:
            logger.experiment.finish()
