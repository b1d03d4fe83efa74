"""How bertlab's and Hugging Face's names of the same BERT tensors correspond."""

from collections.abc import Mapping
from typing import Any

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
        WORD_EMBEDDING: (config["vocab_size"], hidden),
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], hidden),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], hidden),
        "predictions.bias": (config["vocab_size"],),
        "seq_relationship.weight": (2, hidden),
        "seq_relationship.bias": (2,),
    }
    if name in special:
        return special[name]
    layer_part = name.split(".", 3)[-1] if name.startswith("encoder.layer.") else ""
    if layer_part.startswith("intermediate.dense"):
        return (intermediate, hidden) if name.endswith("weight") else (intermediate,)
    if layer_part == "output.dense.weight":
        return (hidden, intermediate)
    if name.endswith(".weight") and "LayerNorm" not in name:
        return (hidden, hidden)
    return (hidden,)
