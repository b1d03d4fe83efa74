"""Each evaluation row's own score, from kept predictions, for tests over examples."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertlab.heads.squad_scores import answer_scores

_TOLERANCE = 1e-5  # metrics are computed in float32


def row_scores(path: Path, metric: str, value: float) -> NDArray[np.float64] | None:
    """Return ``(rows,)`` float64 scores whose mean is the metric; None where it is no such mean.

    Args:
        path: predictions as JSON lines, each with its ``gold``.
        metric: that the rows are scored by.
        value: that the run reported; if the rows' mean is another, they are not what it is made of.
    """
    if not path.is_file():
        return None
    with path.open(encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    for scores in _candidates(lines, metric):
        if scores and abs(np.mean(scores) - value) < _TOLERANCE:
            return np.array(scores, np.float64)
    return None


def _candidates(lines: Sequence[dict[str, Any]], metric: str) -> Iterator[list[float]]:
    """Yield the scores of the rows in each way that the metric may have been counted."""
    golds = [line.get("gold", {}) for line in lines]
    name = metric.rpartition("/")[2]  # of the first of several evaluation sets, whose rows are kept
    if name == "accuracy" and all("label" in gold for gold in golds):
        labels = [str(line.get("label")) for line in lines]
        yield [
            float(str(gold["label"]).strip() == label.strip())
            for gold, label in zip(golds, labels, strict=True)
        ]
    if name in ("exact_match", "f1") and all(gold.get("answers") for gold in golds):
        answers = [line.get("answer", "") for line in lines]
        texts = [gold["answers"]["text"] for gold in golds]
        # SQuAD 1.1, whose questions all have an answer, and 2.0
        for unanswerable in (False, True) if all(texts) else (True,):
            exact, overlap = answer_scores(answers, texts, unanswerable)
            yield exact if name == "exact_match" else overlap
