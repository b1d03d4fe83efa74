"""New rows that are read, encoded and predicted a few at a time."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from bertlab.data.encoded_rows import encode_rows
from bertlab.data.tokenizer import WordPieceTokenizer
from bertlab.heads.base import Head
from bertlab.labelled_rows import Row
from bertlab.packed_batch import PackedBatch

PREDICT_ROWS = 32  # that are read, encoded and predicted together


@dataclass
class InputRows:
    """Batches of rows, made while they are asked for; how many is not known before.

    Attributes:
        source: the rows, in order.
        head: encodes them.
        head_name: by which batches count their predictions.
        tokenizer: encodes their texts.
        max_seq_length: most tokens of a sequence, special tokens included.
        taken_in: rows that were read so far.
    """

    source: Iterator[Row]
    head: Head
    head_name: str
    tokenizer: WordPieceTokenizer
    max_seq_length: int
    taken_in: int = field(default=0, init=False)
    _waiting: dict[int, Row] = field(default_factory=dict, init=False, repr=False)

    def __iter__(self) -> Iterator[list[PackedBatch]]:
        """Yield the rows' batches, each a step of its own, with the rows' numbers as ``row``."""
        while chunk := list(islice(self.source, PREDICT_ROWS)):
            start = self.taken_in
            self._waiting |= {start + number: row for number, row in enumerate(chunk)}
            self.taken_in += len(chunk)
            encoded = encode_rows(self.head, chunk, self.tokenizer, self.max_seq_length)
            if len(encoded):
                batch, _ = encoded.batch(np.arange(len(encoded)), self.head_name)
                batch.fields["row"] += start
                yield [batch]

    def take(self, number: int) -> Row:
        """Return a row that is being predicted, and forget it."""
        return self._waiting.pop(number)
