"""How bertlab's and Hugging Face's names of the same BERT tensors correspond.

Names of encoder tensors, and the heads of fine-tuned models: classes, layers and labels.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from bertlab.api.examples import Labels
from bertlab.checkpoints.loading import list_limited
from bertlab.errors import CheckpointError

WORD_EMBEDDING = "embeddings.word_embeddings.weight"

_LANGUAGE_MODEL_NAMES = {
    "dense.weight": "predictions.transform.dense.weight",
    "dense.bias": "predictions.transform.dense.bias",
    "layer_norm.weight": "predictions.transform.LayerNorm.weight",
    "layer_norm.bias": "predictions.transform.LayerNorm.bias",
    "bias": "predictions.bias",
}
_NEXT_SENTENCE_NAMES = {
    "classifier.weight": "seq_relationship.weight",
    "classifier.bias": "seq_relationship.bias",
}
_LAYER_NAMES = {
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "output_norm": "output.LayerNorm",
}


def head_names(causal: bool) -> dict[str, dict[str, str]]:
    """Return the heads' tensors by task: bertlab's name to Hugging Face's, which follows ``cls.``.

    The language-model head belongs to ``clm`` on a left-to-right encoder, else to ``mlm``. There
    ``nsp`` has no counterpart: ``transformers`` pools the first token, bertlab the last.
    """
    if causal:
        return {"clm": _LANGUAGE_MODEL_NAMES}
    return {"mlm": _LANGUAGE_MODEL_NAMES, "nsp": _NEXT_SENTENCE_NAMES}


def encoder_names(num_hidden_layers: int) -> dict[str, tuple[str, ...]]:
    """Return bertlab's encoder names with Hugging Face's, without the prefix ``bert.``.

    Query, key and value are one tensor in bertlab: their three names stand in the order in which
    they are stacked along the first dimension.
    """
    names: dict[str, tuple[str, ...]] = {
        "token_embedding.weight": (WORD_EMBEDDING,),
        "position_embedding.weight": ("embeddings.position_embeddings.weight",),
        "token_type_embedding.weight": ("embeddings.token_type_embeddings.weight",),
    }
    pairs: list[tuple[str, tuple[str, ...]]] = [("embedding_norm", ("embeddings.LayerNorm",))]
    for index in range(num_hidden_layers):
        theirs = f"encoder.layer.{index}"
        # three (H, H) weights, one below the other, are the (3H, H) of qkv; biases likewise
        stacked = tuple(f"{theirs}.attention.self.{part}" for part in ("query", "key", "value"))
        pairs.append((f"layers.{index}.attention.qkv", stacked))
        for ours, name in _LAYER_NAMES.items():
            pairs.append((f"layers.{index}.{ours}", (f"{theirs}.{name}",)))
    pairs.append(("pooler", ("pooler.dense",)))
    for ours, parts in pairs:
        for kind in ("weight", "bias"):
            names[f"{ours}.{kind}"] = tuple(f"{part}.{kind}" for part in parts)
    return names


def expected_shape(name: str, config: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape of a Hugging Face tensor (no prefix) for the sizes of a config."""
    hidden, intermediate = config["hidden_size"], config["intermediate_size"]
    special = {
        WORD_EMBEDDING: (config["vocab_size"], hidden),  # (V, H)
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], hidden),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], hidden),
        "predictions.bias": (config["vocab_size"],),
        "seq_relationship.weight": (2, hidden),
        "seq_relationship.bias": (2,),
    }
    if name in special:
        return special[name]
    # encoder.layer.3.output.dense.weight -> output.dense.weight
    layer_part = name.split(".", 3)[-1] if name.startswith("encoder.layer.") else ""
    if layer_part.startswith("intermediate.dense"):
        return (intermediate, hidden) if name.endswith("weight") else (intermediate,)
    if layer_part == "output.dense.weight":
        return (hidden, intermediate)
    if name.endswith(".weight") and "LayerNorm" not in name:
        return (hidden, hidden)
    return (hidden,)  # biases, and both tensors of a LayerNorm


_UNNAMED = re.compile(r"LABEL_\d+")  # what transformers writes where nobody gave a name


@dataclass(frozen=True)
class HeadLayout:
    """What a class of ``transformers`` has beside the encoder.

    Attributes:
        layer: name of its one linear layer.
        has_pooler: its encoder has a pooler.
        rows: rows of the layer's weight; None: one for each class, or one for regression.
    """

    layer: str
    has_pooler: bool
    rows: int | None = None

    @property
    def names(self) -> tuple[str, str]:
        """Names of the layer's tensors, in bertlab's heads as well."""
        return f"{self.layer}.weight", f"{self.layer}.bias"


HEAD_LAYOUTS = {
    "BertForSequenceClassification": HeadLayout("classifier", has_pooler=True),
    "BertForTokenClassification": HeadLayout("classifier", has_pooler=False),
    "BertForQuestionAnswering": HeadLayout("qa_outputs", has_pooler=False, rows=2),
    "BertForMultipleChoice": HeadLayout("classifier", has_pooler=True, rows=1),
}


@dataclass
class HuggingFaceHead:
    """The head of a fine-tuned model.

    Attributes:
        architecture: its class in ``transformers``, one of :data:`HEAD_LAYOUTS`.
        state: its tensors by the layout's names.
        labels: names of the classes, with counts of 0 where they are not known; None if the task
            has no classes, or they have no names.
        dropout: in front of its layer, ``classifier_dropout``; the encoder's if None.
    """

    architecture: str
    state: dict[str, Tensor]
    labels: Labels | None = None
    dropout: float | None = None

    @property
    def layout(self) -> HeadLayout:
        """What its class has."""
        return HEAD_LAYOUTS[self.architecture]

    @property
    def num_rows(self) -> int:
        """Outputs of the layer."""
        return len(self.state[self.layout.names[1]])

    @property
    def has_classes(self) -> bool:
        """Whether an output of the layer stands for a class, named or not."""
        return self.layout.rows is None and self.num_rows > 1


def read_head(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor], weights: Path
) -> HuggingFaceHead | None:
    """Return the head of a checkpoint, or None if it has none that bertlab knows.

    Args:
        config: content of ``config.json``; ``architectures`` names the class.
        tensors: what is neither the encoder's nor of pre-training, without prefix.
        weights: their file, for messages.

    Raises:
        CheckpointError: if the tensors are not as ``config.json`` says, or what it says of the head
            cannot be.
    """
    architectures = config.get("architectures")
    named = architectures[0] if isinstance(architectures, list) and architectures else None
    layout = HEAD_LAYOUTS.get(named) if isinstance(named, str) else None
    if layout is None or config.get("problem_type") == "multi_label_classification":
        return None
    if not all(name in tensors for name in layout.names):
        return None
    weight, bias = (tensors[name] for name in layout.names)
    names = _label_names(config, weights) if layout.rows is None else None
    # 2 of a span, 1 of choices; else a row for each name, or as many as the bias has
    rows = layout.rows or (len(bias) if names is None and bias.dim() == 1 else len(names or ()))
    expected = {layout.names[0]: (rows, config["hidden_size"]), layout.names[1]: (rows,)}
    differing = [
        f"{name}: tensor {tuple(tensor.shape)}, config.json {expected[name]} float"
        for name, tensor in zip(layout.names, (weight, bias), strict=True)
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
    state = {name: tensors[name] for name in layout.names}
    return HuggingFaceHead(str(named), state, labels, _dropout(config, weights))


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
    if head.architecture == "BertForSequenceClassification":
        kind = "single_label_classification" if head.has_classes else "regression"
        content["problem_type"] = kind
    return content


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
