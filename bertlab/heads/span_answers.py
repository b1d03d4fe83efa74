"""From start and end logits to answers: the n best spans, windows put together, no answer."""

from collections.abc import Sequence
from math import exp, fsum, inf
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
    width = min(max_answer_length, start_logits.shape[1])
    ends = F.pad(end_logits, (0, width - 1), value=-inf).unfold(1, width, 1)  # (B, S, width)
    scores = (start_logits[:, :, None] + ends).flatten(1)
    scores = torch.where(scores.isnan(), -inf, scores)
    count = min(count, scores.shape[1])
    # topk leaves open which of several equal scores it takes: take the first ones
    least = scores.topk(count).values[:, -1:]
    above, equal = scores > least, scores == least
    first_equal = equal.cumsum(1) <= count - above.sum(1, keepdim=True)
    flat = (above | (equal & first_equal)).nonzero()[:, 1].view(-1, count)
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

    Args:
        context: which the spans are characters of.
        spans: of all windows.
        null_score: smallest score of ``[CLS]`` over the windows; None if every question is known
            to have an answer.
        n_best_size: different texts that share the probability, best first (no answer comes on
            top).

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
