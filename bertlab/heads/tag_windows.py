"""Sentences as windows of word pieces, in which each word is predicted once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertlab.api.tokenizer import Tokenizer
from bertlab.errors import ConfigError

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WordWindow:
    """Some whole words of a sentence between ``[CLS]`` and ``[SEP]``.

    Attributes:
        input_ids: T ids.
        word: ``(T,)`` int64 number of the word in the sentence at its first piece, -1 elsewhere.
        is_predicted: ``(T,)`` bool, True at the first piece of a word that is predicted here; the
            others are context.
        truncated: pieces that were cut off the words predicted here.
    """

    input_ids: list[int]
    word: IntArray
    is_predicted: npt.NDArray[np.bool_]
    truncated: int


def word_windows(
    words: Sequence[str],
    tokenizer: Tokenizer,
    max_seq_length: int,
    stride: int | None = None,
) -> list[WordWindow]:
    """Cut a sentence into windows; one, if it fits.

    Each word is predicted in the window that shows most of its surroundings: where the smaller of
    the numbers of pieces to its left and right is largest, the first such window of several.
    """
    room = tokenizer.room(max_seq_length)
    if room < 1:
        raise ConfigError(f"data.max_seq_length: found {max_seq_length}, expected 3 or more")
    if stride is not None and not 1 <= stride <= room:
        raise ConfigError(
            f"model.head.window_stride: found {stride}, expected 1 to {room} "
            "(data.max_seq_length less [CLS] and [SEP]), for words between windows would be lost"
        )
    pieces = _pieces(words, tokenizer)
    lengths = np.minimum([len(ids) for ids in pieces], room)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    spans = _spans(offsets, room, stride or max(1, room // 2))
    window_of_word = _most_context(offsets, spans)

    windows = []
    for number, (start, end) in enumerate(spans):
        chosen = window_of_word[start:end] == number
        if not chosen.any():
            continue
        ids = [piece for word in pieces[start:end] for piece in word[:room]]
        # behind [CLS]: words of 1, 2 and 1 pieces begin at [1, 2, 4]
        firsts = 1 + offsets[start:end] - offsets[start]
        word = np.full(len(ids) + 2, -1, np.int64)
        word[firsts] = np.arange(start, end)
        is_predicted = np.zeros(len(ids) + 2, np.bool_)
        is_predicted[firsts] = chosen
        cut = sum(
            len(pieces[start + place]) - room
            for place in np.flatnonzero(chosen & (lengths[start:end] == room))
        )
        windows.append(WordWindow(tokenizer.build_inputs(ids)[0], word, is_predicted, cut))
    return windows


def _pieces(words: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    ids, lengths = tokenizer.encode_texts(words)
    flat, ends = ids.tolist(), np.cumsum(lengths).tolist()
    starts = [0, *ends[:-1]]
    return [flat[start:end] or [tokenizer.unk_id] for start, end in zip(starts, ends, strict=True)]


def _spans(offsets: IntArray, room: int, stride: int) -> list[tuple[int, int]]:
    """First and last word, the last excluded, of each window; ``offsets`` ``(N + 1,)``."""
    # words of 2, 1, 2, 1 pieces: offsets [0, 2, 3, 5, 6], room 4, stride 2 -> [(0, 2), (1, 4)]
    spans, start = [], 0
    while True:
        end = int(np.searchsorted(offsets, offsets[start] + room, side="right")) - 1
        spans.append((start, end))
        if end == len(offsets) - 1:
            return spans
        further = int(np.searchsorted(offsets, offsets[start] + stride, side="right")) - 1
        start = max(start + 1, further)


def _most_context(offsets: IntArray, spans: Sequence[tuple[int, int]]) -> IntArray:
    """``(N,)`` number of the window in which each word has most context."""
    best = np.full(len(offsets) - 1, -1, np.int64)
    window_of_word = np.zeros_like(best)
    for number, (start, end) in enumerate(spans):
        # of these spans: word 1 has no piece to its right in the first, none to its left in the
        # second; of equals the first is chosen: [0, 0, 1, 1]
        left = offsets[start:end] - offsets[start]
        right = offsets[end] - offsets[start + 1 : end + 1]
        context = np.minimum(left, right)
        better = context > best[start:end]
        best[start:end][better] = context[better]
        window_of_word[start:end][better] = number
    return window_of_word
