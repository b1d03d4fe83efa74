"""Joining pieces that stand side by side, the most frequent pair first, as BPE is trained."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from bertlab.extend import MAX_WORD_CHARACTERS

Pair = tuple[str, str]


class Joining:
    """Words as pieces, which become fewer with every :meth:`step`.

    Args:
        words: the pieces of each word, and how often it occurs.
        prefix: of pieces that continue a word: ``##``, or nothing.
        least: a pair that occurs less often is not joined.
        keeps_all: every piece that is made stays one, as a BPE needs it. Else one counts no longer
            when all words have joined it further: of "card ##io ##gram" only "cardiogram" is left.

    Attributes:
        joins: the pairs in the order in which they were joined.
        kept: number of pieces that were made and stay.
    """

    def __init__(
        self,
        words: Mapping[tuple[str, ...], int],
        prefix: str,
        least: int = 1,
        keeps_all: bool = True,
    ) -> None:
        self._words, self._counts = [list(each) for each in words], list(words.values())
        self._prefix, self._least, self._keeps_all = prefix, least, keeps_all
        self._pairs: Counter[Pair] = Counter()
        self._places: defaultdict[Pair, set[int]] = defaultdict(set)
        for number, pieces in enumerate(self._words):
            self._count(pieces, number, self._counts[number])
        # the smallest is taken first: the most frequent, of those the first by the alphabet
        self._queue = [(-count, pair) for pair, count in self._pairs.items()]
        heapq.heapify(self._queue)
        self._made: Counter[str] = Counter()  # how often each stands in the words
        self.joins: list[Pair] = []
        self.kept = 0

    def join(self, pair: Pair) -> str:
        """Return a piece of two: ``card`` and ``##io`` give ``cardio``."""
        return pair[0] + pair[1].removeprefix(self._prefix)

    def keeps(self, piece: str) -> bool:
        """Whether a piece was made and stays."""
        found = self._made.get(piece)
        return found is not None and (self._keeps_all or found >= self._least)

    def step(self, avoided: Collection[str] = ()) -> bool:
        """Join the most frequent pair whose piece is none of ``avoided``; False if none is left."""
        while self._queue:
            negative, pair = heapq.heappop(self._queue)
            if self._pairs[pair] != -negative:  # of before another join; there is a newer entry
                continue
            if -negative < self._least:
                return False
            joined = self.join(pair)
            if joined not in avoided and len(joined) <= MAX_WORD_CHARACTERS:
                self._join(pair, joined)
                return True
        return False

    def _join(self, pair: Pair, joined: str) -> None:
        self.joins.append(pair)
        concerned = {*pair, joined}
        before = sum(map(self.keeps, concerned))
        self._made[joined] += 0
        changed: set[Pair] = set()
        for number in sorted(self._places.pop(pair)):
            old, count = self._words[number], self._counts[number]
            new = _joined_in(old, pair, joined)
            if (joins := len(old) - len(new)) == 0:  # an earlier join took a part of the pair
                continue
            changed |= self._count(old, number, -count) | self._count(new, number, count)
            self._words[number] = new
            for piece, change in ((joined, joins), (pair[0], -joins), (pair[1], -joins)):
                if piece in self._made:
                    self._made[piece] += change * count
        self.kept += sum(map(self.keeps, concerned)) - before
        for each in changed:
            heapq.heappush(self._queue, (-self._pairs[each], each))

    def _count(self, pieces: Sequence[str], number: int, count: int) -> set[Pair]:
        """Count the pairs of a word, and where they stand; return them."""
        found = set(pairwise(pieces))
        for pair in pairwise(pieces):
            self._pairs[pair] += count
        if count > 0:
            for pair in found:
                self._places[pair].add(number)
        return found


def _joined_in(pieces: Sequence[str], pair: Pair, joined: str) -> list[str]:
    """Return pieces with each pair made one, from the left: a a a, (a, a) -> aa a."""
    found: list[str] = []
    place = 0
    while place < len(pieces):
        if tuple(pieces[place : place + 2]) == pair:
            found.append(joined)
            place += 2
        else:
            found.append(pieces[place])
            place += 1
    return found
