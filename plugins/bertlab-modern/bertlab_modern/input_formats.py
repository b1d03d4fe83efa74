"""The input formats of table 2 of RoBERTa (Liu et al. 2019) beside BERT's own."""

from dataclasses import replace
from typing import ClassVar

import numpy as np

from bertlab import IntArray
from bertlab.api import CorpusError
from bertlab.extend import (
    MIN_DOCUMENT_LENGTH,
    ChunkGrid,
    Fields,
    PairSampler,
    Pieces,
    SequenceSampler,
    TextPlaces,
    pair_labels,
    pair_pieces,
)
from bertlab_modern.parts import Parts


class SingleSegmentSampler(SequenceSampler):
    """Has one segment, cut from a grid of chunks."""

    has_pairs: ClassVar[bool] = False

    def __len__(self) -> int:
        """Number of chunks of all texts."""
        return len(self._grid)

    def _cut(self, lengths: IntArray) -> None:
        """Lay the grid over texts of the given lengths in tokens."""
        text_length = self.max_seq_length - 2  # [CLS] and [SEP]
        self._grid = ChunkGrid(lengths, text_length, self.rng)
        self._places = TextPlaces(
            self.store,
            self.tokenizer.continuation_mask,
            text_length // 4,
            self.tokenizer.closing_mask,
        )


class DocSentencesSampler(SingleSegmentSampler):
    """``[CLS] text [SEP]``, never across a document's end (RoBERTa's DOC-SENTENCES).

    Documents under 8 tokens are left out.
    """

    def _index(self, documents: IntArray) -> int:
        lengths = np.diff(self.store.document_token_offsets)[documents]
        usable = lengths >= MIN_DOCUMENT_LENGTH
        self._documents = documents[usable]
        if len(self._documents) == 0:
            raise CorpusError(
                f"doc_sentences needs a document of at least {MIN_DOCUMENT_LENGTH} tokens, "
                f"found none among {len(documents)} documents"
            )
        self._cut(lengths[usable])
        return len(self._documents)

    def _pieces(
        self, epochs: IntArray, units: IntArray, max_length: int | None
    ) -> tuple[Pieces, Fields]:
        texts, places = self._grid.locate(epochs, units)
        offsets = self.store.document_token_offsets
        documents = self._documents[texts]
        ends = offsets[documents + 1]
        # before ends - 1: two tokens are left at least
        starts = self._places.sentence_start(offsets[documents] + places, ends - 1)
        targets = self._target_lengths(self._grid.chunk_length, epochs, units)

        def near(places: IntArray, chunks: IntArray, reach: int) -> IntArray:
            return replace(self._places, reach=reach).sentence_start(places, ends[chunks] - 1)

        room = None if max_length is None else max_length - 2  # [CLS] and [SEP]
        parts = Parts.cut(starts, np.minimum(starts + targets, ends), room, near)
        zeros = np.zeros_like(parts.starts)
        lengths = parts.ends - parts.starts
        return Pieces(zeros + 1, parts.starts, lengths, zeros, parts.spans, parts.numbers), {}


