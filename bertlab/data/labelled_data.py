"""The DataModule of fine-tuning: labelled rows for one head."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bertlab.data.counter_rng import CounterRNG
from bertlab.data.encoded_rows import EncodedRows, RowStream, encode_rows
from bertlab.data.labelled_source import FORMATS, read_rows, stream_rows
from bertlab.data.pretraining_data import EVALUATION_SEED
from bertlab.data.step_loader import StepDataset, StepLoader, StepSampler
from bertlab.data.task_data import ReportRow, TaskData
from bertlab.data.tokenizer import WordPieceTokenizer
from bertlab.errors import ConfigError, DataError, nearest
from bertlab.heads.base import Head
from bertlab.labelled_rows import LabelledRows, Labels, Row
from bertlab.packed_batch import PackedBatch
from bertlab.tasks import Task

PREDICT_ROWS = 32  # that are read, encoded and predicted together
_SHOWN_LABELS = 8


class LabelledData(TaskData):
    """Packed batches from labelled rows.

    Args:
        source: where all splits come from: ``hf:NAME`` or ``hf:NAME/CONFIG`` of ``datasets``, a
            folder of split files, ``python-english:NAME``, or one file. Leave it out where
            ``train``, ``validation`` and ``test`` are files.
        train: split of ``source`` or file to train on.
        validation: split or file to evaluate on while training; or several, by name. Where there
            is none, ``validation_fraction`` of the training rows is held out.
        test: split or file for ``bertlab test``; or several, by name.
        columns: the source's column for each of the head's, for example
            ``{text_a: question, label: ok}``; numbers (from 0) for files without a header.
        format: of files; ``auto`` goes by the ending.
        label_names: a name for each class as the source writes it, for example ``{0: no, 1: yes}``.
        validation_fraction: share of the training rows to hold out.
        tokenizer: ``vocab.txt``, ``tokenizer.json`` or a folder with one; if not given, that of
            ``model.init_from``.
        max_seq_length: longest sequence in tokens, special tokens included.
        batch_size: sequences (multiple choice: rows) in an optimiser step, over all devices and
            accumulated batches.
        group_by_length: batches of sequences of about one length, as in Hugging Face's Trainer.
        num_workers: processes that make batches ahead of the device; 0 makes them in line.
        input: for ``bertlab predict``: a file of rows, labelled or not; ``-`` is standard input.
        input_format: of that file; ``auto`` goes by the ending, standard input is JSON lines.
        seed: of the order of rows; linked to ``seed_everything``.
    """

    def __init__(
        self,
        source: str | None = None,
        train: str | None = None,
        validation: str | dict[str, str] | None = None,
        test: str | dict[str, str] | None = None,
        columns: dict[str, str | int | list[str]] | None = None,
        format: str = "auto",
        label_names: list[str] | dict[str, str] | None = None,
        validation_fraction: float = 0.1,
        tokenizer: str | None = None,
        max_seq_length: int = 128,
        batch_size: int = 32,
        group_by_length: bool = False,
        num_workers: int = 0,
        input: str | None = None,
        input_format: str = "auto",
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.source = source
        self.train_split = train
        self.validation_split = validation
        self.test_split = test
        self.columns: dict[str, str | list[str]] = {
            name: str(given) if isinstance(given, int) else given
            for name, given in (columns or {}).items()
        }
        self.format = format
        self.label_names = label_names
        self.validation_fraction = validation_fraction
        self.tokenizer_path = tokenizer
        self.max_seq_length = max_seq_length
        self.batch_size = batch_size
        self.group_by_length = group_by_length
        self.num_workers = num_workers
        self.input = input
        self.input_format = input_format
        self.seed = seed
        self._check_settings()
        self.tokenizer: WordPieceTokenizer | None = None
        self.head_name = ""
        self.head: Head | None = None
        self.rows: dict[str, LabelledRows] = {}  # "train", and the evaluation sets by name
        self.encoded: dict[str, EncodedRows] = {}
        self._predicting: dict[int, Row] = {}
        self._rows_read = 0

    def load_tokenizer(self) -> WordPieceTokenizer:
        """Load ``tokenizer``."""
        if self.tokenizer_path is None:
            raise ConfigError(
                "data.tokenizer: found none; expected --model.init_from with a pre-trained model, "
                "or a tokenizer for an encoder from scratch"
            )
        return WordPieceTokenizer.load(Path(self.tokenizer_path))

    def connect(self, tokenizer: WordPieceTokenizer, tasks: Mapping[str, Task]) -> None:
        """Say which tokenizer encodes the rows and which head reads them.

        Raises:
            ConfigError: if ``columns`` names a column that the head does not have.
        """
        self.tokenizer = tokenizer
        ((self.head_name, head),) = tasks.items()
        assert isinstance(head, Head)
        self.head = head
        known = [column.name for column in head.columns]
        for name in self.columns:
            if name not in known:
                raise ConfigError(
                    f"data.columns: {self.head_name} has no column {name!r}{nearest(name, known)} "
                    f"(it has: {', '.join(known)})"
                )

    def prepare(self, command: str) -> None:
        """Read the splits that a command needs; learn the labels from the training rows.

        Raises:
            DataError: if a split cannot be read, or a row lacks the truth.
        """
        if self.rows:
            return
        validation = self._named(self.validation_split, "validation")
        if command == "test":
            wanted = self._named(self.test_split, "test")
            if wanted is None:
                raise ConfigError("data.test: found none, expected a split or file to score")
            self.rows = {name: self._read(split, "test") for name, split in wanted.items()}
        elif command == "validate" and validation is not None:
            self.rows = {name: self._read(s, "validation") for name, s in validation.items()}
        else:
            train = self._read(self._train_split(), "train")
            if validation is None:
                train, held_out = self._hold_out(train)
                held_out_sets = {"": held_out}
            else:
                held_out_sets = {n: self._read(s, "validation") for n, s in validation.items()}
            self.labels = self._learn_labels(train)
            self.rows = {"train": train, **held_out_sets} if command == "fit" else held_out_sets

    def encode(self) -> None:
        """Encode all rows that were read; the head is built by now."""
        assert self.head is not None
        assert self.tokenizer is not None
        for name, split in self.rows.items():
            if name not in self.encoded:
                self.encoded[name] = encode_rows(
                    self.head, split.rows, self.tokenizer, self.max_seq_length
                )
                if not len(self.encoded[name]):
                    raise DataError(f"data: no row of {name or 'validation'} can be used")

    def evaluation_rows(self) -> dict[str, Sequence[Row]]:
        """Return the rows of each evaluation set by its name."""
        return {name: split.rows for name, split in self.rows.items() if name != "train"}

    @property
    def first_evaluation(self) -> str:
        """Name of the evaluation set that decides which checkpoint is best."""
        return next(iter(self._named(self.validation_split, "validation") or {"": ""}))

    def report_tables(self) -> list[tuple[str, list[ReportRow]]]:
        """Return rows, sequences, tokens, labels and what was left out or cut, by split."""
        return [
            (f"labelled data: {name or 'validation'}", self._report(self.rows[name], encoded))
            for name, encoded in self.encoded.items()
        ]

    def facts(self) -> dict[str, Any]:
        """Return a fingerprint and the number of rows of each split, and the labels."""
        labels = None if self.labels is None else list(self.labels.names)
        splits = {
            name or "validation": {"rows": len(split.rows), "fingerprint": _fingerprint(split.rows)}
            for name, split in self.rows.items()
        }
        return {"data": splits, "labels": labels}

    def sequences_per_step(self) -> int:
        """Return ``batch_size``."""
        return self.batch_size

    def check_division(self, devices: int, accumulate: int) -> None:
        """Also raise ConfigError if there are fewer rows than devices × accumulated batches."""
        super().check_division(devices, accumulate)
        units = len(self.encoded["train"])
        if units // math.ceil(units / self.batch_size) < devices * accumulate:
            raise ConfigError(
                f"data: {units} training sequences cannot be divided over {devices} devices × "
                f"{accumulate} accumulated batches"
            )

    def train_dataloader(self) -> StepLoader:
        """Return the micro-batches of an epoch, which visits every row once.

        Its steps are of equal size but for one, so that no last step is small.
        """
        assert self.trainer is not None
        trainer = self.trainer
        grouping = self.batch_size if self.group_by_length else None
        encoded = self.encoded["train"]
        steps = math.ceil(len(encoded) / self.batch_size)
        dataset = StepDataset(
            RowStream(encoded, self.head_name, self.seed, True, grouping),
            batch_size=self.batch_size,
            accumulate=trainer.accumulate_grad_batches,
            rank=trainer.global_rank,
            world_size=trainer.world_size,
            steps_per_epoch=steps,
        )
        sampler = StepSampler(steps, lambda: trainer.global_step)
        return StepLoader(self.loader(dataset, sampler), trainer.accumulate_grad_batches)

    def val_dataloader(self) -> list[StepLoader]:
        """Return the evaluation sets."""
        return [self._evaluation_loader(name) for name in self.evaluation_rows()]

    def test_dataloader(self) -> list[StepLoader]:
        """Return the test sets."""
        return self.val_dataloader()

    def predict_dataloader(self) -> StepLoader:
        """Return the rows of ``input``, read while they are predicted, in their order.

        Raises:
            ConfigError: if there is no input.
        """
        if self.input is None:
            raise ConfigError("data.input: found none, expected a file of rows, or - for stdin")
        return StepLoader(_Lazily(self._predicted_batches), 1)

    def take_row(self, number: int) -> Row:
        """Return a row that is being predicted, and forget it."""
        return self._predicting.pop(number)

    def rows_taken_in(self) -> int:
        """Return how many rows of ``input`` have been read."""
        return self._rows_read

    def _predicted_batches(self) -> Iterator[list[PackedBatch]]:
        assert self.input is not None
        assert self.head is not None
        assert self.tokenizer is not None
        rows = stream_rows(self.input, self.columns, self.input_format, self.head.columns)
        while chunk := list(islice(rows, PREDICT_ROWS)):
            start = self._rows_read
            self._predicting |= {start + number: row for number, row in enumerate(chunk)}
            self._rows_read += len(chunk)
            encoded = encode_rows(self.head, chunk, self.tokenizer, self.max_seq_length)
            if len(encoded):
                batch, _ = encoded.batch(np.arange(len(encoded)), self.head_name)
                batch.fields["row"] += start
                yield [batch]

    def _evaluation_loader(self, name: str) -> StepLoader:
        assert self.trainer is not None
        trainer = self.trainer
        encoded = self.encoded[name]
        batch_size = max(trainer.world_size, self.batch_size // trainer.accumulate_grad_batches)
        dataset = StepDataset(
            RowStream(encoded, self.head_name, EVALUATION_SEED, training=False),
            batch_size=batch_size,
            rank=trainer.global_rank,
            world_size=trainer.world_size,
            length=len(encoded),
        )
        sampler = StepSampler(math.ceil(len(encoded) / batch_size), lambda: 0)
        return StepLoader(self.loader(dataset, sampler), 1)

    def _read(self, split: str, role: str) -> LabelledRows:
        assert self.head is not None
        location, name = self._locate(split, role)
        read = read_rows(
            location, name, self.columns, self.format, self.head.columns, self.label_names
        )
        truth = [column.name for column in self.head.columns if column.is_truth and column.required]
        for row in read.rows:
            for column in truth:
                if column not in row.values:
                    raise DataError(
                        f"{row.where}: {column}: missing; every row of data.{role} is labelled"
                    )
        return read

    def _locate(self, split: str, role: str) -> tuple[str, str | None]:
        """Return the location of a split, and its name there; a file stands for itself."""
        if split == self.source:
            return split, None
        if Path(split).exists() or self.source is None or split.startswith("hf:"):
            return split, None
        if self._source_is_file():
            raise DataError(f"data.{role}: {split}: no such file")
        return self.source, split

    def _train_split(self) -> str:
        if self.train_split is not None:
            return self.train_split
        if self.source is None:
            raise ConfigError("data.source: found none; expected labelled rows, or data.train")
        return self.source if self._source_is_file() else "train"

    def _named(self, given: str | dict[str, str] | None, default: str) -> dict[str, str] | None:
        """Return splits by name; a single one has none. None: there is no such split."""
        if isinstance(given, dict):
            return given
        if given is not None:
            return {"": given}
        if self.source is None or self._source_is_file() or self.train_split is not None:
            return None
        return {"": default}

    def _source_is_file(self) -> bool:
        return self.source is not None and Path(self.source).is_file()

    def _hold_out(self, train: LabelledRows) -> tuple[LabelledRows, LabelledRows]:
        """Split the same rows off in every run; rows that share a text stay together."""
        assert self.head is not None
        column = self.head.splits_by or self.head.columns[0].name
        keys = [json.dumps(row.values[column], ensure_ascii=False) for row in train.rows]
        groups = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        rng = CounterRNG(EVALUATION_SEED, "held-out rows")
        places = rng.permute(np.arange(len(groups)), len(groups))
        sizes = np.bincount(places[[groups[key] for key in keys]], minlength=len(groups))
        held_groups = np.searchsorted(sizes.cumsum(), self.validation_fraction * len(keys)) + 1
        kept, held = LabelledRows([], train.label_names), LabelledRows([], train.label_names)
        kept.skipped = train.skipped
        for key, row in zip(keys, train.rows, strict=True):
            (held if places[groups[key]] < held_groups else kept).rows.append(row)
        if not kept.rows or not held.rows:
            raise DataError(
                f"data.validation_fraction: {len(keys)} rows with {len(groups)} different values "
                f"of {column} cannot be divided; give data.validation"
            )
        return kept, held

    def _learn_labels(self, train: LabelledRows) -> Labels | None:
        assert self.head is not None
        found = [label for row in train.rows for label in self.head.labels_of(row)]
        return Labels.of(found, train.label_names) if found else None

    def _report(self, split: LabelledRows, encoded: EncodedRows) -> list[ReportRow]:
        assert self.head is not None
        lengths = np.diff(encoded.offsets)
        report = [
            ("rows", f"{len(split.rows):,}"),
            ("sequences", f"{len(lengths):,}"),
            ("tokens", f"{lengths.sum():,} (longest {lengths.max()})"),
        ]
        counts = Counter(label for row in split.rows for label in self.head.labels_of(row))
        if counts:
            shown = [f"{name} {count:,}" for name, count in counts.most_common(_SHOWN_LABELS)]
            more = [f"{len(counts) - _SHOWN_LABELS} more"] if len(counts) > len(shown) else []
            report.append(("labels", ", ".join(shown + more)))
        cut = encoded.truncated
        if cut.any():
            report.append(("truncated", f"{(cut > 0).sum():,} sequences, {cut.sum():,} tokens"))
        report += [(f"left out: {reason}", f"{n:,} rows") for reason, n in split.skipped.items()]
        report += [(note, f"{number:,}") for note, number in encoded.notes.items()]
        return report

    def _check_settings(self) -> None:
        for name in ("max_seq_length", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"data.{name}: found {getattr(self, name)}, expected 1 or more")
        if self.num_workers < 0:
            raise ConfigError(f"data.num_workers: found {self.num_workers}, expected 0 or more")
        if not 0 < self.validation_fraction < 1:
            raise ConfigError(
                f"data.validation_fraction: found {self.validation_fraction}, expected between "
                "0 and 1, both excluded"
            )
        for name in ("format", "input_format"):
            found = getattr(self, name)
            if found not in FORMATS:
                raise ConfigError(
                    f"data.{name}: found {found!r}{nearest(found, FORMATS)} "
                    f"(there are: {', '.join(FORMATS)})"
                )


class _Lazily:
    """Batches made while they are asked for; how many is not known before."""

    def __init__(self, make: Callable[[], Iterator[list[PackedBatch]]]) -> None:
        self.make = make

    def __iter__(self) -> Iterator[list[PackedBatch]]:
        return self.make()


def _fingerprint(rows: Sequence[Row]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(dict(row.values), sort_keys=True, default=str).encode() + b"\n")
    return digest.hexdigest()
