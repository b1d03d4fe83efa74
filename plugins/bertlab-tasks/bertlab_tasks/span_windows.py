"""Question and context as windows of tokens (paper sec. 4.2), and where the gold answer lies."""

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from bertlab.api import DataError, Example, Features, Tokenizer

AnswerStart = Literal["locate", "skip", "strict"]
IntArray = npt.NDArray[np.int64]

# tokens of the context, last included
TokenSpan = tuple[int, int]

NO_ANSWER: TokenSpan = (-1, -1)  # lies in no window, so that every window trains to [CLS]
IGNORED: TokenSpan = (-100, -100)  # the loss leaves the row out (cross_entropy's ignore_index)


@dataclass(frozen=True)
class ContextTokens:
    """The N tokens of a context.

    Attributes:
        ids: of the tokens.
        char_start: ``(N,)`` int32 first character of each in the context.
        char_end: ``(N,)`` int32 character behind its last one. Combining marks belong to the
            token before them, even where an uncased tokenizer removes them.
    """

    ids: list[int]
    char_start: npt.NDArray[np.int32]
    char_end: npt.NDArray[np.int32]


@lru_cache(maxsize=4)  # the questions on one context follow each other
def context_tokens(tokenizer: Tokenizer, context: str) -> ContextTokens:
    """Tokenize a context and find the characters of each token."""
    ids, offsets = tokenizer.encode_with_offsets(context)
    chars = np.array(offsets, np.int32).reshape(-1, 2)
    ends = chars[:, 1].copy()
    if not context.isascii():
        for token in range(len(ids)):
            while ends[token] < len(context) and _is_mark(context[ends[token]]):
                ends[token] += 1
        # a mark that a cased tokenizer keeps as a token of its own stays that token's
        ends[:-1] = np.minimum(ends[:-1], np.maximum(chars[1:, 0], chars[:-1, 1]))
    return ContextTokens(ids, chars[:, 0], ends)


