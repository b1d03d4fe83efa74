"""Checkpoints after chosen numbers of words, as BabyLM asks for: ``checkpoint_words``."""

from collections.abc import Sequence
from pathlib import Path

from lightning.pytorch import Callback, LightningModule, Trainer

from bertlab.checkpoints.run_checkpoint import words_checkpoint_name
from bertlab.data.module import TaskData
from bertlab.model.schedule import steps_at_words
from bertlab.training.callbacks.run_record import RunRecord


class WordCheckpoints(Callback):
    """Writes ``words-1M.ckpt`` after the step that ends nearest to a million words.

    A run that goes on writes none a second time, and makes up for one that it was killed before.

    Args:
        folder: of the files.
        words: numbers of words, in any order. Those beyond the end of the run are never reached.
        record: of the run. A run goes on from ``last.ckpt`` alone, so these do not count as saved;
            one that goes on in its own directory owns the files that are there.

    Attributes:
        steps: the words by the optimiser step after which they have been seen; set at
            :meth:`setup`.
    """

    def __init__(self, folder: Path, words: Sequence[float], record: RunRecord) -> None:
        self.folder = folder
        self.words = words
        self.record = record
        self.steps: dict[int, list[float]] = {}
        self._last_step = 0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Turn words into steps, by the words in a step of the data."""
        data = getattr(trainer, "datamodule", None)
        if stage == "fit" and isinstance(data, TaskData):
            self.steps = steps_at_words(self.words, data, data.total_steps(trainer))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write what the run was killed before: its last checkpoint was of the same step."""
        self._last_step = trainer.global_step
        if self.record.goes_on:
            self._save(trainer)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: object,
        batch: object,
        batch_idx: int,
    ) -> None:
        """Write what is due after an optimiser step, once for all its batches."""
        if trainer.global_step != self._last_step:
            self._last_step = trainer.global_step
            self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        for words in self.steps.get(trainer.global_step, ()):
            file = self.folder / words_checkpoint_name(words)
            # all processes must agree, as they save together
            if self.record.goes_on and trainer.strategy.broadcast(file.exists()):
                continue
            saved_step = self.record.saved_step
            trainer.save_checkpoint(file)
            self.record.saved_step = saved_step
