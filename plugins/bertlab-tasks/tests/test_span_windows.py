"""Windows, context and gold tokens against loops written from the definitions."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertlab.api.examples import Example
from bertlab.api.tokenizer import Tokenizer
from bertlab.errors import DataError
from bertlab.tokenizer.files import WordPieceTokenizer
from bertlab_tasks.span_windows import (
    IGNORED,
    NO_ANSWER,
    AnswerStart,
    answer_tokens,
    context_tokens,
    context_windows,
    find_answer,
    most_context,
    nearest_occurrence,
    window_features,
)

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,-()'"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{c}" for c in LETTERS)]
TOKENIZER = WordPieceTokenizer.from_vocabulary(TOKENS)
CASED = WordPieceTokenizer.from_vocabulary(TOKENS, lowercase=False)


def reference_windows(tokens: int, room: int, doc_stride: int) -> list[tuple[int, int]]:
    """Go on by the stride, or by what was shown if that is less, until all is shown."""
    windows, start = [], 0
    while start < tokens:
        shown = min(tokens - start, room)
        windows.append((start, start + shown))
        if start + shown == tokens:
            break
        start += min(shown, doc_stride)
    return windows


sizes = st.tuples(st.integers(1, 60), st.integers(1, 30), st.integers(1, 40))


@given(sizes)
def test_windows_and_their_context_equal_a_second_implementation(
    size: tuple[int, int, int],
) -> None:
    windows = context_windows(*size)
    assert windows == reference_windows(*size)
    chosen = most_context(windows).tolist()
    assert len(chosen) == size[0]
    for token, window in enumerate(chosen):
        shown = {
            number: min(token - start, end - 1 - token) + 0.01 * (end - start)
            for number, (start, end) in enumerate(windows)
            if start <= token < end
        }
        assert window == min(shown, key=lambda number: (-shown[number], number))


def test_windows_by_hand() -> None:
    assert context_windows(10, 4, 3) == [(0, 4), (3, 7), (6, 10)]
    assert context_windows(10, 4, 9) == [(0, 4), (4, 8), (8, 10)]
    assert context_windows(4, 4, 1) == [(0, 4)]
    assert most_context([(0, 4), (2, 6)]).tolist() == [0, 0, 0, 1, 1, 1]


@given(
    st.text("ab", min_size=1, max_size=12),
    st.text("ab", min_size=1, max_size=3),
    st.integers(-5, 15),
)
def test_nearest_occurrence_equals_a_search_of_all(context: str, text: str, start: int) -> None:
    places = [n for n in range(len(context)) if context[n : n + len(text)] == text]
    found = nearest_occurrence(context, text, start)
    if places:
        assert found in places
        assert abs(found - start) == min(abs(place - start) for place in places)
    else:
        assert found is None


@pytest.mark.parametrize("tokenizer", [TOKENIZER, CASED])
@given(
    context=st.text(
        st.sampled_from("abX. \u00e9e\u0301\u0323\u65e5\ud55c\U0001f600\u200d\ufe0f\u00a0"),
        max_size=25,
    )
)
def test_tokens_stand_for_disjoint_characters_in_order(tokenizer: Tokenizer, context: str) -> None:
    tokens = context_tokens(tokenizer, context)
    starts, ends = tokens.char_start, tokens.char_end
    assert len(tokens.ids) == len(starts) == len(ends)
    assert (starts < ends).all()
    assert (np.diff(starts) >= 0).all()
    assert (np.diff(ends) >= 0).all()
    covered = {place for pair in zip(starts, ends, strict=True) for place in range(*pair)}
    missed = {context[n] for n in range(len(context)) if n not in covered}
    # spaces and what BERT removes; a mark only where no token is before it
    assert missed <= set(" \u00a0\u200d\u0301\u0323\ufe0f")


def test_an_accent_stays_on_its_letter() -> None:
    context = "cafe\u0301 noir"
    tokens = context_tokens(TOKENIZER, context)
    first, last = answer_tokens(tokens, 0, 4) or (0, 0)
    assert context[tokens.char_start[first] : tokens.char_end[last]] == "cafe\u0301"


def test_gold_inside_a_word_takes_the_pieces_that_cover_it() -> None:
    tokens = context_tokens(TOKENIZER, "ab 1986-87 \u00df\u00df!")
    assert answer_tokens(tokens, 5, 7) == (4, 5)  # 86
    assert answer_tokens(tokens, 2, 3) is None  # a space
    first, last = answer_tokens(tokens, 12, 13) or (0, 0)
    assert first == last
    assert tokens.ids[first] == TOKENIZER.unk_id


def features(answer: tuple[int, int] | None, stride: int = 2) -> list[dict[str, list[int] | int]]:
    tokens = context_tokens(TOKENIZER, "a b c d e f")
    windows = context_windows(6, 4, stride)
    made = window_features(TOKENIZER.encode("x y"), tokens, windows, answer, TOKENIZER)
    assert [TOKENIZER.decode(each.input_ids) for each in made] == [
        "[CLS] x y [SEP] a b c d [SEP]",
        "[CLS] x y [SEP] c d e f [SEP]",
    ]
    assert [list(each.token_type_ids) for each in made] == [[0] * 4 + [1] * 5] * 2
    assert [each.count for each in made] == [int(answer != IGNORED)] * 2
    return [
        {name: np.asarray(value).tolist() for name, value in each.fields.items()} for each in made
    ]


def test_features_hold_characters_context_and_positions() -> None:
    outside = [-1] * 4
    first, second = features((1, 2))
    assert first["char_start"] == [*outside, 0, 2, 4, 6, -1]
    assert first["char_end"] == [*outside, 1, 3, 5, 7, -1]
    assert first["max_context"] == [*[False] * 4, True, True, True, False, False]
    assert second["max_context"] == [*[False] * 4, False, True, True, True, False]
    assert (first["start_position"], first["end_position"]) == (5, 6)
    assert (second["start_position"], second["end_position"]) == (0, 0)
    for window in features(NO_ANSWER):
        assert (window["start_position"], window["end_position"]) == (0, 0)
    for window in features(IGNORED):
        assert (window["start_position"], window["end_position"]) == IGNORED
    assert "start_position" not in features(None)[0]


def find(
    text: list[str],
    answer_start: list[int | None] | list[int],
    how: AnswerStart,
    context: str = "cat dog cat cow",
) -> tuple[tuple[int, int], Counter[str]]:
    answers = {"text": text, "answer_start": answer_start}
    row = Example({"context": context, "answers": answers}, "dev.json:7")
    notes: Counter[str] = Counter()
    return find_answer(row, context_tokens(TOKENIZER, context), how, notes), notes


MOVED = "gold answers that are not at their answer_start"
LOST = "questions left out of the loss: gold answer not found"


@pytest.mark.parametrize("how", ["locate", "skip", "strict"])
def test_an_answer_at_its_place_is_taken(how: AnswerStart) -> None:
    assert find(["cat", "dog"], [8, 4], how) == ((6, 8), Counter())
    assert find([" cat "], [7], how) == ((6, 8), Counter())
    assert find([], [], how) == (NO_ANSWER, Counter())


@pytest.mark.parametrize("how", ["locate", "skip", "strict"])
def test_an_answer_without_a_place_is_the_first_of_its_text(how: AnswerStart) -> None:
    assert find(["cat"], [None], how) == ((0, 2), Counter())
    assert find(["emu"], [None], how) == (IGNORED, Counter({LOST: 1}))


def test_an_answer_elsewhere_is_located_skipped_or_refused() -> None:
    assert find(["cat"], [6], "locate") == ((6, 8), Counter({MOVED: 1}))
    assert find(["cat"], [3], "locate") == ((0, 2), Counter({MOVED: 1}))
    assert find(["cat"], [-1], "locate") == ((0, 2), Counter({MOVED: 1}))
    assert find(["cat"], [-9], "locate") == ((0, 2), Counter({MOVED: 1}))
    assert find(["cat"], [99], "locate") == ((6, 8), Counter({MOVED: 1}))
    assert find(["cat"], [6], "skip") == (IGNORED, Counter({MOVED: 1, LOST: 1}))
    assert find(["emu"], [6], "locate") == (IGNORED, Counter({MOVED: 1, LOST: 1}))
    assert find([" "], [3], "locate") == (IGNORED, Counter({MOVED: 1, LOST: 1}))
    assert find(["emu", "cow"], [6, 12], "skip") == ((9, 11), Counter({MOVED: 1}))
    with pytest.raises(DataError, match=r"dev.json:7: answers: found 'g c' .* expected 'cat'"):
        find(["cat"], [6], "strict")


@pytest.mark.parametrize(
    "answers",
    ["cat", ["cat"], {"text": ["cat"]}, {"text": ["a", "b"], "answer_start": [1]},
     {"text": [None], "answer_start": [1]}, {"text": ["a"], "answer_start": ["1"]}],
)  # fmt: skip
def test_malformed_answers_are_named(answers: object) -> None:
    row = Example({"context": "cat", "answers": answers}, "dev.json:7")
    with pytest.raises(DataError, match=r"dev.json:7: answers: found .*expected .*answer_start"):
        find_answer(row, context_tokens(TOKENIZER, "cat"), "locate", Counter())
