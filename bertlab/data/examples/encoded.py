"""Labelled rows as packed batches: encoded once, gathered by number."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bertlab.api.batch import IntArray, PackedBatch
from bertlab.api.examples import Example, Features
from bertlab.api.rng import CounterRNG
from bertlab.api.task import Head
from bertlab.api.tokenizer import Tokenizer
from bertlab.errors import DataError, PluginError

Array = npt.NDArray[Any]
_NAMED_ROWS = 32
_GROUPED_STEPS = 50  # whose sequences are sorted by length together, as in Hugging Face's Trainer


@dataclass
class EncodedExamples:
    """The N sequences of a split, end to end, T tokens in all.

    A unit is what shuffling and batch sizes count: a sequence, or all sequences of a row where the
    head keeps them together.

    Attributes:
        rows: that were encoded.
        input_ids: ``(T,)`` int32.
        token_type_ids: ``(T,)`` uint8.
        offsets: ``(N + 1,)`` int64 first token of each sequence.
        row_numbers: ``(N,)`` int64 row of each sequence, ascending.
        counts: ``(N,)`` int64 predictions on each sequence.
        truncated: ``(N,)`` int64 tokens cut off.
        sequence_fields: the head's fields ``(N,)``.
        token_fields: the head's fields ``(T,)``.
        ragged_fields: the head's ragged fields, and where each sequence's begins ``(N + 1,)``.
        unit_offsets: ``(U + 1,)`` int64 first sequence of each unit.
        notes: what the head counted while encoding.
    """

    rows: Sequence[Example]
    input_ids: Array
    token_type_ids: Array
    offsets: IntArray
    row_numbers: IntArray
    counts: IntArray
    truncated: IntArray
    sequence_fields: dict[str, Array]
    token_fields: dict[str, Array]
    unit_offsets: IntArray
    ragged_fields: dict[str, tuple[Array, IntArray]] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        """Number of units U."""
        return len(self.unit_offsets) - 1

    @cached_property
    def unit_tokens(self) -> IntArray:
        """``(U,)`` tokens of each unit."""
        # offsets [0, 3, 5, 9], unit_offsets [0, 2, 3] -> [5, 4]
        return np.diff(self.offsets[self.unit_offsets])

    def batch(self, units: IntArray, task: str) -> tuple[PackedBatch, dict[str, int]]:
        """Pack units ``(k,)`` in the order given.

        Returns:
            The batch, with ``row`` and ``sequence`` numbers ``(B,)`` beside the head's fields, and
            the number of predictions by task.
        """
        # units of 2, 1 and 3 sequences: unit_offsets [0, 2, 3, 6]; units [2, 0] -> 3 4 5 0 1
        sequences = _ranges(self.unit_offsets[units], self.unit_offsets[units + 1])  # (S,)
        starts, stops = self.offsets[sequences], self.offsets[sequences + 1]  # (S,) each
        tokens = _ranges(starts, stops)  # (T,) of the batch
        lengths = stops - starts
        cu_seqlens = _offsets(lengths)
        fields = {"row": self.row_numbers[sequences], "sequence": sequences}
        fields |= {name: values[sequences] for name, values in self.sequence_fields.items()}
        fields |= {name: values[tokens] for name, values in self.token_fields.items()}
        for name, (values, begins) in self.ragged_fields.items():
            fields[name] = values[_ranges(begins[sequences], begins[sequences + 1])]  # (R,)
            fields[f"{name}_cu_seqlens"] = _offsets(np.diff(begins)[sequences])
        counts = {task: int(self.counts[sequences].sum())}
        batch = PackedBatch(
            input_ids=torch.from_numpy(self.input_ids[tokens].astype(np.int64)),
            token_type_ids=torch.from_numpy(self.token_type_ids[tokens].astype(np.int64)),
            position_ids=torch.from_numpy(tokens - np.repeat(starts, lengths)),  # from 0 in each
            cu_seqlens=torch.from_numpy(cu_seqlens.astype(np.int32)),
            max_seqlen=int(lengths.max()),
            fields={name: torch.from_numpy(values) for name, values in fields.items()},
            counts=counts,
            window_counts=counts,
        )
        return batch, counts


@dataclass
class ExampleStream:
    """An endless stream of a split's units; an epoch is a permutation of them."""

    encoded: EncodedExamples
    task: str  # name of the head
    seed: int  # of the shuffle
    training: bool  # False: in order of length, so that little is padded inside attention
    grouped_steps: int | None = None  # of an epoch, if a step's sequences have about one length
    _kept: tuple[int, IntArray] | None = field(default=None, init=False, repr=False)

    def __len__(self) -> int:
        """Units in an epoch."""
        return len(self.encoded)

    def batch(self, positions: IntArray) -> tuple[PackedBatch, dict[str, int]]:
        """Return the units at stream ``positions`` ``(k,)``, all of one epoch."""
        return self.encoded.batch(self._units(positions), self.task)

    def describe(self, positions: IntArray) -> str:
        """Return file and line of the rows, the first of many."""
        numbers = self.encoded.row_numbers[self.encoded.unit_offsets[self._units(positions)]]
        places = [self.encoded.rows[number].where for number in numbers]
        more = f" and {len(places) - _NAMED_ROWS} more" if len(places) > _NAMED_ROWS else ""
        return f"rows {', '.join(places[:_NAMED_ROWS])}{more}"

    def _units(self, positions: IntArray) -> IntArray:
        """``(k,)`` units at positions of one epoch, whose order is kept while it lasts."""
        # of 100 units, positions 250, 251, 252 -> epoch 2, its units number 50, 51, 52 in order
        epoch, start = divmod(int(positions[0]), len(self))
        if self._kept is None or self._kept[0] != epoch:
            self._kept = (epoch, self._draw(epoch))
        units: IntArray = self._kept[1][positions - positions[0] + start]
        return units

    def _draw(self, epoch: int) -> IntArray:
        if not self.training:
            return np.argsort(-self.encoded.unit_tokens, kind="stable")
        rng = CounterRNG(self.seed, "rows")
        units = np.arange(len(self))
        order = np.empty_like(units)  # the inverse: order[rank of u] = u
        order[rng.permute(units, len(self), epoch)] = units
        if self.grouped_steps is None:
            return order
        return self._grouped(order, epoch, self.grouped_steps)

    def _grouped(self, order: IntArray, epoch: int, steps: int) -> IntArray:
        """Sort large chunks of a shuffle by length, then shuffle their steps."""
        place = CounterRNG(self.seed, "batches of rows").permute(np.arange(steps), steps, epoch)
        # 10 units, 3 steps of 3, 3 and 4; place [2, 0, 1] -> the first four, three, three units
        sizes = np.diff(np.arange(steps + 1) * len(order) // steps)
        bounds = _offsets(sizes[place])
        for first in range(0, steps, _GROUPED_STEPS):
            chunk = order[bounds[first] : bounds[min(first + _GROUPED_STEPS, steps)]]
            chunk[:] = chunk[np.argsort(-self.encoded.unit_tokens[chunk], kind="stable")]
        # place's argsort, the inverse, is the group of each step
        return np.concatenate([order[bounds[i] : bounds[i + 1]] for i in np.argsort(place)])


def encode_examples(
    head: Head,
    rows: Sequence[Example],
    tokenizer: Tokenizer,
    max_seq_length: int,
    failed: dict[int, str] | None = None,
) -> EncodedExamples:
    """Encode every row, in order; one that is not usable is a DataError.

    If ``failed`` is given, its rows, by number, are left out, and those that are not usable are
    added with the reason.
    """
    head.notes = Counter()
    features: list[Features] = []
    row_numbers: list[int] = []
    for number, row in enumerate(rows):
        try:
            made = (
                [] if failed and number in failed else head.encode(row, tokenizer, max_seq_length)
            )
        except DataError as error:
            if failed is None:
                raise
            failed[number], made = str(error), []
        for each in made:
            _check_features(each, tokenizer.vocab_size, max_seq_length, row.where)
        features += made
        row_numbers += [number] * len(made)
    encoded = collate(features, rows, np.array(row_numbers, np.int64), head.keeps_examples_together)
    encoded.notes = dict(head.notes)
    return encoded


def _check_features(features: Features, size: int, most: int, place: str) -> None:
    """Raise PluginError if a head gave a sequence that cannot be packed with others."""
    ids, found = features.input_ids, {"token_type_ids": len(features.token_type_ids)}
    found |= {name: np.size(each) for name, each in features.fields.items() if np.ndim(each)}
    told = f"{place}: the head's Features have "
    for name, count in found.items():
        if count != len(ids):
            raise PluginError(f"{told}{count} {name} for {len(ids)} input_ids, expected as many")
    if not 0 < len(ids) <= most or min(ids) < 0 or max(ids) >= size:
        told += f"{len(ids)} input_ids, from {min(ids, default=0)} to {max(ids, default=0)}"
        raise PluginError(f"{told}; expected 1 to {most} ids below {size}")
    if taken := {"row", "sequence"} & features.fields.keys():
        raise PluginError(f"{told}a field {taken.pop()!r}, which is a name of bertlab's own")


def collate(
    features: Sequence[Features], rows: Sequence[Example], row_numbers: IntArray, together: bool
) -> EncodedExamples:
    """Concatenate sequences to one split.

    Args:
        features: N sequences.
        rows: that they come from.
        row_numbers: ``(N,)`` which row each comes from, ascending.
        together: whether all sequences of a row make one unit.
    """
    lengths = [len(each.input_ids) for each in features]
    # row_numbers [0, 0, 1], together -> begins [True, False, True] -> unit_offsets [0, 2, 3]
    begins = np.diff(row_numbers, prepend=-1) != 0 if together else np.ones(len(features), bool)
    unit_offsets = np.append(np.flatnonzero(begins), len(features))
    encoded = EncodedExamples(
        rows=rows,
        input_ids=_flat([each.input_ids for each in features], np.int32),
        token_type_ids=_flat([each.token_type_ids for each in features], np.uint8),
        offsets=_offsets(lengths),
        row_numbers=row_numbers,
        counts=np.array([each.count for each in features], np.int64),
        truncated=np.array([each.truncated for each in features], np.int64),
        sequence_fields={},
        token_fields={},
        unit_offsets=unit_offsets.astype(np.int64),
    )
    if not features:
        return encoded
    # fields that only some of the sequences have, such as labels, are left out
    names = set.intersection(*(set(each.fields) for each in features))
    for name in sorted(names):
        values = [each.fields[name] for each in features]
        if np.ndim(values[0]):  # a value for each token, not one for the sequence
            encoded.token_fields[name] = np.concatenate(values)
        else:
            field = np.array(values)  # float32 is what the loss computes in
            kind = np.float32 if np.issubdtype(field.dtype, np.floating) else np.int64
            encoded.sequence_fields[name] = field.astype(kind)
    for name in sorted(set.intersection(*(set(each.ragged) for each in features))):
        parts = [each.ragged[name] for each in features]
        encoded.ragged_fields[name] = np.concatenate(parts), _offsets([len(p) for p in parts])
    return encoded


def _offsets(lengths: Sequence[int] | IntArray) -> IntArray:
    """Return where each of N parts begins, and where the last ends, ``(N + 1,)``."""
    # lengths [3, 2] -> [0, 3, 5]
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


def _flat(parts: Sequence[Sequence[int]], dtype: type[np.generic]) -> Array:
    # np.concatenate refuses an empty list
    return np.concatenate([np.asarray(part, dtype) for part in parts] or [np.zeros(0, dtype)])


def _ranges(starts: IntArray, stops: IntArray) -> IntArray:
    """Return ``[starts[0], stops[0]) + [starts[1], stops[1]) + …`` as one array."""
    # starts [4, 9], stops [6, 12] -> shifts [4, 7] -> [4, 5, 9, 10, 11]
    lengths = stops - starts
    shifts = starts - np.concatenate([[0], np.cumsum(lengths)[:-1]])
    ranges: IntArray = np.arange(int(lengths.sum())) + np.repeat(shifts, lengths)
    return ranges
