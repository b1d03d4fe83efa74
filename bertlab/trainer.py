"""Lightning's Trainer as bertlab sets it up."""

import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from bertlab.callbacks.progress import ProgressBar


def make_trainer(
    settings: Mapping[str, Any], directory: Path | None = None, callbacks: Sequence[Callback] = ()
) -> Trainer:
    """Make a Trainer.

    Args:
        settings: its arguments, instantiated.
        directory: of the run, where logs go unless the settings say otherwise; None for no logs.
        callbacks: added to those of the settings.
    """
    arguments = dict(settings)
    arguments["callbacks"] = [*(arguments["callbacks"] or []), *callbacks]
    if directory is None:
        arguments["logger"] = False
    elif arguments["logger"] in (None, True):
        arguments["logger"] = [
            CSVLogger(directory, name="csv"),
            TensorBoardLogger(directory, name="tensorboard"),
        ]
    if arguments["enable_progress_bar"] is not False and sys.stdout.isatty():
        arguments["callbacks"].append(ProgressBar())
    else:
        arguments["enable_progress_bar"] = False
    if isinstance(arguments["val_check_interval"], int):
        arguments["check_val_every_n_epoch"] = None  # count batches across epochs
    arguments["default_root_dir"] = arguments["default_root_dir"] or directory
    return Trainer(**arguments)


def quiet_lightning() -> None:
    """Silence Lightning's tips and device lines; warnings stay."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    # a resumed run goes on in its own directory
    warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")
    # lightning 2.6.6 with torch 2.13
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*")
