"""Question answering by a span of the context: SQuAD 1.1 and 2.0 (paper sec. 4.2 and 4.3)."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertlab import check_at_least, check_share, initialize
from bertlab.api import (
    Column,
    ConfigError,
    DataError,
    EncoderOutput,
    Example,
    Features,
    Head,
    PackedBatch,
    TaskContext,
    TaskLoss,
    Tokenizer,
)
from bertlab.extend import Dropout
from bertlab_tasks.span_answers import (
    answer_of_windows,
    answer_scores,
    best_null_threshold,
    best_spans,
    best_text,
    choose_answer,
    squad1_metrics,
    squad2_metrics,
)
from bertlab_tasks.span_windows import (
    IGNORED,
    NO_ANSWER,
    AnswerStart,
    context_tokens,
    context_windows,
    find_answer,
    gold_answers,
    window_features,
)
from bertlab_tasks.text_of_words import same_but_for_capitals


class Span(Head):
    """Tell where in the context the answer to a question starts and ends.

    A long context is read in overlapping windows; a window without the whole answer, or of a
    question without one, trains to ``[CLS]``. Answers come back as exact characters of the context.
    A prediction has ``answer``, ``start`` and ``end`` (characters, end excluded), ``score`` (its
    probability among the n best), ``n_best`` and, with ``unanswerable``, ``null_odds`` (score of no
    answer less that of the best text).

    Metrics are the official scorer's as shares: ``exact_match`` and ``f1``; with ``unanswerable``
    also ``has_answer_exact_match``, ``has_answer_f1``, ``no_answer_accuracy`` and, over all
    thresholds, ``best_exact_match``, ``best_f1`` and ``best_f1_threshold``.

    Args:
        unanswerable: questions may have no answer (SQuAD 2.0); the threshold on the null odds is
            then chosen for F1 at each evaluation of a fit. If false, such a row is an error.
        doc_stride: tokens from the start of a window to the start of the next.
        max_query_length: tokens of the question that are kept.
        max_answer_length: longest answer that is predicted, in tokens.
        n_best_size: answers that share the probability.
        answer_start: what to do if a gold answer is not at its ``answer_start``: take the
            occurrence nearest to it (``locate``), leave the row out of the loss (``skip``), or stop
            (``strict``). A row whose answer occurs nowhere is left out of the loss by ``locate``.
        dropout: on the hidden states; BERT has none here.

    Attributes:
        null_threshold: scalar float32 buffer; there is no answer where the null odds are above it.

    Raises:
        ConfigError: if a number is below 1, the dropout not in 0 to 1, or ``answer_start`` none of
            the three.
    """

    columns: ClassVar[tuple[Column, ...]] = (
        Column("question"),
        Column("context"),
        Column("answers", kind="answers", is_truth=True),
        Column("id", required=False),
    )
    monitor: ClassVar[tuple[str, Literal["min", "max"]]] = ("f1", "max")
    better: ClassVar[Mapping[str, Literal["min", "max"]]] = {
        "exact_match": "max",
        "has_answer_exact_match": "max",
        "has_answer_f1": "max",
        "no_answer_accuracy": "max",
        "best_exact_match": "max",
        "best_f1": "max",
    }
    shares: ClassVar[tuple[str, ...]] = (
        *("exact_match", "f1", "best_exact_match", "best_f1"),
        *("has_answer_exact_match", "has_answer_f1", "no_answer_accuracy"),
    )
    huggingface: ClassVar[str | None] = "BertForQuestionAnswering"
    splits_by: ClassVar[str | None] = "context"
    uses_pooled = False
    null_threshold: Tensor

    def __init__(
        self,
        unanswerable: bool = False,
        doc_stride: int = 128,
        max_query_length: int = 64,
        max_answer_length: int = 30,
        n_best_size: int = 20,
        answer_start: AnswerStart = "locate",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        numbers = {
            "doc_stride": doc_stride,
            "max_query_length": max_query_length,
            "max_answer_length": max_answer_length,
            "n_best_size": n_best_size,
        }
        for name, value in numbers.items():
            check_at_least(f"model.head.{name}", value, 1)
        if answer_start not in get_args(AnswerStart):
            raise ConfigError(
                f"model.head.answer_start: found {answer_start!r}, expected one of "
                f"{list(get_args(AnswerStart))}"
            )
        check_share("model.head.dropout", dropout)
        self.unanswerable = unanswerable
        self.doc_stride = doc_stride
        self.max_query_length = max_query_length
        self.max_answer_length = max_answer_length
        self.n_best_size = n_best_size
        self.answer_start = answer_start
        self.dropout = Dropout(dropout)
        self.register_buffer("null_threshold", torch.tensor(0.0))

    def add_layers(self, context: TaskContext) -> None:
        """Create ``qa_outputs``: the start vector S and the end vector E."""
        self.qa_outputs = nn.Linear(context.encoder.hidden_size, 2)
        initialize(self, context.encoder.initializer_range)

    def encode(self, example: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        """Return the windows of an example.

        Raises:
            DataError: question or context is empty, a question fills a window, answers are
                malformed, missing though ``unanswerable`` is false, or (``strict``) not at their
                place.
        """
        question = tokenizer.encode(_text(example, "question"))
        context = _text(example, "context")
        tokens = context_tokens(tokenizer, context)
        for name, ids in (("question", question), ("context", tokens.ids)):
            if not ids:
                raise DataError(
                    f"{example.where}: {name}: found {example.values[name]!r}, expected a text"
                )
        cut = max(0, len(question) - self.max_query_length)
        question = question[: self.max_query_length]
        room = tokenizer.room(max_seq_length, segments=2) - len(question)
        if room < 1:
            raise DataError(
                f"{example.where}: question: its {len(question)} tokens, [CLS] and two [SEP] leave "
                f"no room for the context in max_seq_length {max_seq_length}; raise "
                f"max_seq_length or lower model.head.max_query_length ({self.max_query_length})"
            )
        answer = None
        if example.values.get("answers") is not None:
            if not (self.unanswerable or gold_answers(example)[0]):
                raise DataError(
                    f"{example.where}: answers: found none, expected at least one; for questions "
                    "without an answer (SQuAD 2.0) set model.head.unanswerable: true"
                )
            answer = find_answer(example, tokens, self.answer_start, self.notes)
        windows = context_windows(len(tokens.ids), room, self.doc_stride)
        features = window_features(question, tokens, windows, answer, tokenizer)
        features[0].truncated = cut
        if cut:
            self.notes["questions cut to max_query_length"] += 1
        if answer not in (None, NO_ANSWER, IGNORED) and all(
            each.fields["end_position"] == 0 for each in features
        ):
            self.notes["answers that no window holds whole (trained to [CLS])"] += 1
        return features

    def logits(self, output: EncoderOutput, batch: PackedBatch) -> Tensor:
        """Return ``(B, S, 2)`` float32 start and end logits, -inf behind each window's end.

        Autocast is off: in half precision many positions would have equal logits.
        """
        hidden = self.dropout(output.tokens)
        with torch.autocast(hidden.device.type, enabled=False):
            flat = self.qa_outputs(hidden.to(self.qa_outputs.weight.dtype)).float()  # (T, 2)
        return batch.pad(flat, -inf)

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return the mean of start's and end's cross-entropy in nats, summed over the windows.

        Each is over all positions of the window. ``preds`` and ``target`` are ``(B, 2)`` positions.
        """
        logits = self.logits(output, batch)
        target = torch.stack([batch.fields["start_position"], batch.fields["end_position"]], dim=1)
        # (B, S, 2) -> (2 B, S): of each window a choice of the start, then one of the end
        total = F.cross_entropy(
            logits.transpose(1, 2).flatten(0, 1),
            target.flatten(),
            ignore_index=IGNORED[0],
            reduction="sum",
        )
        return TaskLoss(
            sum=total / 2,
            count=int((target[:, 0] != IGNORED[0]).sum()),
            preds=logits.detach().argmax(1),
            target=target,
        )

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return ``spans`` and ``null_score`` of each window, for :meth:`merge`.

        All pairs of positions are compared: the end is not before the start nor further than
        ``max_answer_length``, and the start has most context in this window.
        """
        start_logits, end_logits = self.logits(output, batch).unbind(-1)
        char_start, char_end = (
            batch.pad(batch.fields[name], -1) for name in ("char_start", "char_end")
        )
        may_start = batch.pad(batch.fields["max_context"], False)
        first, last, scores = best_spans(
            start_logits.masked_fill(~may_start, -inf),
            end_logits.masked_fill(char_start < 0, -inf),  # outside the context
            self.max_answer_length,
            self.n_best_size,
        )
        null_scores = (start_logits[:, 0] + end_logits[:, 0]).tolist()  # of [CLS]
        columns = (char_start.gather(1, first), char_end.gather(1, last), scores)
        windows = zip(*(column.tolist() for column in columns), null_scores, strict=True)
        return [
            {
                "spans": [span for span in zip(*spans, strict=True) if span[2] > -inf],
                "null_score": null_score,
            }
            for *spans, null_score in windows
        ]

    def merge(self, example: Example, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the prediction of an example from those of its windows, as the class says."""
        ranked = answer_of_windows(
            _context_as_given(example),
            [span for part in parts for span in part["spans"]],
            min(part["null_score"] for part in parts) if self.unanswerable else None,
            self.n_best_size,
        )
        return choose_answer(ranked, float(self.null_threshold)) | ranked

    def score_names(self) -> list[str]:
        """Return the official scorer's metrics, as the class names them."""
        names = ["exact_match", "f1"]
        if self.unanswerable:
            names += ["has_answer_exact_match", "has_answer_f1", "no_answer_accuracy"]
            names += ["best_exact_match", "best_f1", "best_f1_threshold"]
        return names

    def score(
        self, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]
    ) -> dict[str, float]:
        """Return the metrics of the predicted answers; ``best_…`` are over all thresholds."""
        golds = [gold_answers(example)[0] for example in examples]
        answers = [prediction["answer"] for prediction in predictions]
        if not self.unanswerable:
            return squad1_metrics(answers, golds)
        exact, overlap, odds, has_answer = _without_threshold(examples, predictions)
        best_exact_match, _ = best_null_threshold(exact, odds, has_answer)
        best_f1, threshold = best_null_threshold(overlap, odds, has_answer)
        return squad2_metrics(answers, golds) | {
            "best_exact_match": best_exact_match,
            "best_f1": best_f1,
            "best_f1_threshold": threshold,
        }

    def tune(self, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]) -> None:
        """Set the null threshold to the best one for F1 (paper sec. 4.3).

        The answers in ``predictions`` are chosen anew with it.
        """
        if not self.unanswerable:
            return
        _, overlap, odds, has_answer = _without_threshold(examples, predictions)
        _, threshold = best_null_threshold(overlap, odds, has_answer)
        self.null_threshold.fill_(threshold)
        for prediction in predictions:
            prediction.update(choose_answer(prediction, float(self.null_threshold)))

    def warning(self, values: dict[str, float]) -> str | None:
        """Return a warning if no question was answered, or none with a right word."""
        if values.get("no_answer_accuracy") == 1 and values.get("has_answer_f1") == 0:
            return "no question was answered: the model predicts 'no answer' for all of them"
        if values.get("f1") == 0:
            return "no predicted answer shares a word with a gold answer"
        return None


def _text(example: Example, column: str) -> str:
    text = example.values[column]
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"{example.where}: {column}: found {text!r}, expected a text")
    return text


def _context_as_given(example: Example) -> str:
    """Return the context; in the capitals of the row, where a transform made small letters.

    It is a text of the row that differs in capitals alone, whatever column of the file has it.
    """
    context: str = example.values["context"]
    others = sorted(example.row.values(), key=lambda value: bool(value != context))
    texts = [example.row.get("context"), *others]
    strings = (text for text in texts if isinstance(text, str))
    return next((text for text in strings if same_but_for_capitals(text, context)), context)


def _without_threshold(
    examples: Sequence[Example], predictions: Sequence[dict[str, Any]]
) -> tuple[list[float], list[float], list[float], list[bool]]:
    """Exact match and F1 of each question's best text, its null odds, whether it has an answer."""
    golds = [gold_answers(example)[0] for example in examples]
    texts = [best_text(prediction)["answer"] for prediction in predictions]
    exact, overlap = answer_scores(texts, golds, unanswerable=True)
    odds = [prediction["null_odds"] for prediction in predictions]
    return exact, overlap, odds, [bool(each) for each in golds]
