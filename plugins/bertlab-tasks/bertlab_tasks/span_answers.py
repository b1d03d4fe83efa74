"""From start and end logits to answers: the n best spans, windows put together, no answer.

Exact match and F1 as SQuAD's official scorers count them, as shares from 0 to 1.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from math import exp, fsum, inf, nan
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

REPORTED = 5  # answers that a prediction lists

# first character, the one behind the last, start logit + end logit
CharSpan = tuple[int, int, float]


def best_spans(
    start_logits: Tensor, end_logits: Tensor, max_answer_length: int, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best spans of each of B windows, over all pairs of start and end.

    Args:
        start_logits: ``(B, S)`` float32, -inf where no answer may start.
        end_logits: ``(B, S)`` float32, -inf where no answer may end.
        max_answer_length: in tokens.
        count: spans to return, K; fewer if there are fewer pairs.

    Returns:
        start: ``(B, K)`` int64 positions.
        end: ``(B, K)`` int64 positions, last token included.
        score: ``(B, K)`` sums of the logits, descending; equals in order of start, then of end.
            -inf where a window has fewer spans (its positions are then any); NaN counts as -inf.
    """
    # start logits [0, 1, 2], end logits [3, 0, 1], width 2 -> ends [[3, 0], [0, 1], [1, -inf]],
    # best three: start 0 to end 0 with 3, start 2 to end 2 with 3, start 1 to end 2 with 2
    width = min(max_answer_length, start_logits.shape[1])
    ends = F.pad(end_logits, (0, width - 1), value=-inf).unfold(1, width, 1)  # (B, S, width)
    scores = (start_logits[:, :, None] + ends).flatten(1)  # (B, S * width)
    scores = torch.where(scores.isnan(), -inf, scores)
    count = min(count, scores.shape[1])
    # topk leaves open which of several equal scores it takes: take the first ones
    least = scores.topk(count).values[:, -1:]
    above, equal = scores > least, scores == least  # [3, 5, 3, 3], best two: places 0, 1
    first_equal = equal.cumsum(1) <= count - above.sum(1, keepdim=True)
    flat = (above | (equal & first_equal)).nonzero()[:, 1].view(-1, count)  # (B, K)
    score, order = scores.gather(1, flat).sort(dim=1, descending=True, stable=True)
    flat = flat.gather(1, order)
    start = flat // width
    end = (start + flat % width).clamp(max=start_logits.shape[1] - 1)
    return start, end, score


def answer_of_windows(
    context: str,
    spans: Sequence[CharSpan],
    null_score: float | None,
    n_best_size: int,
) -> dict[str, Any]:
    """Put the spans of all windows of a question together, without choosing an answer yet.

    Returns:
        ``n_best``: dicts of ``answer``, ``start``, ``end`` and ``score``, the probability;
        :data:`REPORTED` spans, and no answer (text empty, start and end None) if there is a null
        score. ``null_odds``, only then: null score less the best span's, a float32 as the
        threshold it is compared with.
    """
    texts: dict[str, CharSpan] = {}
    for span in sorted(spans, key=lambda span: (-span[2], span[0], span[1])):
        if len(texts) == n_best_size:
            break
        texts.setdefault(context[span[0] : span[1]], span)
    entries = [(text, start, end, score) for text, (start, end, score) in texts.items()]
    best = entries[0][3] if entries else -inf
    # the best score is taken off all, as exp of a logit sum above 709 would overflow
    top = best if null_score is None else max(best, null_score)
    null_mass = 0.0 if null_score is None else exp(null_score - top)
    mass = fsum([null_mass, *(exp(score - top) for *_, score in entries)])
    n_best: list[dict[str, Any]] = [
        {"answer": text, "start": start, "end": end, "score": exp(score - top) / mass}
        for text, start, end, score in entries[:REPORTED]
    ]
    if null_score is None:
        return {"n_best": n_best}
    n_best.append({"answer": "", "start": None, "end": None, "score": null_mass / mass})
    n_best.sort(key=lambda entry: -entry["score"])
    return {"n_best": n_best, "null_odds": float(np.float32(null_score - best))}


def best_text(prediction: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of ``n_best`` with the best text; no answer if there is no text at all."""
    found = (entry for entry in prediction["n_best"] if entry["start"] is not None)
    return next(found, {"answer": "", "start": None, "end": None, "score": 0.0})


def choose_answer(prediction: dict[str, Any], null_threshold: float) -> dict[str, Any]:
    """Return ``answer``, ``start``, ``end`` and ``score`` of a prediction.

    No answer is chosen where the null odds are above the threshold (paper sec. 4.3).
    """
    if prediction.get("null_odds", -inf) > null_threshold:
        null: dict[str, Any] = next(e for e in prediction["n_best"] if e["start"] is None)
        return null
    return best_text(prediction)


# "The U.S. Navy, a fleet" -> "us navy fleet"; "Theatre of an Era" -> "theatre of era"
_PUNCTUATION = dict.fromkeys(map(ord, string.punctuation))
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalize_answer(text: str) -> str:
    """Lower-case, drop ASCII punctuation and the articles a, an, the, and single the spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, gold: str) -> float:
    """Return 1 if two answers are equal once normalized, else 0."""
    return float(normalize_answer(answer) == normalize_answer(gold))


def f1(answer: str, gold: str, unanswerable: bool) -> float:
    """Return the F1 of the words of two normalized answers."""
    words, gold_words = normalize_answer(answer).split(), normalize_answer(gold).split()
    if unanswerable and not (words and gold_words):
        return float(words == gold_words)
    same = (Counter(words) & Counter(gold_words)).total()  # "red big cat", "red cat sat": 2
    if same == 0:
        return 0.0
    precision, recall = same / len(words), same / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def answer_scores(
    answers: Sequence[str], golds: Sequence[Sequence[str]], unanswerable: bool
) -> tuple[list[float], list[float]]:
    """Return exact match and F1 of each question: the best over its gold answers."""
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
    # just below the least odds, all odds are above it: no answer anywhere, as at the start
    threshold = min(0.0, float(np.nextafter(odds.min(), np.float32("-inf"))))
    current = best = float(len(odds) - sum(has_answer))
    for question in np.argsort(odds, kind="stable").tolist():
        # answering a question without an answer loses the point that it had
        current += scores[question] if has_answer[question] else -1.0
        if current > best:
            best, threshold = current, float(odds[question])
    return best / len(odds), threshold


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else nan
