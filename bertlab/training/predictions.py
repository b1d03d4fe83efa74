"""Predictions in the user's terms, written while they are made."""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback, LightningModule, Trainer

from bertlab.api.batch import PackedBatch
from bertlab.api.examples import Example
from bertlab.api.format import NamedFormat, Submission
from bertlab.api.task import Head
from bertlab.data.examples.source import LEFT_OUT, UnreadableRow
from bertlab.data.module import TaskData
from bertlab.data.rows.files import TABLE_FORMS, output_form
from bertlab.errors import ConfigError, DataError, OutputError, TrainerError, nearest, warn
from bertlab.files import WholeFile
from bertlab.plugins.hooks import first_result
from bertlab.plugins.index import installed, make_alone, where_to_get

if TYPE_CHECKING:
    from bertlab.api.format import PredictionFile

# JSON itself escapes those below 32; the last two end a line for some readers
_CONTROLS = re.compile("[\x7f-\x9f\u2028\u2029]")


def json_line(content: object) -> str:
    """Return one line of JSON; what JSON does not have, such as a date, is a text."""
    # arrays, and numbers of NumPy and PyTorch, are what they hold
    text = json.dumps(
        content, ensure_ascii=False, default=lambda each: getattr(each, "tolist", each.__str__)()
    )
    # "\x9b" begins a terminal's commands as "\x1b[" does
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


class JsonLines:
    """Writes a line of JSON for each row, to a file or to standard output."""

    def __init__(self, output: Path | None = None) -> None:
        self.file = None if output is None else WholeFile(output)

    def write(self, row: Mapping[str, Any]) -> None:
        """Write a row."""
        (self.file or sys.stdout).write(json_line(row))

    def close(self) -> None:
        """Finish the file, or flush."""
        finish = sys.stdout.flush if self.file is None else self.file.close
        finish()

    def discard(self) -> None:
        """Leave no file."""
        if self.file is not None:
            self.file.discard()


def _open_rows(output: Path | None, form: str) -> "PredictionFile | None":
    """Return what writes rows in a form, of a package or JSON lines; None if none has it."""
    found: PredictionFile | None = None
    try:
        if output is not None:
            found = first_result("bertlab_prediction_file", path=output, form=form)
        if found is None and form == "jsonl":
            return JsonLines(output)
    except OutputError as error:
        raise OutputError(f"--output: {error}") from None
    return found


class RowFile:
    """A row for each row of input: its columns, what was predicted, and ``gold``, the truth."""

    def __init__(
        self,
        file: "PredictionFile",
        truth: Iterable[str] = (),
        top_k: int | None = None,
        mask: str | None = "[MASK]",
    ) -> None:
        self.rows = self.predicted = 0
        self.file = file
        self.prints = isinstance(file, JsonLines) and file.file is None  # to standard output
        self.truth = frozenset(truth)
        self.top_k = top_k
        self.mask = mask
        self.made = {"error", "gold"}  # names of what is predicted, in any row
        self._names: dict[str, str] = {}  # by column of the input, the same in all rows
        self._taken: set[str] = set()

    def write(self, row: Example, prediction: Mapping[str, Any]) -> None:
        """Write a row."""
        self.rows += 1
        self.predicted += any(found not in ([], {}) for found in prediction.values())
        gold = {name: value for name, value in row.values.items() if name in self.truth}
        made = {**_six_digits(_best(prediction, self.top_k)), **({"gold": gold} if gold else {})}
        given = row.row or {k: value for k, value in row.values.items() if k not in self.truth}
        made |= {"cluster": row.cluster} if row.cluster else {}
        self.made |= made.keys()
        kept = {self._free_name(key, given): value for key, value in given.items()}
        self.file.write({**kept, **made})

    def _free_name(self, key: str, given: Mapping[str, Any]) -> str:
        """Return the name of a column of the input: input_score where a score is predicted."""
        name = self._names.get(key, key)
        if key not in self._names or name in self.made:
            while name in self.made or name in self._taken or (name != key and name in given):
                name = f"input_{name}"
            self._names[key] = name
            self._taken.add(name)
        return name

    def close(self) -> None:
        """Finish the file, or flush."""
        if self.rows and not self.predicted:
            warn(f"nothing was predicted: no text has a {self.mask} to fill in")
        self.file.close()

    def discard(self) -> None:
        """Leave no file."""
        self.file.discard()


PredictionSink = RowFile | Submission
"""Takes the predictions of rows, in order."""


