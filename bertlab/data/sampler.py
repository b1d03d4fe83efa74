"""Samplers: text of a token store as packed sequences; BERT's own format, and the base of others.

The sampler owns text stream, pairs, layout and lengths; objectives do not change them. A sequence
is a pure function of (seed, epoch, index). Input formats are classes of the kind ``input_format``.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from bertlab.api.batch import IntArray, PackedSequences
from bertlab.api.rng import CounterRNG
from bertlab.api.tokenizer import Tokenizer, word_starts
from bertlab.data.corpus.store import TokenStore
from bertlab.errors import ConfigError, CorpusError, TokenStoreError, check_at_least, check_share
from bertlab.plugins.index import load_class, of_package

MIN_SEQUENCE_LENGTH = 8  # 3 special tokens, and the 5 of text that ChunkGrid needs
MIN_DOCUMENT_LENGTH = 8  # tokens

_CHECKED = 2**22  # tokens at a time

Fields = dict[str, npt.NDArray[np.generic]]


@dataclass(frozen=True)
class Pieces:
    """Runs of contiguous text that sequences consist of, P of them in B sequences."""

    counts: IntArray  # (B,) pieces of each sequence, at least 1
    starts: IntArray  # (P,) place of the piece's first token in the store
    lengths: IntArray  # (P,) tokens
    token_types: IntArray  # (P,) 0 for segment A, 1 for segment B
    # (B,) which of the units asked for each sequence is of; None: each unit is one sequence
    units: IntArray | None = None
    parts: IntArray | None = None  # (B,) which part of its unit each sequence is, from 0


def check_max_seq_length(max_seq_length: int) -> None:
    """Raise ConfigError if sequences would have no room for special tokens and text."""
    room = ": room for [CLS], two [SEP] and some text"
    check_at_least("data.max_seq_length", max_seq_length, MIN_SEQUENCE_LENGTH, room)


class SequenceSampler(ABC):
    """Turns (epoch, index) into a sequence of special tokens and text.

    Attributes:
        has_pairs: sequences have segments A and B and a ``next_sentence_label``.
        has_parts: a unit of text can be read in parts, where ``max_seq_length`` changes.
        documents_too_short: number of the given documents that the format cannot use.
    """

    has_pairs: ClassVar[bool]
    has_parts: ClassVar[bool] = True
    documents_too_short: int

    def __init__(
        self,
        store: TokenStore,
        tokenizer: Tokenizer,
        documents: IntArray,
        max_seq_length: int,
        short_sequence_probability: float,
        rng: CounterRNG,
        random_pair_share: float = 0.5,
    ) -> None:
        """Check the settings and index the documents."""
        check_max_seq_length(max_seq_length)
        check_share("data.short_sequence_probability", short_sequence_probability)
        check_share("data.random_pair_share", random_pair_share)
        self.store = store
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length
        self.short_sequence_probability = short_sequence_probability
        self.rng = rng
        self.random_pair_share = random_pair_share
        self.documents_too_short = len(documents) - self._index(documents)

    @abstractmethod
    def _index(self, documents: IntArray) -> int:
        """Count the units (chunks, sentence pairs) of documents; return how many it can use."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of sequences N of an epoch."""

    @abstractmethod
    def _pieces(
        self, epochs: IntArray, units: IntArray, max_length: int | None
    ) -> tuple[Pieces, Fields]:
        """Return the text of sequences, and their fields, by unit (chunk or pair) of an epoch.

        Units whose text is longer than ``max_length`` allows become several sequences, in order.
        """

    def sample(
        self, epochs: IntArray, indices: IntArray, max_length: int | None = None
    ) -> PackedSequences:
        """Return the sequences with the given numbers; none depends on the others.

        Args:
            epochs: ``(B,)`` int64, each at least 0.
            indices: ``(B,)`` int64 in [0, N). Every epoch has its own order of the same units.
            max_length: longest sequence here, special tokens included; at least
                ``MIN_SEQUENCE_LENGTH``. The text of longer ones is divided into several sequences,
                numbered ``index + N``, ``index + 2N``, … from the second on. None, or
                ``max_seq_length``: one sequence for each index.
        """
        if indices.size and not 0 <= indices.min() <= indices.max() < len(self):
            raise IndexError(f"sequence index outside [0, {len(self)})")
        # (B,); a keyed permutation needs no list of N numbers, and any place of it can be had alone
        units = self.rng.child("order").permute(indices, len(self), epochs)
        if max_length is not None and max_length >= self.max_seq_length:
            max_length = None
        try:
            pieces, fields = self._pieces(epochs, units, max_length)
        except IndexError:
            for start in range(0, len(self.store.tokens), _CHECKED):  # it may be the store's fault
                ids = self.store.tokens[start : start + _CHECKED]
                self._check_ids(ids, np.arange(start, start + len(ids)))
            raise
        if pieces.units is not None and pieces.parts is not None:
            epochs = epochs[pieces.units]
            indices = indices[pieces.units] + pieces.parts * len(self)
        # two sequences, of pieces A B and C: counts [2, 1], lengths [3, 2, 4]
        # -> [CLS] A A A [SEP] B B [SEP] | [CLS] C C C C [SEP]: widths [5, 3, 6], ends [5, 8, 14]
        piece_first = np.zeros(len(pieces.starts), dtype=np.int64)  # 1: [CLS] is before it
        piece_first[np.cumsum(pieces.counts) - pieces.counts] = 1
        widths = pieces.lengths + 1 + piece_first  # + 1: [SEP] is behind it
        ends = np.cumsum(widths)
        cu_seqlens = np.concatenate([[0], ends[np.cumsum(pieces.counts) - 1]])  # [0, 8, 14]
        # position i of a piece that begins at position p holds token start + i - p of the store,
        # one less after [CLS]; special tokens have the offset -1
        place = np.arange(cu_seqlens[-1])
        offsets = place + np.repeat(pieces.starts - piece_first - (ends - widths), widths)
        offsets[cu_seqlens[:-1]] = -1
        offsets[ends - 1] = -1
        text = np.flatnonzero(offsets >= 0)
        input_ids = np.empty(len(offsets), np.int64)
        input_ids[text] = self.store.tokens[offsets[text]]
        self._check_ids(input_ids[text], offsets[text])
        input_ids[cu_seqlens[:-1]] = self.tokenizer.cls_id
        input_ids[ends - 1] = self.tokenizer.sep_id
        return PackedSequences(
            input_ids=input_ids,
            # special tokens belong to a piece
            token_type_ids=np.repeat(pieces.token_types, widths),
            position_ids=place - np.repeat(cu_seqlens[:-1], np.diff(cu_seqlens)),
            cu_seqlens=cu_seqlens,
            corpus_offsets=offsets,
            epochs=np.array(epochs, dtype=np.int64),
            indices=np.array(indices, dtype=np.int64),
            fields=fields,
        )

    def _check_ids(self, ids: npt.NDArray[np.integer[Any]], offsets: IntArray) -> None:
        """Raise TokenStoreError for an id outside the vocabulary, read at ``offsets``."""
        vocab_size = len(self.tokenizer.continuation_mask)
        if ids.size and ids.max() >= vocab_size:
            place = offsets[ids.argmax()]
            raise TokenStoreError(
                f"tokens.npy of the corpus: damaged: id {ids.max()} at token {place}, but "
                f"the vocabulary ends at {vocab_size - 1}; prepare the corpus again"
            )

    def _target_lengths(self, text_length: int, *key: IntArray) -> IntArray:
        """Return ``text_length``, or for some sequences uniform in [2, text_length]."""
        rng = self.rng.child("length")
        short = rng.child("short").uniform(*key) < self.short_sequence_probability
        return np.where(short, 2 + rng.integers(text_length - 1, *key), text_length)


