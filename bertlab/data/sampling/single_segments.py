"""Input formats without pairs: contiguous text up to ``max_seq_length`` (Liu et al. 2019, 4.2)."""

from typing import ClassVar

import numpy as np

from bertlab.api.batch import IntArray
from bertlab.data.sampling.chunks import MIN_DOCUMENT_LENGTH, ChunkGrid, TextPlaces
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
        text_length = self.max_seq_length - 2
        self._grid = ChunkGrid(lengths, text_length, self.rng)
        self._places = TextPlaces(self.store, self.tokenizer.continuation_mask, text_length // 4)


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

    def _pieces(self, epochs: IntArray, units: IntArray) -> tuple[Pieces, Fields]:
        texts, places = self._grid.locate(epochs, units)
        offsets = self.store.document_token_offsets
        documents = self._documents[texts]
        ends = offsets[documents + 1]
        starts = self._places.sentence_start(offsets[documents] + places, ends - 1)
        targets = self._target_lengths(self._grid.chunk_length, epochs, units)
        lengths = np.minimum(targets, ends - starts)
        return Pieces(np.ones_like(units), starts, lengths, np.zeros_like(units)), {}


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

    def _pieces(self, epochs: IntArray, units: IntArray) -> tuple[Pieces, Fields]:
        stream, offsets = self._stream_offsets, self.store.document_token_offsets
        _, places = self._grid.locate(epochs, units)
        row = np.searchsorted(stream, places + 1, side="right") - 1  # on a separator: the next
        text = offsets[self._documents[row]]  # of the document that holds the place
        ends = offsets[self._documents[row] + 1]
        in_text = text + np.maximum(places - stream[row], 0)
        starts = stream[row] - text + self._places.sentence_start(in_text, ends)
        targets = self._target_lengths(self._grid.chunk_length, epochs, units)
        stops = np.minimum(starts + targets, self._grid.lengths[0])

        counts = np.searchsorted(stream, stops - 1, side="right") - row  # documents touched
        owner = np.repeat(np.arange(len(units)), counts)
        row = np.arange(len(owner)) + np.repeat(row - np.cumsum(counts) + counts, counts)
        first = np.maximum(starts[owner], stream[row])
        last = np.minimum(stops[owner], stream[row + 1] - 1)
        text = offsets[self._documents[row]]
        return Pieces(counts, text + first - stream[row], last - first, np.zeros_like(owner)), {}
