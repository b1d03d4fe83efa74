"""The contract of a named format: the files of a data set, and the form of its submissions."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from bertlab.api.examples import Example, RawExamples
from bertlab.errors import DataError
from bertlab.files import WholeFile

ColumnSource = str | tuple[str, ...]
"""A column of a file, by name or place, or several of which each row's list is made."""

ColumnSources = Mapping[str, Sequence[ColumnSource]]
"""For each column of a head where it may come from; the first that is there wins."""

LabelNames = Sequence[str] | Mapping[Any, str]
"""Names of the classes by the number that the source has for them, or by its own names."""


class Submission(ABC):
    """Predictions in the form that a benchmark's server or scorer reads.

    ``bertlab predict --output_format NAME`` makes it, calls :meth:`write` for each row in order,
    then :meth:`close`; after an error :meth:`discard`. The file appears complete or not at all.

    Attributes:
        path: the file.
        form: the format that names this class.
        file: takes text.

    Raises:
        OutputError: the file cannot be written.
    """

    def __init__(self, path: Path, form: "NamedFormat") -> None:
        self.path = path
        self.form = form
        self.file = WholeFile(path)

    @abstractmethod
    def write(self, row: Example, prediction: Mapping[str, Any]) -> None:
        """Write the prediction of the next row.

        Args:
            row: as the head reads it.
            prediction: what the head's ``decode`` and ``merge`` made of it.

        Raises:
            DataError: the prediction or the row does not suit the form.
            OutputError: the disk is full.
        """

    def close(self) -> None:
        """Finish the file and put it in its place.

        Raises:
            OutputError: it cannot be written.
        """
        self.file.close()

    def discard(self) -> None:
        """Leave no file."""
        self.file.discard()

    def get(self, prediction: Mapping[str, Any], key: str, row: Example) -> Any:  # noqa: ANN401
        """Return what is predicted under a key.

        Raises:
            DataError: the head predicts something else.
        """
        if key not in prediction:
            raise DataError(
                f"{row.where}: the prediction has {', '.join(prediction)}, but this form of "
                f"submission needs {key!r}; choose the form that suits the head"
            )
        return prediction[key]


class PredictionFile(Protocol):
    """Rows with their predictions in one file, which appears complete or not at all.

    What the hook ``bertlab_prediction_file`` returns. Each method may raise ``OutputError``.
    """

    def write(self, row: Mapping[str, Any]) -> None:
        """Take the next row: columns of the input, then those of the prediction."""

    def close(self) -> None:
        """Finish the file and put it in its place."""

    def discard(self) -> None:
        """Leave no file."""


class NamedFormat:
    """The files of a data set that has a name, ``data.format: NAME``, and its submission.

    A format is made without arguments when a config names it. It brings columns and class names to
    the hub, ``.jsonl`` and ``.parquet`` as well, which are read as what they are.
    ``data.format: auto`` goes by the ending of a file alone, and never guesses a data set: the
    tables of several look alike. An entry point of ``bertlab.endings``, called ``.xlsx``, names the
    class that reads such files. The first line of the docstring says what the format is.

    Attributes:
        columns: for each column of a head where it comes from: names in the official files and on
            the hub, or a place in a file without a header, ``"0"``, or ``"-1"`` from the end. Empty
            where files name columns of their own, as CSV does.
        takes_columns: the user's ``data.columns`` go before these.
        table: how other files are read: tab-separated, CSV, or by :meth:`read` if None.
        label_names: the classes in the order of their ids; by the names in the files if those are
            other ones.
        no_label: raw label of rows that annotators did not agree on; they are left out.
        files: patterns of official file names by split, besides ``train.*`` and the like.
        skips_broken: the published files have a few broken rows, which are left out.
        submission: writes predictions as the official server or scorer reads them.
        submission_file: the file's name that the server wants, for ``--output FOLDER/``.
    """

    columns: ClassVar[ColumnSources] = {}
    takes_columns: ClassVar[bool] = False
    table: ClassVar[Literal["tsv", "csv"] | None] = "tsv"
    label_names: ClassVar[LabelNames | None] = None
    no_label: ClassVar[str | None] = None
    files: ClassVar[Mapping[str, Sequence[str]]] = {}
    skips_broken: ClassVar[bool] = False
    submission: ClassVar[type[Submission] | None] = None
    submission_file: ClassVar[str | None] = None

    def read(self, path: str) -> RawExamples:
        """Return the rows of a file, which may be a URL or ``-``; asked if ``table`` is None.

        Raises:
            DataError: it is not readable, or of another form; names the file and the line.
        """
        raise NotImplementedError(f"{type(self).__name__}: table is None, and read is missing")