class ChunkGrid:
    """Cuts texts of M tokens into ``ceil(M / L)`` chunks each; memory is O(texts), not O(chunks).

    Every epoch shifts the grid of a text of several chunks by another amount. The shift ranges
    over the slack ``n L - M``, and over at least 3/4 L: snapping by up to L/4 leaves gaps between
    chunks, and the range makes sure that no token lies in a gap in every epoch.

    Attributes:
        lengths: ``(D,)`` tokens of each text.
        chunk_length: L.
        first_chunks: ``(D + 1,)`` number of each text's first chunk; the last is their total.
    """

    def __init__(self, lengths: IntArray, chunk_length: int, rng: CounterRNG) -> None:
        """Count the chunks of texts of at least 2 tokens, for L at least 5."""
        self.lengths = lengths
        self.chunk_length = chunk_length
        # lengths [10, 3], L 4 -> 3 chunks and 1 -> first_chunks [0, 3, 4]
        self.first_chunks = np.concatenate([[0], np.cumsum(-(-lengths // chunk_length))])
        self._rng = rng.child("shift")

    def __len__(self) -> int:
        """Number of chunks of all texts."""
        return int(self.first_chunks[-1])

    def locate(self, epochs: IntArray, chunks: IntArray) -> tuple[IntArray, IntArray]:
        """Return each chunk's text ``(B,)`` and its unsnapped start within the text ``(B,)``."""
        texts = np.searchsorted(self.first_chunks, chunks, side="right") - 1  # (B,)
        number = chunks - self.first_chunks[texts]  # chunk 3: text 1, number 0 in it
        length, size = self.lengths[texts], self.chunk_length
        slack = -length % size  # length 10, size 4: chunks cover 12, slack 2
        margin = np.maximum(0, 3 * size // 4 - slack + 1) // 2
        # size 4, slack 2 -> margin 1 -> shifts -1 to 3: slack + 2 * margin is 3/4 of size or more
        shift = self._rng.integers(slack + 2 * margin + 1, epochs, texts) - margin
        latest = np.maximum(0, length - size // 2)  # pull a short last chunk back
        starts = np.clip(number * size - shift, 0, latest)
        return texts, np.where(number == 0, 0, starts)  # a text's first chunk begins with it


@dataclass(frozen=True)
class TextPlaces:
    """Finds sentence and word starts in the store."""

    store: TokenStore
    continuation_mask: npt.NDArray[np.bool_]  # (V,) ids that continue a word
    reach: int  # farthest that a place is moved, in tokens
    closing_mask: npt.NDArray[np.bool_] | None = None  # (V,) ids behind which a word begins

    def word_start(self, places: IntArray, ends: IntArray) -> IntArray:
        """Return the first word start at or after ``places``, before ``ends``, within reach.

        Where there is none, a place stays where it is. All arguments are ``(B,)``.
        """
        window = places[:, None] + np.arange(self.reach + 1)  # (B, reach + 1)
        tokens = self.store.tokens
        # (B, reach + 2), from the token before each place on; past the end of the store stands its
        # last token again
        ids = tokens[np.clip(places[:, None] + np.arange(-1, self.reach + 1), 0, len(tokens) - 1)]
        starts_word = word_starts(ids, self.continuation_mask, self.closing_mask)[:, 1:]
        starts_word &= window < ends[:, None]
        return np.asarray(places + starts_word.argmax(axis=1))  # argmax of no True is 0

    def sentence_start(self, places: IntArray, ends: IntArray) -> IntArray:
        """Return the nearest sentence start before ``ends`` within reach, else the next word start.

        A document starts a sentence, so that a place never leaves its document while ``ends`` is
        at most the document's end. All arguments are ``(B,)``.
        """
        offsets = self.store.sentence_offsets
        # offsets [0, 7, 12], place 9 -> before 7 (2 back), after 12 (3 ahead): 7
        following = offsets.searchsorted(places, side="right")
        before, after = offsets[following - 1], offsets[following]  # (B,) each
        back = places - before
        # a start past the end is out of reach
        ahead = np.where(after < ends, after - places, self.reach + 1)
        snapped = np.where(back <= ahead, before, after)
        far = np.flatnonzero(np.minimum(back, ahead) > self.reach)
        if far.size:
            snapped[far] = self.word_start(places[far], ends[far])
        return snapped

    def split(self, starts: IntArray, ends: IntArray, rng: CounterRNG, *key: IntArray) -> IntArray:
        """Return a random sentence start strictly inside each span of two tokens or more.

        Spans within one sentence are split at the word start after a random place, or at that
        place where no word starts within reach. All arguments are ``(B,)``.
        """
        offsets = self.store.sentence_offsets
        # offsets [0, 7, 12, 20], span [5, 18) -> first 1, inside 2: the starts 7 and 12
        first = offsets.searchsorted(starts, side="right")
        inside = offsets.searchsorted(ends, side="left") - first
        chosen = first + rng.integers(np.maximum(inside, 1), *key)
        # a span without a start may point past the end here; it is replaced below
        splits: IntArray = offsets[np.minimum(chosen, len(offsets) - 1)]
        none = np.flatnonzero(inside == 0)
        if none.size:
            # integers() is below ends - starts - 1, so places are in [start + 1, end)
            places = starts + 1 + rng.child("word").integers(ends - starts - 1, *key)
            splits[none] = self.word_start(places[none], ends[none])
        return splits


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
        """Return which sequences get a random B ``(R,)``, and the units that it is of ``(R,)``."""
        # keys (B,) are the sequences' units; N more for each part of the unit before it
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

    has_parts: ClassVar[bool] = False

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
        del max_length  # see has_parts
        starts, ends, _, targets = self._chunks(units, epochs, units, 0)
        random, partners = self._random_units(epochs, units)
        key = (epochs[random], units[random])
        random_starts, random_ends, limits, _ = self._chunks(partners, *key, 1)
        # the chunks of A, and behind them those of the random B; role keeps their draws apart
        size = len(units)
        role = np.repeat([0, 1], [size, len(random)])  # 3 sequences, 1 random B -> [0, 0, 0, 1]
        splits = self._places.split(
            np.append(starts, random_starts),
            np.append(ends, random_ends),
            self.rng.child("split"),
            np.append(epochs, key[0]),
            np.append(units, key[1]),
            role,
        )
        # A is [start, split) of its chunk; B goes on there, or at the split of the random chunk
        a_lengths = splits[:size] - starts
        b_starts, b_lengths = splits[:size].copy(), ends - splits[:size]
        b_starts[random] = splits[size:]
        # what the sequence has room for, or what the random document still holds
        b_lengths[random] = np.minimum(targets[random] - a_lengths[random], limits - splits[size:])
        return pair_pieces(starts, a_lengths, b_starts, b_lengths), pair_labels(size, random)

    def _chunks(
        self, units: IntArray, epochs: IntArray, keys: IntArray, role: int
    ) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return starts, ends, ends of the document and target lengths of chunks, ``(B,)`` each."""
        # the length is drawn by keys (B,) and role
        texts, places = self._grid.locate(epochs, units)
        documents = self._documents[texts]
        offsets = self.store.document_token_offsets
        limits = offsets[documents + 1]
        # before limits - 1: two tokens are left at least, one for A and one for B
        starts = self._places.sentence_start(offsets[documents] + places, limits - 1)
        roles = np.full_like(keys, role)
        targets = self._target_lengths(self._grid.chunk_length, epochs, keys, roles)
        return starts, np.minimum(starts + targets, limits), limits, targets


def load_sampler(input_format: str, in_parts: bool = False) -> type[SequenceSampler]:
    """Return the class of an input format; UnknownPluginError if there is none of that name.

    With ``in_parts`` it reads units in parts, where ``max_seq_length`` changes, by bertlab-modern.
    """
    if not in_parts:
        return load_class("input_format", input_format, SequenceSampler)
    failure = "data.max_seq_length: found one that changes"
    find = of_package("data.sampler_in_parts", ConfigError, failure)
    return cast("type[SequenceSampler]", find(input_format))