class FullSentencesSampler(SingleSegmentSampler):
    """``[CLS] text [SEP] text of the next document … [SEP]`` (RoBERTa's FULL-SENTENCES).

    The documents stand end to end in corpus order with one ``[SEP]`` between two; that stream is
    cut like one long document.
    """

    def _index(self, documents: IntArray) -> int:
        lengths = np.diff(self.store.document_token_offsets)[documents]
        self._documents = documents[lengths > 0]
        self._stream_offsets = np.concatenate([[0], np.cumsum(lengths[lengths > 0] + 1)])
        stream_length = int(self._stream_offsets[-1]) - 1  # the last [SEP] belongs to the layout
        if stream_length < MIN_DOCUMENT_LENGTH:
            raise CorpusError(
                f"full_sentences needs at least {MIN_DOCUMENT_LENGTH} tokens of text, "
                f"found {max(stream_length, 0)} in {len(documents)} documents"
            )
        self._cut(np.array([stream_length]))
        return len(self._documents)

    def _pieces(
        self, epochs: IntArray, units: IntArray, max_length: int | None
    ) -> tuple[Pieces, Fields]:
        _, places = self._grid.locate(epochs, units)
        starts = self._start_near(places, self._places)
        targets = self._target_lengths(self._grid.chunk_length, epochs, units)
        stops = np.minimum(starts + targets, self._grid.lengths[0])

        def near(places: IntArray, chunks: IntArray, reach: int) -> IntArray:
            del chunks
            return self._start_near(places, replace(self._places, reach=reach))

        room = None if max_length is None else max_length - 2  # [CLS] and [SEP]
        parts = Parts.cut(starts, stops, room, near)
        stream, offsets = self._stream_offsets, self.store.document_token_offsets
        number = self._document_at(parts.starts)
        counts = np.searchsorted(stream, parts.ends - 1, side="right") - number  # documents touched
        # counts [2, 1], number [0, 4] -> owner [0, 0, 1], number [0, 1, 4]: a piece each
        owner = np.repeat(np.arange(len(number)), counts)
        number = np.arange(len(owner)) + np.repeat(number - np.cumsum(counts) + counts, counts)
        first = np.maximum(parts.starts[owner], stream[number])
        # without the document's [SEP]
        last = np.minimum(parts.ends[owner], stream[number + 1] - 1)
        text = offsets[self._documents[number]] + first - stream[number]
        zeros = np.zeros_like(owner)
        return Pieces(counts, text, last - first, zeros, parts.spans, parts.numbers), {}

    def _document_at(self, places: IntArray) -> IntArray:
        """Return the number of the document at places of the stream, ``(B,)``.

        On a separator that is the next document.
        """
        # documents of 3 and 2 tokens -> stream [0, 4, 7]: 0 1 2 [SEP] 4 5 [SEP]
        return np.searchsorted(self._stream_offsets, places + 1, side="right") - 1

    def _start_near(self, places: IntArray, starts: TextPlaces) -> IntArray:
        """Return the places of the stream, ``(B,)``, moved to a start as ``starts`` says."""
        number = self._document_at(places)
        stream = self._stream_offsets[number]
        text, ends = (
            self.store.document_token_offsets[self._documents[number] + each] for each in (0, 1)
        )
        # a place on a separator stands for the next document's first token
        in_text = text + np.maximum(places - stream, 0)
        # from places in the store back to places in the stream
        return stream - text + starts.sentence_start(in_text, ends)


class SentencePairsSampler(PairSampler):
    """A and B are one natural sentence each (SENTENCE-PAIR of Liu et al. 2019, sec. 4.2).

    An epoch pairs the sentences of a document as 0-1, 2-3, … or as 1-2, 3-4, …, at random. Pairs
    that do not fit lose tokens from the end of the longer sentence. Documents of one sentence are
    left out, and ``short_sequence_probability`` has no effect.
    """

    has_parts: ClassVar[bool] = False

    def _index(self, documents: IntArray) -> int:
        # sentences [5, 1, 4] -> pairs [2, 0, 2]
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
        number = np.searchsorted(self.first_units, units, side="right") - 1  # of the document
        # sentences 0 1, 2 3, … or 1 2, 3 4, …: drawn for each document and epoch
        parity = self.rng.child("parity").integers(2, epochs, number)
        document = self._documents[number]
        begin, end = (
            self.store.document_offsets[document],
            self.store.document_offsets[document + 1],
        )
        # 4 sentences, parity 1: pairs 1 2 and 2 3, as there is no 3 4
        return np.minimum(begin + 2 * (units - self.first_units[number]) + parity, end - 2)

    def _pieces(
        self, epochs: IntArray, units: IntArray, max_length: int | None
    ) -> tuple[Pieces, Fields]:
        random, partners = self._random_units(epochs, units)
        a_sentences = self._first_sentences(epochs, units)
        b_sentences = a_sentences + 1
        b_sentences[random] = self._first_sentences(epochs[random], partners) + 1
        offsets = self.store.sentence_offsets
        a_starts, b_starts = offsets[a_sentences], offsets[b_sentences]
        a_lengths = offsets[a_sentences + 1] - a_starts
        b_lengths = offsets[b_sentences + 1] - b_starts
        room = self.max_seq_length - 3  # [CLS] and two [SEP]
        # room 10: 8 and 9 tokens -> 5 and 5; 3 and 9 -> 3 and 7; 9 and 2 -> 8 and 2
        b_lengths = np.minimum(b_lengths, np.maximum(room - a_lengths, room // 2))
        a_lengths = np.minimum(a_lengths, room - b_lengths)
        return pair_pieces(a_starts, a_lengths, b_starts, b_lengths), pair_labels(
            len(units), random
        )
