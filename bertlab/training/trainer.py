"""Lightning's Trainer as bertlab sets it up."""

import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import CheckpointIO
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer

from bertlab.checkpoints.checkpoint_io import WholeCheckpointIO
from bertlab.errors import TrainerError
from bertlab.model.fsdp import FullyShardedStrategy
from bertlab.training.callbacks.progress_bar import NotebookProgress, ProgressBar, in_notebook
from bertlab.training.loggers import profiler_in

_LEAST = {
    "accumulate_grad_batches": 1,
    "check_val_every_n_epoch": 1,
    "gradient_clip_val": 0,
    "log_every_n_steps": 0,
}


def make_trainer(
    settings: Mapping[str, Any], directory: Path | None = None, callbacks: Sequence[Callback] = ()
) -> Trainer:
    """Make a Trainer.

    Args:
        settings: its arguments, instantiated; ``logger`` are those of ``make_loggers``.
        directory: of the run; None for no logs.
        callbacks: added to those of the settings.
    """
    arguments = dict(settings)
    _check_numbers(arguments)
    arguments["callbacks"] = [*(arguments["callbacks"] or []), *callbacks]
    if directory is None:
        arguments["logger"] = False
    elif isinstance(arguments["profiler"], str):
        arguments["profiler"] = profiler_in(directory, arguments["profiler"])
    shows_bar = arguments["enable_progress_bar"] is not False
    if shows_bar and sys.stdout.isatty():
        arguments["callbacks"].append(ProgressBar())
    else:
        arguments["enable_progress_bar"] = False
        if shows_bar and in_notebook():
            arguments["callbacks"].append(NotebookProgress())
    # Lightning: 500 is batches, 0.5 a share of an epoch, 1.0 a whole one
    if isinstance(arguments["val_check_interval"], int):
        arguments["check_val_every_n_epoch"] = None  # count batches across epochs
    if arguments["strategy"] == "fsdp":
        arguments["strategy"] = FullyShardedStrategy()
    if directory is not None and not _writes_itself(arguments["strategy"]):
        given = arguments["plugins"] or []
        given = given if isinstance(given, list) else [given]
        if not any(isinstance(each, CheckpointIO) for each in given):
            arguments["plugins"] = [*given, WholeCheckpointIO(directory)]
    arguments["default_root_dir"] = arguments["default_root_dir"] or directory
    _check_interval(arguments["val_check_interval"], arguments["accumulate_grad_batches"])
    try:
        trainer = Trainer(**arguments)
    except (MisconfigurationException, ValueError, TypeError) as error:
        raise TrainerError(f"trainer: {' '.join(str(error).split())}") from error
    _warn_of_slow_bf16(trainer)
    return trainer


def _writes_itself(strategy: object) -> bool:
    """Whether a strategy writes checkpoints of its own form, one part a process."""
    name = strategy if isinstance(strategy, str) else type(strategy).__name__
    return name.lower().startswith(("fsdp", "deepspeed", "modelparallel"))  # "deepspeed_stage_2"


def _check_numbers(arguments: Mapping[str, Any]) -> None:
    """Refuse numbers that Lightning takes, and then trains on nothing or ignores."""
    for key, least in _LEAST.items():
        found = arguments[key]
        if found is not None and not found >= least:  # NaN is not either
            raise TrainerError(f"trainer.{key}: found {found}, expected {least} or more")
    for key in ("max_steps", "max_epochs"):
        if arguments[key] == 0:
            raise TrainerError(f"trainer.{key}: found 0, expected 1 or more, or -1 for no limit")


def _check_interval(val_check_interval: int | float | None, accumulate: int) -> None:
    found = val_check_interval
    if found is not None and not (isinstance(found, int | float) and found > 0):
        raise TrainerError(
            f"trainer.val_check_interval: found {val_check_interval}, expected 1 or more batches, "
            "or a share of an epoch"
        )
    if isinstance(val_check_interval, int) and val_check_interval % accumulate:
        raise TrainerError(
            f"trainer.val_check_interval: found {val_check_interval} batches, expected a multiple "
            f"of trainer.accumulate_grad_batches, {accumulate}: evaluations and checkpoints fall "
            "between optimiser steps"
        )


def _warn_of_slow_bf16(trainer: Trainer) -> None:
    capability = torch.backends.cpu.get_cpu_capability()
    on_cpu = str(trainer.strategy.root_device) == "cpu"
    bf16 = str(trainer.precision).startswith("bf16")
    if on_cpu and bf16 and capability in ("DEFAULT", "AVX2"):
        warnings.warn(
            f"trainer.precision: {trainer.precision} on a CPU without bf16 instructions "
            f"({capability}) can be hundreds of times slower than 32-true",
            stacklevel=3,
        )


def quiet_lightning() -> None:
    """Silence Lightning's tips and device lines; warnings stay."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    # a resumed run goes on in its own directory
    warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")
    # one that goes on elsewhere chooses the best of what it writes itself
    warnings.filterwarnings("ignore", message="The dirpath has changed from")
    # a short run ends before its first evaluation; its last step is scored all the same
    warnings.filterwarnings("ignore", message=".*could not find the monitored key")
    # an epoch of few steps logs once, at its end
    warnings.filterwarnings("ignore", message=".*is smaller than the logging interval")
    # StochasticWeightAveraging puts a schedule of its own in the place of ours, which goes by steps
    warnings.filterwarnings("ignore", message="SWA is currently only supported every epoch")
    warnings.filterwarnings("ignore", message="Swapping scheduler")
    # lightning 2.6.6 with torch 2.13
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*")
