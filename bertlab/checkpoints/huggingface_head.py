"""The heads of fine-tuned Hugging Face models: classes, layers and labels."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from bertlab.api.examples import Labels
from bertlab.api.huggingface import HeadLayout, HuggingFaceForm
from bertlab.checkpoints.loading import list_limited
from bertlab.errors import CheckpointError

# head of bertlab by BERT's class of ``transformers``; sentence_pair has single_sentence's layers
_HEADS = {
    "BertForSequenceClassification": "single_sentence",
    "BertForTokenClassification": "tagging",
    "BertForQuestionAnswering": "span",
    "BertForMultipleChoice": "multiple_choice",
}
_MULTI_LABEL = "multi_label_classification"
_UNNAMED = re.compile(r"LABEL_\d+")  # what transformers writes where nobody gave a name


@dataclass
class HuggingFaceHead:
    """The head of a fine-tuned model.

    Attributes:
        architecture: its class in ``transformers``.
        layout: what that class has.
        state: its tensors by the layout's names.
        labels: names of the classes, with counts of 0 where they are not known; None if the task
            has no classes, or they have no names.
        dropout: in front of its layer, ``classifier_dropout``; the encoder's if None.
        problem_type: what ``config.json`` says, if the outputs are no single label and no number.
        threshold: probability from which on one of several labels holds; 0.5 if None.
    """

    architecture: str
    layout: HeadLayout
    state: dict[str, Tensor]
    labels: Labels | None = None
    dropout: float | None = None
    problem_type: str | None = None
    threshold: float | None = None

    @property
    def num_rows(self) -> int:
        """Outputs of the layer."""
        return len(self.state[self.layout.names[1]])

    @property
    def has_classes(self) -> bool:
        """Whether an output of the layer stands for a class, named or not."""
        several = self.num_rows > 1 or self.problem_type is not None
        return self.layout.rows is None and several


def read_head(
    form: HuggingFaceForm, config: Mapping[str, Any], tensors: Mapping[str, Tensor], weights: Path
) -> HuggingFaceHead | None:
    """Return the head of a checkpoint, or None if it has none that bertlab knows."""
    found = form.head_layout(config)
    if found is None:
        return None
    named, layout = found
    if not all(name in tensors for name in layout.written_names):
        return None
    weight, bias = (tensors[name] for name in layout.written_names)
    names = _label_names(config, weights) if layout.rows is None else None
    # 2 of a span, 1 of choices; else a row for each name, or as many as the bias has
    rows = layout.rows or (len(bias) if names is None and bias.dim() == 1 else len(names or ()))
    shapes = (rows, config["hidden_size"]), (rows,)
    expected = dict(zip(layout.written_names, shapes, strict=True))
    differing = [
        f"{name}: tensor {tuple(tensor.shape)}, config.json {expected[name]} float"
        for name, tensor in zip(layout.written_names, (weight, bias), strict=True)
        if tuple(tensor.shape) != expected[name] or not tensor.is_floating_point()
    ]
    if differing:
        raise CheckpointError(
            f"{weights}: the tensors of {named}'s head are not as config.json beside it says:\n"
            + list_limited(differing)
        )
    # one row is a regression, though transformers names it LABEL_0; names may be there twice
    known = names is not None and rows > 1 and len(set(names)) == rows
    if names is None or not known or all(_UNNAMED.fullmatch(name) for name in names):
        labels = None
    else:
        labels = Labels(names, (0,) * rows)
    state = dict(zip(layout.names, (weight, bias), strict=True))
    kind = _MULTI_LABEL if config.get("problem_type") == _MULTI_LABEL else None
    threshold = config.get("threshold") if kind else None  # as bertlab writes it
    return HuggingFaceHead(named, layout, state, labels, _dropout(config, weights), kind, threshold)


def head_config(head: HuggingFaceHead) -> dict[str, Any]:
    """Return what ``config.json`` says of a head: dropout, names of classes, ``problem_type``."""
    content: dict[str, Any] = {"classifier_dropout": head.dropout}
    if head.layout.rows is not None:
        return content
    labels = head.labels
    names = [f"LABEL_{n}" for n in range(head.num_rows)] if labels is None else labels.names
    # JSON has texts for keys: {"0": "no", "1": "yes"}
    content["id2label"] = {str(number): name for number, name in enumerate(names)}
    content["label2id"] = {name: number for number, name in enumerate(names)}
    if head.layout.kind == "BertForSequenceClassification":
        kind = "single_label_classification" if head.has_classes else "regression"
        content["problem_type"] = head.problem_type or kind
    if head.threshold is not None:
        content["threshold"] = head.threshold
    return content


def head_settings(head: HuggingFaceHead, name: str | None = None) -> dict[str, Any]:
    """Return the config section ``model.head`` of a fine-tuned model."""
    settings: dict[str, Any]
    if head.problem_type is not None:
        settings = {"name": "multi_label", "threshold": head.threshold}
        return {key: value for key, value in settings.items() if value is not None}
    settings = {"name": name or _HEADS[head.layout.kind]}
    if head.layout.kind == "BertForSequenceClassification" and not head.has_classes:
        settings["regression"] = True
    return settings


def _label_names(config: Mapping[str, Any], weights: Path) -> tuple[str, ...] | None:
    """Return the names in the order of their ids; None if ``id2label`` lacks."""
    found = config.get("id2label")
    if found is None:
        return None
    if isinstance(found, dict) and found:
        names = tuple(str(found.get(str(number))) for number in range(len(found)))
        if set(found) == {str(number) for number in range(len(found))}:
            return names
    raise CheckpointError(
        f"{weights.parent / 'config.json'}: found id2label {str(found)[:80]}, expected a name for "
        'each id from 0: {"0": "no", "1": "yes"}'
    )


def _dropout(config: Mapping[str, Any], weights: Path) -> float | None:
    """Return ``classifier_dropout``; None if it lacks."""
    found = config.get("classifier_dropout")
    # JSON's true is an int in Python
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    if found is not None and not (is_number and 0 <= found <= 1):
        raise CheckpointError(
            f"{weights.parent / 'config.json'}: found classifier_dropout {str(found)[:80]!r}, "
            "expected a number from 0 to 1, or null for the encoder's"
        )
    return None if found is None else float(found)
