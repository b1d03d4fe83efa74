"""The DataModule of fine-tuning: labelled rows for one head."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bertlab.api.batch import IntArray
from bertlab.api.examples import LabelledExamples, Labels
from bertlab.api.task import Head, Task
from bertlab.api.tokenizer import Tokenizer
from bertlab.data.examples.encoded import EncodedExamples, ExampleStream, encode_examples
from bertlab.data.examples.source import read_rows, stream_rows
from bertlab.data.examples.splits import (
    check_classes,
    check_truth,
    fingerprint,
    hold_out,
    locate_split,
    report_split,
    train_split,
    with_clusters,
)
from bertlab.data.inputs import READ_AHEAD, InputRows, texts_for_head
from bertlab.data.loader import StepLoader
from bertlab.data.module import EVALUATION_SEED, EvaluationRows, ReportRow, TaskData
from bertlab.data.rows.files import evaluation_splits, no_test_rows, one_input, unknown_format
from bertlab.data.rows.tables import RowReading
from bertlab.errors import (
    ConfigError,
    DataError,
    check_at_least,
    check_processes,
    check_share,
    nearest,
)
from bertlab.tokenizer.files import load_tokenizer


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
            ``{text_a: question, label: ok}``; numbers (from 0) for files without a header. Several
            columns become one text, ``{text: [title, body]}``, or a list where the head reads one.
        format: of files; ``auto`` goes by the ending.
        delimiter: between the cells of CSV; found by itself: a comma, semicolon, tab or bar.
        quote: around cells of CSV, ``"`` if not given; ``''`` if quotes are ordinary characters.
        header: whether the first line of a table names its columns; found out, if not given.
        empty: rows with an empty text or label are refused, if not given, or left out and counted.
        doubtful: rows that can hardly be meant, such as ids for texts, are refused, if not given,
            or taken as they are.
        label_separator: between the labels in a cell, where a head reads several; found out for the
            whole file, if not given.
        cluster: column of what rows share, such as a speaker; contexts and documents are found.
        label_names: a name for each class as the source writes it, for example ``{0: no, 1: yes}``;
            or all classes in their order, of which training rows may lack some.
        validation_fraction: share of the training rows to hold out.
        tokenizer: ``vocab.txt``, ``tokenizer.json``, a run or a folder; if not given, that of
            ``model.init_from``.
        max_seq_length: longest sequence in tokens, special tokens included.
        batch_size: sequences (multiple choice: rows) in an optimiser step, over all devices and
            accumulated batches.
        group_by_length: batches of sequences of about one length, as in Hugging Face's Trainer.
        num_workers: processes that make batches ahead of the device; 0 makes them in line.
        input: for ``bertlab predict``: a file of rows, labelled or not; ``-`` is standard input.
        input_format: of that file; ``auto`` goes by the ending, standard input is JSON lines.
        bad_rows: rows of ``input`` that cannot be read or predicted on get the reason as ``error``
            in place of a prediction and are counted, if not given, or are refused.
        text: for ``bertlab predict`` in place of ``input``: a text or several.
        text_pair: a second text for each, where the head reads two.
        seed: of the order of rows; ``seed.order`` of a config.
    """

    def __init__(
        self,
        source: str | None = None,
        train: str | None = None,
        validation: str | dict[str, str] | None = None,
        test: str | dict[str, str] | None = None,
        columns: dict[str, str | int | list[str]] | None = None,
        format: str = "auto",
        delimiter: str | None = None,
        quote: str | None = None,
        header: bool | None = None,
        empty: Literal["refuse", "skip"] | None = None,
        doubtful: Literal["refuse", "accept"] | None = None,
        label_separator: str | None = None,
        cluster: str | None = None,
        label_names: list[str] | dict[str, str] | None = None,
        validation_fraction: float = 0.1,
        tokenizer: str | None = None,
        max_seq_length: int = 128,
        batch_size: int = 32,
        group_by_length: bool = False,
        num_workers: int = 0,
        input: str | None = None,
        input_format: str = "auto",
        bad_rows: Literal["report", "refuse"] | None = None,
        text: str | list[str] | None = None,
        text_pair: str | list[str] | None = None,
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
        self.reading = RowReading(
            delimiter,
            quote,
            header,
            skip_empty=empty == "skip",
            label_separator=label_separator,
            accepts_doubtful=doubtful == "accept",
            cluster=cluster,
        )
        self.label_names = label_names
        self.validation_fraction = validation_fraction
        self.tokenizer_path = tokenizer
        self.max_seq_length = max_seq_length
        self.batch_size = batch_size
        self.group_by_length = group_by_length
        self.num_workers = num_workers
        self.input = input
        self.input_format = input_format
        self.keeps_unreadable = bad_rows != "refuse"
        self.text = [text] if isinstance(text, str) else text
        self.text_pair = [text_pair] if isinstance(text_pair, str) else text_pair
        self.seed = seed
        self._check_settings()
        self.tokenizer: Tokenizer | None = None
        self.head_name = ""
        self.head: Head | None = None
        self.rows: dict[str, LabelledExamples] = {}  # "train", and the evaluation sets by name
        self.encoded: dict[str, EncodedExamples] = {}
        self._sequences: dict[str, IntArray] = {}  # how many each row has, by split
        self._held_out = 0  # of the training rows
        self._predicts_validation = False

    def load_tokenizer(self) -> Tokenizer:
        """Load ``tokenizer``."""
        if self.tokenizer_path is None:
            raise ConfigError(
                "data.tokenizer: found none; expected --model.init_from with a model that has one "
                "(vocab.txt or tokenizer.json in its folder), or the path of a tokenizer"
            )
        return load_tokenizer(Path(self.tokenizer_path))

    def connect(self, tokenizer: Tokenizer, tasks: Mapping[str, Task]) -> None:
        """Set the tokenizer that encodes the examples and the head that reads them."""
        self.tokenizer = tokenizer
        ((self.head_name, head),) = tasks.items()
        assert isinstance(head, Head)
        self.head = head
        known = [column.name for column in head.columns]
        for name in self.columns:
            if name not in known:
                place = self.columns[name]
                turned = f"; did you mean {{{place}: {name}}}?" if place in known else ""
                raise ConfigError(
                    f"data.columns: {self.head_name} has no column {name!r}"
                    f"{turned or nearest(name, known)} (it has: {', '.join(known)})"
                )

    def prepare(self, command: str) -> None:
        """Read the splits that a command needs; learn the labels from the training rows."""
        if self.rows:
            return
        splits = partial(evaluation_splits, self.source, self.train_split)
        validation = splits(self.validation_split, "validation")
        if command == "test":
            if (wanted := splits(self.test_split, "test")) is None:
                raise no_test_rows()
            self.rows = {name: self.read_split(split, "test") for name, split in wanted.items()}
        elif command == "validate" and validation is not None:
            self.rows = {name: self.read_split(s, "validation") for name, s in validation.items()}
        else:
            assert self.head is not None
            train = self.read_split(train_split(self.source, self.train_split), "train")
            if validation is None:
                splits_by = self.head.splits_by or self.head.columns[0].name
                rows, fraction = train.rows, self.validation_fraction
                train, held_out = hold_out(train, fraction, self.head.columns, splits_by)
                check_classes(rows, train, self.head, fraction)
                self._held_out = len(held_out.rows)
                held_out_sets = {"": held_out}
            found = [label for row in train.rows for label in self.head.labels_of(row)]
            self.labels = Labels.of(found, train.label_names) if found else None
            if validation is not None:  # its labels are read as those of training are
                held_out_sets = {n: self.read_split(s, "validation") for n, s in validation.items()}
            self.rows = {"train": train, **held_out_sets} if command == "fit" else held_out_sets

    def encode(self) -> None:
        """Encode all rows that were read; the head is built by now."""
        assert self.head is not None
        assert self.tokenizer is not None
        for name, split in self.rows.items():
            if name not in self.encoded:
                self.encoded[name] = encode_examples(
                    self.head, split.rows, self.tokenizer, self.max_seq_length
                )
                self._sequences[name] = np.bincount(self.encoded[name].row_numbers)
                if not self.encoded[name].counts.sum():
                    notes = (f"{note}: {n:,}" for note, n in self.encoded[name].notes.items())
                    raise DataError(
                        f"data: no row of {name or 'validation'} can be used"
                        f"{'; '.join(['', *notes])}; check data.columns and the truth in the rows"
                    )

    def evaluation_sets(self) -> list[EvaluationRows]:
        """Return the rows of each evaluation set, in the order of the config."""
        sets = [(name, split.rows) for name, split in self.rows.items() if name != "train"]
        return [EvaluationRows(name, rows, None, self._sequences) for name, rows in sets]

    def report_tables(self) -> list[tuple[str, list[ReportRow]]]:
        """Return rows, sequences, tokens, labels and what was left out or cut, by split."""
        assert self.head is not None
        tables, held_out = list[tuple[str, list[ReportRow]]](), {"train": self._held_out}
        for name, encoded in self.encoded.items():
            report = report_split(self.rows[name], encoded, self.head, held_out.get(name))
            tables.append((f"labelled data: {name or 'validation'}", report))
        return tables

    def facts(self) -> dict[str, Any]:
        """Return a fingerprint and the number of rows of each split, and the labels."""
        labels = None if self.labels is None else list(self.labels.names)
        splits = {
            name or "validation": {"rows": len(split.rows), "fingerprint": fingerprint(split.rows)}
            for name, split in self.rows.items()
        }
        return {"data": splits, "labels": labels}

    def sequences_per_step(self) -> int:
        """Return ``batch_size``."""
        return self.batch_size

    def mean_lengths(self, steps: float = math.inf) -> tuple[float, float]:
        """Return the mean tokens of a training sequence, and of an optimiser step."""
        del steps
        encoded = self.encoded["train"]
        tokens = len(encoded.input_ids)
        return tokens / (len(encoded.offsets) - 1), tokens / self.steps_per_epoch()

    def steps_per_epoch(self) -> int:
        """Return the optimiser steps that visit every training row once."""
        return math.ceil(len(self.encoded["train"]) / self.batch_size)

    def predict_validation(self) -> None:
        """Let :meth:`predict_dataloader` give the rows of the first evaluation set."""
        self._predicts_validation = True

    def check_division(self, devices: int, accumulate: int) -> None:
        """Also raise ConfigError if there are fewer rows than devices × accumulated batches."""
        super().check_division(devices, accumulate)
        units = len(self.encoded["train"])
        # rows of the smallest step: 10 rows, batch size 4 -> 3 steps of 3, 3 and 4
        if units // math.ceil(units / self.batch_size) < devices * accumulate:
            raise ConfigError(
                f"data: {units} training sequences cannot be divided over {devices} devices × "
                f"{accumulate} accumulated batches"
            )

    def train_dataloader(self) -> StepLoader:
        """Return the micro-batches of an epoch, which visits every row once.

        Its steps are of equal size but for one, so that no last step is small.
        """
        grouping = self.steps_per_epoch() if self.group_by_length else None
        stream = ExampleStream(self.encoded["train"], self.head_name, self.seed, True, grouping)
        return self.training_loader(stream, crosses_epochs=False)

    def val_dataloader(self) -> list[StepLoader]:
        """Return the evaluation sets."""
        streams = [
            ExampleStream(self.encoded[each.name], self.head_name, EVALUATION_SEED, training=False)
            for each in self.evaluation_sets()
        ]
        return [self.evaluation_loader(stream, len(stream)) for stream in streams]

    def test_dataloader(self) -> list[StepLoader]:
        """Return the test sets."""
        return self.val_dataloader()

    def predict_dataloader(self) -> StepLoader:
        """Return the rows of ``input`` or ``text``, read while they are predicted, in order."""
        assert self.head is not None
        assert self.tokenizer is not None
        if self._predicts_validation:
            rows = with_clusters(self.evaluation_sets()[0].rows, self.head.splits_by)
        elif self.input is None:
            rows = texts_for_head(self.text, self.text_pair, self.head.columns)
        else:
            one_input(self.text, self.input)
            given = self.input, self.columns, self.input_format, self.head.columns
            keeps, labels = self.keeps_unreadable, self.head.labels
            reading = replace(self.reading, labels=labels, keeps_unreadable=keeps)
            rows = stream_rows(*given, label_names=self.label_names, reading=reading)
        self.input_rows = InputRows(
            rows,
            self.head,
            self.head_name,
            self.tokenizer,
            self.max_seq_length,
            read_ahead=1 if self.input == "-" else READ_AHEAD,  # who types wants to see
            keeps_unreadable=self.keeps_unreadable and self.input is not None,
        )
        return StepLoader(self.input_rows, 1)

    def read_split(self, split: str, role: str) -> LabelledExamples:
        """Read the rows of a split or file for a role: ``train``, ``validation``, ``test``."""
        assert self.head is not None
        location, name = locate_split(split, self.source, role)
        reading = replace(self.reading, labels=self.labels)
        how = self.columns, self.format, self.head.columns, self.label_names, reading
        read = read_rows(location, name, *how)
        check_truth(read.rows, self.head.columns, role)
        return read

    def _check_settings(self) -> None:
        check_at_least("data.max_seq_length", self.max_seq_length, 1)
        check_at_least("data.batch_size", self.batch_size, 1)
        check_processes("data.num_workers", self.num_workers, 0)
        check_share("data.validation_fraction", self.validation_fraction, ends=False)
        for name in ("delimiter", "quote"):
            found = getattr(self.reading, name)
            if found and (len(found) > 1 or found in "\r\n"):
                raise ConfigError(f"data.{name}: found {found!r}, expected one character")
        for name in ("format", "input_format"):
            if (reason := unknown_format(getattr(self, name))) is not None:
                raise ConfigError(f"data.{name}: {reason}")
