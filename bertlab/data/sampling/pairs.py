"""Input formats with pairs: ``[CLS] A [SEP] B [SEP]`` and whether B follows A in the corpus."""

from typing import ClassVar

import numpy as np

from bertlab.api.batch import IntArray
from bertlab.data.sampling.chunks import MIN_DOCUMENT_LENGTH, ChunkGrid, TextPlaces
from bertlab.data.sampling.sampler import Fields, Pieces, SequenceSampler
from bertlab.errors import CorpusError


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

    def _random_units(self, epochs: IntArray, units: IntArray) -> tuple[IntArray, IntArray]:
        """Return the rows whose B is random ``(R,)``, and the units it comes from ``(R,)``."""
        rows = np.flatnonzero(
            self.rng.child("label").uniform(epochs, units) < self.random_pair_share
        )
        document = np.searchsorted(self.first_units, units[rows], side="right") - 1
        first = self.first_units[document]
        own = self.first_units[document + 1] - first
        drawn = self.rng.child("partner").integers(len(self) - own, epochs[rows], units[rows])
        return rows, drawn + own * (drawn >= first)  # over the units of A's document


def _pair_pieces(
    a_starts: IntArray, a_lengths: IntArray, b_starts: IntArray, b_lengths: IntArray
) -> Pieces:
    """Return B sequences of two pieces; all arguments are ``(B,)``."""
    return Pieces(
        counts=np.full(len(a_starts), 2),
        starts=np.stack([a_starts, b_starts], axis=1).ravel(),
        lengths=np.stack([a_lengths, b_lengths], axis=1).ravel(),
        token_types=np.tile(np.arange(2), len(a_starts)),
    )


def _labels(size: int, rows: IntArray) -> Fields:
    labels = np.zeros(size, dtype=np.int64)
    labels[rows] = 1
    return {"next_sentence_label": labels}


class SegmentPairsSampler(PairSampler):
    """BERT's own format (Devlin et al. 2019, sec. 3.1 and app. A.2).

    A and B are spans of contiguous text that fill up to ``max_seq_length`` together. A chunk of a
    document is split at a random sentence start inside it; B is its rest, or what starts at the
    split of a random chunk of another document. Documents under 8 tokens are left out.
    """

    def _index(self, documents: IntArray) -> int:
        lengths = np.diff(self.store.document_token_offsets)[documents]
        usable = lengths >= MIN_DOCUMENT_LENGTH
        self._documents = documents[usable]
        if len(self._documents) < 2:
            raise CorpusError(
                f"segment_pairs needs 2 documents of at least {MIN_DOCUMENT_LENGTH} tokens, so "
                f"that a random B can come from another document; found {len(self._documents)} "
                f"among {len(documents)}: mark where documents end, with a blank line in plain text"
            )
        text_length = self.max_seq_length - 3
        self._grid = ChunkGrid(lengths[usable], text_length, self.rng)
        self._places = TextPlaces(self.store, self.tokenizer.continuation_mask, text_length // 4)
        self.first_units = self._grid.first_chunks
        return len(self._documents)

    def _pieces(self, epochs: IntArray, units: IntArray) -> tuple[Pieces, Fields]:
        rows, partners = self._random_units(epochs, units)
        size = len(units)
        # chunks of A, and behind them those of the random B; role keeps their draws apart
        role = np.repeat([0, 1], [size, len(rows)])
        key = (np.append(epochs, epochs[rows]), np.append(units, units[rows]), role)
        texts, places = self._grid.locate(key[0], np.append(units, partners))
        documents = self._documents[texts]
        offsets = self.store.document_token_offsets
        limits = offsets[documents + 1]
        starts = self._places.sentence_start(offsets[documents] + places, limits - 1)
        targets = self._target_lengths(self._grid.chunk_length, *key)
        ends = np.minimum(starts + targets, limits)
        splits = self._places.split(starts, ends, self.rng.child("split"), *key)

        a_lengths = splits[:size] - starts[:size]
        b_starts, b_lengths = splits[:size].copy(), ends[:size] - splits[:size]
        b_starts[rows] = splits[size:]
        b_lengths[rows] = np.minimum(targets[rows] - a_lengths[rows], limits[size:] - splits[size:])
        return _pair_pieces(starts[:size], a_lengths, b_starts, b_lengths), _labels(size, rows)


class SentencePairsSampler(PairSampler):
    """A and B are one natural sentence each (SENTENCE-PAIR of Liu et al. 2019, sec. 4.2).

    An epoch pairs the sentences of a document as 0-1, 2-3, … or as 1-2, 3-4, …, at random. Pairs
    that do not fit lose tokens from the end of the longer sentence. Documents of one sentence are
    left out, and ``short_sequence_probability`` has no effect.
    """

    def _index(self, documents: IntArray) -> int:
        pairs = np.diff(self.store.document_offsets)[documents] // 2
        self._documents = documents[pairs > 0]
        if len(self._documents) < 2:
            raise CorpusError(
                "sentence_pairs needs 2 documents of at least 2 sentences; found "
                f"{len(self._documents)} among {len(documents)}: check sentence splitting, and "
                "mark where documents end, with a blank line in plain text"
            )
        self.first_units = np.concatenate([[0], np.cumsum(pairs[pairs > 0])])
        return len(self._documents)

    def _first_sentences(self, epochs: IntArray, units: IntArray) -> IntArray:
        """Return the store's number of each pair's first sentence, ``(B,)``."""
        row = np.searchsorted(self.first_units, units, side="right") - 1
        parity = self.rng.child("parity").integers(2, epochs, row)
        document = self._documents[row]
        begin, end = (
            self.store.document_offsets[document],
            self.store.document_offsets[document + 1],
        )
        return np.minimum(begin + 2 * (units - self.first_units[row]) + parity, end - 2)

    def _pieces(self, epochs: IntArray, units: IntArray) -> tuple[Pieces, Fields]:
        rows, partners = self._random_units(epochs, units)
        a_sentences = self._first_sentences(epochs, units)
        b_sentences = a_sentences + 1
        b_sentences[rows] = self._first_sentences(epochs[rows], partners) + 1
        offsets = np.asarray(self.store.sentence_offsets)
        a_starts, b_starts = offsets[a_sentences], offsets[b_sentences]
        a_lengths = offsets[a_sentences + 1] - a_starts
        b_lengths = offsets[b_sentences + 1] - b_starts
        room = self.max_seq_length - 3
        b_lengths = np.minimum(b_lengths, np.maximum(room - a_lengths, room // 2))
        a_lengths = np.minimum(a_lengths, room - b_lengths)
        return _pair_pieces(a_starts, a_lengths, b_starts, b_lengths), _labels(len(units), rows)
