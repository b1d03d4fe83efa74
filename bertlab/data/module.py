"""The contract of a DataModule: what a run asks of its data, text or labelled rows."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from lightning.pytorch import LightningDataModule, Trainer
from torch.utils.data import DataLoader

from bertlab.api.batch import IntArray, PackedBatch
from bertlab.api.examples import Example, Labels
from bertlab.api.task import Task
from bertlab.api.tokenizer import Tokenizer
from bertlab.data.loader import (
    FinishBatch,
    StepDataset,
    StepLoader,
    StepSampler,
    Stream,
    TrainingSteps,
    outlive_sigterm,
)
from bertlab.data.run_length import StepSizes
from bertlab.errors import ConfigError
from bertlab.objectives.changing import WholeNumber, whole_ends

if TYPE_CHECKING:
    from lightning.pytorch.cli import LightningArgumentParser

    from bertlab.data.inputs import PredictedRows

# what is held out, and its masks, are the same for every seed, so that runs can be compared
EVALUATION_SEED = 15
NO_KEYS = {"seed", "mask_seed", "tokenizer_kind"}  # arguments that the section data does not have

ReportRow = tuple[str, str]


@dataclass(frozen=True)
class EvaluationRows:
    """An evaluation set: labelled rows, or held-out text, which has none."""

    name: str = ""  # empty if it is the only one of its tasks
    rows: Sequence[Example] = ()
    tasks: Sequence[str] | None = None  # config names of its tasks; None: all of the run
    sequences: Mapping[str, IntArray] = field(default_factory=dict)  # of each row, by set


def limited(batches: int, limit: float) -> int:
    """Return the batches of an epoch under a limit of Lightning's, a share (float) or a number."""
    return max(1, int(batches * limit)) if isinstance(limit, float) else min(batches, limit)


