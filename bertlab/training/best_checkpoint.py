"""The best checkpoint of a run: which metric decides, and how ``best.json`` records it."""

import math
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from bertlab.checkpoints.run_checkpoint import BEST_CHECKPOINT
from bertlab.errors import ConfigError, DamagedCheckpointError, nearest
from bertlab.files import write_json
from bertlab.model.evaluation import HEADS_MEAN, heads_direction
from bertlab.model.module import BertModule

_NAMED_FILES = ("best_model_path", "kth_best_model_path", "last_model_path")


class BestCheckpoint(ModelCheckpoint):
    """Lightning's ModelCheckpoint; what ``monitor: auto`` stands for is known at :meth:`setup`.

    That is the metric that the head is judged by, on the first evaluation set; of several heads the
    mean of theirs; else the loss.
    """

    @property
    def state_key(self) -> str:
        """The parent's, so that checkpoints of it and of this class read each other's state."""
        # "BestCheckpoint{'monitor': …}" -> "ModelCheckpoint{'monitor': …}"
        return super().state_key.replace(type(self).__qualname__, ModelCheckpoint.__qualname__, 1)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Take the metric, and which end of it is better, from the module."""
        if isinstance(pl_module, BertModule):
            self.monitor, mode = choose_monitor(self.monitor, pl_module)
            self.mode = mode or self.mode
            # Lightning set it in __init__, for a mode that was not known yet
            self.kth_value = torch.tensor(math.inf if self.mode == "min" else -math.inf)
        super().setup(trainer, pl_module, stage)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with an earlier choice."""
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


def choose_monitor(monitor: str | None, model: BertModule) -> tuple[str | None, str | None]:
    """Return the metric that decides, and ``min`` or ``max`` if heads say which is better."""
    mode = None
    if monitor == "auto":
        monitor, mode = _monitor_of(model)
    elif monitor in model.heads:
        mode = model.heads[monitor].monitor[1]
        monitor = model.evaluations.monitor_of(monitor)
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
    scores = _scores(model, monitor)
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
    heads = best_of_heads(model)
    write_json(run / BEST_CHECKPOINT, content | ({"heads": heads} if heads else {}))
    best = [
        f"best {each['monitor']}: {each['value']:.4f} at step {each['step']}"
        for each in heads.values()
    ]
    best.append(f"best {monitor}: {scores[step]:.4f} at step {step}, {chosen.best_model_path}")
    return "\n".join(best)


def best_of_heads(model: BertModule) -> dict[str, dict[str, Any]]:
    """Return the best figure of each of several heads, its metric and step; {} of a single one."""
    found: dict[str, dict[str, Any]] = {}
    for name, head in model.heads.items() if model.head is None else ():
        monitor, mode = model.evaluations.monitor_of(name), head.monitor[1]
        scores = _scores(model, monitor)
        if scores:
            step = (min if mode == "min" else max)(scores, key=lambda each: scores[each])
            found[name] = {"monitor": monitor, "step": step, "value": scores[step]}
    return found


def _scores(model: BertModule, monitor: str) -> dict[int, float]:
    """Return a metric by the step of its evaluation, where it is a number."""
    # {500: 0.81, 1000: 0.84}; a metric may be NaN, as a correlation of equal values is
    return {
        step: values[monitor]
        for step, values in model.history.items()
        if not math.isnan(values.get(monitor, math.nan))
    }


def _monitor_of(model: BertModule) -> tuple[str, str]:
    """Return the primary metric of the head, or the mean of several; without a head, the loss."""
    heads = model.heads
    if not heads:
        return "val/loss", "min"
    if len(heads) == 1:
        ((name, head),) = heads.items()
        return model.evaluations.monitor_of(name), head.monitor[1]
    mode = heads_direction(model.named_tasks())
    if mode is None:
        ends = [f"{name} by {each.monitor[0]} ({each.monitor[1]})" for name, each in heads.items()]
        raise ConfigError(
            "checkpoint.monitor: no mean can be made of what the heads are judged by: "
            f"{', '.join(ends)}; expected the head whose metric decides: {', '.join(heads)}"
        )
    return f"val/{HEADS_MEAN}", mode


def _check_monitor(monitor: str, model: BertModule, key: str) -> None:
    names = model.metric_names()
    if monitor not in names:
        raise ConfigError(
            f"{key}: found {monitor!r}{nearest(monitor, names)} (there are: {', '.join(names)})"
        )
