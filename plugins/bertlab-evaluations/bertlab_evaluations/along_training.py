"""``EvaluationsAlong``: scores the model by zero-shot evaluations while it is trained."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn

from bertlab import check_at_least
from bertlab.api import ConfigError, Example, TaskData, Tokenizer
from bertlab.extend import RESULTS_FILE, BertModule, Results, limited_steps, make_folder, write_json
from bertlab_evaluations.contract import EvaluatedModel
from bertlab_evaluations.entries import EvaluationEntry, read_entries
from bertlab_evaluations.evaluate import (
    declared_shares,
    evaluate,
    evaluation_folder,
    named_metrics,
    read_entry_rows,
)
from bertlab_evaluations.evaluation_output import earlier_results, write_evaluation
from bertlab_evaluations.evaluation_scores import score_groups


def along_training(directory: Path, values: Namespace) -> "list[EvaluationsAlong]":
    """Return the callback that scores a run along its way, if its config asks for it.

    Args:
        directory: of the run.
        values: of the config: ``evaluations`` and ``evaluate_every``.

    Raises:
        ConfigError: an evaluation's keys or values are wrong, or it is called like a task.
        PluginError: it is not installed, or cannot be used.
    """
    check_at_least("evaluate_every", values.evaluate_every, 1)
    if values.evaluations is None:
        return []
    entries = read_entries(values.evaluations, "evaluations")
    tasks = _task_names(values.model.as_dict())
    for name in (each.name for each in entries if each.name in tasks):
        raise ConfigError(
            f"evaluations.{name}: found the name of a head or objective of the run, expected "
            f"another: the figures of both would be val/{name}/…"
        )
    return [EvaluationsAlong(directory, entries, values.evaluate_every)]


def _task_names(model: Mapping[str, Any]) -> list[str]:
    """Return the names under which a run logs the figures of its heads and objectives."""
    head = model.get("head")
    single = [] if head is None else [str(head["name"])]
    return [*(model.get("objectives") or {}), *(model.get("heads") or {}), *single]


class EvaluationsAlong(Callback):
    """Scores the model after held-out evaluations; figures are logged as ``val/NAME/METRIC``.

    Files are in ``evaluations/step-N`` of the run. Each process of several scores all rows: the
    weights may be divided among them.

    Args:
        directory: of the run.
        entries: what is asked for.
        every: steps from one time to the next; None: after each held-out evaluation. The last step
            is always scored.
    """

    def __init__(
        self, directory: Path, entries: Sequence[EvaluationEntry], every: int | None
    ) -> None:
        self.directory = directory
        self.entries = entries
        self.every = every
        self.end = math.inf  # the last step, once prepare() knows it
        self._scored = -1  # the step that was scored last

    @cached_property
    def rows(self) -> dict[str, list[Example]]:
        """The rows of each evaluation, read once."""
        return {entry.name: read_entry_rows(entry) for entry in self.entries}

    def prepare(self, trainer: Trainer, data: TaskData) -> dict[str, Any]:
        """Read the rows and check the interval, before the run is begun; return the shares.

        Raises:
            ConfigError: the model is never looked at after so many steps.
            DataError: the rows cannot be read.
        """
        # fast_dev_run has its own few batches
        if self.every is not None and not getattr(trainer, "fast_dev_run", False):
            _check_every(self.every, trainer, data)
        self.end = data.total_steps(trainer)
        assert self.rows.keys(), "read_entries() refuses none"
        return {"shares": declared_shares(self.entries)}

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Score, log and write."""
        assert isinstance(pl_module, BertModule)
        if trainer.sanity_checking or not self._is_due(trainer):
            return
        self._scored = trainer.global_step
        model = self._evaluated(trainer, pl_module)
        folder = evaluation_folder(self.directory, trainer.global_step)
        results: Results = {}
        for entry in self.entries:
            result = evaluate(model, entry, self.rows[entry.name])
            results |= named_metrics(entry.name, result)
            if trainer.is_global_zero:
                make_folder(folder)
                write_evaluation(folder, entry.name, result, score_groups(result))
        if trainer.is_global_zero:
            write_json(folder / RESULTS_FILE, earlier_results(folder) | results)
        # a resumed run may score a step again that it has logged
        logger = False if trainer.global_step in pl_module.history else None
        named = {f"val/{name}": value for name, value in results.items()}
        pl_module.log_dict(named, logger=logger, sync_dist=True)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Ask for another look at a step that nobody knew to be the last, as of an early stop."""
        assert isinstance(pl_module, BertModule)
        if self._scored != trainer.global_step:
            pl_module.evaluated_step = -1

    def _is_due(self, trainer: Trainer) -> bool:
        step = trainer.global_step
        at_end = trainer.state.fn != TrainerFn.FITTING or step >= self.end
        return self.every is None or step % self.every == 0 or at_end

    def _evaluated(self, trainer: Trainer, module: BertModule) -> EvaluatedModel:
        tokenizer = getattr(trainer, "datamodule").tokenizer  # noqa: B009  Lightning's, untyped
        assert isinstance(tokenizer, Tokenizer)
        source = f"{self.directory} at step {trainer.global_step}"
        return EvaluatedModel(source, module.encoder, tokenizer, module.named_tasks())


def _check_every(every: int, trainer: Trainer, data: TaskData) -> None:
    """Raise ConfigError unless each so many steps there is a look at held-out text."""
    looks = _steps_between_looks(trainer, data)
    if looks is None:
        raise ConfigError(
            f"evaluate_every: found {every}, and trainer.val_check_interval "
            f"{trainer.val_check_interval:g}, a share of an epoch that looks at other steps in "
            "each; expected a number of batches there"
        )
    if every % looks:
        raise ConfigError(
            f"evaluate_every: found {every}, expected a multiple of {looks:g}, the steps from a "
            "look at held-out text to the next (trainer.val_check_interval)"
        )


def _steps_between_looks(trainer: Trainer, data: TaskData) -> float | None:
    """Return the optimiser steps from a look at held-out text to the next; None if they differ."""
    interval, parts = trainer.val_check_interval, trainer.accumulate_grad_batches
    if isinstance(interval, int):
        return interval // parts  # batches -> optimiser steps
    # steps of changing sizes are one epoch
    is_even = isinstance(data.sequences_per_step(), int)
    epoch = data.steps_per_epoch() if is_even else data.total_steps(trainer)
    if math.isfinite(epoch):
        epoch = limited_steps(int(epoch), trainer)
    epochs = trainer.check_val_every_n_epoch or 1
    if interval == 1.0:
        return epoch * epochs
    # Lightning counts anew in each epoch: 10 batches, 0.5 -> looks at 5, 10, 15; 0.4 -> 4, 8, 14
    batches = max(1, int(epoch * parts * interval))
    is_regular = epochs == 1 and epoch * parts % batches == 0 and batches % parts == 0
    return batches // parts if is_regular else None