def limited_steps(steps: int, trainer: Trainer) -> int:
    """Return the optimiser steps of an epoch of ``steps`` under ``limit_train_batches``."""
    parts = trainer.accumulate_grad_batches
    # fast_dev_run has one batch, whatever the parts of a step are
    return max(1, limited(parts * steps, trainer.limit_train_batches) // parts)


class TaskData(LightningDataModule):
    """Data for tasks: connected to them first, then prepared, then encoded.

    Attributes:
        max_seq_length: longest sequence in tokens, special tokens included.
        tokenizer_path: of ``data.tokenizer``, if given.
        num_workers: processes that make batches ahead of the device.
        special_tokens: those of the run's tasks, which a tokenizer that is trained has.
        labels: the classes, known from :meth:`prepare` on; None if the task has none.
        head_labels: those of each of several heads that has classes, by name.
        training_steps: the data of each optimiser step, once training has a loader.
        share_of_steps: of the run that are of this data; below 1 beside heads with other data.
        input_rows: what is predicted on, from :meth:`predict_dataloader` on.
        finish_batch: makes of each labelled batch of training what is handed over, in the data
            worker; None: it stays as it is.
    """

    max_seq_length: int
    tokenizer_path: str | None
    num_workers: int
    special_tokens: Sequence[str] = ()
    labels: Labels | None = None
    head_labels: Mapping[str, Labels] = {}
    training_steps: TrainingSteps
    share_of_steps: float = 1.0
    input_rows: "PredictedRows | None" = None
    finish_batch: FinishBatch | None = None

    @classmethod
    def add_arguments(
        cls, parser: "LightningArgumentParser", heads: Sequence[str], objectives: Sequence[str]
    ) -> None:
        """Add the keys of ``data`` to the parser of a command: the arguments of ``__init__``.

        Seeds are none of them: those of ``seed`` are handed over as ``seed`` and ``mask_seed``.

        Args:
            parser: of the command.
            heads: names of several heads; none where there is a single one.
            objectives: names of the objectives, beside heads or alone.
        """
        del heads, objectives
        parser.add_class_arguments(cls, "data", instantiate=False, skip=NO_KEYS)

    @abstractmethod
    def load_tokenizer(self) -> Tokenizer:
        """Return the tokenizer of a run that takes none over from an earlier model."""

    @abstractmethod
    def connect(self, tokenizer: Tokenizer, tasks: Mapping[str, Task]) -> None:
        """Set the tokenizer that encodes the text and the tasks that read it; check both."""

    @abstractmethod
    def prepare(self, command: str) -> None:
        """Read the data of ``fit``, ``validate`` or ``test``; learn labels and counts from it."""

    def encode(self) -> None:
        """Encode what was read; the tasks are built by now."""

    @property
    def token_counts(self) -> IntArray | None:
        """``(vocab_size,)`` occurrences of each token in unlabelled training text."""
        return None

    def evaluation_sets(self) -> list[EvaluationRows]:
        """Return the evaluation sets in their order; the first one of a task decides."""
        return [EvaluationRows()]

    @abstractmethod
    def report_tables(self) -> list[tuple[str, list[ReportRow]]]:
        """Return tables about the data: a title, and names with values."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return what the manifest records of the data, JSON-ready."""

    @abstractmethod
    def sequences_per_step(self) -> WholeNumber:
        """Sequences (of some heads, rows) in an optimiser step, or how their number changes."""

    @property
    def requires_steps(self) -> Sequence[str]:
        """Config keys whose values change up to the end of a run, which has to be a step."""
        return ()

    @abstractmethod
    def mean_lengths(self, steps: float = math.inf) -> tuple[float, float]:
        """Return the mean tokens of a training sequence, and of an optimiser step.

        Args:
            steps: of the run; what changes over it is as at its beginning if they are infinite.
        """

    def corpus_words(self, key: str) -> int:
        """Return the words of the text, held-out text included, as white space parts them.

        Args:
            key: of the config, that needs them; for messages.

        Raises:
            ConfigError: rows are not counted in words.
            TokenStoreError: the text was prepared before words were counted.
        """
        raise ConfigError(f"{key}: words are counted in pre-training; with a head, give steps")

    def words_per_step(self, key: str, steps: float = math.inf) -> float:
        """Return the mean words in an optimiser step of a run of ``steps``; errors as above."""
        return self.corpus_words(key)

    def steps_for_epochs(self, epochs: int) -> int:
        """Return the optimiser steps in which training sees each chunk of text or row so often."""
        return epochs * self.steps_per_epoch()

    @abstractmethod
    def steps_per_epoch(self) -> int:
        """Return the optimiser steps of an epoch of Lightning's, after which the loader is new.

        In an epoch training sees each chunk of text or row once. Where the number of sequences in a
        step changes, epochs differ in their steps, and all of the run is one of Lightning's.
        """

    def predict_validation(self) -> None:
        """Let :meth:`predict_dataloader` give the validation rows.

        Raises:
            ConfigError: if there are none: pre-training has no labelled rows.
        """
        raise ConfigError("keep_predictions: pre-training has no rows to predict, expected a head")

    def check_division(self, devices: int, accumulate: int) -> None:
        """Raise ConfigError if a step has fewer sequences than devices × accumulated batches."""
        size, _ = whole_ends(self.sequences_per_step())
        if size < devices * accumulate:
            raise ConfigError(
                f"data.batch_size: {size} sequences cannot be divided over {devices} devices × "
                f"{accumulate} accumulated batches; raise it or lower "
                "trainer.accumulate_grad_batches"
            )

    def training_loader(self, stream: Stream, crosses_epochs: bool) -> StepLoader:
        """Return the micro-batches of one epoch of a stream.

        Args:
            stream: of training sequences.
            crosses_epochs: the last step goes on into the next epoch's first sequences, so that all
                are whole. Else an epoch's steps are of equal size but for one sequence.
        """
        assert self.trainer is not None
        trainer = self.trainer
        steps = self.steps_per_epoch()
        dataset = StepDataset(
            stream,
            self.step_sizes(),
            accumulate=trainer.accumulate_grad_batches,
            rank=trainer.global_rank,
            world_size=trainer.world_size,
            steps_per_epoch=None if crosses_epochs else steps,
            finish=self.finish_batch,
        )
        return self.steps_loader(dataset)

    def steps_loader(self, dataset: TrainingSteps) -> StepLoader:
        """Return the micro-batches of one epoch of what gives each step's."""
        assert self.trainer is not None
        trainer = self.trainer
        self.training_steps = dataset
        steps = self.steps_per_epoch()
        sampler = StepSampler(steps, lambda: trainer.global_step, limited_steps(steps, trainer))
        return StepLoader(self._loader(dataset, sampler), trainer.accumulate_grad_batches)

    def step_sizes(self) -> StepSizes:
        """Return which sequences each step of the run has that is of this data."""
        return StepSizes(self.sequences_per_step(), self.share_of_steps * self.total_steps())

    def total_steps(self, trainer: Trainer | None = None) -> float:
        """Return the optimiser steps of the run; infinite if no number of them ends it.

        Args:
            trainer: of the run; None for the one that this is attached to.
        """
        trainer = self.trainer if trainer is None else trainer
        assert trainer is not None
        steps, epochs = trainer.max_steps, trainer.max_epochs
        found = math.inf if steps == -1 else float(steps)
        if epochs not in (None, -1):
            found = min(found, float(epochs * limited_steps(self.steps_per_epoch(), trainer)))
        return found

    def samples(self, count: int) -> list[tuple[Sequence[Example], PackedBatch]]:
        """Return at most ``count`` sequences (of some heads, rows) from all over the first set.

        With them come the rows of the set. Of several heads there is a batch for each.
        """
        loaders = self.val_dataloader()
        loader = loaders[0] if isinstance(loaders, list) else loaders
        dataset = loader.loader.dataset
        # 6 of 1,000: 0, 199, 399, 599, 799, 999
        places = np.linspace(0, (dataset.length or 1) - 1, count).astype(np.int64)
        batch, _ = dataset.stream.batch(np.unique(places))
        assert isinstance(batch, PackedBatch)
        return [(self.evaluation_sets()[0].rows, batch)]

    def evaluation_loader(self, stream: Stream, length: int) -> StepLoader:
        """Return a stream's first ``length`` sequences, in batches no larger than training's."""
        assert self.trainer is not None
        trainer = self.trainer
        _, largest = whole_ends(self.sequences_per_step())
        batch_size = math.ceil(largest / trainer.accumulate_grad_batches)
        batch_size = max(trainer.world_size, batch_size)  # one for each device
        dataset = StepDataset(
            stream,
            StepSizes(batch_size),
            rank=trainer.global_rank,
            world_size=trainer.world_size,
            length=length,
        )
        sampler = StepSampler(math.ceil(length / batch_size), lambda: 0)
        return StepLoader(self._loader(dataset, sampler), 1)

    def _loader(
        self, dataset: TrainingSteps, sampler: StepSampler
    ) -> "DataLoader[list[PackedBatch]]":
        return DataLoader(
            dataset,
            sampler=sampler,
            batch_size=None,  # an item of the dataset is a whole step
            num_workers=self.num_workers,
            worker_init_fn=outlive_sigterm,
            pin_memory=self.trainer is not None
            and self.trainer.strategy.root_device.type == "cuda",
            generator=torch.Generator(),  # leaves the global one, which dropout draws from, alone
        )
