"""Base of all samplers: packing pieces of text to sequences; and the held-out split.

The sampler owns text stream, pairs, layout and lengths; objectives do not change them. A sequence
is a pure function of (seed, epoch, index).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bertlab.api.batch import IntArray, PackedSequences
from bertlab.api.rng import CounterRNG
from bertlab.api.tokenizer import Tokenizer, word_starts
from bertlab.data.corpus.store import TokenStore
from bertlab.errors import CorpusError, TokenStoreError, check_at_least, check_share

MIN_SEQUENCE_LENGTH = 8  # 3 special tokens, and the 5 of text that ChunkGrid needs

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
            self._check_store()  # it may be the store's fault
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

    def _check_store(self) -> None:
        for start in range(0, len(self.store.tokens), _CHECKED):
            ids = self.store.tokens[start : start + _CHECKED]
            self._check_ids(ids, np.arange(start, start + len(ids)))

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


def split_documents(
    document_lengths: IntArray, validation_fraction: float, rng: CounterRNG
) -> tuple[IntArray, IntArray]:
    """Split documents at random into training and held-out ones.

    Held-out documents are a prefix of a random order whose share of tokens is nearest to the
    fraction; documents that alone exceed the fraction stay in training as long as others suffice.
    Of ``(D,)`` lengths in tokens these are ids of documents, each sorted, at least 2 of each.
    """
    check_share("data.validation_fraction", validation_fraction, ends=False)
    with_text = np.flatnonzero(document_lengths > 0)
    if len(with_text) < 4:
        raise CorpusError(
            f"the corpus has {len(with_text)} documents with text, expected at least 4 "
            "(2 to train on, 2 held out): mark where documents end, with a blank line in plain text"
        )
    # lengths [5, 90, 8, 7], fraction 0.1: budget 11 -> candidates 0, 3, 2 in random order, at least
    # two of them: the prefix whose total is nearest to 11
    budget = validation_fraction * document_lengths.sum()
    by_length = with_text[np.argsort(document_lengths[with_text], kind="stable")]
    small = max(2, int(np.searchsorted(document_lengths[by_length], budget, side="right")))
    candidates = by_length[:small]
    candidates = candidates[np.argsort(rng.bits(candidates), kind="stable")]
    totals = np.cumsum(document_lengths[candidates])
    most = min(small, len(with_text) - 2)  # two documents stay in training
    # totals[1] is that of two documents
    held_out = 2 + int(np.argmin(np.abs(totals[1:most] - budget)))
    validation = np.sort(candidates[:held_out])
    return np.setdiff1d(with_text, validation), validation


MIN_DOCUMENT_LENGTH = 8


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

    def within(self, reach: int) -> "TextPlaces":
        """Return the same with another reach."""
        return replace(self, reach=reach)


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
