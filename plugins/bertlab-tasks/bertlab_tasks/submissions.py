"""Predictions in the forms that servers and scorers of GLUE, SWAG and CODAH read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertlab import nearest
from bertlab.api import DataError, Example, NamedFormat, Submission
from bertlab.extend import ordered_names


class GlueNames(Submission):
    """GLUE: ``index``, from 0 in the order of writing, and ``prediction``, the name of a class."""

    def __init__(self, path: Path, form: NamedFormat) -> None:
        super().__init__(path, form)
        self._names = ordered_names(form.label_names or ())
        self._count = 0
        self.file.write("index\tprediction\n")

    def write(self, row: Example, prediction: Mapping[str, Any]) -> None:
        """Write the next number and its value."""
        self.file.write(f"{self._count}\t{self.value(row, prediction)}\n")
        self._count += 1

    def value(self, row: Example, prediction: Mapping[str, Any]) -> str:
        """Return what stands in the column ``prediction``."""
        label = str(self.get(prediction, "label", row))
        numbers = [str(number) for number in range(len(self._names))]
        if label in numbers:  # of a model that was trained on the numbers
            label = self._names[int(label)]
        if label not in self._names:
            raise DataError(
                f"{row.where}: predicted {label!r}{nearest(label, self._names)}, but {self.path} "
                f"takes {', '.join(self._names)}; the model was trained on other labels"
            )
        return label


class GlueIds(GlueNames):
    """GLUE's tasks whose server reads the numbers of classes."""

    def value(self, row: Example, prediction: Mapping[str, Any]) -> str:
        """Return the number of the class."""
        return str(self._names.index(super().value(row, prediction)))


class GlueScores(GlueNames):
    """STS-B: scores, brought into 0 to 5."""

    def value(self, row: Example, prediction: Mapping[str, Any]) -> str:
        """Return the score."""
        score = float(self.get(prediction, "score", row))
        return f"{min(max(score, 0.0), 5.0):.6f}"


class Choices(Submission):
    """CSV with a column ``pred``: the number of the chosen ending."""

    def __init__(self, path: Path, form: NamedFormat) -> None:
        super().__init__(path, form)
        self.file.write("pred\n")

    def write(self, row: Example, prediction: Mapping[str, Any]) -> None:
        """Write the number of the ending that is predicted."""
        self.file.write(f"{int(self.get(prediction, 'label', row))}\n")
