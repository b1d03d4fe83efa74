"""Chunks of text that are read in parts, where ``max_seq_length`` changes over a run."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from bertlab import IntArray
from bertlab.api import ConfigError
from bertlab.extend import (
    Amounts,
    Fields,
    Pieces,
    SegmentPairsSampler,
    SequenceSampler,
    load_sampler,
    moments,
    pair_labels,
    pair_pieces,
    whole_at,
)

_SAMPLED = 4096  # sequences
_LENGTHS = 9  # between both ends, at which it is looked how many tokens there are


@dataclass(frozen=True)
class Parts:
    """Spans of text, each as one part or more, in their order."""

    spans: IntArray  # (S,) which span each part is of
    numbers: IntArray  # (S,) which part of its span it is, from 0
    starts: IntArray  # (S,) place of its first token
    ends: IntArray  # (S,) place behind its last token

    @classmethod
    def cut(
        cls,
        starts: IntArray,
        ends: IntArray,
        room: int | None,
        near: Callable[[IntArray, IntArray, int], IntArray],
    ) -> "Parts":
        """Return parts of at most ``room`` tokens that together are spans ``[start, end)``.

        ``near(places, spans, reach)`` moves places, at most so far, to where a part should begin;
        ``spans`` says which of the spans ``(B,)`` each is in. ``room`` is 5 or more, or None.
        """
        if room is None:
            return cls(np.arange(len(starts)), np.zeros_like(starts), starts, ends)
        reach = room // 8  # a part of a long span has three quarters of the room or more
        found: list[tuple[IntArray, IntArray, IntArray, IntArray]] = []
        spans, begins = np.arange(len(starts)), starts
        while not found or len(spans):
            stops = ends[spans].copy()  # (S,) of the spans that are not at their end yet
            long = np.flatnonzero(stops - begins > room)
            # span [0, 20), room 8, reach 1: cut at 6, 7 or 8; two tokens stay at least
            cuts = near(begins[long] + room - reach, spans[long], reach)
            stops[long] = np.minimum(cuts, np.minimum(begins[long] + room, stops[long] - 2))
            found.append((spans, np.full_like(spans, len(found)), begins, stops))
            spans, begins = spans[long], stops[long]
        spans, numbers, begins, stops = (np.concatenate(each) for each in zip(*found, strict=True))
        order = np.argsort(spans, kind="stable")
        return cls(spans[order], numbers[order], begins[order], stops[order])


class SegmentPairsInParts(SegmentPairsSampler):
    """BERT's own format, of which the chunks that are too long are read as several pairs."""

    has_parts: ClassVar[bool] = True

    def _pieces(
        self, epochs: IntArray, units: IntArray, max_length: int | None
    ) -> tuple[Pieces, Fields]:
        room = None if max_length is None else max_length - 3  # [CLS] and two [SEP]
        starts, ends, limits, targets = self._chunks(units, epochs, units, 0)

        def near(places: IntArray, chunks: IntArray, reach: int) -> IntArray:
            return replace(self._places, reach=reach).sentence_start(places, limits[chunks] - 1)

        parts = Parts.cut(starts, ends, room, near)  # a pair lies in one part of a chunk
        size, of = len(parts.spans), parts.spans
        lengths = parts.ends - parts.starts
        # a part of a chunk stays as long as it is with a random B
        targets = np.where(lengths < (ends - starts)[of], lengths, targets[of])
        targets = targets if room is None else np.minimum(targets, room)
        # a part draws by a number of its own: of 10 chunks, those of chunk 3 by 3, 13, 23, …
        epochs, keys = epochs[of], units[of] + parts.numbers * len(self)

        # random B: what starts at the split of another chunk, or of a part of it
        random, partners = self._random_units(epochs, keys)
        key = (epochs[random], keys[random])
        starts, ends, b_limits, _ = self._chunks(partners, *key, 1)
        if room is not None:
            starts, ends = self._part(starts, ends, room, key)
        # the chunks of A, and behind them those of the random B; role keeps their draws apart
        role = np.repeat([0, 1], [size, len(random)])  # 3 sequences, 1 random B -> [0, 0, 0, 1]
        splits = self._places.split(
            np.append(parts.starts, starts),
            np.append(parts.ends, ends),
            self.rng.child("split"),
            np.append(epochs, key[0]),
            np.append(keys, key[1]),
            role,
        )
        # A is [start, split) of its chunk; B goes on there, or at the split of the random chunk
        a_lengths = splits[:size] - parts.starts
        b_starts, b_lengths = splits[:size].copy(), parts.ends - splits[:size]
        b_starts[random] = splits[size:]
        # what the sequence has room for, or what the random document still holds
        b_lengths[random] = np.minimum(
            targets[random] - a_lengths[random], b_limits - splits[size:]
        )
        pieces = pair_pieces(parts.starts, a_lengths, b_starts, b_lengths)
        return replace(pieces, units=of, parts=parts.numbers), pair_labels(size, random)

    def _part(
        self, starts: IntArray, ends: IntArray, room: int, key: tuple[IntArray, IntArray]
    ) -> tuple[IntArray, IntArray]:
        """Return a random part of at most ``room`` tokens of each chunk ``(R,)``."""
        spare = np.maximum(0, ends - starts - room)
        places = starts + self.rng.child("part").integers(spare + 1, *key)
        moved = replace(self._places, reach=room // 8).sentence_start(places, ends - 1)
        starts = np.where(spare > 0, np.maximum(moved, starts), starts)
        return starts, np.minimum(starts + room, ends)


def sampler_in_parts(input_format: str) -> type[SequenceSampler]:
    """Return the class of an input format whose units can be read in parts.

    Raises:
        ConfigError: they cannot.
    """
    if input_format == "segment_pairs":
        return SegmentPairsInParts
    found = load_sampler(input_format)
    if not found.has_parts:
        raise ConfigError(
            "data.max_seq_length: found one that changes, expected a number: sequences of "
            f"data.input_format {input_format} are sentences, not parts of a text; choose "
            "segment_pairs, full_sentences or doc_sentences"
        )
    return found


class AmountsInParts(Amounts):
    """Means over a run in which the length of sequences changes, and perhaps the size of a step.

    A sequence of full length that is read in parts counts as one of a step's size.
    """

    def tokens(self, steps: float) -> tuple[float, float]:
        """Return the mean tokens of a sequence and of a step, special tokens included."""
        ids, _, sequences = self._in_a_step(steps)
        return ids / sequences, ids

    def text(self, steps: float) -> float:
        """Return the mean tokens of text in a step."""
        return self._in_a_step(steps)[1]

    def _in_a_step(self, steps: float) -> tuple[float, float, float]:
        """Return the mean tokens, tokens of text and sequences of a step."""
        length = self.settings.changing_length
        assert length is not None
        run = list(moments(steps))
        lengths = [whole_at(length, moment) for moment in run]
        sizes = np.array([whole_at(self.size, moment) for moment in run])
        known, counts = self._counts
        tokens, text, sequences = (
            float(np.mean(np.interp(lengths, known, each) * sizes)) for each in counts
        )
        return tokens, text, sequences

    @cached_property
    def _counts(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Some lengths ``(L,)``; tokens, text, and sequences of a full one's text ``(3, L)``."""
        length = self.settings.changing_length
        assert length is not None
        indices = np.arange(min(_SAMPLED, len(self.sampler)))
        # 64 to 512 -> 64, 120, 176, … 512
        lengths = np.unique(np.linspace(*length.ends, _LENGTHS).round())
        counts = []
        for each in lengths:
            made = self.sampler.sample(np.zeros_like(indices), indices, int(each))
            text = np.count_nonzero(made.corpus_offsets >= 0)
            counts.append([len(made.input_ids), text, len(made.lengths)])
        return lengths, np.array(counts).T / len(indices)
