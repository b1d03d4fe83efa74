"""Batches to predict on: new rows, read and encoded a few at a time."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import torch

from bertlab.api.batch import IntArray, PackedBatch, pack
from bertlab.api.examples import Column, Example
from bertlab.api.task import Head
from bertlab.api.tokenizer import Tokenizer
from bertlab.data.examples.encoded import EncodedExamples, encode_examples
from bertlab.data.examples.source import UnreadableRow, stream_rows
from bertlab.data.rows.files import one_input
from bertlab.data.rows.lines import words_of
from bertlab.data.rows.tables import RowReading
from bertlab.errors import ConfigError, DataError, warn

PREDICT_BATCH = 64  # sequences
_CHARACTERS_AHEAD = 2**25  # of rows that are read before they are predicted
_COLUMNS = (Column("text"), Column("text_pair", required=False))


class PredictedRows(ABC):
    """Batches of new rows, made on demand; how many there are is not known before the end."""

    def __init__(
        self, source: Iterator[Example], tokenizer: Tokenizer, max_seq_length: int
    ) -> None:
        self.source = source
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length
        self.taken_in = 0  # rows that were read so far
        self.cut = 0  # rows of these of which something did not fit and is not read
        self._waiting: dict[int, Example] = {}

    @abstractmethod
    def __iter__(self) -> Iterator[list[PackedBatch]]:
        """Yield batches, each a step of its own, with the rows' numbers as ``row``."""

    def _take_in(self, count: int) -> list[Example]:
        """Read at most so many rows, fewer of long ones; they wait until they are predicted."""
        rows, size = list[Example](), 0
        for row in islice(self.source, count):
            rows.append(row)
            size += len(str(row.values))
            if size > _CHARACTERS_AHEAD:
                break
        self._waiting |= dict(enumerate(rows, self.taken_in))
        self.taken_in += len(rows)
        return rows

    def warn_of_cut(self) -> None:
        """Tell how many predicted rows were not read to their end."""
        if self.cut:
            limit = f"{self.max_seq_length} tokens (data.max_seq_length)"
            longer = f"{self.cut:,} of {self.taken_in:,} rows are longer than {limit}"
            warn(f"{longer}; what is beyond was not read")

    def has_sequences(self, number: int) -> bool:
        """Whether a row that was read, and not taken yet, is in a batch; else it is empty."""
        return number in self._waiting

    def take(self, number: int) -> Example:
        """Return and drop a row that is being predicted."""
        return self._waiting.pop(number)


class TextRows(PredictedRows):
    """Batches of rows with ``text`` and perhaps ``text_pair``, for objectives."""

    def __iter__(self) -> Iterator[list[PackedBatch]]:
        """Yield batches, each a step of its own; a text that is empty or too long is refused."""
        while rows := self._take_in(PREDICT_BATCH):
            inputs = [self._inputs(row) for row in rows]
            batch = pack([ids for ids, _ in inputs], [kinds for _, kinds in inputs])
            batch.fields["row"] = torch.arange(self.taken_in - len(rows), self.taken_in)
            yield [batch]

    def _inputs(self, row: Example) -> tuple[list[int], list[int]]:
        text, pair = row.values["text"], row.values.get("text_pair")
        if not text.strip():
            raise ConfigError(f"{row.where} is empty")
        pair_ids = None if pair is None else self.tokenizer.encode(pair)
        made = self.tokenizer.build_inputs(self.tokenizer.encode(text), pair_ids)
        if len(made[0]) > self.max_seq_length:
            told = f"{row.where} has {len(made[0])} tokens"
            raise ConfigError(f"{told}, more than data.max_seq_length {self.max_seq_length}")
        return made


def given_texts(texts: Sequence[str], text_pairs: Sequence[str] | None) -> Iterator[Example]:
    """Yield the rows of texts, and of a second text for each if there are any."""
    if text_pairs is not None and len(text_pairs) != len(texts):
        expected = f"{len(texts)} as data.text"
        raise ConfigError(f"data.text_pair: found {len(text_pairs)} texts, expected {expected}")
    pairs: Sequence[str | None] = [None] * len(texts) if text_pairs is None else text_pairs
    for number, (text, pair) in enumerate(zip(texts, pairs, strict=True)):
        values = {"text": text} if pair is None else {"text": text, "text_pair": pair}
        yield Example(values, f"data.text: text {number}")


def input_texts(
    texts: Sequence[str] | None, text_pairs: Sequence[str] | None, file: str | None
) -> Iterator[Example]:
    """Yield the texts that are given, or those of a file with ``text``, perhaps ``text_pair``."""
    one_input(texts or None, file)
    if file is not None:
        return stream_rows(file, {}, "auto", _COLUMNS, reading=RowReading(keys={}))
    return given_texts(texts or (), text_pairs)


