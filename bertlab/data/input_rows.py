"""New rows that are read, encoded and predicted a few at a time."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from bertlab.data.encoded_rows import EncodedRows, encode_rows
from bertlab.data.tokenizer import WordPieceTokenizer
from bertlab.heads.base import Head
from bertlab.labelled_rows import Row
from bertlab.packed_batch import IntArray, PackedBatch

PREDICT_ROWS = 32  # that are predicted together
READ_AHEAD = 8  # batches that are read, and put into batches of about one length


@dataclass
class InputRows:
    """Batches of rows, made while they are asked for; how many is not known before.

    Attributes:
        source: the rows, in order.
        head: encodes them.
        head_name: by which batches count their predictions.
        tokenizer: encodes their texts.
        max_seq_length: most tokens of a sequence, special tokens included.
        read_ahead: batches whose rows are read before the first is predicted.
        taken_in: rows that were read so far.
    """

    source: Iterator[Row]
    head: Head
    head_name: str
    tokenizer: WordPieceTokenizer
    max_seq_length: int
    read_ahead: int = READ_AHEAD
    taken_in: int = field(default=0, init=False)
    _waiting: dict[int, Row] = field(default_factory=dict, init=False, repr=False)
    _encoded: set[int] = field(default_factory=set, init=False, repr=False)

    def __iter__(self) -> Iterator[list[PackedBatch]]:
        """Yield batches, each a step of its own, with the rows' numbers as ``row``.

        All sequences of a row are in one batch. Of the rows that are read together, the longest
        come first.
        """
        while chunk := list(islice(self.source, self.read_ahead * PREDICT_ROWS)):
            start = self.taken_in
            self._waiting |= {start + number: row for number, row in enumerate(chunk)}
            self.taken_in += len(chunk)
            encoded = encode_rows(self.head, chunk, self.tokenizer, self.max_seq_length)
            self._encoded |= set((start + encoded.row_numbers).tolist())
            for units in _batches(encoded):
                batch, _ = encoded.batch(units, self.head_name)
                batch.fields["row"] += start
                yield [batch]

    def has_sequences(self, number: int) -> bool:
        """Whether a row that was read, and not taken yet, is in a batch."""
        return number in self._encoded

    def take(self, number: int) -> Row:
        """Return a row that is being predicted, and forget it."""
        self._encoded.discard(number)
        return self._waiting.pop(number)


def _batches(encoded: EncodedRows) -> Iterator[IntArray]:
    """Yield the units of each batch, ascending: of rows of about one length, longest first."""
    rows, firsts = np.unique(encoded.row_numbers, return_index=True)
    if not len(rows):
        return
    longest = np.maximum.reduceat(np.diff(encoded.offsets), firsts)
    in_order = rows[np.argsort(-longest, kind="stable")]
    row_of_unit = encoded.row_numbers[encoded.unit_offsets[:-1]]
    for start in range(0, len(rows), PREDICT_ROWS):
        chosen = in_order[start : start + PREDICT_ROWS]
        yield np.flatnonzero(np.isin(row_of_unit, chosen))
