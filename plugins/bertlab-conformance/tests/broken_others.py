"""Heads, encoders, metrics and sources with one bug each; ``expects`` as in broken_objectives."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric

from bertlab.api.batch import EncoderOutput, PackedBatch, pack
from bertlab.api.examples import Example, Features, RawDocument
from bertlab.api.task import TaskContext
from bertlab.api.tokenizer import Tokenizer
from bertlab.encoders.attention import packed_attention
from good_plugins import (
    GoodEncoder,
    GoodHead,
    GoodMetric,
    GoodScoringHead,
    GoodSource,
)

Expects = ClassVar[tuple[str, str]]


class NeedsTruth(GoodHead):
    """Looks at the label to predict it."""

    expects: Expects = ("decodes_without_truth", "KeyError: 'label'")

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        right = batch.fields["label"].tolist()
        return [p | {"truth": t} for p, t in zip(super().decode(output, batch), right, strict=True)]


class MisspeltMonitor(GoodHead):
    """Chooses checkpoints by a metric that is not there."""

    expects: Expects = ("monitor_exists", "monitor is 'acuracy'")
    monitor = ("acuracy", "max")


class AnyLabel(GoodHead):
    """Takes a label that it does not know for the first."""

    expects: Expects = ("unknown_label_is_an_error", "encoded without an error")

    def truth(self, row: Example) -> dict[str, int]:
        known = row.values.get("label") in self.classes.names
        return super().truth(row) if known or "label" not in row.values else {"label": 0}


class CrashesOnNothing(GoodHead):
    """Does not expect an empty text."""

    expects: Expects = ("empty_text_is_no_traceback", "raises ZeroDivisionError")

    def encode(self, row: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        _ = len(row.values["text"]) / len(tokenizer.encode(row.values["text"]))
        return super().encode(row, tokenizer, max_seq_length)


class TensorPredictions(GoodHead):
    """Predicts tensors."""

    expects: Expects = ("decodes", "Tensor is not JSON serializable")

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        return [{"label": number} for number in self.logits(output).argmax(-1)]


class ForgetsTheThreshold(GoodScoringHead):
    """Keeps what was tuned where no checkpoint finds it."""

    expects: Expects = ("tuned_values_are_saved", "0.25 against 0")

    def __init__(self) -> None:
        super().__init__()
        self.plain = 0.0

    def merge(self, row: Example, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return parts[0] | {"threshold": self.plain}

    def tune(self, rows: Sequence[Example], predictions: Sequence[dict[str, Any]]) -> None:
        self.plain = 0.25


class OtherScores(GoodScoringHead):
    """Announces other scores than it gives."""

    expects: Expects = ("scores_are_named", "score_names() gives ['coverage', 'recall']")

    def score_names(self) -> list[str]:
        return ["coverage", "recall"]


class ScoresOfNoRow(GoodScoringHead):
    """Gives rows scores of whatever metric is asked for."""

    expects: Expects = ("row_scores_mean_the_metric", "12 rows, whose mean is 1; the metric is nan")

    def row_scores(self, metric: str, rows: Sequence[Mapping[str, Any]]) -> list[float] | None:
        return [1.0] * len(rows)


class ReadsItsLabels(GoodScoringHead):
    """Needs the labels, which a study does not give it."""

    expects: Expects = ("row_scores_mean_the_metric", "raises AssertionError")

    def row_scores(self, metric: str, rows: Sequence[Mapping[str, Any]]) -> list[float] | None:
        return [float(row["label"] in self.classes.names) for row in rows]


class CountAsShare(GoodMetric):
    """Gives a number of predictions as their share."""

    expects: Expects = ("shares_are_from_0_to_1", "and declared in shares, metric")
    is_share = True

    def compute(self) -> Tensor:
        return self.wrong


class ThreeClasses(GoodHead):
    """Always has three outputs."""

    expects: Expects = ("many_classes_work", "Target")

    def add_layers(self, context: TaskContext) -> None:
        self.classifier = nn.Linear(context.encoder.hidden_size, 3)


class TooLong(GoodHead):
    """Forgets the special tokens when it cuts."""

    expects: Expects = ("encode_keeps_to_any_limit", "though max_seq_length is 5")

    def encode(self, row: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        return super().encode(row, tokenizer, max_seq_length + 2)


class ChangesTheRow(GoodHead):
    """Writes into the row."""

    expects: Expects = ("encode_repeats", "encode() changes the row")

    def encode(self, row: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        made = super().encode(row, tokenizer, max_seq_length)
        row.values["text"] = row.values["text"].upper()  # type: ignore[index]
        return made


class LastBatch(GoodMetric):
    """Forgets earlier batches."""

    def update(self, preds: Tensor, target: Tensor) -> None:
        self.wrong = (preds != target).sum()
        self.count = torch.tensor(target.numel())


class LastBatchMetric(LastBatch):
    """Forgets earlier batches."""

    expects: Expects = ("adds_up", "all at once against in 3 batches")


class ForgetfulHead(GoodHead):
    """Has a metric that forgets earlier batches."""

    expects: Expects = ("metrics_add_up", "against in two batches")

    def metrics(self) -> dict[str, Metric]:
        return {"accuracy": GoodMetricOfHead()["accuracy"], "error": LastBatch()}


class WrongAccuracy(GoodHead):
    """Calls the share of errors accuracy."""

    expects: Expects = ("accuracy_counts_right", "predictions equal their target")

    def metrics(self) -> dict[str, Metric]:
        return {"accuracy": GoodMetric()}


class SharedMetrics(GoodHead):
    """Has the same metric in every evaluation."""

    expects: Expects = ("metrics_are_fresh", "the same object at the second call")
    kept = GoodHead.metrics(None)  # type: ignore[arg-type]

    def metrics(self) -> dict[str, Metric]:
        return self.kept


class OneTextForAll(GoodEncoder):
    """Attends over all tokens of the batch."""

    expects: Expects = ("states_do_not_leak", "tokens of packed sequences are off by")

    def attend(self, hidden: Tensor, batch: PackedBatch) -> Tensor:
        whole = pack([batch.input_ids.tolist()])
        return packed_attention(self.qkv(hidden), whole, 1, 0.0, False)


class SaysCausal(GoodEncoder):
    """Sees both sides and denies it."""

    expects: Expects = ("causal_is_true", "words to the right change a state by")

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size, causal=True)

    def attend(self, hidden: Tensor, batch: PackedBatch) -> Tensor:
        return packed_attention(self.qkv(hidden), batch, 1, 0.0, False)


class BlindSummary(GoodEncoder):
    """Sees only the left, and gives the first token for the whole."""

    expects: Expects = ("summary_has_seen_the_text", "the last words of a sequence")

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size, causal=True)

    def forward(self, batch: PackedBatch, all_layers: bool = False) -> EncoderOutput:
        output = super().forward(batch, all_layers)
        return EncoderOutput(output.tokens, batch, self.pooler, output.all_layers)


class OneDirection(GoodEncoder):
    """Reads all sequences of a batch as it reads the first."""

    expects: Expects = ("directions_are_read", "tokens of two directions")
    reads_directions = True

    def attend(self, hidden: Tensor, batch: PackedBatch) -> Tensor:
        causal = self.causal if batch.causal is None else bool(batch.causal[0])
        plain = replace(batch, fields={})
        return packed_attention(self.qkv(hidden), plain, 1, 0.0, causal)


class NoOrder(GoodEncoder):
    """Does not know where a word stands."""

    expects: Expects = ("words_matter", "the text backwards has the same states")

    def embed_places(self, batch: PackedBatch) -> Tensor:
        return self.position_embedding(torch.zeros_like(batch.position_ids)) + 0 * (
            self.position_embedding.weight.sum()
        )


class NoEmbeddings(GoodEncoder):
    """Gives the last layer only."""

    expects: Expects = ("all_layers_are_there_if_asked_for", "all_layers has 1 tensors")

    def forward(self, batch: PackedBatch, all_layers: bool = False) -> EncoderOutput:
        output = super().forward(batch, all_layers)
        output.all_layers = [output.tokens] if all_layers else None
        return output


class AlwaysDropsOut(GoodEncoder):
    """Drops out in evaluation as well."""

    expects: Expects = ("evaluation_repeats", "two passes differ")

    def attend(self, hidden: Tensor, batch: PackedBatch) -> Tensor:
        return super().attend(F.dropout(hidden, 0.1), batch)


class LoopsOverSequences(GoodEncoder):
    """Encodes one sequence at a time."""

    expects: Expects = ("forward_has_no_loop", "calls to torch for a batch")

    def attend(self, hidden: Tensor, batch: PackedBatch) -> Tensor:
        ends = batch.cu_seqlens.tolist()
        parts = []
        for start, end in itertools.pairwise(ends):
            alone = pack([batch.input_ids[start:end].tolist()])
            parts.append(super().attend(hidden[start:end], alone))
        return torch.cat(parts)


class NoSizes(GoodEncoder):
    """Does not say how wide it is."""

    expects: Expects = ("builds", "initializer_range is None")

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        del self.initializer_range


class KeepsItAll(GoodMetric):
    """Counts in a plain attribute."""

    expects: Expects = ("begins_anew", "a new metric against one that was reset")

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def update(self, preds: Tensor, target: Tensor) -> None:
        super().update(preds, target)
        self.total += int((preds != target).sum())

    def compute(self) -> Tensor:
        return torch.tensor(float(self.total))


class OneDevice(GoodMetric):
    """Takes the largest of what the devices should add."""

    expects: Expects = ("several_devices_agree", "one process against two")

    def __init__(self) -> None:
        super().__init__()
        self.add_state("wrong", torch.tensor(0), dist_reduce_fx="max")


class EmptyDocuments(GoodSource):
    """Has a document without text."""

    expects: Expects = ("documents_have_text", "document 4 (text:3) is empty")

    def documents(self) -> Iterator[RawDocument]:
        yield from super().documents()
        yield RawDocument("  \n", False, "text:3")


class OnceOnly(GoodSource):
    """Can be read once."""

    expects: Expects = ("documents_repeat", "read again")

    def __init__(self, name: str, argument: str) -> None:
        super().__init__(name, argument)
        self.left = list(super().documents())

    def documents(self) -> Iterator[RawDocument]:
        while self.left:
            yield self.left.pop()


class RandomFingerprint(GoodSource):
    """Has another fingerprint every time."""

    expects: Expects = ("fingerprint_repeats", "fingerprint() gives")
    count = itertools.count()

    def fingerprint(self) -> str:
        return str(next(self.count))


class AnySplit(GoodSource):
    """Gives the same rows whatever is asked for."""

    expects: Expects = ("unknown_split_is_an_error", "split 'no_such_split' gives")

    def examples(self, split: str | None) -> Iterator[Mapping[str, Any]]:
        return super().examples("train")


def GoodMetricOfHead() -> dict[str, Metric]:  # noqa: N802
    return GoodHead.metrics(None)  # type: ignore[arg-type]


class NeedsMany(GoodMetric):
    """Has no value for the few rows of a small evaluation set."""

    expects: Expects = ("is_a_score_of_the_run", "of a dozen rows the value is nan")

    def compute(self) -> Tensor:
        return super().compute() if self.count > 12 else torch.tensor(torch.nan)
