"""Transforms of rows, ``data.transforms``: what changes labelled rows before they are encoded."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lightning.pytorch.cli import LightningArgumentParser

from bertlab.api import Column, ConfigError, DataError, Example
from bertlab.extend import LabelledData, LabelledExamples, StepLoader, UnreadableRow, load_class

_IDS = ("id",)  # of columns that name a row, and are no text


class RowTransform(ABC):
    """Changes rows between reading and encoding (``data.transforms``), or leaves them out.

    Rows are changed alike when a model is trained, evaluated, and used. The arguments of
    ``__init__`` are config keys.

    Attributes:
        columns: of the head, whose values are given to :meth:`change`: all but truth and ids.
    """

    columns: Sequence[Column] = ()

    @abstractmethod
    def change(self, values: Mapping[str, Any]) -> Mapping[str, Any] | str:
        """Return the values of a row, changed, or the reason why the row is left out.

        A row has its truth back afterwards: keep the number of words that have tags, and of
        characters that answers are counted in.

        Args:
            values: of ``columns``, as in :class:`Example`. Not to be changed in place.
        """


class Transforms:
    """The transforms of a config, in order.

    Args:
        given: arguments by name.
    """

    def __init__(self, given: Mapping[str, Any] | None) -> None:
        self._all: dict[str, RowTransform] = {
            name: load_class("transform", name, RowTransform)(**(arguments or {}))
            for name, arguments in (given or {}).items()
        }

    def change(self, row: Example, columns: Sequence[Column]) -> Example:
        """Return a row as it is encoded, or an ``UnreadableRow`` with the reason.

        Args:
            row: as it was read.
            columns: of the head.

        Raises:
            DataError: a transform takes columns away, or adds some.
        """
        if isinstance(row, UnreadableRow):
            return row
        changing = [each for each in columns if not each.is_truth and each.name not in _IDS]
        names = {column.name for column in changing}
        values = {name: value for name, value in row.values.items() if name in names}
        for name, transform in self._all.items():
            transform.columns = changing
            found = transform.change(dict(values))
            if isinstance(found, str):
                return UnreadableRow({}, row.where, row.row, reason=f"{name}: {found}")
            if found.keys() != values.keys():
                raise DataError(
                    f"{row.where}: data.transforms.{name}: found the columns "
                    f"{', '.join(found) or 'none'}, expected {', '.join(values)}"
                )
            values = dict(found)
        return replace(row, values={**row.values, **values})


class TransformedRows(LabelledData):
    """Labelled rows for one head, changed by transforms.

    Args:
        transforms: arguments by name.
        settings: those of labelled rows.
    """

    def __init__(
        self,
        transforms: Mapping[str, Any] | None = None,
        **settings: Any,  # noqa: ANN401  as LabelledData says
    ) -> None:
        super().__init__(**settings)
        self.transforms = Transforms(transforms)

    @classmethod
    def add_arguments(
        cls, parser: LightningArgumentParser, heads: Sequence[str], objectives: Sequence[str]
    ) -> None:
        """Add the keys of labelled rows; those of transforms stand below ``data.transforms``.

        Raises:
            ConfigError: there is no head, or there are several.
        """
        if heads or objectives:
            raise ConfigError(
                "data.transforms: found some, which change the rows of model.head; expected none "
                f"with {'model.heads' if heads else 'objectives'}"
            )
        LabelledData.add_arguments(parser, heads, objectives)

    def read_split(self, split: str, role: str) -> LabelledExamples:
        """Return the changed rows of a split; those that are left out are counted by reason."""
        read = super().read_split(split, role)
        assert self.head is not None
        rows = [self.transforms.change(row, self.head.columns) for row in read.rows]
        skipped = Counter(row.reason for row in rows if isinstance(row, UnreadableRow))
        kept = [row for row in rows if not isinstance(row, UnreadableRow)]
        if not kept:
            reasons = ", ".join(f"{count} × {reason}" for reason, count in skipped.items())
            raise DataError(f"{split}: data.transforms: no row is left; left out: {reasons}")
        return replace(read, rows=kept, skipped={**read.skipped, **skipped})

    def predict_dataloader(self) -> StepLoader:
        """Return the changed rows; validation rows were changed when they were read."""
        loader = super().predict_dataloader()
        if not self._predicts_validation and self.input_rows is not None:
            self.input_rows.source = self._changed(self.input_rows.source)
        return loader

    def _changed(self, rows: Iterator[Example]) -> Iterator[Example]:
        assert self.head is not None
        for row in rows:
            changed = self.transforms.change(row, self.head.columns)
            if isinstance(changed, UnreadableRow) and not self.keeps_unreadable:
                raise DataError(f"{row.where}: {changed.reason}")
            yield changed


def change_inputs(
    given: Mapping[str, Any], columns: Sequence[Column], inputs: Iterable[Example]
) -> list[Example]:
    """Return what is given to a loaded model as its run's transforms change it.

    Raises:
        DataError: a transform leaves an input out.
    """
    transforms = Transforms(given)
    changed = [transforms.change(each, columns) for each in inputs]
    for each in changed:
        if isinstance(each, UnreadableRow):
            raise DataError(f"{each.where}: {each.reason}")
    return changed


class LowerCase(RowTransform):
    """Texts in lower case, where that keeps their number of characters."""

    def change(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values with all texts in lower case."""
        return {name: _lower(value) for name, value in values.items()}


def _lower(value: object) -> object:
    if isinstance(value, list):
        return [_lower(each) for each in value]
    if not isinstance(value, str):
        return value
    # "İ".lower() has two characters
    return "".join(low if len(low := each.lower()) == 1 else each for each in value)


class TextLength(RowTransform):
    """Leaves out rows with a text of too few or too many words.

    Texts are those that every row has, each of several choices too, or the words of the row.

    Args:
        least: words of each text.
        most: words of each text; any number if None.
    """

    def __init__(self, least: int = 1, most: int | None = None) -> None:
        if least < 0 or (most is not None and most < least):
            raise ConfigError(
                f"data.transforms.text_length: found least {least} and most {most}, expected "
                "numbers from 0, most not below least"
            )
        self.least, self.most = least, most

    def change(self, values: Mapping[str, Any]) -> Mapping[str, Any] | str:
        """Return the values as they are, or the reason."""
        for words in self._lengths(values):
            if words < self.least:
                return f"a text of fewer than {self.least} words"
            if self.most is not None and words > self.most:
                return f"a text of more than {self.most} words"
        return values

    def _lengths(self, values: Mapping[str, Any]) -> Iterator[int]:
        """Yield the number of words of each text."""
        read = [each for each in self.columns if each.required and each.kind in ("text", "texts")]
        for column in read:
            value = values[column.name]
            if isinstance(value, str):
                yield len(value.split())
            elif len(read) == 1:  # nothing else is read: they are the words of a sentence
                yield len(value)
            else:
                yield from (len(str(text).split()) for text in value)
