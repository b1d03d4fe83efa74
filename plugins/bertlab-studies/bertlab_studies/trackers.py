"""Tracking services that a config names: ``trainer.logger: wandb`` or ``mlflow``."""

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import (
    CSVLogger,
    Logger,
    MLFlowLogger,
    TensorBoardLogger,
    WandbLogger,
)

from bertlab.extend import (
    STUDY_ENVIRONMENT,
    VARIANT_ENVIRONMENT,
    RunRecord,
    TrainerError,
    make_folder,
    without_secrets,
)

_PROJECT = "bertlab"
TRACKERS = ("wandb", "mlflow")  # each is also the name of its package


class Trackers(Callback):
    """Has trackers for the loggers of a ``fit``, and gives the config to all but the files.

    Args:
        names: of the trackers.
        directory: of the run.
        seed: of the run.

    Attributes:
        trackers: the loggers, which the core hands to the Trainer.
    """

    def __init__(self, names: Sequence[str], directory: Path, seed: int) -> None:
        self.trackers = [_tracker(each, directory, seed) for each in names]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the resolved config; Lightning does it on the first device only."""
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        config = next(each.config for each in callbacks if isinstance(each, RunRecord))
        for logger in trainer.loggers:
            if not isinstance(logger, CSVLogger | TensorBoardLogger):
                logger.log_hyperparams(without_secrets(dict(config)))

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Close what a run that is stopped has open."""
        close_trackers()


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
        make_folder(directory)
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


def close_trackers() -> None:
    """End the run of W&B, which would go on with the next run of the same Python process."""
    if (wandb := sys.modules.get("wandb")) is not None:
        wandb.finish()
