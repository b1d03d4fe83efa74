"""Sequences of contiguous text up to ``max_seq_length``: ``[CLS] text [SEP]``."""

from typing import ClassVar

import numpy as np

from bertlab.api.batch import IntArray
from bertlab.data.sampling.chunks import MIN_DOCUMENT_LENGTH, ChunkGrid, Parts, TextPlaces
from bertlab.data.sampling.sampler import Fields, Pieces, SequenceSampler
from bertlab.errors import CorpusError


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
            return self._places.within(reach).sentence_start(places, ends[chunks] - 1)

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
            return self._start_near(places, self._places.within(reach))

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
