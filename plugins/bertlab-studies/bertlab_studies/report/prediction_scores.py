"""Scores of rows from kept predictions: one way for each kind of prediction that heads make.

The scores of a way have the metric as their mean. Where a metric may have been counted in several
ways, all are given, and the value that the run reported tells which it was.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bertlab_evaluations.row_influence import (
    FloatArray,
    f1_scores,
    macro_f1_scores,
    matthews_scores,
    pearson_scores,
    ratio_scores,
    spearman_scores,
)
from bertlab_tasks.span_answers import answer_scores, best_null_threshold, best_text
from bertlab_tasks.tag_schemes import entities, to_bio

Rows = Sequence[Mapping[str, Any]]


def candidate_scores(lines: Rows, metric: str) -> Iterator[FloatArray | None]:
    """Yield ``(N,)`` scores of N rows in each way that the metric may have been counted.

    Args:
        lines: predictions, each with its ``gold``; at least one.
        metric: as a run logs it, such as ``accuracy``, ``matched/accuracy`` or ``f1/PER``.

    Yields:
        Scores whose mean is the metric; None where it is not defined, as the correlation of
        constants. Nothing, if the predictions do not tell the metric.
    """
    golds = [line.get("gold", {}) for line in lines]

    def have(predicted: str, truth: str) -> bool:
        return all(predicted in line for line in lines) and all(
            gold.get(truth) is not None for gold in golds
        )

    name = metric.rpartition("/")[2]  # of the first of several evaluation sets, whose rows are kept
    if have("labels", "labels"):
        yield _label_set_scores(lines, golds, name)
    elif have("label", "label"):
        yield _class_scores(lines, golds, name)
    elif have("score", "label"):
        yield _number_scores(lines, golds, name)
    elif have("answer", "answers"):
        yield from _answer_scores(lines, golds, name)
    elif have("tags", "tags"):
        if name == "accuracy":
            yield from _word_scores(lines, golds)
        else:
            yield _entity_scores(lines, golds, metric)


def _class_scores(lines: Rows, golds: Rows, name: str) -> FloatArray | None:
    """Return the scores of predictions ``{"label": name, "scores": {name: probability}}``."""
    # choices are numbers in predictions and may be texts in the data
    predicted, gold = (
        np.array([str(each["label"]).strip() for each in side]) for side in (lines, golds)
    )
    if name == "accuracy":
        return np.asarray(predicted == gold, np.float64)
    if name == "macro_f1":
        return macro_f1_scores(gold, predicted)
    if name == "matthews":
        return matthews_scores(gold, predicted)
    classes = list(lines[0].get("scores", ()))  # in the order of the labels; F1 is of the second
    if name == "f1" and len(classes) == 2:
        second = str(classes[1]).strip()
        return f1_scores(gold == second, predicted == second)
    return None


def _label_set_scores(lines: Rows, golds: Rows, name: str) -> FloatArray | None:
    """Return the scores of predictions ``{"labels": [name, …], "scores": {name: probability}}``."""
    names = list(lines[0].get("scores", ()))
    predicted, gold = (
        np.array([[label in set(map(str, each["labels"])) for label in names] for each in side])
        for side in (lines, golds)
    )  # (N, K)
    true, found = gold.astype(np.float64), predicted.astype(np.float64)
    if name == "exact_match":
        return np.asarray((predicted == gold).all(1), np.float64)
    if name == "micro_f1":
        return ratio_scores(2 * (true * found).sum(1), (true + found).sum(1))
    if name == "macro_f1":
        each = [f1_scores(gold[:, k], predicted[:, k]) for k in range(len(names))]
        return np.asarray(np.mean(each, axis=0), np.float64)
    return None


def _number_scores(lines: Rows, golds: Rows, name: str) -> FloatArray | None:
    """Return the scores of predictions ``{"score": number}``."""
    ways = {"pearson": pearson_scores, "spearman": spearman_scores}
    if name not in ways:
        return None
    predicted = np.array([line["score"] for line in lines], np.float64)
    # the metrics read labels in float32, which decides what is a tie
    gold = np.array([float(each["label"]) for each in golds], np.float32).astype(np.float64)
    return ways[name](predicted, gold) if np.isfinite(predicted).all() else None


def _answer_scores(lines: Rows, golds: Rows, name: str) -> Iterator[FloatArray]:
    """Yield the scores of predictions ``{"answer": text}``, of version 2.0 also ``null_odds``."""
    answers = [line["answer"] for line in lines]
    texts = [gold["answers"]["text"] for gold in golds]
    has_answer = np.array([float(bool(each)) for each in texts])
    if name.startswith("best_") and all("null_odds" in line for line in lines):
        yield _best_scores(lines, texts, name.removeprefix("best_"))
    # SQuAD 1.1, whose questions all have an answer, and 2.0
    for unanswerable in (False, True) if has_answer.all() else (True,):
        exact, overlap = map(np.array, answer_scores(answers, texts, unanswerable))
        means = {"exact_match": exact, "f1": overlap}
        if name in means:
            yield means[name]
        ratios = {
            "has_answer_exact_match": (exact * has_answer, has_answer),
            "has_answer_f1": (overlap * has_answer, has_answer),
            "no_answer_accuracy": (exact * (1 - has_answer), 1 - has_answer),
        }
        if name in ratios:
            yield ratio_scores(*ratios[name])


def _best_scores(lines: Rows, texts: Sequence[Sequence[str]], name: str) -> FloatArray:
    """Return the scores at the best threshold of the null odds, which is taken as given.

    At the best threshold the metric does not change with it in first order.
    """
    best = [best_text(dict(line))["answer"] for line in lines]
    exact, overlap = answer_scores(best, texts, unanswerable=True)
    scores = exact if name == "exact_match" else overlap
    odds, has_answer = [line["null_odds"] for line in lines], [bool(each) for each in texts]
    _, threshold = best_null_threshold(scores, odds, has_answer)
    answered = np.array(odds, np.float32) <= threshold
    if_answered = np.where(has_answer, scores, 0.0)
    return np.where(answered, if_answered, 1.0 - np.array(has_answer))


def _word_scores(lines: Rows, golds: Rows) -> Iterator[FloatArray]:
    """Yield the scores of sentences by words, predicted as ``{"tags": [name of each word]}``."""
    gold = _tags(golds)
    words = np.array([float(len(tags)) for tags in gold])
    for truth in (gold, [to_bio(tags) for tags in gold]):  # as they are, and as IOB1 is trained
        right = [
            float(sum(tag == guess for tag, guess in zip(tags, line["tags"], strict=False)))
            for tags, line in zip(truth, lines, strict=True)
        ]
        yield ratio_scores(np.array(right), words)


def _entity_scores(lines: Rows, golds: Rows, metric: str) -> FloatArray | None:
    """Return the scores of sentences by entities, all or those of the type in ``f1/TYPE``."""
    _, of_type, kind = metric.rpartition("f1/")
    counts = np.array(
        [
            _entity_counts(tags, line["tags"], kind if of_type else None)
            for tags, line in zip(_tags(golds), lines, strict=True)
        ]
    )
    right, true, found = counts.T
    ways = {"precision": (right, found), "recall": (right, true), "f1": (2 * right, true + found)}
    name = "f1" if of_type else metric.rpartition("/")[2]
    return ratio_scores(*ways[name]) if name in ways else None


def _entity_counts(
    gold: Sequence[str], predicted: Sequence[str], kind: str | None
) -> tuple[float, float, float]:
    """Return how many entities of a sentence are found rightly, are there, and are found."""
    true, found = (
        {each for each in entities(tags) if kind in (None, each.type)} for tags in (gold, predicted)
    )
    return float(len(true & found)), float(len(true)), float(len(found))


def _tags(golds: Rows) -> list[list[str]]:
    return [[str(tag) for tag in gold["tags"]] for gold in golds]
