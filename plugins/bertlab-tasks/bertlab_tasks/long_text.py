"""Labels of texts that are longer than a model reads: the scores of their windows, pooled."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from bertlab import check_at_least, classification_loss, text_ids
from bertlab.api import (
    ConfigError,
    EncoderOutput,
    Example,
    Features,
    PackedBatch,
    TaskLoss,
    Tokenizer,
)
from bertlab.extend import SingleSentence
from bertlab_tasks.span_windows import context_windows

Pooling = Literal["mean", "max", "first"]


class LongText(SingleSentence):
    """Predict a label or a score of a text of any length from windows over it.

    A text of more than ``max_seq_length`` tokens goes in overlapping windows, ``[CLS] … [SEP]``,
    whose scores are pooled before the loss. ``classifier`` is that of
    ``BertForSequenceClassification``
    and all windows share it: an export gives the scores of one window.

    Args:
        window_pooling: ``mean`` of the windows' scores; ``max``: of each class the largest one, so
            that one window is enough; ``first``: of the first window alone, the others are cut off.
        window_stride: tokens from the start of a window to the next one's; half a window if not
            given.
        max_windows: of a text; what lies behind the last is cut off and counted.
        regression: predict a number and not a class.
        class_weights: weight of each class in the loss, as ``single_sentence`` has it.
        dropout: on the pooled output; the encoder's ``hidden_dropout_prob`` if not given.

    Raises:
        ConfigError: if an argument is out of range.
    """

    keeps_examples_together: ClassVar[bool] = True
    export_note: ClassVar[str] = (
        "the scores are those of one window; pool those of a longer text's windows"
    )

    def __init__(
        self,
        window_pooling: Pooling = "mean",
        window_stride: int | None = None,
        max_windows: int = 16,
        regression: bool = False,
        class_weights: Literal["balanced"] | list[float] | dict[str, float] | None = None,
        dropout: float | None = None,
    ) -> None:
        super().__init__(regression, class_weights, dropout)
        if window_pooling not in get_args(Pooling):
            raise ConfigError(
                f"model.head.window_pooling: found {window_pooling!r}, expected one of "
                f"{', '.join(get_args(Pooling))}"
            )
        check_at_least("model.head.window_stride", window_stride, 1, " tokens")
        check_at_least("model.head.max_windows", max_windows, 1)
        self.window_pooling = window_pooling
        self.window_stride = window_stride
        self.max_windows = max_windows

    def encode(self, example: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        """Return the windows of a text; the first counts 1 prediction, the others 0.

        Field ``window`` is the number of a window in its text, beside the label's.

        Raises:
            DataError: if the text has no word, or the label is not known.
            ConfigError: if a stride is longer than a window.
        """
        ids = text_ids(example.values.get("text"), example, "text", tokenizer)
        spans = text_windows(len(ids), tokenizer.room(max_seq_length), self.window_stride)
        kept = spans[: 1 if self.window_pooling == "first" else self.max_windows]
        if len(kept) > 1:
            self.notes["texts in several windows"] += 1
        cut = len(ids) - kept[-1][1]
        if cut:
            self.notes["texts cut behind their last window"] += 1
        truth = self.truth_of(example)
        return [
            Features(
                *tokenizer.build_inputs(ids[start:end]),
                fields={"window": number, **truth},
                count=int(number == 0),
                truncated=cut if number == 0 else 0,
            )
            for number, (start, end) in enumerate(kept)
        ]

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return cross-entropy in nats, or squared error, summed in float32 over the texts."""
        first = batch.fields["window"] == 0
        logits = pool_windows(self.classify(output.pooled), first, self.window_pooling)
        labels = batch.fields["label"][first]
        if not self.regression:
            return classification_loss(logits, labels, self.label_weights)
        scores, labels = logits.squeeze(-1), labels.float()
        error = F.mse_loss(scores, labels, reduction="sum")
        return TaskLoss(error, labels.numel(), scores.detach(), labels)

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return ``{"logits": [number, …]}`` of each window."""
        del batch
        return [{"logits": row} for row in self.classify(output.pooled).tolist()]

    def merge(self, example: Example, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the prediction of a text, as ``single_sentence`` gives it."""
        del example
        windows = torch.tensor([part["logits"] for part in parts])  # (W, K)
        first = torch.arange(len(parts)) == 0
        (logits,) = pool_windows(windows, first, self.window_pooling)
        if self.regression:
            return {"score": logits.item()}
        names = self.labels.names if self.labels else ()
        shares = logits.softmax(-1).tolist()
        best = int(logits.argmax())
        return {"label": names[best], "scores": dict(zip(names, shares, strict=True))}


def text_windows(tokens: int, room: int, stride: int | None) -> list[tuple[int, int]]:
    """Return windows ``[start, end)`` that together cover the tokens of a text.

    Args:
        tokens: of the text.
        room: tokens of a window, without ``[CLS]`` and ``[SEP]``.
        stride: from the start of a window to the next one's; half a window if None.

    Raises:
        ConfigError: there is no room, or tokens between windows would be lost.
    """
    if room < 1:
        raise ConfigError("data.max_seq_length: expected 3 or more for a text")
    if stride is not None and not 1 <= stride <= room:
        raise ConfigError(
            f"window_stride: found {stride}, expected 1 to {room} (max_seq_length less [CLS] and "
            "[SEP]), for tokens between windows would be lost"
        )
    return context_windows(tokens, room, stride or max(1, room // 2))


def pool_windows(scores: Tensor, first: Tensor, pooling: Pooling) -> Tensor:
    """Return ``(R, K)`` of R texts for the ``(W, K)`` of their windows.

    Args:
        scores: of all windows, those of a text one behind the other.
        first: ``(W,)`` bool, True at the first window of each text.
        pooling: ``mean``, ``max`` or ``first``.
    """
    if pooling == "first":
        return scores[first]
    # first [1, 0, 0, 1] -> begins [0, 3], 4 windows -> lengths [3, 1]
    begins = first.nonzero().squeeze(1)
    lengths = torch.diff(begins, append=begins.new_tensor([len(first)]))
    return torch.segment_reduce(scores, pooling, lengths=lengths, axis=0)


def pooled_rows(rows: Iterable[Tensor], pooling: Pooling) -> Tensor:
    """Return ``(1, D)`` for the ``(1, D)`` vectors of a text's windows."""
    windows = torch.cat(list(rows))
    first = torch.arange(len(windows), device=windows.device) == 0
    return pool_windows(windows, first, pooling)
