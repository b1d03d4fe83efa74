"""Where a head is wrong: its predictions for held-out rows, summed up as plain data.

What a head predicts tells what kind it is: ``label`` and ``scores`` of a classifier, ``tags``,
``labels`` of several at once, a number ``score``, an ``answer``; of others only rows are shown.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bertlab.api import Example

WORST = 20  # rows
_LONGEST = 10  # rows
_MOST_CLASSES = 200
_MOST_CONFUSIONS = 400
_MOST_POINTS = 1_000  # of a scatter
_TEXT = 400  # characters of a row
_VALUE = 120
_BINS = 10  # of a calibration
_STEPS = 20  # thresholds: 0.05, 0.1, …
Span = tuple[int, int, str]


@dataclass
class Judged:
    """A row with its prediction.

    Attributes:
        where: file and line.
        text: of the row.
        truth: as text.
        prediction: as text.
        score: the probability, share or error that is shown.
        badness: rows with more of it come first among the worst.
        is_right: whether the prediction is the truth; None of numbers.
        tokens: of its sequences together.
        cut: tokens that did not fit.
    """

    where: str
    text: str
    truth: str
    prediction: str
    score: float
    badness: float
    is_right: bool | None
    tokens: int = 0
    cut: int = 0


@dataclass
class _Found:
    kind: str
    rows: list[Judged] = field(default_factory=list)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)  # truth, prediction
    sure: list[tuple[float, bool]] = field(default_factory=list)  # confidence, was it right?
    more: dict[str, Any] = field(default_factory=dict)


def diagnose(
    examples: Sequence[Example],
    predictions: Sequence[Mapping[str, Any]],
    truth_columns: Iterable[str],
    tokens: Sequence[int],
    cut: Sequence[int],
    threshold: float = 0.5,
) -> dict[str, Any]:
    """Return what is said of a head's predictions, JSON-ready.

    Args:
        examples: N rows with their truth.
        predictions: the head's merged prediction of each.
        truth_columns: columns of an example that hold the truth.
        tokens: of each row's sequences.
        cut: tokens of each row that did not fit.
        threshold: from which on one of several labels holds.
    """
    kind = _kind_of(predictions[0]) if predictions else "other"
    found = _Found(kind)
    truths = frozenset(truth_columns)
    for example, prediction, length, missing in zip(
        examples, predictions, tokens, cut, strict=True
    ):
        row = _JUDGES[kind](example, prediction, truths, found)
        row.where, row.tokens, row.cut = example.where, int(length), int(missing)
        row.text = row.text or _text_of(example, truths)
        found.rows.append(row)
    if kind == "labels":
        found.more["thresholds"] = _thresholds(found.more.pop("cells", []))
        found.more["threshold"] = threshold
    wrong = [row for row in found.rows if not row.is_right]
    worst = sorted(wrong, key=lambda row: -row.badness)[:WORST]
    longest = sorted(found.rows, key=lambda row: (-row.cut, -row.tokens))[:_LONGEST]
    return {
        "kind": kind,
        "rows": len(found.rows),
        "wrong": sum(row.is_right is False for row in wrong),
        **_class_figures(found.pairs),
        "calibration": _calibration(found.sure),
        "worst": [_shown(row) for row in worst],
        "longest": [_shown(row) for row in longest],
        "cut": _cut(found.rows),
        **found.more,
    }


def _kind_of(prediction: Mapping[str, Any]) -> str:
    scores = prediction.get("scores")
    if "label" in prediction and isinstance(scores, dict):
        return "classes"
    if "labels" in prediction and isinstance(scores, dict):
        return "labels"
    if "choice" in prediction and isinstance(scores, list):
        return "choices"
    if isinstance(prediction.get("tags"), list):
        return "tags"
    if "answer" in prediction:
        return "answers"
    return "numbers" if isinstance(prediction.get("score"), float) else "other"


def _classes(
    example: Example, prediction: Mapping[str, Any], truths: frozenset[str], found: _Found
) -> Judged:
    truth, guess = str(example.values.get("label")), str(prediction["label"])
    of_truth = float(prediction["scores"].get(truth, 0.0))
    score = float(prediction["scores"][guess])
    found.pairs[truth, guess] += 1
    found.sure.append((score, truth == guess))
    return Judged("", "", truth, guess, score, 1 - of_truth, truth == guess)


def _choices(
    example: Example, prediction: Mapping[str, Any], truths: frozenset[str], found: _Found
) -> Judged:
    texts, scores = example.values["choices"], prediction["scores"]
    place, guess = int(example.values["label"]), int(prediction["label"])
    found.sure.append((float(scores[guess]), place == guess))
    text = _short(example.values.get("context", ""), _TEXT)
    truth, chosen = (_short(texts[each], _VALUE) for each in (place, guess))
    return Judged(
        "", text, truth, chosen, float(scores[guess]), 1 - float(scores[place]), place == guess
    )


def _labels(
    example: Example, prediction: Mapping[str, Any], truths: frozenset[str], found: _Found
) -> Judged:
    given = example.values.get("labels")
    truth = {str(each) for each in given} if isinstance(given, list | tuple) else set()
    guessed, scores = set(map(str, prediction["labels"])), prediction["scores"]
    cells = found.more.setdefault("cells", [])
    distance = 0.0
    for name, score in scores.items():
        cells.append((float(score), name in truth))
        found.sure.append((max(score, 1 - score), (name in truth) == (name in guessed)))
        distance += abs((name in truth) - score) / len(scores)
        if name in truth or name in guessed:
            # a label that is missed, or one too many, is confused with none
            found.pairs[name if name in truth else "", name if name in guessed else ""] += 1
    return Judged(
        "", "", ", ".join(sorted(truth)) or "none", ", ".join(sorted(guessed)) or "none",
        1 - distance, distance, truth == guessed,
    )  # fmt: skip


def _tags(
    example: Example, prediction: Mapping[str, Any], truths: frozenset[str], found: _Found
) -> Judged:
    given, guessed = example.values.get("tags"), [str(tag) for tag in prediction["tags"]]
    truth = list(map(str, given)) if isinstance(given, list | tuple) else guessed
    words = [str(word) for word in example.values["words"]]
    scores = prediction.get("scores") or [1.0] * len(words)
    marks_entities = "entities" in prediction
    wrong = []
    for word, one, other, score in zip(words, truth, guessed, scores, strict=False):
        found.sure.append((float(score), one == other))
        if not marks_entities:
            found.pairs[one, other] += 1
        if one != other:
            wrong.append((word, one, other, float(score)))
    if marks_entities:
        _count_entities(entities_of(truth), entities_of(guessed), found.pairs)
    share = 1 - len(wrong) / max(1, len(words))
    return Judged(
        "", _short(" ".join(words), _TEXT),
        _short(", ".join(f"{word}: {one}" for word, one, _, _ in wrong) or "all right", _VALUE),
        _short(", ".join(f"{word}: {other}" for word, _, other, _ in wrong) or "all right", _VALUE),
        share, len(wrong) + sum(score for *_, score in wrong) / (1 + len(wrong)), not wrong,
    )  # fmt: skip


def _count_entities(
    truth: list[Span], guessed: list[Span], pairs: Counter[tuple[str, str]]
) -> None:
    """Count entities as right, of another type, missed (``""`` predicted) or one too many."""
    left = {(start, end): kind for start, end, kind in guessed}
    for start, end, kind in truth:
        pairs[kind, left.pop((start, end), "")] += 1
    for kind in left.values():
        pairs["", kind] += 1


def entities_of(tags: Sequence[str]) -> list[Span]:
    """Return first word, end and type of what tags of BIO or BIOES mark.

    ``B-LOC I-LOC O S-PER`` → ``[(0, 2, "LOC"), (3, 4, "PER")]``
    """
    found: list[Span] = []
    before = ""
    for place, tag in enumerate(tags):
        mark, _, kind = tag.partition("-")
        if not kind:
            before = ""
            continue
        if mark in ("I", "E", "L") and kind == before and found:
            found[-1] = (found[-1][0], place + 1, kind)
        else:
            found.append((place, place + 1, kind))
        before = "" if mark in ("E", "L", "S", "U") else kind
    return found


def _numbers(
    example: Example, prediction: Mapping[str, Any], truths: frozenset[str], found: _Found
) -> Judged:
    truth, guess = _number(example.values.get("label")), float(prediction["score"])
    points = found.more.setdefault("points", [])
    if len(points) < _MOST_POINTS and math.isfinite(truth - guess):
        points.append([truth, guess])
    error = abs(truth - guess)
    return Judged("", "", f"{truth:.6g}", f"{guess:.4g}", error, error, None)


def _answers(
    example: Example, prediction: Mapping[str, Any], truths: frozenset[str], found: _Found
) -> Judged:
    given, guess = example.values.get("answers"), str(prediction["answer"])
    texts = given.get("text", []) if isinstance(given, Mapping) else given
    answers = [str(each) for each in texts] if isinstance(texts, list | tuple) else []
    overlap = max((word_overlap(each, guess) for each in answers), default=float(not guess))
    best = prediction.get("n_best") or [{}]
    score = float(best[0].get("probability", overlap)) if isinstance(best[0], Mapping) else overlap
    found.sure.append((min(1.0, max(0.0, score)), overlap == 1))
    text = f"{example.values.get('question', '')} / {example.values.get('context', '')}"
    none = "no answer"
    return Judged(
        "", _short(text, _TEXT), _short(answers[0] if answers else none, _VALUE),
        _short(guess or none, _VALUE), score, 1 - overlap + score / 10, overlap == 1,
    )  # fmt: skip


def word_overlap(one: str, other: str) -> float:
    """Return F1 of the words of two texts: ``in paris``, ``paris`` → 2 · 1 / 3."""
    ours, theirs = Counter(one.casefold().split()), Counter(other.casefold().split())
    common = sum((ours & theirs).values())
    return 2 * common / max(1, ours.total() + theirs.total())


def _other(
    example: Example, prediction: Mapping[str, Any], truths: frozenset[str], found: _Found
) -> Judged:
    given = [value for key, value in example.values.items() if key in truths]
    truth = _short(given[0] if given else "", _VALUE)
    guess = _short(next(iter(prediction.values()), ""), _VALUE)
    return Judged("", "", truth, guess, math.nan, float(truth != guess), truth == guess)


_Judge = Callable[[Example, Mapping[str, Any], frozenset[str], _Found], Judged]
_JUDGES: dict[str, _Judge] = {
    "classes": _classes,
    "labels": _labels,
    "choices": _choices,
    "tags": _tags,
    "answers": _answers,
    "numbers": _numbers,
    "other": _other,
}


def _class_figures(pairs: Counter[tuple[str, str]]) -> dict[str, Any]:
    """Return counts of true, predicted and right by class, and how often which was which."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for (truth, guess), count in pairs.items():
        counts[truth][0] += count
        counts[guess][1] += count
        counts[truth][2] += count if truth == guess else 0
    names = sorted((name for name in counts if name), key=lambda name: -counts[name][0])
    return {
        "classes": [[name, *counts[name]] for name in names[:_MOST_CLASSES]],
        "confusions": [
            [truth, guess, count] for (truth, guess), count in pairs.most_common(_MOST_CONFUSIONS)
        ],
    }


