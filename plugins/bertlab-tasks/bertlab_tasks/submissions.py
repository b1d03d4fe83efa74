"""Predictions in the forms that the benchmarks' servers and scorers read.

Usage::

    with open_submission("mnli", "submission/") as submission:
        submission.write(row, prediction)
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bertlab.api.examples import Example
from bertlab.data.examples.checks import ordered_names
from bertlab.errors import DataError, OutputError, nearest
from bertlab.files import WholeFile, explain_failed_write, write_text
from bertlab_tasks.benchmarks import BENCHMARKS, Benchmark

SUBMISSION_FORMS: tuple[str, ...] = tuple(
    name for name, benchmark in BENCHMARKS.items() if benchmark.submission
)
"""Benchmarks that predictions can be written for."""

_GAP = re.compile(r"\s")


class Submission(ABC):
    """Writes predictions in order; the file appears, whole, when it is closed.

    As a context manager it closes itself, or leaves nothing behind if there was an error.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = WholeFile(path)

    @abstractmethod
    def write(self, row: Example, prediction: Mapping[str, Any]) -> None:
        """Write the prediction of the next row.

        Raises:
            DataError: the prediction or the row does not suit the form.
            OutputError: the disk is full.
        """

    def close(self) -> None:
        """Finish the file and put it in its place.

        Raises:
            OutputError: if it cannot be written.
        """
        self._file.close()

    def discard(self) -> None:
        """Leave no file."""
        self._file.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.discard()
            return
        try:
            self.close()
        except BaseException:
            self.discard()
            raise


class _GlueSubmission(Submission):
    """``index``, ``prediction``: class ids or names as the task's sample submission, or scores."""

    def __init__(self, path: Path, benchmark: Benchmark) -> None:
        super().__init__(path)
        self._form = benchmark.submission
        self._names = ordered_names(benchmark.label_names or ())
        self._count = 0
        self._file.write("index\tprediction\n")

    def write(self, row: Example, prediction: Mapping[str, Any]) -> None:
        self._file.write(f"{self._count}\t{self._value(row, prediction)}\n")
        self._count += 1

    def _value(self, row: Example, prediction: Mapping[str, Any]) -> str:
        if self._form == "scores":
            score = float(_get(prediction, "score", row))
            return f"{min(max(score, 0.0), 5.0):.6f}"
        label = str(_get(prediction, "label", row))
        numbers = [str(number) for number in range(len(self._names))]
        if label in numbers:  # of a model that was trained on the numbers
            label = self._names[int(label)]
        if label not in self._names:
            raise DataError(
                f"{row.where}: predicted {label!r}{nearest(label, self._names)}, but {self.path} "
                f"takes {', '.join(self._names)}; the model was trained on other labels"
            )
        return label if self._form == "names" else str(self._names.index(label))


class _SquadSubmission(Submission):
    """``{id: answer}``, and ``{id: odds}`` of no answer beside it if they are predicted."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._answers: dict[str, str] = {}
        self._odds: dict[str, float] = {}

    def write(self, row: Example, prediction: Mapping[str, Any]) -> None:
        name = row.values.get("id")
        if name is None or name in self._answers:
            found = "no id" if name is None else f"id {name!r} for the second time"
            raise DataError(f"{row.where}: found {found}; {self.path} needs an id of each question")
        self._answers[name] = _get(prediction, "answer", row) or ""
        if prediction.get("null_odds") is not None:
            self._odds[name] = prediction["null_odds"]

    def close(self) -> None:
        self._file.write(_json(self._answers))
        super().close()
        if self._odds:
            path = self.path.with_name(f"{self.path.stem}.null_odds.json")
            with explain_failed_write(f"{path}: cannot be written"):
                write_text(path, _json(self._odds))


class _ConllSubmission(Submission):
    """Word, gold tag if there is one, predicted tag, with a space between, as for ``conlleval``."""

    def write(self, row: Example, prediction: Mapping[str, Any]) -> None:
        words = row.values["words"]
        columns = [words, _get(prediction, "tags", row)]
        if "tags" in row.values:
            columns.insert(1, row.values["tags"])
        if any(len(column) != len(words) for column in columns):
            counts = ", ".join(str(len(column)) for column in columns)
            raise DataError(f"{row.where}: as many tags as words are needed, found {counts}")
        for cells in zip(*columns, strict=True):
            for cell in cells:
                if not cell or _GAP.search(cell):
                    raise DataError(
                        f"{row.where}: found {cell!r}, but {self.path} parts words and tags by "
                        "spaces; mend it, or write predictions as JSON lines"
                    )
            self._file.write(" ".join(cells) + "\n")
        self._file.write("\n")


class _ChoiceSubmission(Submission):
    """A column ``pred`` with the number of the chosen ending."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._file.write("pred\n")

    def write(self, row: Example, prediction: Mapping[str, Any]) -> None:
        self._file.write(f"{int(_get(prediction, 'label', row))}\n")


def open_submission(form: str, path: str | Path) -> Submission:
    """Open a file for predictions in a benchmark's form.

    ``cola`` and the other tasks of GLUE: TSV with ``index`` (from 0, in the order of writing) and
    ``prediction``; scores of STS-B are brought into 0 to 5. ``squad``: JSON of answers by id, and
    ``NAME.null_odds.json`` beside it. ``conll``: columns. ``swag``, ``codah``: CSV.

    Args:
        form: one of ``SUBMISSION_FORMS``.
        path: the file; or a folder, in which GLUE's files get the names that its server wants.

    Raises:
        DataError: unknown form.
        OutputError: the file cannot be written.
    """
    if form not in SUBMISSION_FORMS:
        raise DataError(
            f"{path}: submission: found {form!r}{nearest(form, SUBMISSION_FORMS)}, expected one of "
            f"{', '.join(SUBMISSION_FORMS)}"
        )
    benchmark = BENCHMARKS[form]
    place = Path(path).expanduser()
    if place.is_dir() or str(path).endswith("/"):
        if benchmark.submission_file is None:
            raise OutputError(f"{path}: is a folder, expected the name of a file for {form}")
        place /= benchmark.submission_file
    match benchmark.submission:
        case "squad":
            return _SquadSubmission(place)
        case "conll":
            return _ConllSubmission(place)
        case "choices":
            return _ChoiceSubmission(place)
        case _:
            return _GlueSubmission(place, benchmark)


def _get(prediction: Mapping[str, Any], key: str, row: Example) -> Any:  # noqa: ANN401
    if key not in prediction:
        there = ", ".join(prediction)
        raise DataError(
            f"{row.where}: the prediction has {there}, but this form of submission needs {key!r}; "
            "choose the form that suits the head"
        )
    return prediction[key]


def _json(content: Mapping[str, object]) -> str:
    return json.dumps(content, ensure_ascii=False, indent=0) + "\n"
