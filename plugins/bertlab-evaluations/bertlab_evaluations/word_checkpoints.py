"""Checkpoints after chosen numbers of words, as BabyLM asks for: ``checkpoint_words``."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from bertlab import CheckpointError
from bertlab.api import ConfigError, TaskData
from bertlab.extend import RunRecord, StepSizes, training_size

KEY = "checkpoint_words"
_FILE = re.compile(r"words-(\d+)([KM]?)\.ckpt")
_UNITS = {"": 1, "K": 10**3, "M": 10**6}


class WordCheckpoints(Callback):
    """Writes ``words-1M.ckpt`` after the step that ends nearest to a million words.

    A run that goes on writes none a second time, and makes up for one that it was killed before.

    Args:
        folder: of the files.
        words: numbers of words, in any order. Those beyond the end of the run are never reached.

    Attributes:
        steps: the words by the optimiser step after which they have been seen; set by
            :meth:`prepare`.
    """

    def __init__(self, folder: Path, words: Sequence[float]) -> None:
        self.folder = folder
        self.words = words
        self.steps: dict[int, list[float]] = {}
        self._last_step = 0

    def prepare(self, trainer: Trainer, data: TaskData) -> dict[str, Any]:
        """Turn words into steps; return the words in a step, and those of training.

        Raises:
            ConfigError: a number is not above 0, or the data has no words.
            TokenStoreError: the words of the text were not counted.
        """
        self.steps = steps_at_words(self.words, data, data.total_steps(trainer))
        return training_size(trainer, data, KEY)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write what the run was killed before: its last checkpoint was of the same step."""
        self._last_step = trainer.global_step
        if _record(trainer).goes_on:
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
        record = _record(trainer)
        for words in self.steps.get(trainer.global_step, ()):
            file = self.folder / words_checkpoint_name(words)
            # a run that goes on in its own directory owns the files that are there; all processes
            # must agree, as they save together
            if record.goes_on and trainer.strategy.broadcast(file.exists()):
                continue
            saved_step = record.saved_step
            trainer.save_checkpoint(file)
            record.saved_step = saved_step  # a run goes on from last.ckpt alone


def _record(trainer: Trainer) -> RunRecord:
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # untyped
    return next(each for each in callbacks if isinstance(each, RunRecord))


def steps_at_words(words: Sequence[float], data: TaskData, steps: float) -> dict[int, list[float]]:
    """Return the optimiser steps after which so many words have been seen, with these words.

    Args:
        words: in any order.
        data: knows its words.
        steps: of the run; infinite if no number of them ends it.

    Raises:
        ConfigError: if one is not above 0, or the data has no words.
        TokenStoreError: if its words were not counted.
    """
    found: dict[int, list[float]] = {}
    sizes = StepSizes(data.sequences_per_step(), steps)
    a_sequence = data.words_per_step(KEY, steps) / sizes.mean
    for each in words:
        if not 0 < each < math.inf:
            raise ConfigError(f"{KEY}: found {each:g}, expected numbers above 0")
        # rounded as the end of a run is, so that its last words are those of the last step
        found.setdefault(max(1, nearest_step(sizes, each / a_sequence)), []).append(each)
    return found


def words_checkpoint_name(words: float) -> str:
    """Return the name of a checkpoint after so many words: ``words-10M.ckpt``, ``words-250K.ckpt``.

    A number that is no whole number of words is rounded.
    """
    whole = round(words)
    # 2,500,000 is 2500K: a name holds no point
    unit = next(name for name in ("M", "K", "") if whole % _UNITS[name] == 0)
    return f"words-{whole // _UNITS[unit]}{unit}.ckpt"


def words_checkpoints(run: str | Path) -> dict[int, Path]:
    """Return the checkpoints after chosen numbers of words (``checkpoint_words``), fewest first.

    Returns:
        Files by the number of words: ``{1000000: …/words-1M.ckpt}``.
    """
    folder = Path(run)
    folder = folder / "checkpoints" if (folder / "checkpoints").is_dir() else folder
    found: dict[int, Path] = {}
    for file in folder.glob("words-*.ckpt"):
        if match := _FILE.fullmatch(file.name):
            number, unit = match.groups()
            found[int(number) * _UNITS[unit]] = file
    if not found:
        raise CheckpointError(
            f"{run}: found no words-….ckpt in {folder}, expected a run with checkpoint_words"
        )
    return dict(sorted(found.items()))


def nearest_step(sizes: StepSizes, sequences: float) -> int:
    """Return how many steps read about so many sequences; one more than all if it is beyond."""
    if isinstance(sizes.size, int):
        return round(sequences / sizes.size)
    # sizes 2, 3 and 4 end at 2, 5 and 9: 3 -> 1, 4 -> 2, 9.5 -> 3, 12 -> 4
    ends = [0, *(sizes.span(step)[1] for step in range(int(sizes.steps)))]
    ends.append(2 * ends[-1] - ends[-2])
    return min(range(len(ends)), key=lambda step: abs(ends[step] - sequences))
