"""Predictions in the user's terms, written while they are made."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from lightning.pytorch import Callback, LightningModule, Trainer

from bertlab.api.batch import PackedBatch
from bertlab.api.examples import Example
from bertlab.api.head import Head
from bertlab.data.examples.submissions import open_submission
from bertlab.data.module import TaskData
from bertlab.errors import ConfigError, OutputError
from bertlab.files import WholeFile


class PredictionSink(Protocol):
    """Takes the predictions of rows, in order."""

    def write(self, row: Example, prediction: Mapping[str, Any]) -> None:
        """Take one row's."""

    def close(self) -> None:
        """Finish the file."""

    def discard(self) -> None:
        """Leave no file: there was an error."""


class JsonLines:
    """One JSON object a row: its columns, what was predicted, and the truth under ``gold``.

    Args:
        output: file to write, which is there when it is whole; standard output if None.
        truth: names of the columns that hold the truth.

    Raises:
        OutputError: if the file cannot be written.
    """

    def __init__(self, output: str | None, truth: Iterable[str] = ()) -> None:
        self.truth = frozenset(truth)
        try:
            self.file = None if output is None else WholeFile(Path(output))
        except OutputError as error:
            raise OutputError(f"--output: {error}") from None

    def write(self, row: Example, prediction: Mapping[str, Any]) -> None:
        """Write a line."""
        given = {name: value for name, value in row.values.items() if name not in self.truth}
        gold = {name: value for name, value in row.values.items() if name in self.truth}
        line = {**given, **prediction, **({"gold": gold} if gold else {})}
        (self.file or sys.stdout).write(json.dumps(line, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """Finish the file, or flush."""
        if self.file is None:
            sys.stdout.flush()
        else:
            self.file.close()

    def discard(self) -> None:
        """Leave no file."""
        if self.file is not None:
            self.file.discard()


class PredictionWriter(Callback):
    """Writes predictions in the order of the input, each as soon as it is its turn."""

    def __init__(self) -> None:
        self.sink: PredictionSink | None = None
        self.data: TaskData | None = None
        self.head: Head | None = None
        self.next_row = 0
        self.done: dict[int, list[dict[str, Any]]] = {}  # by row, of those that wait for others

    @contextmanager
    def into(self, sink: PredictionSink, data: TaskData, head: Head | None) -> Iterator[None]:
        """Write the predictions of the block; close the sink, or discard it after an error.

        Args:
            sink: takes them.
            data: gives the rows.
            head: merges the predictions of a row's sequences; None for objectives.
        """
        self.sink, self.data, self.head = sink, data, head
        self.next_row, self.done = 0, {}
        try:
            yield
        except BaseException:  # Ctrl-C too
            sink.discard()
            raise
        sink.close()

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401  as Lightning has it
        batch: PackedBatch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Write what is next; a batch holds all sequences of its rows."""
        del trainer, pl_module, batch_idx, dataloader_idx
        predicted: Sequence[dict[str, Any]] = outputs
        numbered = zip(batch.fields["row"].tolist(), predicted, strict=True)
        # rows [4, 4, 7] -> done[4] of two parts, done[7] of one
        for number, group in groupby(numbered, key=lambda pair: pair[0]):
            self.done[number] = [part for _, part in group]
        self._write_next()

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the rows that are left."""
        del trainer, pl_module
        self._write_next()

    def _write_next(self) -> None:
        """Write up to the first row that is still to be predicted; some rows gave no sequence."""
        assert self.sink is not None
        assert self.data is not None
        # rows 0 and 2 are done, 1 is not: write 0, keep 2 until 1 is there
        while self.next_row < self.data.rows_taken_in():
            if self.next_row not in self.done and self.data.has_sequences(self.next_row):
                return
            parts = self.done.pop(self.next_row, [])
            row = self.data.take_row(self.next_row)
            prediction = parts[0] if self.head is None else self.head.merge(row, parts)
            self.sink.write(row, prediction)
            self.next_row += 1


def open_sink(output: str | None, form: str, head: Head | None) -> PredictionSink:
    """Return the sink for a form of output.

    Args:
        output: file to write; None for standard output.
        form: ``jsonl``, or a benchmark whose submission is written.
        head: whose predictions they are; None for objectives.

    Raises:
        ConfigError: if a submission has no file to be written to.
        OutputError: if the file cannot be written.
        DataError: if there is no such form.
    """
    if form == "jsonl":
        columns = () if head is None else head.columns
        return JsonLines(output, [column.name for column in columns if column.is_truth])
    if output is None:
        raise ConfigError(f"--output_format {form}: expected --output with the file to write")
    return open_submission(form, output)
