"""The four input formats of table 2 of RoBERTa (Liu et al. 2019), by name.

Two have pairs, ``[CLS] A [SEP] B [SEP]`` and whether B follows A in the corpus; two have contiguous
text up to ``max_seq_length``.
"""

from typing import ClassVar, Literal, get_args

import numpy as np

from bertlab.api.batch import IntArray
from bertlab.api.rng import CounterRNG
from bertlab.api.tokenizer import Tokenizer
from bertlab.data.sampling.chunks import MIN_DOCUMENT_LENGTH, ChunkGrid, TextPlaces
from bertlab.data.sampling.sampler import Fields, Pieces, SequenceSampler, TokenArrays
from bertlab.errors import ConfigError, CorpusError, nearest

InputFormat = Literal["segment_pairs", "sentence_pairs", "full_sentences", "doc_sentences"]


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
        """Return which sequences get a random B ``(R,)``, and the units that it is of ``(R,)``."""
        chosen = np.flatnonzero(
            self.rng.child("label").uniform(epochs, units) < self.random_pair_share
        )
        document = np.searchsorted(self.first_units, units[chosen], side="right") - 1
        first = self.first_units[document]
        own = self.first_units[document + 1] - first
        drawn = self.rng.child("partner").integers(len(self) - own, epochs[chosen], units[chosen])
        # skip the units of A's own document: of units 0 to 6, A's document has 2 and 3
        # drawn [0, 1, 2, 4] -> partners [0, 1, 4, 6]
        return chosen, drawn + own * (drawn >= first)


def _pair_pieces(
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


def _labels(size: int, random: IntArray) -> Fields:
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

    def _pieces(self, epochs: IntArray, units: IntArray) -> tuple[Pieces, Fields]:
        random, partners = self._random_units(epochs, units)
        size = len(units)
        # chunks of A, and behind them those of the random B; role keeps their draws apart
        role = np.repeat([0, 1], [size, len(random)])  # 3 sequences, 1 random B -> [0, 0, 0, 1]
        key = (np.append(epochs, epochs[random]), np.append(units, units[random]), role)
        texts, places = self._grid.locate(key[0], np.append(units, partners))
        documents = self._documents[texts]
        offsets = self.store.document_token_offsets
        limits = offsets[documents + 1]  # (B + R,)
        # before limits - 1: two tokens are left at least, one for A and one for B
        starts = self._places.sentence_start(offsets[documents] + places, limits - 1)
        targets = self._target_lengths(self._grid.chunk_length, *key)  # (B + R,)
        ends = np.minimum(starts + targets, limits)
        splits = self._places.split(starts, ends, self.rng.child("split"), *key)

        # A is [start, split) of its chunk; B goes on there, or at the split of the random chunk
        a_lengths = splits[:size] - starts[:size]
        b_starts, b_lengths = splits[:size].copy(), ends[:size] - splits[:size]
        b_starts[random] = splits[size:]
        # what the sequence has room for, or what the random document still holds
        b_lengths[random] = np.minimum(
            targets[random] - a_lengths[random], limits[size:] - splits[size:]
        )
        return _pair_pieces(starts[:size], a_lengths, b_starts, b_lengths), _labels(size, random)


class SentencePairsSampler(PairSampler):
    """A and B are one natural sentence each (SENTENCE-PAIR of Liu et al. 2019, sec. 4.2).

    An epoch pairs the sentences of a document as 0-1, 2-3, … or as 1-2, 3-4, …, at random. Pairs
    that do not fit lose tokens from the end of the longer sentence. Documents of one sentence are
    left out, and ``short_sequence_probability`` has no effect.
    """

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

    def _pieces(self, epochs: IntArray, units: IntArray) -> tuple[Pieces, Fields]:
        random, partners = self._random_units(epochs, units)
        a_sentences = self._first_sentences(epochs, units)
        b_sentences = a_sentences + 1
        b_sentences[random] = self._first_sentences(epochs[random], partners) + 1
        offsets = np.asarray(self.store.sentence_offsets)
        a_starts, b_starts = offsets[a_sentences], offsets[b_sentences]
        a_lengths = offsets[a_sentences + 1] - a_starts
        b_lengths = offsets[b_sentences + 1] - b_starts
        room = self.max_seq_length - 3  # [CLS] and two [SEP]
        # room 10: 8 and 9 tokens -> 5 and 5; 3 and 9 -> 3 and 7; 9 and 2 -> 8 and 2
        b_lengths = np.minimum(b_lengths, np.maximum(room - a_lengths, room // 2))
        a_lengths = np.minimum(a_lengths, room - b_lengths)
        return _pair_pieces(a_starts, a_lengths, b_starts, b_lengths), _labels(len(units), random)


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

    def _pieces(self, epochs: IntArray, units: IntArray) -> tuple[Pieces, Fields]:
        texts, places = self._grid.locate(epochs, units)
        offsets = self.store.document_token_offsets
        documents = self._documents[texts]
        ends = offsets[documents + 1]
        # before ends - 1: two tokens are left at least
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
        # documents of 3 and 2 tokens -> stream [0, 4, 7]: 0 1 2 [SEP] 4 5 [SEP]
        number = np.searchsorted(stream, places + 1, side="right") - 1  # of the document; on a
        text = offsets[self._documents[number]]  # separator that of the next one
        ends = offsets[self._documents[number] + 1]
        # a place on a separator stands for the next document's first token
        in_text = text + np.maximum(places - stream[number], 0)
        # from places in the store back to places in the stream
        starts = stream[number] - text + self._places.sentence_start(in_text, ends)
        targets = self._target_lengths(self._grid.chunk_length, epochs, units)
        stops = np.minimum(starts + targets, self._grid.lengths[0])

        counts = np.searchsorted(stream, stops - 1, side="right") - number  # documents touched
        # counts [2, 1], number [0, 4] -> owner [0, 0, 1], number [0, 1, 4]: a piece each
        owner = np.repeat(np.arange(len(units)), counts)
        number = np.arange(len(owner)) + np.repeat(number - np.cumsum(counts) + counts, counts)
        first = np.maximum(starts[owner], stream[number])
        last = np.minimum(stops[owner], stream[number + 1] - 1)  # without the document's [SEP]
        text = offsets[self._documents[number]]
        return Pieces(counts, text + first - stream[number], last - first, np.zeros_like(owner)), {}


SAMPLERS: dict[str, type[SequenceSampler]] = {
    "segment_pairs": SegmentPairsSampler,
    "sentence_pairs": SentencePairsSampler,
    "full_sentences": FullSentencesSampler,
    "doc_sentences": DocSentencesSampler,
}


def build_sampler(
    input_format: InputFormat,
    store: TokenArrays,
    tokenizer: Tokenizer,
    documents: IntArray,
    max_seq_length: int,
    short_sequence_probability: float,
    rng: CounterRNG,
    random_pair_share: float = 0.5,
) -> SequenceSampler:
    """Return the sampler of an input format; arguments as in :class:`SequenceSampler`.

    Raises:
        ConfigError: the format is unknown or a setting is out of range.
        CorpusError: the documents are too few or too short for the format.
    """
    if input_format not in SAMPLERS:
        raise ConfigError(
            f"input_format is {input_format!r}, expected one of "
            f"{', '.join(get_args(InputFormat))}{nearest(input_format, SAMPLERS)}"
        )
    return SAMPLERS[input_format](
        store,
        tokenizer,
        documents,
        max_seq_length,
        short_sequence_probability,
        rng,
        random_pair_share,
    )
