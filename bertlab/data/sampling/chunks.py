"""Where sequences of contiguous text begin: a shifting grid of chunks, and parts of chunks."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bertlab.api.batch import IntArray
from bertlab.api.rng import CounterRNG
from bertlab.api.tokenizer import word_starts
from bertlab.data.sampling.sampler import TokenArrays

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
    """Finds sentence and word starts in the store.

    Attributes:
        store: the corpus.
        continuation_mask: ``(V,)`` bool, ids that continue a word.
        reach: farthest that a place is moved, in tokens.
        closing_mask: ``(V,)`` bool, ids behind which a word begins; None if there are none.
    """

    store: TokenArrays
    continuation_mask: npt.NDArray[np.bool_]
    reach: int
    closing_mask: npt.NDArray[np.bool_] | None = None

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
    """Spans of text, each as one part or more, in their order.

    Attributes:
        spans: ``(S,)`` place of the span that each part is of.
        numbers: ``(S,)`` which part of its span it is, from 0.
        starts: ``(S,)`` place of its first token.
        ends: ``(S,)`` place behind its last token.
    """

    spans: IntArray
    numbers: IntArray
    starts: IntArray
    ends: IntArray

    @classmethod
    def cut(
        cls,
        starts: IntArray,
        ends: IntArray,
        room: int | None,
        near: Callable[[IntArray, IntArray, int], IntArray],
    ) -> "Parts":
        """Return parts of at most ``room`` tokens that together are the spans.

        Args:
            starts: ``(B,)`` place of each span's first token.
            ends: ``(B,)`` place behind its last one.
            room: at least 5; None: each span is one part.
            near: ``near(places, spans, reach)`` moves places, at most so far, to where a part
                should begin; ``spans`` are the places of their spans.
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
