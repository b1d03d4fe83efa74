"""The best checkpoint of a run: which metric decides, which end is better, and ``best.json``."""

import math
import time
from collections.abc import Mapping
from pathlib import Path
from string import Formatter
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import Tensor

from bertlab.checkpoints.run_directory import BEST_CHECKPOINT
from bertlab.config.request import check_file_name
from bertlab.config.run_config import AUTO
from bertlab.config.yaml_files import load_yaml
from bertlab.errors import ConfigError, DamagedCheckpointError, nearest
from bertlab.files import write_json
from bertlab.model.evaluation import HEADS_MEAN, VAL_LOSS, heads_direction
from bertlab.model.module import BertModule
from bertlab.training.callbacks import evaluation_follows

_NAMED_FILES = ("best_model_path", "kth_best_model_path", "last_model_path")


class BestCheckpoint(ModelCheckpoint):
    """Lightning's ModelCheckpoint, whose best file is always of a step that was evaluated.

    Lightning compares a file of ``every_n_train_steps`` by the figures of the evaluation before it.
    Here such a file is kept where ``save_top_k`` is -1, and is ``last.ckpt`` otherwise; where it
    falls on an evaluation, it waits for it. ``last.ckpt`` is written at every evaluation.

    ``monitor: auto`` is the metric that the head is judged by, on the first evaluation set; of
    several heads the mean of theirs; else the loss. ``mode: auto`` is its better end.
    """

    def __init__(self, mode: str = AUTO, **settings: Any) -> None:  # noqa: ANN401  the parent's
        super().__init__(mode="min" if mode == AUTO else mode, **settings)
        self.steps: dict[str, int] = {}  # at which a file was written, by its name
        self.named = self.monitor not in (None, AUTO)
        self._given_mode = mode

    @property
    def state_key(self) -> str:
        """The parent's, so that checkpoints of it and of this class read each other's state."""
        # "BestCheckpoint{'monitor': …}" -> "ModelCheckpoint{'monitor': …}"
        return super().state_key.replace(type(self).__qualname__, ModelCheckpoint.__qualname__, 1)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Take the metric, and which end of it is better, from the module."""
        if isinstance(pl_module, BertModule):
            self.monitor, mode = choose_monitor(self.monitor, pl_module, self._given_mode)
            _set_mode(self, mode)
            _check_figures(self.filename or "", pl_module)
        super().setup(trainer, pl_module, stage)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave a run at its end that EarlyStopping has ended; its state is loaded by now."""
        super().on_train_start(trainer, pl_module)
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        for each in callbacks:
            if isinstance(each, EarlyStopping):
                has_ended = each.stopped_epoch > 0 or 0 < each.wait_count >= each.patience
                trainer.should_stop = trainer.should_stop or has_ended

    def on_train_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:  # noqa: ANN401
        """Save by steps or by time; where an evaluation follows, after it."""
        # accumulating 4: only behind batches 3, 7, 11, …, where an optimiser step has ended
        ends = not (trainer.fit_loop.batch_idx + 1) % trainer.accumulate_grad_batches
        if not (ends and self._is_due(trainer)):
            return
        if evaluation_follows(trainer):
            self._defer_save_until_validation = True
        else:
            self._save(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save what the evaluation was waited for, and the best."""
        epochs = self._every_n_epochs
        if epochs:
            chooses = not self._should_save_on_train_epoch_end(trainer)
            chooses = chooses and (trainer.current_epoch + 1) % epochs == 0
        else:
            chooses = self.monitor is not None or self._defer_save_until_validation
        self._defer_save_until_validation = False
        if chooses:
            self._save(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save after the evaluation of an epoch's end, whether or not it is the best."""
        epochs = self._every_n_epochs
        saves = bool(epochs) and self._should_save_on_train_epoch_end(trainer)
        if saves and (trainer.current_epoch + 1) % epochs == 0:
            self._save(trainer)

    def _is_due(self, trainer: Trainer) -> bool:
        steps, interval = self._every_n_train_steps, self._train_time_interval
        if interval is None:
            return steps > 0 and trainer.global_step % steps == 0
        now = time.monotonic()
        gone = now - (self._last_time_checked or now)
        is_due: bool = trainer.strategy.broadcast(gone >= interval.total_seconds())
        if is_due:
            self._last_time_checked = now
        return is_due

    def _save(self, trainer: Trainer) -> None:
        if not self._should_skip_saving_checkpoint(trainer):
            candidates = self._monitor_candidates(trainer)
            self._save_topk_checkpoint(trainer, candidates)
            self._save_last_checkpoint(trainer, candidates)

    def _save_topk_checkpoint(
        self, trainer: Trainer, monitor_candidates: dict[str, Tensor]
    ) -> None:
        """Choose among steps that were evaluated; keep another only where all are kept."""
        module = trainer.lightning_module
        evaluated = getattr(module, "evaluated_step", trainer.global_step) == trainer.global_step
        if self.monitor is None or evaluated:
            super()._save_topk_checkpoint(trainer, monitor_candidates)
        elif self.save_top_k == -1:
            nothing = torch.tensor(math.nan)  # in the name of a file: not the figures before it
            own = {
                name: nothing if name.startswith("val/") else value
                for name, value in monitor_candidates.items()
            }
            self._save_checkpoint(
                trainer, self._get_metric_interpolated_filepath_name(own, trainer)
            )

    def _save_checkpoint(self, trainer: Trainer, filepath: str) -> None:
        self.steps[Path(filepath).name] = trainer.global_step  # before: it is in the file, too
        super()._save_checkpoint(trainer, filepath)

    def state_dict(self) -> dict[str, Any]:
        """Return the choice so far."""
        return {**super().state_dict(), "steps": self.steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with an earlier choice."""
        super().load_state_dict(self._moved(state_dict))
        steps = state_dict.get("steps", {})  # older checkpoints lack it
        self.steps = {str(name): int(step) for name, step in steps.items()}

    def _moved(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the choice of a run that was moved with its files; else what is given."""
        folder, chosen = Path(self.dirpath or ""), state.get("best_k_models") or {}
        here = {str(name): str(folder / Path(name).name) for name in chosen}
        if not here or not all(Path(each).is_file() for each in here.values()):
            return state
        names = {key: state.get(key) or "" for key in _NAMED_FILES}
        moved = {key: str(folder / Path(name).name) if name else "" for key, name in names.items()}
        kept = {here[str(name)]: score for name, score in chosen.items()}
        return {**state, **moved, "dirpath": str(folder), "best_k_models": kept}


def check_chosen_files(state: Mapping[str, Any], callback: ModelCheckpoint, source: str) -> None:
    """Refuse a state by which Lightning would delete another file than the callback's own."""
    folder, ending = Path(callback.dirpath or ""), callback.FILE_EXTENSION
    named = [*(state.get(key) for key in _NAMED_FILES), *(state.get("best_k_models") or ())]
    for name in map(str, filter(None, named)):
        # Lightning compares names: run/checkpoints/../../precious and what a link leads to begin as
        # they should; of s3://precious and simplecache::/precious it asks nothing
        begins = folder.absolute() in Path(name).absolute().parents
        inside = name.endswith(ending) and folder.resolve() in Path(name).resolve().parents
        if "::" in name or "://" in name or (begins and not inside):
            told = f"{source}: a damaged checkpoint: its ModelCheckpoint chose {name!r}"
            raise DamagedCheckpointError(f"{told}, expected a file in the run's folder")


def choose_monitor(
    monitor: str | None, model: BertModule, mode: str = AUTO, key: str = "checkpoint"
) -> tuple[str | None, str]:
    """Return the metric that decides, and which end of it is better: ``min`` or ``max``."""
    if monitor is None:
        return None, "min"
    better, names = None, model.metric_names()
    if monitor == AUTO:
        monitor, better = _monitor_of(model)
    elif monitor in model.heads:
        monitor, better = model.evaluations.monitor_of(monitor), model.heads[monitor].monitor[1]
    elif monitor not in names:
        # eval_f1 -> val/topic/f1
        ends = {each.rpartition("/")[2]: each for each in reversed(names) if each[:4] == "val/"}
        meant = max((end for end in ends if monitor.endswith(end)), key=len, default="")
        told = f"{key}.monitor: found {monitor!r}{nearest(ends.get(meant, monitor), names)}"
        raise ConfigError(f"{told} (there are: {', '.join(names)})")
    better = better or model.evaluations.better_end(monitor)
    if better is None and mode == AUTO:
        told = f"{key}.monitor: found {monitor!r}, of which nothing tells the better end"
        raise ConfigError(f"{told}; expected {key}.mode beside it, min or max, or another metric")
    if better is not None and mode not in (AUTO, better):
        known = f"of {monitor} the better end is {better}"
        raise ConfigError(f"{key}.mode: found {mode}, but {known}; leave it out")
    return monitor, better or mode


def check_checkpoints(settings: Mapping[str, Any]) -> None:
    """Raise ConfigError for settings of ``checkpoint`` by which one file would replace another."""
    name, several = settings["filename"], settings["save_top_k"] not in (0, 1)
    check_file_name(name)
    if name == "last" and settings["save_last"]:
        found = "found last, which is the file of the last step"
        raise ConfigError(f"checkpoint.filename: {found}; expected another")
    if several and name is not None and "{step" not in name:
        told = f"checkpoint.filename: found {name!r} beside save_top_k {settings['save_top_k']}"
        raise ConfigError(told + ": each file would replace the one before; expected {step} in it")


def _check_figures(filename: str, model: BertModule) -> None:
    """Raise ConfigError if a name asks for a figure that is not there: Lightning writes 0."""
    for _, name, _, _ in Formatter().parse(filename):
        if not name or name in ("epoch", "step") or name in (metrics := model.metric_names()):
            continue
        told = f"checkpoint.filename: found {{{name}}}{nearest(name, metrics)} (there are"
        raise ConfigError(f"{told}: epoch, step, {', '.join(metrics)})")


def direct_callbacks(
    trainer: Trainer, model: BertModule, given: object, recorded: object = None
) -> None:
    """Give EarlyStopping, ModelCheckpoint and schedule the better end of what they monitor.

    ``recorded`` are the callbacks of the config that is written down, which get it, too.
    """
    schedule, key = model.optimizer_config.schedule, "model.optimizer.schedule"
    if schedule.monitor is not None:
        schedule.monitor, schedule.mode = choose_monitor(
            schedule.monitor, model, schedule.mode, key
        )
        if not str(schedule.monitor).startswith("val/"):
            raise ConfigError(f"{key}.monitor: found {schedule.monitor}, expected one of val/…")
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    # a file has a mapping, --trainer.callbacks its text, --trainer.callbacks+ a Namespace
    given = load_yaml(given) if isinstance(given, str) else given
    written = given if isinstance(given, list) else [given]
    arguments = [each.get("init_args") or {} for each in written if hasattr(each, "get")]
    for each in callbacks:
        if not isinstance(each, EarlyStopping | ModelCheckpoint):
            continue
        key = f"trainer.callbacks: {type(each).__name__}"
        if (each.monitor or "").startswith("val/") and trainer.limit_val_batches == 0:
            key = "checkpoint" if isinstance(each, BestCheckpoint) else key
            nothing = "but trainer.limit_val_batches 0 evaluates nothing"
            raise ConfigError(f"{key}.monitor: found {each.monitor}, {nothing}")
        if isinstance(each, BestCheckpoint):
            continue
        own = next((one for one in arguments if one.get("monitor") == each.monitor), {})
        monitor, mode = choose_monitor(each.monitor, model, own.get("mode", AUTO), key)
        if isinstance(each, ModelCheckpoint) and monitor and not each.every_n_epochs:
            raise ConfigError(
                f"{key}: found monitor {monitor} beside files by steps or by time, which it would "
                "choose by the figures of another step; expected one of the two"
            )
        _record_mode(recorded, each.monitor, mode)
        each.monitor = monitor
        _set_mode(each, mode)
        if isinstance(each, EarlyStopping) and str(monitor).startswith("val/"):
            # where the figures are new: its state is then in the checkpoint of that evaluation
            each._check_on_train_epoch_end = bool(each._check_on_train_epoch_end)
            each.strict = False  # there is such a figure, and an epoch may end before it is known


def _record_mode(recorded: object, monitor: str | None, mode: str) -> None:
    """Write the better end into a config that is kept, where Lightning's default ``min`` stands."""
    for each in recorded if isinstance(recorded, list) else ():
        arguments = each.get("init_args") or {}
        if arguments.get("monitor") == monitor and "mode" in arguments:
            arguments["mode"] = mode


def _set_mode(callback: EarlyStopping | ModelCheckpoint, mode: str) -> None:
    """Set which end is better, and what Lightning's ``__init__`` derives from it."""
    worst = torch.tensor(math.inf if mode == "min" else -math.inf)
    if isinstance(callback, ModelCheckpoint):
        callback.mode, callback.kth_value = mode, worst
    elif callback.mode != mode:
        callback.mode, callback.best_score = mode, worst
        callback.min_delta *= -1  # it has the sign of what is better


def record_best(trainer: Trainer, model: BertModule, run: Path) -> str | None:
    """Name a run's best checkpoint in ``best.json``; of pre-training if it names the metric."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    chosen = next((each for each in callbacks if isinstance(each, BestCheckpoint)), None)
    if chosen is None or chosen.best_model_score is None or not (model.heads or chosen.named):
        return None
    monitor, score = chosen.monitor or "", float(chosen.best_model_score)
    # the file's own step: an evaluation may have been of a step that was not to be saved
    step = chosen.steps.get(Path(chosen.best_model_path).name)
    if step is None and (scores := _scores(model, monitor)):  # from before it was kept
        step = (min if chosen.mode == "min" else max)(scores, key=lambda each: scores[each])
    if step is None or step not in model.history or math.isinf(score):  # Lightning's word for NaN
        return None
    results = {key.removeprefix("val/"): value for key, value in model.history[step].items()}
    results.pop("loss", None)  # of all tasks
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
    best.append(f"best {monitor}: {score:.4f} at step {step}, {chosen.best_model_path}")
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
        return VAL_LOSS, "min"
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
