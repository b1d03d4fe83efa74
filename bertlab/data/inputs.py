"""Batches to predict on: new rows, read and encoded a few at a time, and texts for objectives."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import torch

from bertlab.api.batch import IntArray, PackedBatch, pack
from bertlab.api.examples import Example
from bertlab.api.head import Head
from bertlab.api.tokenizer import Tokenizer
from bertlab.data.examples.encoded import EncodedExamples, encode_examples
from bertlab.errors import ConfigError

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


PREDICT_BATCH = 64  # sequences


def text_batches(
    texts: Sequence[str],
    text_pairs: Sequence[str] | None,
    tokenizer: Tokenizer,
    max_seq_length: int,
) -> list[list[PackedBatch]]:
    """Return the batches of texts, each a step of its own, with the texts' numbers as ``row``.

    Args:
        texts: of ``data.text``.
        text_pairs: of ``data.text_pair``: a second text for each; None for none.
        tokenizer: encodes them.
        max_seq_length: most tokens of a sequence, special tokens included.

    Raises:
        ConfigError: the pairs do not match, or a text is empty or too long.
    """
    if text_pairs is not None and len(text_pairs) != len(texts):
        raise ConfigError(
            f"data.text_pair: found {len(text_pairs)} texts, expected {len(texts)} as data.text"
        )
    inputs = []
    for number, text in enumerate(texts):
        if not text.strip():
            raise ConfigError(f"data.text: text {number} is empty")
        pair_ids = None if text_pairs is None else tokenizer.encode(text_pairs[number])
        made = tokenizer.build_inputs(tokenizer.encode(text), pair_ids)
        if len(made[0]) > max_seq_length:
            raise ConfigError(
                f"data.text: text {number} has {len(made[0])} tokens, more than "
                f"data.max_seq_length {max_seq_length}"
            )
        inputs.append(made)
    batches = []
    for start in range(0, len(inputs), PREDICT_BATCH):
        part = inputs[start : start + PREDICT_BATCH]
        batch = pack([ids for ids, _ in part], [kinds for _, kinds in part])
        batch.fields["row"] = torch.arange(start, start + len(part))
        batches.append([batch])
    return batches


def text_row(texts: Sequence[str], text_pairs: Sequence[str] | None, number: int) -> Example:
    """Return a text, and its pair if there is one."""
    values = {"text": texts[number]}
    if text_pairs is not None:
        values["text_pair"] = text_pairs[number]
    return Example(values, f"data.text {number}")