class PredictionWriter(Callback):
    """Writes predictions in the order of the input, each as soon as it is its turn."""

    sink: PredictionSink
    data: TaskData
    head: Head | None
    next_row: int
    done: dict[int, tuple[Example, Mapping[str, Any]]]  # by number, those that wait for others
    unreadable: list[str]  # reasons

    @property
    def exit_code(self) -> int:
        """Exit code of ``predict``: 3 if rows have an error in place of a prediction."""
        return 3 if self.unreadable else 0

    @contextmanager
    def into(self, sink: PredictionSink, data: TaskData, head: Head | None) -> Iterator[None]:
        """Write the predictions of the block; close the sink, or discard it after an error."""
        self.sink, self.data, self.head = sink, data, head
        self.next_row, self.done, self.unreadable = 0, {}, []
        try:
            yield
            if self.unreadable and len(self.unreadable) == self.next_row:
                raise DataError(self.unreadable[0])  # of all rows
        except BaseException:  # Ctrl-C too
            sink.discard()
            raise
        sink.close()
        if self.unreadable:
            warn(
                f"{len(self.unreadable):,} of {self.next_row:,} rows have an error in place of a "
                f"prediction: {self.unreadable[0]}; data.bad_rows: refuse stops at the first"
            )

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse to leave rows out."""
        del pl_module
        limit = trainer.limit_predict_batches
        if stage == "predict" and (isinstance(limit, int) or limit < 1):  # 1 is a batch, 1.0 all
            keys = "trainer.limit_predict_batches, fast_dev_run"
            raise TrainerError(f"{keys}: rows would be left out; give a file of fewer rows")

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show no line of progress among predictions on standard output."""
        del pl_module
        bar = trainer.progress_bar_callback
        if isinstance(self.sink, RowFile) and self.sink.prints and bar is not None:
            bar.disable()

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
            self.done[number] = self._predicted(number, [part for _, part in group])
            if isinstance(self.sink, RowFile):  # so that rows with an error before it know them
                self.sink.made |= self.done[number][1].keys()
        self._write_next()

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the rows that are left."""
        del trainer, pl_module
        self._write_next()

    def _write_next(self) -> None:
        """Write up to the first row that is still to be predicted; some rows gave no sequence."""
        rows = self.data.input_rows
        assert rows is not None
        # rows 0 and 2 are done, 1 is not: write 0, keep 2 until 1 is there
        while self.next_row < rows.taken_in:
            if self.next_row not in self.done:
                if rows.has_sequences(self.next_row):
                    return
                self.done[self.next_row] = self._predicted(self.next_row)
            row, prediction = self.done.pop(self.next_row)
            self.next_row += 1
            if isinstance(row, UnreadableRow):
                if row.reason != LEFT_OUT:
                    self.unreadable.append(row.reason)
                if isinstance(self.sink, Submission):  # has no place for a reason, a line for each
                    where = f"{row.where}: " if row.reason == LEFT_OUT else ""
                    raise DataError(f"{where}{row.reason}")
            self.sink.write(row, prediction)

    def _predicted(
        self, number: int, parts: Sequence[dict[str, Any]] = ()
    ) -> tuple[Example, Mapping[str, Any]]:
        """Take a row with its prediction, of those of its sequences, or with its error."""
        assert self.data.input_rows is not None
        row = self.data.input_rows.take(number)
        if isinstance(row, UnreadableRow):
            return row, {"error": row.reason}
        return row, parts[0] if self.head is None else self.head.merge(row, parts)


def open_sink(
    output: str | None,
    form: str,
    head: Head | None,
    top_k: int | None = None,
    read_from: str | None = None,
    mask: str | None = "[MASK]",
) -> PredictionSink:
    """Return the sink for a form of output."""
    if output is not None and read_from is not None:
        file, given = Path(output).expanduser(), Path(read_from).expanduser()
        if given.is_file() and file.is_file() and file.samefile(given):
            raise OutputError(f"--output: {output}: is the input, expected a file of its own")
    form = output_form(output) if form == "auto" else form
    rows = _open_rows(None if output is None else Path(output).expanduser(), form)
    if rows is not None:
        columns = () if head is None else head.columns
        return RowFile(rows, [each.name for each in columns if each.is_truth], top_k, mask)
    if output is None:
        raise ConfigError(f"--output_format {form}: expected --output with the file to write")
    return _open_submission(form, output)


def _open_submission(form: str, output: str) -> Submission:
    """Open a file in a benchmark's form; in a folder it gets the name that its server wants."""
    names = installed("format")
    named = make_alone("format", form, NamedFormat) if form in names else None
    if named is None or named.submission is None:
        kind = "output_format" if form in TABLE_FORMS else "format"
        get = where_to_get(kind, form) or nearest(form, names)
        found = f"found {form!r}{get}" if named is None else f"{form} has no form of submission"
        told = f"--output_format: {found}; expected jsonl"
        raise DataError(f"{told}, {', '.join(TABLE_FORMS)} or the name of a benchmark that has one")
    place = Path(output).expanduser()
    if place.is_dir() or output.endswith("/"):
        if named.submission_file is None:
            raise OutputError(f"{output}: is a folder, expected the name of a file for {form}")
        place /= named.submission_file
    return named.submission(place, named)


def _six_digits(value: Any) -> Any:  # noqa: ANN401  JSON
    if isinstance(value, dict):
        return {key: _six_digits(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_six_digits(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _best(prediction: Mapping[str, Any], top_k: int | None) -> dict[str, Any]:
    """Return a prediction with the ``top_k`` best of its classes or answers, best first."""
    found = dict(prediction)
    if top_k is None:
        return found
    scores, answers = found.get("scores"), found.get("n_best")
    if isinstance(scores, dict):
        best = sorted(scores, key=lambda name: -scores[name])[:top_k]
        found["scores"] = {name: scores[name] for name in best}
    if isinstance(answers, list):
        found["n_best"] = answers[:top_k]
    return found
