"""Hugging Face's ``config.json`` of a BERT, and the encoder arguments that it stands for."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertlab.encoders.bert import BertEncoder
from bertlab.errors import CheckpointError

# transformers' defaults, which old and trimmed config.json files rely on
_SIZES = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}
_REALS = {
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "layer_norm_eps": 1e-12,
    "initializer_range": 0.02,
}
# what bertlab's encoder computes; a missing key means the first value
_ONLY: dict[str, tuple[object, ...]] = {
    "hidden_act": ("gelu", "gelu_python"),  # both exact, with erf
    "position_embedding_type": ("absolute", None),
    "add_cross_attention": (False, None),
}


def read_config(path: Path) -> dict[str, Any]:
    """Return the content of a ``config.json``.

    Raises:
        CheckpointError: if the file is missing or damaged.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{path}: no such file; a Hugging Face checkpoint keeps its sizes in it"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: found a {type(content).__name__}, expected a JSON object")
    return content


def encoder_arguments(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the arguments of the encoder that a ``config.json`` describes.

    Keys that lack have the values that ``transformers`` gives them.

    Args:
        content: of the file.
        path: the file, for messages.

    Raises:
        CheckpointError: naming file and key, if it describes a model that
            :class:`bertlab.encoders.bert.BertEncoder` cannot be.
    """
    _check_is_bert(path, content)
    sizes = {
        key: _integer(path, key, content.get(key, default), 1) for key, default in _SIZES.items()
    }
    reals = {key: _real(path, key, content.get(key, default)) for key, default in _REALS.items()}
    if sizes["hidden_size"] % sizes["num_attention_heads"]:
        raise CheckpointError(
            f"{path}: num_attention_heads {sizes['num_attention_heads']} does not divide "
            f"hidden_size {sizes['hidden_size']}"
        )
    pad_token_id = content.get("pad_token_id")
    if pad_token_id is None:
        pad_token_id = 0
    return {
        **sizes,
        **reals,
        "causal": content.get("is_decoder") is True,
        "position_embedding": "learned",
        "pad_token_id": _integer(path, "pad_token_id", pad_token_id, 0),
    }


def config_of(encoder: BertEncoder, architecture: str) -> dict[str, Any]:
    """Return the content of ``config.json`` for an encoder, as ``transformers`` 5 writes it.

    Args:
        encoder: its sizes, dropout and dtype are written down.
        architecture: name of the ``transformers`` class that the weights are for.
    """
    return {
        "add_cross_attention": False,
        "architectures": [architecture],
        "bos_token_id": None,
        "classifier_dropout": None,
        "dtype": str(encoder.token_embedding.weight.dtype).removeprefix("torch."),
        "eos_token_id": None,
        "hidden_act": "gelu",
        "is_decoder": encoder.causal,
        "model_type": "bert",
        "pad_token_id": encoder.pad_token_id,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
        "use_cache": True,
        **{key: getattr(encoder, key) for key in (*_SIZES, *_REALS)},
    }


def _check_is_bert(path: Path, content: Mapping[str, Any]) -> None:
    model_type = content.get("model_type", "bert")  # checkpoints of before 2020 have none
    if model_type != "bert":
        raise CheckpointError(f"{path}: found model_type {model_type!r}, expected 'bert'")
    for key, allowed in _ONLY.items():
        found = content.get(key, allowed[0])
        if found not in allowed:
            raise CheckpointError(
                f"{path}: found {key} {found!r}, expected {allowed[0]!r}; bertlab's encoder is the "
                "paper's and would compute something else from these weights"
            )


def _integer(path: Path, key: str, found: object, minimum: int) -> int:
    # isinstance would take JSON's true for 1
    if type(found) is not int or found < minimum:
        raise CheckpointError(
            f"{path}: found {key} {found!r}, expected a whole number of at least {minimum}"
        )
    return found


def _real(path: Path, key: str, found: object) -> float:
    # the comparison refuses NaN and Infinity, which Python's json reads
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= 1e9:
        raise CheckpointError(f"{path}: found {key} {found!r}, expected a number from 0")
    return float(found)
