"""The best checkpoint of a run: which metric decides, and how ``best.json`` records it."""

import math
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from bertlab.checkpoints.run_checkpoint import BEST
from bertlab.data.module import TaskData
from bertlab.errors import ConfigError, DamagedCheckpointError, nearest
from bertlab.files import write_json
from bertlab.model.module import BertModule, metric_name

_NAMED_FILES = ("best_model_path", "kth_best_model_path", "last_model_path")


class BestCheckpoint(ModelCheckpoint):
    """Lightning's ModelCheckpoint; what ``monitor: auto`` stands for is known at :meth:`setup`.

    That is the metric that the head is judged by, on the first evaluation set; else the loss.
    """

    @property
    def state_key(self) -> str:
        """The parent's, so that checkpoints of it and of this class read each other's state."""
        # "BestCheckpoint{'monitor': …}" -> "ModelCheckpoint{'monitor': …}"
        return super().state_key.replace(type(self).__qualname__, ModelCheckpoint.__qualname__, 1)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Take the metric, and which end of it is better, from the module."""
        data = getattr(trainer, "datamodule", None)
        if isinstance(pl_module, BertModule) and isinstance(data, TaskData):
            self.monitor, mode = choose_monitor(self.monitor, pl_module, data.first_evaluation)
            self.mode = mode or self.mode
            # Lightning set it in __init__, for a mode that was not known yet
            self.kth_value = torch.tensor(math.inf if self.mode == "min" else -math.inf)
        super().setup(trainer, pl_module, stage)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with an earlier choice.

        Raises:
            DamagedCheckpointError: a file that it names is not what the name shows.
        """
        # files that are outdone get deleted, and these names may come from anywhere
        one = (state_dict.get(key) for key in _NAMED_FILES)
        for name in (*one, *(state_dict.get("best_k_models") or ())):
            if name and _leads_astray(str(name), Path(self.dirpath or "")):
                raise DamagedCheckpointError(
                    f"--ckpt_path: a damaged checkpoint: its ModelCheckpoint chose {str(name)!r}, "
                    "expected a file in the run's folder"
                )
        super().load_state_dict(state_dict)


def _leads_astray(name: str, folder: Path) -> bool:
    """Whether Lightning would take a file for one in ``folder``, and delete it, that is not there.

    It compares names: ``run/checkpoints/../../precious`` and what a link leads to begin as they
    should, and of ``s3://precious`` it asks nothing.
    """
    begins = folder.absolute() in Path(name).absolute().parents
    return "://" in name or (begins and folder.resolve() not in Path(name).resolve().parents)


def choose_monitor(
    monitor: str | None, model: BertModule, first_evaluation: str
) -> tuple[str | None, str | None]:
    """Return the metric that decides, and ``min`` or ``max`` if the head says which is better.

    Args:
        monitor: as the config has it; ``auto`` for the head's metric, or the loss of objectives.
        model: knows the metrics that the run will log.
        first_evaluation: name of the evaluation set that decides.

    Raises:
        ConfigError: if the run will not log the metric.
    """
    mode = None
    if monitor == "auto":
        monitor, mode = _monitor_of(model, first_evaluation)
    if monitor is not None:
        _check_monitor(monitor, model, "checkpoint.monitor")
    return monitor, mode


def check_early_stopping(trainer: Trainer, model: BertModule) -> None:
    """Raise ConfigError if EarlyStopping monitors a metric that the run does not log."""
    for callback in trainer.early_stopping_callbacks:
        if callback is not None:
            _check_monitor(callback.monitor, model, "trainer.callbacks: EarlyStopping.monitor")


def record_best(trainer: Trainer, model: BertModule, run: Path) -> str | None:
    """Name a run's best checkpoint in ``best.json``, with its metrics.

    Returns:
        A line that says so; None if no evaluation gave a figure to choose by.
    """
    chosen = trainer.checkpoint_callback
    if not isinstance(chosen, ModelCheckpoint) or not chosen.best_model_path:
        return None
    monitor = chosen.monitor or ""
    # {500: 0.81, 1000: 0.84}; a metric may be NaN, as a correlation of equal values is
    scores = {
        step: values[monitor]
        for step, values in model.history.items()
        if not math.isnan(values.get(monitor, math.nan))
    }
    if not scores:
        return None
    step = (min if chosen.mode == "min" else max)(scores, key=lambda each: scores[each])
    results = {key.removeprefix("val/"): value for key, value in model.history[step].items()}
    content = {
        "monitor": monitor,
        "step": step,
        "checkpoint": Path(chosen.best_model_path).name,
        "results": results,
    }
    write_json(run / BEST, content)
    return f"best {monitor}: {scores[step]:.4f} at step {step}, {chosen.best_model_path}"


def _monitor_of(model: BertModule, first_evaluation: str) -> tuple[str, str]:
    """Return the head's primary metric and its mode; without a head, the loss."""
    for name, task in model.named_tasks().items():
        if task is model.head:
            metric, mode = model.head.monitor
            return metric_name("val", name, first_evaluation, metric), mode
    return "val/loss", "min"


def _check_monitor(monitor: str, model: BertModule, key: str) -> None:
    names = model.metric_names()
    if monitor not in names:
        raise ConfigError(
            f"{key}: found {monitor!r}{nearest(monitor, names)} (there are: {', '.join(names)})"
        )