def context_windows(tokens: int, room: int, doc_stride: int) -> list[tuple[int, int]]:
    """Return windows ``[start, end)`` that together cover all tokens of a context."""
    # 10 tokens, room 4, stride 3 -> [(0, 4), (3, 7), (6, 10)]
    step = min(doc_stride, room)
    last = max(0, -(-(tokens - room) // step))  # number of the last window, rounded up
    return [(start, min(start + room, tokens)) for start in range(0, last * step + 1, step)]


def most_context(windows: Sequence[tuple[int, int]]) -> IntArray:
    """Return ``(N,)`` the number of the window that shows most around each token.

    As BERT's code has it: most is the largest smaller side, a little (0.01 a token) for long
    windows, and the first of equals.
    """
    tokens = windows[-1][1]
    best = np.full(tokens, -1.0)
    chosen = np.zeros(tokens, np.int64)
    for number, (start, end) in enumerate(windows):
        # windows (0, 4) and (3, 7): token 3 has no token to its right in one, none to its left
        # in the other; of equals the first is chosen: [0, 0, 0, 0, 1, 1, 1]
        left = np.arange(end - start)
        shown = np.minimum(left, left[::-1]) + 0.01 * (end - start)
        better = shown > best[start:end]
        best[start:end][better] = shown[better]
        chosen[start:end][better] = number
    return chosen


def nearest_occurrence(context: str, text: str, start: int) -> int | None:
    """Return where ``text`` occurs in a context, nearest to ``start``; None if it does not."""
    # "a" near 6 in "a cat, a dog, a cow": the last up to there is at 3, the next at 7 -> 7
    before = context.rfind(text, 0, max(0, start) + len(text))
    after = context.find(text, max(0, start))
    found = [place for place in (before, after) if place >= 0]
    return min(found, key=lambda place: abs(place - start), default=None)


def answer_tokens(tokens: ContextTokens, start: int, end: int) -> TokenSpan | None:
    """Return the tokens that cover characters ``[start, end)``; None if there are none."""
    # tokens at characters [0, 3), [4, 8), [9, 12): answer [5, 10) -> (1, 2); [3, 4) -> None
    first = int(np.searchsorted(tokens.char_end, start, side="right"))
    last = int(np.searchsorted(tokens.char_start, end, side="left")) - 1
    return (first, last) if first <= last else None


def gold_answers(example: Example) -> tuple[list[str], list[int | None]]:
    """Return texts and starts, in characters, of an example's gold answers; none for no answer.

    A start is None where the answer is given by its text alone.
    """
    answers = example.values["answers"]
    if isinstance(answers, Mapping):
        texts, starts = (answers.get(key) for key in ("text", "answer_start"))
        if (
            isinstance(texts, list)
            and isinstance(starts, list)
            and len(texts) == len(starts)
            and all(isinstance(text, str) for text in texts)
            and all(isinstance(start, int | None) for start in starts)
        ):
            return texts, starts
    raise DataError(
        f"{example.where}: answers: found {answers!r}, expected "
        '{"text": [texts], "answer_start": [characters]}, both of the same length'
    )


def find_answer(
    example: Example, tokens: ContextTokens, answer_start: AnswerStart, notes: Counter[str]
) -> TokenSpan:
    """Return the tokens of the first gold answer of an example that is found in its context.

    Returns:
        The tokens; :data:`NO_ANSWER` if there is no answer; :data:`IGNORED` if none is found.
    """
    texts, starts = gold_answers(example)
    if not texts:
        return NO_ANSWER
    places = [
        _place(example, text, start, answer_start, notes)
        for text, start in zip(texts, starts, strict=True)
    ]
    for text, place in zip(texts, places, strict=True):
        if place is not None:
            span = answer_tokens(tokens, place, place + len(text.strip()))
            if span is not None:
                return span
    notes["questions left out of the loss: gold answer not found"] += 1
    return IGNORED


def window_features(
    question: Sequence[int],
    tokens: ContextTokens,
    windows: Sequence[tuple[int, int]],
    answer: TokenSpan | None,
    tokenizer: Tokenizer,
) -> list[Features]:
    """Return ``[CLS] question [SEP] context [SEP]`` for each window.

    Fields of T tokens: ``char_start`` and ``char_end`` (int32, characters in the context, -1
    outside it) and ``max_context`` (bool, an answer may start here). Fields of a window, only where
    the answer is known: ``start_position`` and ``end_position``, 0 (``[CLS]``) if the window does
    not hold all of it.
    """
    chosen = most_context(windows)
    offset = 1 + len(question) + tokenizer.layout.separators  # [CLS] question [SEP]
    features = []
    for number, (start, end) in enumerate(windows):
        input_ids, token_type_ids = tokenizer.build_inputs(question, tokens.ids[start:end])
        shown = slice(offset, offset + end - start)
        char_start = np.full(len(input_ids), -1, np.int32)
        char_start[shown] = tokens.char_start[start:end]
        char_end = np.full(len(input_ids), -1, np.int32)
        char_end[shown] = tokens.char_end[start:end]
        max_context = np.zeros(len(input_ids), np.bool_)
        max_context[shown] = chosen[start:end] == number
        made = Features(
            input_ids,
            token_type_ids,
            {"char_start": char_start, "char_end": char_end, "max_context": max_context},
            count=int(answer != IGNORED),
        )
        if answer is not None:
            first, last = answer if answer == IGNORED else _positions(answer, start, end, offset)
            made.fields |= {"start_position": first, "end_position": last}
        features.append(made)
    return features


def _positions(answer: TokenSpan, start: int, end: int, offset: int) -> TokenSpan:
    """Return the place of the answer in window ``[start, end)``, or that of ``[CLS]``."""
    first, last = answer
    # answer (5, 6), offset 12: in window [4, 9) at (13, 14); in [6, 9), which cuts it, at (0, 0)
    if start <= first and last < end:
        return first - start + offset, last - start + offset
    return 0, 0


def _place(
    example: Example, answer: str, start: int | None, answer_start: AnswerStart, notes: Counter[str]
) -> int | None:
    """Return the first character of a gold answer, less the spaces around it."""
    context: str = example.values["context"]
    text = answer.strip()
    if start is None:
        return nearest_occurrence(context, text, 0) if text else None
    # answer " cat" at 4 -> "cat" at 5
    start += len(answer) - len(answer.lstrip())
    if text and start >= 0 and context.startswith(text, start):
        return start
    if answer_start == "strict":
        found = context[max(0, start) : max(0, start) + len(text)]
        raise DataError(
            f"{example.where}: answers: found {found!r} in the context at character {start}, "
            f"expected {text!r}; model.head.answer_start: locate takes the nearest occurrence, "
            "skip leaves the row out of the loss"
        )
    notes["gold answers that are not at their answer_start"] += 1
    if answer_start == "skip" or not text:
        return None
    return nearest_occurrence(context, text, start)


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")