def texts_for_head(
    texts: Sequence[str] | None, text_pairs: Sequence[str] | None, columns: Sequence[Column]
) -> Iterator[Example]:
    """Yield texts as rows of a head: of one text, of two, or of the words of a text."""
    one_input(texts, None)
    needed = [column for column in columns if column.required and not column.is_truth]
    names = ", ".join(column.name for column in needed)
    splits = len(needed) == 1 and needed[0].kind == "texts"
    if not splits and (len(needed) > 2 or any(column.kind != "text" for column in needed)):
        expected = "--input FILE with a file that has them"
        raise ConfigError(f"data.text: the head reads {names}, expected {expected}")
    if (text_pairs is None) != (len(needed) == 1):
        given, expected = ("none", "one") if text_pairs is None else ("one", "none: --text alone")
        found = f"found {given}, but the head reads {names}"
        raise ConfigError(f"data.text_pair: {found}; expected {expected}")
    for row in given_texts(texts or (), text_pairs):
        values = list(row.values.values())
        if splits:
            yield Example({needed[0].name: words_of(values[0])}, row.where, {"text": values[0]})
        else:
            named = zip(needed, values, strict=True)
            yield Example({column.name: text for column, text in named}, row.where)


PREDICT_ROWS = 32  # predicted together
READ_AHEAD = 8  # batches read at a time, then grouped by length


class InputRows(PredictedRows):
    """Batches of rows for a head, by whose name they count their predictions.

    ``read_ahead`` batches are read before the first of them is predicted. With
    ``keeps_unreadable``, rows that the head cannot encode wait to be taken as ``UnreadableRow``.
    """

    def __init__(
        self,
        source: Iterator[Example],
        head: Head,
        head_name: str,
        tokenizer: Tokenizer,
        max_seq_length: int,
        read_ahead: int = READ_AHEAD,
        keeps_unreadable: bool = False,
    ) -> None:
        super().__init__(source, tokenizer, max_seq_length)
        self.head = head
        self.head_name = head_name
        self.read_ahead = read_ahead
        self.keeps_unreadable = keeps_unreadable
        self._encoded: set[int] = set()

    def __iter__(self) -> Iterator[list[PackedBatch]]:
        """Yield batches, each a step of its own, with the rows' numbers as ``row``.

        All sequences of a row are in one batch. Of the rows that are read together, the longest
        come first.
        """
        truth = frozenset(column.name for column in self.head.columns if column.is_truth)
        while chunk := self._take_in(self.read_ahead * PREDICT_ROWS):
            start = self.taken_in - len(chunk)
            # without the truth, which may be any word that the model does not know
            texts = [
                replace(row, values={k: v for k, v in row.values.items() if k not in truth})
                for row in chunk
            ]
            failed = {n: r.reason for n, r in enumerate(chunk) if isinstance(r, UnreadableRow)}
            encoded = encode_examples(self.head, texts, self.tokenizer, self.max_seq_length, failed)
            for number, reason in failed.items():
                row = chunk[number]
                if not self.keeps_unreadable and not isinstance(row, UnreadableRow):
                    raise DataError(reason)
                self._waiting[start + number] = UnreadableRow({}, row.where, row.row, reason=reason)
            self.cut += len(np.unique(encoded.row_numbers[encoded.truncated > 0]))
            # from the chunk's numbers to the input's
            self._encoded |= set((start + encoded.row_numbers).tolist())
            for units in _batches(encoded):
                batch, _ = encoded.batch(units, self.head_name)
                batch.fields["row"] += start
                yield [batch]

    def has_sequences(self, number: int) -> bool:
        """Whether a row that was read, and not taken yet, is in a batch; else it is empty."""
        return number in self._encoded

    def take(self, number: int) -> Example:
        """Return and drop a row that is being predicted."""
        self._encoded.discard(number)
        return super().take(number)


def _batches(encoded: EncodedExamples) -> Iterator[IntArray]:
    """Yield the units of each batch, ascending; rows of similar length together, longest first."""
    rows, firsts = np.unique(encoded.row_numbers, return_index=True)
    if not len(rows):
        return
    # row_numbers [0, 0, 2] (row 1 gave no sequence) -> rows [0, 2], firsts [0, 2]
    # (rows,); lengths of sequences [3, 5, 2] -> longest [5, 2]
    longest = np.maximum.reduceat(np.diff(encoded.offsets), firsts)
    in_order = rows[np.argsort(-longest, kind="stable")]
    row_of_unit = encoded.row_numbers[encoded.unit_offsets[:-1]]  # (U,)
    for start in range(0, len(rows), PREDICT_ROWS):
        chosen = in_order[start : start + PREDICT_ROWS]
        yield np.flatnonzero(np.isin(row_of_unit, chosen))
