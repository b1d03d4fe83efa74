"""Model inputs, heads and measures of each kind of task, for the peer of the comparison."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from finetune_peer_squad import answers_of, measures, windows_of
from finetune_tasks import Example, Task
from scipy.stats import pearsonr, spearmanr
from seqeval.metrics import f1_score as entity_f1
from seqeval.metrics import precision_score, recall_score
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    DataCollatorForMultipleChoice,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    EvalPrediction,
    PreTrainedTokenizerBase,
)

Measure = Callable[[EvalPrediction], dict[str, float]]
CLASS_MEASURES = {
    "accuracy": accuracy_score,
    "f1": f1_score,
    "matthews": matthews_corrcoef,
}
SCORE_MEASURES = {"pearson": pearsonr, "spearman": spearmanr}
TAG_MEASURES = {"f1": entity_f1, "precision": precision_score, "recall": recall_score}


@dataclass
class Prepared:
    """What Trainer needs of a task.

    Attributes:
        model: the class to build it with, and the arguments for its head.
        collator: pads to the longest of the batch.
        train: model inputs.
        dev: model inputs.
        measure: of the predictions on `dev`.
        truncated: how many rows, of both splits, were longer than the task allows.
    """

    model: tuple[Any, dict[str, Any]]
    collator: Any
    train: list[Example]
    dev: list[Example]
    measure: Measure
    truncated: int


def prepare_sequences(
    task: Task, train: Sequence[Example], dev: Sequence[Example], tokenizer: PreTrainedTokenizerBase
) -> Prepared:
    """Classification and regression, of one text or of two."""

    def encode(example: Example) -> Example:
        inputs = tokenizer(
            example["text_a"], example["text_b"], truncation=True, max_length=task.max_seq_length
        )
        return {**inputs, "labels": example["label"]}

    def whole_length(example: Example) -> int:
        texts = example["text_a"], example["text_b"]
        return len(tokenizer(*texts, truncation=False)["input_ids"])

    def measure(predicted: EvalPrediction) -> dict[str, float]:
        if task.kind == "regression":
            scores = predicted.predictions[:, 0]
            return {
                name: 100 * float(SCORE_MEASURES[name](predicted.label_ids, scores)[0])
                for name in task.metrics
            }
        return class_measures(task, predicted)

    labels = {"num_labels": 1, "problem_type": "regression"}
    if task.kind == "classification":
        labels = {"num_labels": len(task.labels)}
    return Prepared(
        (AutoModelForSequenceClassification, labels),
        DataCollatorWithPadding(tokenizer),
        [encode(example) for example in train],
        [encode(example) for example in dev],
        measure,
        sum(whole_length(example) > task.max_seq_length for example in [*train, *dev]),
    )


def class_measures(task: Task, predicted: EvalPrediction) -> dict[str, float]:
    """The task's metrics of the classes with the highest logits."""
    classes = predicted.predictions.argmax(-1)
    return {
        name: 100 * float(CLASS_MEASURES[name](predicted.label_ids, classes))
        for name in task.metrics
    }


def prepare_choices(
    task: Task, train: Sequence[Example], dev: Sequence[Example], tokenizer: PreTrainedTokenizerBase
) -> Prepared:
    """Each choice is a pair with the context."""

    def encode(example: Example) -> Example:
        contexts = [example["context"]] * len(example["choices"])
        inputs = tokenizer(
            contexts, example["choices"], truncation=True, max_length=task.max_seq_length
        )
        return {**inputs, "label": example["label"]}

    def is_long(example: Example) -> bool:
        contexts = [example["context"]] * len(example["choices"])
        whole = tokenizer(contexts, example["choices"], truncation=False)["input_ids"]
        return max(len(ids) for ids in whole) > task.max_seq_length

    return Prepared(
        (AutoModelForMultipleChoice, {}),
        DataCollatorForMultipleChoice(tokenizer),
        [encode(example) for example in train],
        [encode(example) for example in dev],
        lambda predicted: class_measures(task, predicted),
        sum(is_long(example) for example in [*train, *dev]),
    )


def prepare_tags(
    task: Task, train: Sequence[Example], dev: Sequence[Example], tokenizer: PreTrainedTokenizerBase
) -> Prepared:
    """A word's first sub-token carries its tag; words past the last token are scored as O."""

    def encode(example: Example) -> tuple[Example, list[int | None]]:
        inputs = tokenizer(
            example["words"],
            is_split_into_words=True,
            truncation=True,
            max_length=task.max_seq_length,
        )
        word_ids = inputs.word_ids()
        places = [
            word_ids.index(word) if word in word_ids else None
            for word in range(len(example["words"]))
        ]
        labels = [-100] * len(word_ids)
        for place, tag in zip(places, example["tags"], strict=True):
            if place is not None:
                labels[place] = task.labels.index(tag)
        return {**inputs, "labels": labels}, places

    encoded_train, encoded_dev = [encode(row) for row in train], [encode(row) for row in dev]

    def measure(predicted: EvalPrediction) -> dict[str, float]:
        found = [
            [task.labels[classes[place]] if place is not None else "O" for place in places]
            for classes, (_, places) in zip(
                predicted.predictions.argmax(-1), encoded_dev, strict=True
            )
        ]
        truth = [example["tags"] for example in dev]
        return {name: 100 * float(TAG_MEASURES[name](truth, found)) for name in task.metrics}

    return Prepared(
        (AutoModelForTokenClassification, {"num_labels": len(task.labels)}),
        DataCollatorForTokenClassification(tokenizer),
        [inputs for inputs, _ in encoded_train],
        [inputs for inputs, _ in encoded_dev],
        measure,
        sum(None in places for _, places in encoded_train + encoded_dev),
    )


def prepare_spans(
    task: Task, train: Sequence[Example], dev: Sequence[Example], tokenizer: PreTrainedTokenizerBase
) -> Prepared:
    """Every window is an input of its own."""
    train_windows = windows_of(train, tokenizer, task.max_seq_length)
    dev_windows = windows_of(dev, tokenizer, task.max_seq_length)

    def measure(predicted: EvalPrediction) -> dict[str, float]:
        return measures(dev, *answers_of(dev, dev_windows, *predicted.predictions))

    return Prepared(
        (AutoModelForQuestionAnswering, {}),
        DataCollatorWithPadding(tokenizer),
        [window.inputs for window in train_windows],
        [window.inputs for window in dev_windows],
        measure,
        0,
    )


PREPARE = {
    "classification": prepare_sequences,
    "regression": prepare_sequences,
    "multiple_choice": prepare_choices,
    "tagging": prepare_tags,
    "span": prepare_spans,
}
