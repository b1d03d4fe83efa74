"""Which checkpoint of a fine-tuned run is the best: by which metric, and where that is written."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from bertlab.checkpoints.run_checkpoint import BEST
from bertlab.errors import ConfigError, nearest
from bertlab.files import write_json
from bertlab.model.module import BertModule, metric_name


def choose_monitor(
    settings: dict[str, Any], model: BertModule, first_evaluation: str
) -> dict[str, Any]:
    """Return the settings of ModelCheckpoint with the metric that ``monitor: auto`` stands for.

    Args:
        settings: as the config has them.
        model: knows the metrics that the run will log.
        first_evaluation: name of the evaluation set that decides.

    Raises:
        ConfigError: if the run will not log the metric.
    """
    monitor, mode = settings["monitor"], settings["mode"]
    if monitor == "auto":
        monitor, mode = _monitor_of(model, first_evaluation)
    if monitor is not None:
        _check_monitor(monitor, model, "checkpoint.monitor")
    return {**settings, "monitor": monitor, "mode": mode}


def check_early_stopping(callbacks: Iterable[Callback], model: BertModule) -> None:
    """Raise ConfigError if a run will not log what it is to be stopped by."""
    for callback in callbacks:
        if isinstance(callback, EarlyStopping):
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
    """Return the metric that the head is judged by, and its better end; else the loss."""
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
