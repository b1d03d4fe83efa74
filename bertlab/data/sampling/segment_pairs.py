"""BERT's sequences, and the input formats by name: classes of the kind ``input_format``."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from bertlab.api.batch import IntArray
from bertlab.data.sampling.sampler import (
    MIN_DOCUMENT_LENGTH,
    ChunkGrid,
    Fields,
    Parts,
    Pieces,
    SequenceSampler,
    TextPlaces,
)
from bertlab.errors import CorpusError
from bertlab.plugins.index import load_class


class PairSampler(SequenceSampler):
    """Chooses for ``random_pair_share`` of the sequences (BERT: half) a B from another document.

    The random B is the B of a random unit (chunk or sentence pair) of the other documents, so that
    it starts as true ones do and only its relation to A tells the two apart.

    Attributes:
        first_units: ``(D + 1,)`` number of each usable document's first unit.
    """

    has_pairs: ClassVar[bool] = True
    first_units: IntArray

    def __len__(self) -> int:
        """Number of units of all documents."""
        return int(self.first_units[-1])

    def _random_units(self, epochs: IntArray, keys: IntArray) -> tuple[IntArray, IntArray]:
        """Return which sequences get a random B ``(R,)``, and the units that it is of ``(R,)``.

        Args:
            epochs: ``(B,)`` of each sequence.
            keys: ``(B,)`` its unit; N more for each part of its unit before it.
        """
        chosen = np.flatnonzero(
            self.rng.child("label").uniform(epochs, keys) < self.random_pair_share
        )
        document = np.searchsorted(self.first_units, keys[chosen] % len(self), side="right") - 1
        first = self.first_units[document]
        own = self.first_units[document + 1] - first
        drawn = self.rng.child("partner").integers(len(self) - own, epochs[chosen], keys[chosen])
        # skip the units of A's own document: of units 0 to 6, A's document has 2 and 3
        # drawn [0, 1, 2, 4] -> partners [0, 1, 4, 6]
        return chosen, drawn + own * (drawn >= first)


def pair_pieces(
    a_starts: IntArray, a_lengths: IntArray, b_starts: IntArray, b_lengths: IntArray
) -> Pieces:
    """Return B sequences of two pieces; all arguments are ``(B,)``."""
    # a_starts [0, 10], b_starts [4, 90] -> starts [0, 4, 10, 90], token_types [0, 1, 0, 1]
    return Pieces(
        counts=np.full(len(a_starts), 2),
        starts=np.stack([a_starts, b_starts], axis=1).ravel(),
        lengths=np.stack([a_lengths, b_lengths], axis=1).ravel(),
        token_types=np.tile(np.arange(2), len(a_starts)),
    )


def pair_labels(size: int, random: IntArray) -> Fields:
    """Return BERT's label of each of B pairs: 1 for those in ``random`` ``(R,)``, whose B is."""
    labels = np.zeros(size, dtype=np.int64)
    labels[random] = 1
    return {"next_sentence_label": labels}


class SegmentPairsSampler(PairSampler):
    """BERT's own format (Devlin et al. 2019, sec. 3.1 and app. A.2).

    A and B are spans of contiguous text that fill up to ``max_seq_length`` together. A chunk of a
    document is split at a random sentence start inside it; B is its rest, or what starts at the
    split of a random chunk of another document. Documents under 8 tokens are left out.
    """

    def _index(self, documents: IntArray) -> int:
        lengths = np.diff(self.store.document_token_offsets)[documents]  # (D,)
        usable = lengths >= MIN_DOCUMENT_LENGTH
        self._documents = documents[usable]
        if len(self._documents) < 2:
            raise CorpusError(
                f"segment_pairs needs 2 documents of at least {MIN_DOCUMENT_LENGTH} tokens, so "
                f"that a random B can come from another document; found {len(self._documents)} "
                f"among {len(documents)}: mark where documents end, with a blank line in plain text"
            )
        text_length = self.max_seq_length - 3  # [CLS] and two [SEP]
        self._grid = ChunkGrid(lengths[usable], text_length, self.rng)
        # places move by a quarter of a chunk at most: ChunkGrid's shift makes up for that
        self._places = TextPlaces(
            self.store,
            self.tokenizer.continuation_mask,
            text_length // 4,
            self.tokenizer.closing_mask,
        )
        self.first_units = self._grid.first_chunks
        return len(self._documents)

    def _pieces(
        self, epochs: IntArray, units: IntArray, max_length: int | None
    ) -> tuple[Pieces, Fields]:
        room = None if max_length is None else max_length - 3  # [CLS] and two [SEP]
        starts, ends, limits, targets = self._chunks(units, epochs, units, 0)

        def near(places: IntArray, chunks: IntArray, reach: int) -> IntArray:
            return self._places.within(reach).sentence_start(places, limits[chunks] - 1)

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

    def _chunks(
        self, units: IntArray, epochs: IntArray, keys: IntArray, role: int
    ) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return starts, ends, ends of the document and target lengths of chunks, ``(B,)`` each.

        The length is drawn by ``keys`` ``(B,)`` and ``role``.
        """
        texts, places = self._grid.locate(epochs, units)
        documents = self._documents[texts]
        offsets = self.store.document_token_offsets
        limits = offsets[documents + 1]
        # before limits - 1: two tokens are left at least, one for A and one for B
        starts = self._places.sentence_start(offsets[documents] + places, limits - 1)
        roles = np.full_like(keys, role)
        targets = self._target_lengths(self._grid.chunk_length, epochs, keys, roles)
        return starts, np.minimum(starts + targets, limits), limits, targets

    def _part(
        self, starts: IntArray, ends: IntArray, room: int, key: tuple[IntArray, IntArray]
    ) -> tuple[IntArray, IntArray]:
        """Return a random part of at most ``room`` tokens of each chunk ``(R,)``."""
        spare = np.maximum(0, ends - starts - room)
        places = starts + self.rng.child("part").integers(spare + 1, *key)
        moved = self._places.within(room // 8).sentence_start(places, ends - 1)
        starts = np.where(spare > 0, np.maximum(moved, starts), starts)
        return starts, np.minimum(starts + room, ends)


def load_sampler(input_format: str) -> type[SequenceSampler]:
    """Return the class of an input format; UnknownPluginError if there is none of that name."""
    return load_class("input_format", input_format, SequenceSampler)


def build_sampler(input_format: str, *given: Any, **named: Any) -> SequenceSampler:  # noqa: ANN401
    """Return the sampler of an input format; arguments as in :class:`SequenceSampler`."""
    return load_sampler(input_format)(*given, **named)
