"""SQuAD's scores against second implementations, written from the published definitions."""

import math
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics.functional.text import squad

from bertlab_tasks.span_answers import (
    answer_scores,
    best_null_threshold,
    exact_match,
    f1,
    normalize_answer,
    squad1_metrics,
    squad2_metrics,
)

PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
PIECES = [
    *["a", "an", "the", "The", "AN", "anthem", "theatre", "la", "a-b", "an.the", "U.S.", "--", "'"],
    *[
        "caf\u00e9",
        "cafe\u0301",
        "\u0130stanbul",
        "STRASSE",
        "stra\u00dfe",
        "\u65e5\u672c",
        "\u3002",
    ],
    *[
        "\U0001f600",
        "\u00e0",
        "th\u00e9",
        "1,000",
        "1000",
        "$5",
        "\u201cthe\u201d",
        "\u2014",
        "_a_",
    ],
]
SPACES = st.sampled_from(["", " ", "  ", "\n", "\t", "\u00a0", "\u3000", "\u200b"])
texts = st.one_of(
    st.text(max_size=8),
    st.lists(st.tuples(st.sampled_from(PIECES), SPACES), max_size=6).map(
        lambda pairs: "".join(word + space for word, space in pairs)
    ),
)
questions = st.lists(st.tuples(texts, st.lists(texts, max_size=3)), min_size=1, max_size=6)


def reference_words(text: str) -> list[str]:
    """Lower-case, no punctuation characters, then no articles between word boundaries."""
    kept = [character for character in text.lower() if character not in PUNCTUATION]
    return re.compile(r"\b(a|an|the)\b", re.UNICODE).sub(" ", "".join(kept)).split()


def reference_f1(answer: str, gold: str, version_2: bool) -> float:
    left, right = reference_words(answer), reference_words(gold)
    if version_2 and (left == [] or right == []):
        return 1.0 if left == right else 0.0
    unmatched, same = list(right), 0
    for word in left:
        if word in unmatched:
            unmatched.remove(word)
            same += 1
    return 0.0 if same == 0 else 2 * same / (len(left) + len(right))


def reference_scores(answer: str, golds: list[str], version_2: bool) -> tuple[float, float]:
    if version_2:
        golds = [gold for gold in golds if reference_words(gold)]
        golds = golds if golds else [""]
    exact = max(float(reference_words(answer) == reference_words(gold)) for gold in golds)
    return exact, max(reference_f1(answer, gold, version_2) for gold in golds)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Cat's a-hat.", "cats ahat"),
        ("a", ""),
        ("an apple\tA", "apple"),
        ("\u201cThe\u201d end", "\u201c \u201d end"),
        ("theatre anthem", "theatre anthem"),
        ("", ""),
    ],
)
def test_normalization_by_hand(text: str, expected: str) -> None:
    assert normalize_answer(text) == expected


def test_scores_by_hand() -> None:
    assert exact_match("The U.S.", "us") == 1
    assert f1("in the big house", "a big red house", unanswerable=False) == pytest.approx(2 / 3)
    assert f1("the", "a", unanswerable=False) == 0
    assert f1("the", "a", unanswerable=True) == 1
    assert f1("b b b", "b", unanswerable=False) == pytest.approx(0.5)


@given(questions)
def test_scores_equal_a_second_implementation(rows: list[tuple[str, list[str]]]) -> None:
    answers, golds = [list(column) for column in zip(*rows, strict=True)]
    exact, overlap = answer_scores(answers, golds, unanswerable=True)
    expected = [reference_scores(answer, list(gold), True) for answer, gold in rows]
    assert exact == [e for e, _ in expected]
    assert overlap == pytest.approx([f for _, f in expected])

    golds = [[*gold, "Gold"] for gold in golds]
    expected = [reference_scores(*row, False) for row in zip(answers, golds, strict=True)]
    metrics = squad1_metrics(answers, golds)
    assert metrics["exact_match"] == pytest.approx(sum(e for e, _ in expected) / len(rows))
    assert metrics["f1"] == pytest.approx(sum(f for _, f in expected) / len(rows))


def test_version_1_equals_torchmetrics() -> None:
    draw = random.Random(4)

    def text() -> str:  # torchmetrics scores texts without any word as version 2.0 does
        return " ".join(["word", *draw.choices(PIECES, k=draw.randrange(6))])

    answers = [text() for _ in range(300)]
    golds = [[text() for _ in range(draw.randint(1, 4))] for _ in answers]
    expected = squad(
        [{"prediction_text": text, "id": str(n)} for n, text in enumerate(answers)],
        [
            {"answers": {"text": gold, "answer_start": [0] * len(gold)}, "id": str(n)}
            for n, gold in enumerate(golds)
        ],
    )
    metrics = squad1_metrics(answers, golds)
    assert {name: 100 * value for name, value in metrics.items()} == pytest.approx(
        {name: float(value) for name, value in expected.items()}, rel=1e-5
    )


def test_version_2_tells_the_two_kinds_of_questions_apart() -> None:
    answers = ["a cat", "", "dog", "", "red"]
    golds = [["cat"], ["cat"], [], [], ["red hat", "hat"]]
    assert squad2_metrics(answers, golds) == pytest.approx(
        {
            "exact_match": 2 / 5,
            "f1": (1 + 1 + 2 / 3) / 5,
            "has_answer_exact_match": 1 / 3,
            "has_answer_f1": (1 + 2 / 3) / 3,
            "no_answer_accuracy": 1 / 2,
        }
    )
    assert math.isnan(squad2_metrics(["x"], [["x"]])["no_answer_accuracy"])


distinct_odds = st.lists(
    st.tuples(st.floats(-30, 30, width=32), st.booleans(), st.floats(0, 1)),
    min_size=1,
    max_size=8,
    unique_by=lambda row: row[0],
)


@pytest.mark.slow
@given(distinct_odds)
def test_best_threshold_equals_a_search_over_all(rows: list[tuple[float, bool, float]]) -> None:
    odds, has_answer, scores = (list(column) for column in zip(*rows, strict=True))

    def mean_at(threshold: float) -> float:
        kept = [
            (0.0 if has else 1.0) if null > threshold else (score if has else 0.0)
            for null, has, score in rows
        ]
        return sum(kept) / len(rows)

    best, threshold = best_null_threshold(scores, odds, has_answer)
    assert best == pytest.approx(max(map(mean_at, [-100.0, *odds])))
    assert mean_at(threshold) == pytest.approx(best)


def test_thresholds_of_probabilities_are_the_official_ones() -> None:
    # no answer at all is best: the official search then gives 0
    assert best_null_threshold([0.1, 0.0], [0.5, 0.9], [False, False]) == (1.0, 0.0)
    # questions with equal odds are answered one by one, although no threshold could do that
    best, threshold = best_null_threshold([1.0, 1.0, 0.0], [0.25, 0.5, 0.5], [True, True, False])
    assert (best, threshold) == (1.0, 0.5)
