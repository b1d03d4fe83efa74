"""Sources of documents and labelled rows, and the examples that heads read."""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from bertlab.api.tokenizer import Tokenizer
from bertlab.errors import CorpusError, DataError, PluginError, nearest

_SHOWN = 12  # names of classes in a message
_LARGEST = float(np.finfo(np.float32).max)
ColumnKind = Literal[
    "text", "label", "number", "labels", "texts", "tags", "answers", "numbers", "span"
]


@dataclass(frozen=True)
class Column:
    """A column that a head reads.

    Attributes:
        name: in the head's terms, for example ``text_a``.
        kind: what its values are: ``text``, a text; ``label``, a class name or a number;
            ``number``, a finite float. And what bertlab-tasks reads: ``labels``, a list of class
            names, empty where none holds; ``texts``, a list of texts, such as words; ``tags``, a
            list of class names, one for each of the texts; ``numbers``, a list of finite floats;
            ``answers``, ``{"text": [...], "answer_start": [...]}`` in characters, where None stands
            for the first place at which the text occurs; ``span``, ``(start, end)`` in characters
            of the text ``of``, end excluded, which a row may give by that part of the text, too.
        is_truth: what is to be predicted; absent from new text.
        required: False if examples may lack it.
        aliases: other names that it has in published files; tried after ``name``.
        of: of a span: name of the column of the text that it lies in.
        setting: what of the config asks for numbers, if it does: ``model.head.regression: true``.

    Raises:
        PluginError: there is no such kind, or a span lies in no text.
    """

    name: str
    kind: ColumnKind = "text"
    is_truth: bool = False
    required: bool = True
    aliases: tuple[str, ...] = ()
    of: str = ""
    setting: str = ""

    def __post_init__(self) -> None:
        known = get_args(ColumnKind)
        if self.kind not in known:
            raise PluginError(
                f"Column({self.name!r}): found kind {self.kind!r}{nearest(str(self.kind), known)} "
                f"(there are: {', '.join(known)})"
            )
        if (self.kind == "span") != bool(self.of):
            found = f"Column({self.name!r}): of: found {self.of!r} for kind {self.kind}"
            raise PluginError(f"{found}; a span has it, the column of its text, and nothing else")


@dataclass(frozen=True)
class Example:
    """One labelled row of a source, its columns named as the head names them.

    Attributes:
        values: by column name; truth is missing where the example is not labelled.
        where: file and line, or split and number, for messages: ``dev.tsv:12``.
        row: of new text, all columns of its file but the truth, named as the file names them, such
            as its ids: predictions are written beside them.
        cluster: what it shares with other rows, whose scores are then not independent of its own:
            ``speaker:12``; empty if nothing is known.
    """

    values: Mapping[str, Any]
    where: str
    row: Mapping[str, Any] = field(default_factory=dict)
    cluster: str = ""


@dataclass
class LabelledExamples:
    """All examples of one split.

    Attributes:
        rows: in the source's order.
        label_names: names of the classes in the order of their ids, if the source declares them.
        skipped: rows that were left out, by reason.
        understood: how the source was read, by a few words, for the data report: its columns, the
            first row, whether there is a header.
    """

    rows: list[Example]
    label_names: tuple[str, ...] | None = None
    skipped: dict[str, int] = field(default_factory=dict)
    understood: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Labels:
    """The classes of a task, as its training examples have them.

    Attributes:
        names: of the classes; the place is the id.
        counts: how often each occurs in the training examples.
    """

    names: tuple[str, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, found: Iterable[str], declared: Sequence[str] | None = None) -> "Labels":
        """Count labels: the declared ones in their order, others by size or, of words, by name."""
        counts = Counter(found)
        names = tuple(dict.fromkeys([*(declared or ()), *sorted(counts, key=_label_order)]))
        return cls(names, tuple(counts[name] for name in names))

    def __len__(self) -> int:
        return len(self.names)

    def to_dict(self) -> dict[str, list[Any]]:
        """Return plain data, as checkpoints keep it."""
        return {"names": list(self.names), "counts": list(self.counts)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Sequence[Any]]) -> "Labels":
        """Return what :meth:`to_dict` wrote."""
        return cls(tuple(content["names"]), tuple(content["counts"]))

    def id_of(self, name: object, where: str, column: str = "label") -> int:
        """Return the id of a class.

        Raises:
            DataError: if training has no such class; the nearest is named.
        """
        try:
            return self.names.index(str(name))
        except ValueError:
            shown = [*self.names[:_SHOWN], *["…"][: len(self) > _SHOWN]]
            alone = len(self) > 2 and max(self.counts) == 1  # ids, or numbers to predict
            hint = "; no two rows have the same" if alone else nearest(str(name), self.names)
            raise DataError(
                f"{where}: {column}: found {name!r}, which is none of the {len(self)} labels of "
                f"the training data ({', '.join(shown)}) and not declared in data.label_names"
                f"{hint}"
            ) from None


