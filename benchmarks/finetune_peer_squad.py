"""SQuAD for the peer: windows, answers from scores, the official measures; nothing of bertlab's.

Windows and answers as in Google's run_squad: windows start every `STRIDE` tokens, an answer may
start only where its window has the most context of its token, and the null score is the lowest one
of all windows.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedTokenizerBase

Array = npt.NDArray[Any]
Example = dict[str, Any]
STRIDE, MAX_QUERY_LENGTH, MAX_ANSWER_LENGTH, N_BEST = 128, 64, 30, 20


@dataclass(frozen=True)
class Window:
    """A stretch of a context.

    Attributes:
        example: number of the question.
        inputs: model inputs of the question and the stretch, with the answer's positions.
        begin: position of the stretch's first token.
        offsets: (tokens, 2), characters of each of its tokens in the context.
        most_context: (tokens,), whether no other window has more context of the token.
    """

    example: int
    inputs: dict[str, Any]
    begin: int
    offsets: Array
    most_context: Array


def windows_of(
    examples: Sequence[Example], tokenizer: PreTrainedTokenizerBase, max_seq_length: int
) -> list[Window]:
    """All windows; a window without the first answer has its positions at [CLS]."""
    encode = {"add_special_tokens": False, "truncation": False}
    windows = []
    for number, example in enumerate(examples):
        question = tokenizer(example["question"], **encode)["input_ids"][:MAX_QUERY_LENGTH]
        context = tokenizer(example["context"], return_offsets_mapping=True, **encode)
        ids, offsets = context["input_ids"], np.array(context["offset_mapping"])
        room = max_seq_length - len(question) - 3
        starts = range(0, max(len(ids) - room, 0) + STRIDE, STRIDE)
        spans = [(start, min(start + room, len(ids))) for start in starts]
        best = most_context(spans, len(ids))
        cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
        for place, (start, end) in enumerate(spans):
            begin = len(question) + 2
            first, last = answer_tokens(example["answers"], offsets)
            inside = start <= first and last < end
            inputs = {
                "input_ids": [cls, *question, sep, *ids[start:end], sep],
                "token_type_ids": [0] * begin + [1] * (end - start + 1),
                "start_positions": first - start + begin if inside else 0,
                "end_positions": last - start + begin if inside else 0,
            }
            window = Window(number, inputs, begin, offsets[start:end], best[start:end] == place)
            windows.append(window)
    return windows


def most_context(spans: Sequence[tuple[int, int]], length: int) -> Array:
    """Which window has the most context of each token: run_squad's measure. Returns (length,)."""
    position = np.arange(length)
    scores = [
        np.where(
            (start <= position) & (position < end),
            np.minimum(position - start, end - 1 - position) + 0.01 * (end - start),
            -np.inf,
        )
        for start, end in spans
    ]
    return np.argmax(scores, axis=0)


def answer_tokens(answers: Sequence[Example], offsets: Array) -> tuple[int, int]:
    """First and last token that the first answer touches; (-1, -1) if there is no answer."""
    if not answers:
        return -1, -1
    begin = answers[0]["answer_start"]
    end = begin + len(answers[0]["text"])
    touched = np.flatnonzero((offsets[:, 1] > begin) & (offsets[:, 0] < end))
    return int(touched[0]), int(touched[-1])


def answers_of(
    examples: Sequence[Example], windows: Sequence[Window], start_logits: Array, end_logits: Array
) -> tuple[list[str], Array]:
    """Best answer of each question, and by how much the null answer's score is above its score.

    Both logits are (windows, tokens); the odds are (examples,), infinite where no span is allowed.
    """
    texts = [""] * len(examples)
    best = np.full(len(examples), -np.inf)
    null = np.full(len(examples), np.inf)
    for window, starts, ends in zip(windows, start_logits, end_logits, strict=True):
        number, stretch = window.example, slice(window.begin, window.begin + len(window.offsets))
        null[number] = min(null[number], starts[0] + ends[0])
        start = np.where(window.most_context, starts[stretch], -np.inf)
        end = ends[stretch]
        for first in np.argsort(-start)[:N_BEST]:
            for last in np.argsort(-end)[:N_BEST]:
                score = start[first] + end[last]
                if first <= last < first + MAX_ANSWER_LENGTH and score > best[number]:
                    best[number] = score
                    begin, stop = window.offsets[first][0], window.offsets[last][1]
                    texts[number] = examples[number]["context"][begin:stop]
    return texts, null - best


def measures(examples: Sequence[Example], texts: Sequence[str], null_odds: Array) -> dict[str, Any]:
    """Official measures in percent, as evaluate-v1.1 or, if a question has no answer, v2.0.

    For v2.0 ``f1`` and ``exact_match`` are at the threshold on `null_odds` that gives the best F1;
    ``best_exact_match`` is at its own, and the ones that end in ``_at_zero`` at 0.
    """
    golds = [[answer["text"] for answer in example["answers"]] for example in examples]
    scores = np.array([question_scores(*pair) for pair in zip(golds, texts, strict=True)]) * 100
    if all(golds):
        return {"f1": scores[:, 1].mean(), "exact_match": scores[:, 0].mean()}
    answerable = np.array([bool(gold) for gold in golds])
    null_scores = np.where(answerable, 0.0, 100.0)[:, None]
    order = np.argsort(null_odds, kind="stable")
    # evaluate-v2.0's search lets any text cost a question without an answer, be it an article only
    wrong = np.array([[-100.0 * bool(text)] for text in texts])
    gains = np.where(answerable[:, None], scores, wrong)[order]
    # row k: the first k questions of the order have their text, the others the null answer
    totals = np.vstack([np.zeros(2), np.cumsum(gains, axis=0)]) + null_scores.sum()
    exact_place, f1_place = totals.argmax(axis=0)
    means = totals / len(examples)
    threshold = null_odds[order[f1_place - 1]] if f1_place else null_odds.min() - 1
    at_zero = np.where(null_odds[:, None] > 0, null_scores, scores)
    tuned = np.where(null_odds[:, None] > threshold, null_scores, scores)
    return {
        "f1": means[f1_place, 1],
        "exact_match": means[f1_place, 0],
        "best_exact_match": means[exact_place, 0],
        "null_threshold": threshold,
        "f1_at_zero": at_zero[:, 1].mean(),
        "exact_match_at_zero": at_zero[:, 0].mean(),
        "has_answer_f1": tuned[answerable, 1].mean(),
        "no_answer_f1": tuned[~answerable, 1].mean(),
    }


def question_scores(golds: Sequence[str], text: str) -> tuple[float, float]:
    """Exact match and F1 of one answer, the best over the gold answers."""
    golds = [gold for gold in golds if normalized(gold)] or [""]
    exact = max(float(normalized(gold) == normalized(text)) for gold in golds)
    return exact, max(token_f1(gold, text) for gold in golds)


def normalized(text: str) -> str:
    """Lower-cased, without punctuation, articles and superfluous white space."""
    text = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def token_f1(gold: str, text: str) -> float:
    """F1 of the bags of tokens; if one is empty, whether both are."""
    gold_tokens, tokens = normalized(gold).split(), normalized(text).split()
    if not gold_tokens or not tokens:
        return float(gold_tokens == tokens)
    same = (Counter(gold_tokens) & Counter(tokens)).total()
    return 2 * same / (len(gold_tokens) + len(tokens))
