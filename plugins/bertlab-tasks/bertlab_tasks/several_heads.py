"""The DataModule of several heads at once: labelled rows for each, mixed step by step.

Objectives beside them have text, which is mixed in.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from inspect import signature
from typing import Any, NoReturn

import numpy as np
from lightning.pytorch.cli import LightningArgumentParser

from bertlab import IntArray
from bertlab.api import (
    ConfigError,
    Example,
    Objective,
    PackedBatch,
    Task,
    TaskData,
    Tokenizer,
)
from bertlab.extend import (
    OWN_DATA,
    EvaluationRows,
    LabelledData,
    PretrainingData,
    ReportRow,
    StepLoader,
    check_processes,
    naming,
    naming_head,
    warn,
)
from bertlab_tasks.mixing import OBJECTIVES, MixedSteps, Mixing, StepOrder

# keys of data that the objectives beside heads have of their own
_OWN_TEXT = (
    *("corpus", "corpus_format", "text_column", "errors", "language"),
    *("input_format", "short_sequence_probability", "random_pair_share"),
    *("validation_fraction", "validation_sequences", "prepare_workers", "cache_dir"),
)


def _naming_objectives() -> contextlib.AbstractContextManager[None]:
    """Say ``data.objectives.corpus`` for ``data.corpus`` in what a block says of an error."""
    return naming(OBJECTIVES, _OWN_TEXT, OBJECTIVES)


class SeveralHeadsData(TaskData):
    """Packed batches from the labelled rows of several heads; a step is of one of them.

    Args:
        heads: the data of each head, by its name.
        objectives: text of the objectives beside them, if there are any.
        mixing: how steps are dealt out among them.
        tokenizer: ``vocab.txt``, ``tokenizer.json`` or a folder with one; if not given, that of
            ``model.init_from``.
        max_seq_length: longest sequence in tokens, special tokens included.
        batch_size: sequences (multiple choice: rows) in an optimiser step, over all devices and
            accumulated batches.
        group_by_length: batches of sequences of about one length, as in Hugging Face's Trainer.
        num_workers: processes that make batches ahead of the device; 0 makes them in line.
        seed: of the order of rows, of text, and of steps; ``seed.order`` of a config.
        mask_seed: of what the objectives draw; ``seed.masks`` of a config. ``seed`` if None.
    """

    def __init__(
        self,
        heads: Mapping[str, Mapping[str, Any]] | None = None,
        objectives: Mapping[str, Any] | None = None,
        mixing: Mapping[str, Any] | None = None,
        tokenizer: str | None = None,
        max_seq_length: int = 128,
        batch_size: int = 32,
        group_by_length: bool = False,
        num_workers: int = 0,
        seed: int = 0,
        mask_seed: int | None = None,
    ) -> None:
        super().__init__()
        self.tokenizer_path = tokenizer
        self.max_seq_length = max_seq_length
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.seed = seed
        check_processes("data.num_workers", self.num_workers, 0)
        self.mixing = Mixing(**(mixing or {}))
        self.mixing.check(list(heads or {}), objectives is not None)
        self.parts: dict[str, LabelledData] = {}
        for name, own in (heads or {}).items():
            with naming_head(name):
                self.parts[name] = LabelledData(
                    **own,
                    tokenizer=tokenizer,
                    max_seq_length=max_seq_length,
                    batch_size=batch_size,
                    group_by_length=group_by_length,
                    seed=seed,
                )
        self.text: PretrainingData | None = None
        if objectives is not None:
            with _naming_objectives():
                self.text = PretrainingData(
                    **objectives,
                    tokenizer=tokenizer,
                    max_seq_length=max_seq_length,
                    batch_size=batch_size,
                    seed=seed,
                    mask_seed=mask_seed,
                )

    @classmethod
    def add_arguments(
        cls, parser: LightningArgumentParser, heads: Sequence[str], objectives: Sequence[str]
    ) -> None:
        """Add what all heads share, where the rows of each are, mixing, and objectives' text.

        What all share, such as the batch size, is no key of one of them.
        """
        own = {"seed", "mask_seed", "heads", "objectives", "mixing"}
        parser.add_class_arguments(cls, "data", instantiate=False, skip=own)
        parser.add_class_arguments(Mixing, "data.mixing", instantiate=False)
        parts: dict[str, tuple[type[TaskData], tuple[str, ...]]]
        parts = {f"heads.{name}": (LabelledData, OWN_DATA) for name in heads}
        if objectives:
            parts[OBJECTIVES] = PretrainingData, _OWN_TEXT
        for place, (part, keys) in parts.items():
            shared = set(signature(part).parameters) - set(keys)
            parser.add_class_arguments(part, f"data.{place}", instantiate=False, skip=shared)

    def load_tokenizer(self) -> Tokenizer:
        """Load ``tokenizer``."""
        return next(iter(self.parts.values())).load_tokenizer()

    def connect(self, tokenizer: Tokenizer, tasks: Mapping[str, Task]) -> None:
        """Set the tokenizer that encodes the examples and the head that reads those of each part.

        Raises:
            ConfigError: if the ``columns`` of a part name one that its head does not have, or the
                text is not what an objective needs.
            TokenizerError: if an objective needs a mask token and the tokenizer has none.
        """
        for name, part in self.parts.items():
            with naming_head(name):
                part.connect(tokenizer, {name: tasks[name]})
        if self.text is not None:
            with _naming_objectives():
                self.text.connect(tokenizer, tasks)
        self.objectives = [name for name, task in tasks.items() if isinstance(task, Objective)]

    def prepare(self, command: str) -> None:
        """Read the splits that a command needs, of each head; learn labels from training rows.

        The text of objectives is read too, but for ``test``: it has no test part.

        Raises:
            ConfigError: two heads of a kind have the same training rows.
            DataError: if a split cannot be read, or a row lacks the truth.
        """
        parts = self.parts
        self.reads_text = self.text is not None and command != "test"
        if self.text is not None and self.reads_text:
            with _naming_objectives():
                self.text.prepare(command)
        if command == "test":
            # where some name a split or file, those are meant; else the sources' own
            named = {name: part for name, part in parts.items() if part.test_split is not None}
            parts = named or parts
            left = [f"data.heads.{name}.test" for name in self.parts if name not in parts]
            if left:
                warn(f"found no {', '.join(left)}: not scored")
        for name, part in parts.items():
            with naming_head(name):
                part.labels = self.head_labels.get(
                    name
                )  # of a checkpoint; none yet where it is new
                part.prepare(command)
        self.head_labels = {
            name: part.labels for name, part in self.parts.items() if part.labels is not None
        }
        self._refuse_same_rows()

    def _refuse_same_rows(self) -> None:
        """Refuse two heads of a kind that would learn the same from the same rows."""
        seen: dict[tuple[type, str], str] = {}
        for name, part in self.parts.items():
            found = part.facts()["data"].get("train")
            if found is None:
                continue
            key = type(part.head), found["fingerprint"]
            if key in seen:
                raise ConfigError(
                    f"data.heads.{seen[key]} and data.heads.{name}: have the same training rows, "
                    f"truth included; expected other rows, or one of the two heads"
                )
            seen[key] = name

    def encode(self) -> None:
        """Encode all rows that were read; the heads are built by now."""
        for name, part in self.parts.items():
            with naming_head(name):
                part.encode()

    @property
    def token_counts(self) -> IntArray | None:
        """``(vocab_size,)`` occurrences of each token in the text of objectives, if it is read."""
        return self.text.token_counts if self.text is not None and self.reads_text else None

    def evaluation_sets(self) -> list[EvaluationRows]:
        """Return the evaluation sets of one head after the other, then held-out text."""
        sets = [
            EvaluationRows(each.name, each.rows, (name,), each.sequences)
            for name, part in self.parts.items()
            for each in part.evaluation_sets()
        ]
        return [*sets, EvaluationRows(tasks=self.objectives)] if self.reads_text else sets

    def report_tables(self) -> list[tuple[str, list[ReportRow]]]:
        """Return the tables of each head and of text, and how training is divided among them."""
        tables = [
            (f"{name}: {title}", rows)
            for name, part in self._read().items()
            for title, rows in part.report_tables()
        ]
        if not self._trains:
            return tables
        steps = self._order.steps
        shares = [
            (name, f"{count:,} of {len(self._order):,} ({self._passes(name)})")
            for name, count in steps.items()
        ]
        return [*tables, ("steps of an epoch", shares)]

    def facts(self) -> dict[str, Any]:
        """Return fingerprint and number of rows of each split, and the labels, of each head.

        With text of objectives, its fingerprints and figures too.
        """
        facts = {name: part.facts() for name, part in self.parts.items()}
        splits = {
            f"{name}/{split}": found
            for name, each in facts.items()
            for split, found in each["data"].items()
        }
        found = {"data": splits, "labels": {name: each["labels"] for name, each in facts.items()}}
        if self.text is not None and self.reads_text:
            text = self.text.facts()
            found |= {**text, "data": splits, "text": text["data"]}
        return found | ({"steps_per_epoch": dict(self._order.steps)} if self._trains else {})

    def sequences_per_step(self) -> int:
        """Return ``batch_size``."""
        return self.batch_size

    def mean_lengths(self, steps: float = math.inf) -> tuple[float, float]:
        """Return the mean tokens of a training sequence, and of an optimiser step."""
        del steps
        shares = [count / len(self._order) for count in self._order.steps.values()]
        lengths = [part.mean_lengths() for part in self._read().values()]
        # (heads, 2) -> (2,)
        sequence, step = np.average(lengths, axis=0, weights=shares)
        return float(sequence), float(step)

    def steps_per_epoch(self) -> int:
        """Return as many steps as the training rows of all heads fill batches.

        Mixing decides how many of them are of which head. Those of objectives come in addition.
        """
        return len(self._order)

    def predict_validation(self) -> None:
        """Refuse: the predictions of several heads have no common form.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            "keep_predictions: found true with model.heads, expected false; bertlab predict --head "
            f"NAME predicts with one of {', '.join(self.parts)}"
        )

    def check_division(self, devices: int, accumulate: int) -> None:
        """Raise ConfigError if a step of a head has fewer rows than devices × batches."""
        for name, part in self.parts.items():
            with naming_head(name):
                part.check_division(devices, accumulate)
        super().check_division(devices, accumulate)

    def train_dataloader(self) -> StepLoader:
        """Return the micro-batches of an epoch, each step of one head."""
        for part in self._attached():
            part.train_dataloader()
        steps = {name: part.training_steps for name, part in self._read().items()}
        return self.steps_loader(MixedSteps(steps, self._order))

    def val_dataloader(self) -> list[StepLoader]:
        """Return the evaluation sets of one head after the other, then held-out text."""
        loaders: list[StepLoader] = []
        for part in self._attached():
            if isinstance(part, PretrainingData):
                loaders.append(part.val_dataloader())
            elif part.rows:
                loaders += part.val_dataloader()
        return loaders

    def test_dataloader(self) -> list[StepLoader]:
        """Return the test sets."""
        return self.val_dataloader()

    def samples(self, count: int) -> list[tuple[Sequence[Example], PackedBatch]]:
        """Return at most ``count`` sequences from all over the first set of each head."""
        parts = [part for part in self._attached() if part is not self.text]
        return [sample for part in parts for sample in part.samples(count)]

    def predict_dataloader(self) -> NoReturn:
        """Refuse: one head predicts, and its data is that of a single head."""
        raise ConfigError(f"--head: found none, expected one of {', '.join(self.parts)}")

    @property
    def _trains(self) -> bool:
        """Whether training rows were read."""
        return all("train" in part.encoded for part in self.parts.values())

    @cached_property
    def _order(self) -> StepOrder:
        """Which head each step is of, or whether it is of the objectives."""
        batches = {name: part.steps_per_epoch() for name, part in self.parts.items()}
        return StepOrder(self.mixing.steps(batches, self.text is not None), self.seed)

    def _passes(self, name: str) -> str:
        """Say how often an epoch reads the rows of a head, or the text of objectives."""
        times = self._order.steps[name] / self._read()[name].steps_per_epoch()
        return f"{times:.2f} times its {'text' if name == OBJECTIVES else 'rows'}"

    def _read(self) -> dict[str, LabelledData | PretrainingData]:
        """Return the data of each head, and of the objectives if the command reads their text."""
        text = {OBJECTIVES: self.text} if self.text is not None and self.reads_text else {}
        return {**self.parts, **text}

    def _attached(self) -> Iterator[LabelledData | PretrainingData]:
        """Yield the same, attached to the trainer of the run."""
        for name, part in self._read().items():
            part.trainer = self.trainer
            if self._trains:
                part.share_of_steps = self._order.steps[name] / len(self._order)
            yield part
