"""The n best spans against a loop over all pairs, and windows put together."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertlab_tasks.span_answers import answer_of_windows, best_spans, best_text, choose_answer

# few values, so that many spans have equal scores
logits = st.one_of(st.integers(-2, 2).map(float), st.just(-math.inf))


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[list[float]], list[list[float]]]:
    size, length = draw(st.integers(1, 3)), draw(st.integers(1, 7))
    row = st.lists(logits, min_size=length, max_size=length)
    rows = st.lists(row, min_size=size, max_size=size)
    return draw(rows), draw(rows)


@given(windows(), st.integers(1, 9), st.integers(1, 60))
def test_best_spans_equal_a_loop_over_all_pairs(
    both: tuple[list[list[float]], list[list[float]]], longest: int, count: int
) -> None:
    found = best_spans(*(torch.tensor(each) for each in both), longest, count)
    for start_row, end_row, *columns in zip(*both, *found, strict=True):
        spans = [
            (-(start_row[start] + end_row[end]), start, end)
            for start in range(len(start_row))
            for end in range(start, min(start + longest, len(start_row)))
        ]
        expected = [(start, end, -score) for score, start, end in sorted(spans) if score < math.inf]
        got = zip(*(column.tolist() for column in columns), strict=True)
        assert [span for span in got if span[2] > -math.inf] == expected[:count]


def test_nan_logits_give_no_span() -> None:
    *_, scores = best_spans(torch.full((1, 4), torch.nan), torch.zeros(1, 4), 3, 5)
    assert scores.tolist() == [[-math.inf] * 5]


def test_windows_share_one_ranking_in_which_a_text_counts_once() -> None:
    context = "the cat and the dog"
    spans = [(0, 3, 1.0), (4, 7, 2.0), (12, 15, 3.0), (16, 19, 2.0)]
    found = answer_of_windows(context, spans, None, 20)
    assert [(each["answer"], each["start"], each["end"]) for each in found["n_best"]] == [
        ("the", 12, 15),
        ("cat", 4, 7),
        ("dog", 16, 19),
    ]
    expected = torch.tensor([3.0, 2.0, 2.0]).softmax(0).tolist()
    assert [each["score"] for each in found["n_best"]] == pytest.approx(expected)
    assert "null_odds" not in found
    assert found == answer_of_windows(context, spans[::-1], None, 20)
    alone = answer_of_windows(context, spans, None, 1)["n_best"]
    assert [(each["answer"], each["score"]) for each in alone] == [("the", 1.0)]


def test_no_answer_takes_part_and_is_chosen_above_the_threshold() -> None:
    found = answer_of_windows("the cat", [(0, 3, 1.0), (4, 7, 2.5)], 3.0, 20)
    assert found["null_odds"] == 0.5
    assert [each["answer"] for each in found["n_best"]] == ["", "cat", "the"]
    assert sum(each["score"] for each in found["n_best"]) == pytest.approx(1)
    null = choose_answer(found, 0.4)
    assert (null["answer"], null["start"], null["end"]) == ("", None, None)
    assert null["score"] == found["n_best"][0]["score"]
    assert choose_answer(found, 0.5)["answer"] == best_text(found)["answer"] == "cat"


def test_only_the_best_are_listed_but_no_answer_always_is() -> None:
    context = "abcdefghijkl"
    spans = [(n, n + 1, float(n)) for n in range(12)]
    found = answer_of_windows(context, spans, -10.0, 20)["n_best"]
    assert [each["answer"] for each in found] == ["l", "k", "j", "i", "h", ""]
    everything = torch.tensor([*range(12), -10.0]).softmax(0)
    assert found[0]["score"] == pytest.approx(float(everything[11]))


def test_without_any_span_there_is_no_answer() -> None:
    assert choose_answer(answer_of_windows("abc", [], None, 20), 0.0)["answer"] == ""