def _calibration(sure: list[tuple[float, bool]]) -> list[list[float]]:
    """Return mean confidence, share of right ones and number of predictions of each tenth."""
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(_BINS)]
    for confidence, is_right in sure:
        bins[min(_BINS - 1, int(confidence * _BINS))].append((confidence, is_right))
    return [
        [sum(each[0] for each in of) / len(of), sum(each[1] for each in of) / len(of), len(of)]
        for of in bins
        if of
    ]


def _thresholds(cells: list[tuple[float, bool]]) -> list[list[float]]:
    """Return threshold, precision, recall and F1 over all labels of all rows."""
    true = sum(holds for _, holds in cells)
    found = []
    for step in range(1, _STEPS):
        threshold = step / _STEPS
        taken = [holds for score, holds in cells if score >= threshold]
        right = sum(taken)
        precision, recall = right / max(1, len(taken)), right / max(1, true)
        f1 = 2 * right / max(1, len(taken) + true)
        found.append([threshold, precision, recall, f1])
    return found


def _cut(rows: list[Judged]) -> dict[str, int]:
    """Return how many rows were cut, and how many are right among these and the others."""
    cut = [row for row in rows if row.cut]
    whole = [row for row in rows if not row.cut]
    return {
        "rows": len(cut),
        "right": sum(row.is_right is True for row in cut),
        "whole": len(whole),
        "whole_right": sum(row.is_right is True for row in whole),
    }


def _shown(row: Judged) -> dict[str, Any]:
    score = round(row.score, 6) if math.isfinite(row.score) else None
    return {
        "where": row.where, "text": row.text, "truth": row.truth, "prediction": row.prediction,
        "score": score, "right": row.is_right, "tokens": row.tokens, "cut": row.cut,
    }  # fmt: skip


def _text_of(example: Example, truths: frozenset[str]) -> str:
    values = (value for key, value in example.values.items() if key not in truths)
    texts = (
        " ".join(map(str, each)) if isinstance(each, list | tuple) else str(each) for each in values
    )
    return _short(" / ".join(texts), _TEXT)


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan


def _short(value: object, longest: int) -> str:
    text = str(value)
    return text if len(text) <= longest else f"{text[:longest]}…"
