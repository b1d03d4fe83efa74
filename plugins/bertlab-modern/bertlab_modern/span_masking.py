"""Spans of words are masked together (SpanBERT, Joshi et al. 2020, sec. 3.1)."""

import numpy as np

from bertlab import IntArray, MaskableTokens, MaskingUnit

START_PROBABILITY = 0.2  # lengths ~ Geometric(0.2)
MOST_WORDS = 10


class Span(MaskingUnit):
    """Up to 10 neighbouring words, 4.46 on average where nothing cuts them."""

    one_fate = True

    def starts(self, tokens: MaskableTokens) -> IntArray:  # noqa: D102  the contract's
        words = tokens.words
        # A geometric length has no memory, so to begin a span at each word with probability 0.2 and
        # then select spans is to draw places and Geometric(0.2) lengths, with no overlaps to reject
        begins = tokens.draws.uniform("span", tokens.positions[words]) < START_PROBABILITY
        begins |= tokens.run_starts[words]
        number = np.arange(len(words))
        # begins [1, 0, 0, 1, 0] -> since_begin [0, 1, 2, 0, 1]; a longer run is cut every 10 words
        since_begin = number - np.maximum.accumulate(np.where(begins, number, 0))
        spans: IntArray = words[since_begin % MOST_WORDS == 0]
        return spans
