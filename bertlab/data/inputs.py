"""Batches to predict on for a head: new rows, read and encoded a few at a time."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from bertlab.api.batch import IntArray, PackedBatch
from bertlab.api.examples import Example
from bertlab.api.head import Head
from bertlab.api.tokenizer import Tokenizer
from bertlab.data.examples.encoded import EncodedExamples, encode_examples

PREDICT_ROWS = 32  # predicted together
READ_AHEAD = 8  # batches read at a time, then grouped by length


@dataclass
class InputRows:
    """Batches of new rows, made on demand; their number is not known before the end.

    Attributes:
        source: the rows, in order.
        head: encodes them.
        head_name: by which batches count their predictions.
        tokenizer: encodes their texts.
        max_seq_length: most tokens of a sequence, special tokens included.
        read_ahead: batches whose rows are read before the first is predicted.
        taken_in: rows that were read so far.
    """

    source: Iterator[Example]
    head: Head
    head_name: str
    tokenizer: Tokenizer
    max_seq_length: int
    read_ahead: int = READ_AHEAD
    taken_in: int = field(default=0, init=False)
    _waiting: dict[int, Example] = field(default_factory=dict, init=False, repr=False)
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
            encoded = encode_examples(self.head, chunk, self.tokenizer, self.max_seq_length)
            # from the chunk's numbers to the input's
            self._encoded |= set((start + encoded.row_numbers).tolist())
            for units in _batches(encoded):
                batch, _ = encoded.batch(units, self.head_name)
                batch.fields["row"] += start
                yield [batch]

    def has_sequences(self, number: int) -> bool:
        """Whether a row that was read, and not taken yet, is in a batch."""
        return number in self._encoded

    def take(self, number: int) -> Example:
        """Return and drop a row that is being predicted."""
        self._encoded.discard(number)
        return self._waiting.pop(number)


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
