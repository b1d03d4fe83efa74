"""``EvaluationsAlong``: scores the model by zero-shot evaluations while it is trained."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn

from bertlab import check_at_least
from bertlab.api import ConfigError, Example, TaskData, Tokenizer
from bertlab.extend import RESULTS_FILE, BertModule, Results, make_folder, write_json
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
        ConfigError: an evaluation's keys or values are wrong.
        PluginError: it is not installed, or cannot be used.
    """
    check_at_least("evaluate_every", values.evaluate_every, 1)
    if values.evaluations is None:
        return []
    entries = read_entries(values.evaluations, "evaluations")
    return [EvaluationsAlong(directory, entries, values.evaluate_every)]


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
        interval = trainer.val_check_interval
        if self.every is not None and isinstance(interval, int) and self.every % interval:
            raise ConfigError(
                f"evaluate_every: found {self.every}, expected a multiple of "
                f"trainer.val_check_interval, which is {interval}"
            )
        assert self.rows.keys(), "read_entries() refuses none"
        return {"shares": declared_shares(self.entries)}

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Score, log and write."""
        assert isinstance(pl_module, BertModule)
        if trainer.sanity_checking or not self._is_due(trainer):
            return
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

    def _is_due(self, trainer: Trainer) -> bool:
        step, end = trainer.global_step, trainer.max_steps
        at_end = trainer.state.fn != TrainerFn.FITTING or step == end
        return self.every is None or step % self.every == 0 or at_end

    def _evaluated(self, trainer: Trainer, module: BertModule) -> EvaluatedModel:
        tokenizer = getattr(trainer, "datamodule").tokenizer  # noqa: B009  Lightning's, untyped
        assert isinstance(tokenizer, Tokenizer)
        source = f"{self.directory} at step {trainer.global_step}"
        return EvaluatedModel(source, module.encoder, tokenizer, module.named_tasks())