@dataclass
class Features:
    """One sequence that an example becomes; it may become several.

    Attributes:
        input_ids: ids, special tokens included.
        token_type_ids: of the same length.
        fields: the head's own values for the batch: a number becomes an entry of a ``(B,)``
            tensor, an array as long as ``input_ids`` a part of a ``(T,)`` tensor. All sequences of
            a head have the same fields, except that unlabelled ones lack the truth.
        ragged: fields whose arrays have a length of their own, such as a target text's ids. In the
            batch, ``fields[name]`` has them end to end, and ``fields[name + "_cu_seqlens"]``
            ``(B + 1,)`` says where each begins.
        count: predictions that the loss makes on the sequence.
        truncated: tokens of the example that did not fit.
    """

    input_ids: Sequence[int]
    token_type_ids: Sequence[int]
    fields: dict[str, float | int | npt.NDArray[np.generic]] = field(default_factory=dict)
    ragged: dict[str, npt.NDArray[np.generic]] = field(default_factory=dict)
    count: int = 1
    truncated: int = 0


def _label_order(name: str) -> tuple[float, str]:
    try:
        # 10, no, 2, 1.5 -> 1.5, 2, 10, no
        return float(name), name
    except ValueError:
        return float("inf"), name


def text_ids(text: object, example: Example, column: str, tokenizer: Tokenizer) -> list[int]:
    """Return the ids of a text of an example, without ``[CLS]`` and ``[SEP]``.

    Raises:
        DataError: if it is not a text, or has no token; names ``example.where`` and the column.
    """
    if not isinstance(text, str):
        raise DataError(f"{example.where}: {column}: found {text!r}, expected a text")
    ids = tokenizer.encode(text)
    if not ids:
        told = f"{example.where}: {column}: found {text!r}, expected a text with at least one word"
        raise DataError(f"{told}; correct the row or remove it")
    return ids


def number_of(found: Any, place: str, setting: str = "") -> float:  # noqa: ANN401  of a source
    """Return a finite float32, which may be text; ``setting`` of a config asks for numbers."""
    try:
        number = math.nan if isinstance(found, bool) else float(found)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= _LARGEST:  # False of NaN; larger is inf in the batch's float32
        asked = setting and f", as {setting} asks for"
        if isinstance(found, str) and re.fullmatch(r" *[-+]?\d+,\d+ *", found):
            asked += "; write a decimal comma as a point"
        raise DataError(f"{place}: found {found!r:.80}, expected a finite number{asked}")
    return number


@dataclass(frozen=True)
class RawDocument:
    """A document as it was read.

    Attributes:
        text: the text, lines parted by LF.
        presplit: each line is a sentence already.
        source: ``file:line`` where the document starts, or dataset and row, for messages.
    """

    text: str
    presplit: bool
    source: str


@dataclass
class RawExamples:
    """Rows as a source has them, read while they are iterated over.

    Attributes:
        name: of the source, for messages.
        columns: names of the source's columns; those of the first row where rows may differ. A
            table without a header has ``"0"``, ``"1"``, …
        rows: ``(where, values by column)``; ``#document`` is no column, and says which one.
        rows_vary: other rows may have other columns.
        class_names: of the columns that hold ids of classes which the source itself declares.
        skipped: what was left out so far, by reason.
        form: how the rows were read, for the data report: "csv, comma-separated, no header".
        has_header: a table whose first line named the columns; True of all that is no table.
    """

    name: str
    columns: tuple[str, ...]
    rows: Iterator[tuple[str, Mapping[str, Any]]]
    rows_vary: bool = False
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    form: str = ""
    has_header: bool = True


def holds_no_examples(name: str) -> DataError:
    """Return the error for a source without rows."""
    return DataError(f"{name}: holds no rows; leave it out or fill it")


class DataSource:
    """Documents to pre-train on (``data.corpus``), labelled rows (``data.source``), or both.

    Further arguments of ``__init__`` are its settings, typed keys below ``data.corpus`` beside
    ``source``. A token store is used again for the same settings and documents only.

    Attributes:
        name: of the source as the config gives it, for messages: ``hf:OWNER/NAME``.
        argument: what stands behind the colon; empty without one.
        text_column: ``data.text_column``: where a source has columns, the one with the text.
    """

    def __init__(self, name: str, argument: str) -> None:
        self.name = name
        self.argument = argument
        self.text_column = "text"

    def documents(self) -> Iterator[RawDocument]:
        """Yield documents, in an order that is always the same.

        Raises:
            CorpusError: the source cannot be read, or has no documents.
        """
        raise CorpusError(f"{self.name}: gives labelled rows (data.source), no documents")

    def fingerprint(self) -> str:
        """Return what differs when the documents do; by default they are read once for it."""
        digest = hashlib.sha256()
        for each in self.documents():
            # JSON shows where a text ends: the documents a, bc are not ab, c
            digest.update(json.dumps([each.text, each.presplit]).encode())
        return digest.hexdigest()

    def examples(self, split: str | None) -> Iterable[Mapping[str, Any]]:
        """Yield the rows of a split, each its values by column.

        Args:
            split: ``train``, ``validation``, ``test``, or what ``data.train`` … names.

        Raises:
            DataError: the source cannot be read, has no such split, or no rows.
        """
        raise DataError(f"{self.name}: gives documents (data.corpus), no labelled rows")

    def raw_examples(self, split: str | None) -> RawExamples:
        """Return the rows with what is known of them; by default the first row names the columns.

        Raises:
            DataError: as :meth:`examples`.
        """
        name = self.name if split is None else f"{self.name} {split}"
        rows = iter(self.examples(split))
        first = next(rows, None)
        if first is None:
            raise holds_no_examples(name)
        numbered = enumerate(chain([first], rows), 1)
        return RawExamples(
            name,
            tuple(first),
            ((f"{name}: row {number}", values) for number, values in numbered),
            rows_vary=True,
        )
