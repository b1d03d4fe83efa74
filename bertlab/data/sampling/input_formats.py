"""The four input formats of table 2 of RoBERTa (Liu et al. 2019), by name."""

from dataclasses import replace
from typing import ClassVar, Literal, get_args

import numpy as np

from bertlab.api.batch import IntArray
from bertlab.api.rng import CounterRNG
from bertlab.api.tokenizer import Tokenizer
from bertlab.data.corpus.store import TokenStore
from bertlab.data.sampling.sampler import (
    MIN_DOCUMENT_LENGTH,
    ChunkGrid,
    Fields,
    Parts,
    Pieces,
    SequenceSampler,
    TextPlaces,
    TokenArrays,
)
from bertlab.errors import ConfigError, CorpusError, nearest


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
        pieces = _pair_pieces(parts.starts, a_lengths, b_starts, b_lengths)
        return replace(pieces, units=of, parts=parts.numbers), _labels(size, random)

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
        return _pair_pieces(a_starts, a_lengths, b_starts, b_lengths), _labels(len(units), random)


InputFormat = Literal["segment_pairs", "sentence_pairs", "full_sentences", "doc_sentences"]

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
    """Return the sampler of an input format; arguments as in :class:`SequenceSampler`."""
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


def paper_sampler(store: TokenStore, max_seq_length: int, seed: int) -> SequenceSampler:
    """Return the paper's sampling (app. A.2) over all documents of a store."""
    return build_sampler(
        "segment_pairs",
        store=store,
        tokenizer=store.tokenizer,
        documents=np.arange(len(store)),
        max_seq_length=max_seq_length,
        short_sequence_probability=0.1,  # create_pretraining_data.py of google-research/bert
        rng=CounterRNG(seed, "sampler"),
    )
