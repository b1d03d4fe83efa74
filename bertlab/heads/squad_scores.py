"""Exact match and F1 as SQuAD's official scorers count them, as shares from 0 to 1."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from math import nan
from statistics import fmean

import numpy as np

_PUNCTUATION = dict.fromkeys(map(ord, string.punctuation))
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalize_answer(text: str) -> str:
    """Lower-case, drop ASCII punctuation and the articles a, an, the, and single the spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, gold: str) -> float:
    """Return 1 if two answers are equal once normalized, else 0."""
    return float(normalize_answer(answer) == normalize_answer(gold))


def f1(answer: str, gold: str, unanswerable: bool) -> float:
    """Return the F1 of the words of two normalized answers.

    Args:
        answer: what was predicted.
        gold: one of the true answers.
        unanswerable: where either has no words, version 2.0 counts whether both have none;
            version 1.1 counts 0.
    """
    words, gold_words = normalize_answer(answer).split(), normalize_answer(gold).split()
    if unanswerable and not (words and gold_words):
        return float(words == gold_words)
    same = (Counter(words) & Counter(gold_words)).total()
    if same == 0:
        return 0.0
    precision, recall = same / len(words), same / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def answer_scores(
    answers: Sequence[str], golds: Sequence[Sequence[str]], unanswerable: bool
) -> tuple[list[float], list[float]]:
    """Return exact match and F1 of each question: the best over its gold answers.

    Args:
        answers: one a question; empty for no answer.
        golds: all gold answers of each question; none if it has no answer.
        unanswerable: score as version 2.0, which leaves out golds without any word and takes the
            empty text where none is left.
    """
    exact, overlap = [], []
    for answer, given in zip(answers, golds, strict=True):
        worded = [text for text in given if normalize_answer(text)]
        texts = (worded or [""]) if unanswerable else given
        exact.append(max(exact_match(answer, text) for text in texts))
        overlap.append(max(f1(answer, text, unanswerable) for text in texts))
    return exact, overlap


def squad1_metrics(answers: Sequence[str], golds: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return ``exact_match`` and ``f1`` as SQuAD 1.1 scores them; arguments as above."""
    exact, overlap = answer_scores(answers, golds, unanswerable=False)
    return {"exact_match": _mean(exact), "f1": _mean(overlap)}


def squad2_metrics(answers: Sequence[str], golds: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the means as SQuAD 2.0 scores them; arguments as above.

    Beside ``exact_match`` and ``f1``: both over the questions that have an answer, and
    ``no_answer_accuracy`` over the others (the official NoAns_exact, which NoAns_f1 equals). NaN
    where there are no such questions.
    """
    exact, overlap = answer_scores(answers, golds, unanswerable=True)
    has_answer = [bool(texts) for texts in golds]
    return {
        "exact_match": _mean(exact),
        "f1": _mean(overlap),
        "has_answer_exact_match": _mean(
            [s for s, has in zip(exact, has_answer, strict=True) if has]
        ),
        "has_answer_f1": _mean([s for s, has in zip(overlap, has_answer, strict=True) if has]),
        "no_answer_accuracy": _mean(
            [s for s, has in zip(exact, has_answer, strict=True) if not has]
        ),
    }


def best_null_threshold(
    scores: Sequence[float], null_odds: Sequence[float], has_answer: Sequence[bool]
) -> tuple[float, float]:
    """Find the threshold on the null odds that gives the best mean score (SQuAD 2.0).

    The official search: from "no answer" everywhere, questions are answered in order of their null
    odds. Where nothing beats the start, the official threshold of 0 is lowered if it has to be, so
    that it does what the score says.

    Args:
        scores: of each question's best text, as :func:`answer_scores` gives them.
        null_odds: of each question, in float32; above the threshold, it has no answer.
        has_answer: whether each question has one.

    Returns:
        The best mean score, and its threshold.
    """
    odds = np.asarray(null_odds, np.float32)
    threshold = min(0.0, float(np.nextafter(odds.min(), np.float32("-inf"))))
    current = best = float(len(odds) - sum(has_answer))
    for question in np.argsort(odds, kind="stable").tolist():
        current += scores[question] if has_answer[question] else -1.0
        if current > best:
            best, threshold = current, float(odds[question])
    return best / len(odds), threshold


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else nan
