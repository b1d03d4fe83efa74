"""Reading Hugging Face's BERT checkpoints, from a folder or from the hub."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertlab.checkpoints.huggingface_config import encoder_arguments, read_config
from bertlab.checkpoints.huggingface_layers import (
    WORD_EMBEDDING,
    encoder_names,
    expected_shape,
    head_names,
    read_head,
)
from bertlab.checkpoints.loading import list_limited
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.tensor_files import read_tensors
from bertlab.errors import CheckpointError, nearest
from bertlab.tokenizer.loading import load_tokenizer

WEIGHT_FILES = (  # best first
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt")
# bert-base-uncased, google-bert/bert-base-uncased; not ../x, not a/b/c
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", re.ASCII)
_HUB_SAFETENSORS = ("*.json", "*.txt", "model*.safetensors")
_HUB_BIN = ("*.json", "*.txt", "pytorch_model*.bin")
# "", "bert." and "model.bert." before the word embedding; not "roberta."
_ENCODER_ROOT = re.compile(rf"((?:.*\.)?bert\.|){re.escape(WORD_EMBEDDING)}")


@dataclass
class _Parts:
    """Tensors by Hugging Face's names: encoder and ``cls`` heads without prefix, and all others.

    What stands before ``bert.`` and ``cls.`` in the file is ``root``.
    """

    encoder: dict[str, Tensor]
    heads: dict[str, Tensor]
    others: dict[str, Tensor]
    root: str


def read_huggingface(folder_or_hub_name: str | Path) -> Pretrained:
    """Read a BERT that Hugging Face's ``transformers`` saved.

    Every class that holds one BERT is read (``BertModel``, ``BertForPreTraining``,
    ``BertForMaskedLM``, ``BertForSequenceClassification``, …), with the old names ``gamma`` and
    ``beta`` of LayerNorms too. ``is_decoder`` becomes ``causal``; ``seq_relationship`` of such a
    model is left out, as ``transformers`` pools the first token and bertlab the last.

    Args:
        folder_or_hub_name: a folder with ``config.json`` and weights, or a name on the hub such as
            ``google-bert/bert-base-uncased``. A folder of that name wins over the hub.

    Raises:
        CheckpointError: if there is no such checkpoint, it is damaged, is not a BERT as the paper
            has it (other activation, relative positions, untied decoder), or its tensors do not
            have the shapes that ``config.json`` says; each differing tensor is listed.
    """
    folder = _find_folder(folder_or_hub_name)
    content = read_config(folder / "config.json")
    config = encoder_arguments(content, folder / "config.json")
    weights = _first_file(folder, WEIGHT_FILES)
    if weights is None:
        raise CheckpointError(
            f"{folder}: holds no weights that can be read, expected {' or '.join(WEIGHT_FILES)}"
        )
    parts = _split(read_tensors(weights), weights)
    _check_shapes(parts, config, weights)
    _drop_tied_decoder(parts, weights)
    state = {
        f"encoder.{ours}": _join([parts.encoder.pop(name) for name in theirs])
        for ours, theirs in encoder_names(config["num_hidden_layers"]).items()
        if theirs[0] in parts.encoder
    }
    for task, names in head_names(config["causal"]).items():
        if all(theirs in parts.heads for theirs in names.values()):
            state |= {
                f"tasks.{task}.{ours}": parts.heads.pop(theirs) for ours, theirs in names.items()
            }
    others = {name.removeprefix(parts.root): tensor for name, tensor in parts.others.items()}
    head = read_head(content | config, others, weights)
    taken = () if head is None else tuple(parts.root + name for name in head.state)
    left = [name for name in parts.others if name not in taken]
    has_tokenizer = _first_file(folder, TOKENIZER_FILES) is not None
    return Pretrained(
        source=str(folder_or_hub_name),
        encoder_config={
            "name": "bert",
            **{key: value for key, value in config.items() if key != "vocab_size"},
        },
        vocab_size=config["vocab_size"],
        state=state,
        # by its folder, whose tokenizer_config.json says whether it is cased
        tokenizer=load_tokenizer(folder) if has_tokenizer else None,
        labels=None if head is None else head.labels,
        head=head,
        unused=[*parts.encoder, *(f"cls.{name}" for name in parts.heads), *left],
    )


def _first_file(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _join(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)  # three (H, H) -> (3H, H)


def _split(tensors: Mapping[str, Tensor], weights: Path) -> _Parts:
    """Sort tensors into encoder, heads and others, without prefixes and with today's names."""
    roots = [match[1] for name in tensors if (match := _ENCODER_ROOT.fullmatch(name))]
    if len(roots) != 1:
        raise CheckpointError(
            f"{weights}: found {len(roots)} tensors named …{WORD_EMBEDDING}, expected one BERT; "
            f"the first tensors are {', '.join(list(tensors)[:3])}"
        )
    encoder_root = roots[0]
    root = encoder_root.removesuffix("bert.")  # model.bert. -> model.
    head_root = root + "cls."
    inside = tuple(encoder_root + part for part in ("embeddings.", "encoder.", "pooler."))
    parts = _Parts({}, {}, {}, root)
    for name, tensor in tensors.items():
        # names of TensorFlow's checkpoints, which the first PyTorch conversions kept
        modern = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
        modern = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", modern)
        if name.startswith(head_root):
            parts.heads[modern.removeprefix(head_root)] = tensor
        elif not name.startswith(inside):
            parts.others[name] = tensor
        elif not name.endswith("embeddings.position_ids"):  # a buffer of old versions
            parts.encoder[modern.removeprefix(encoder_root)] = tensor
    return parts


def _check_shapes(parts: _Parts, config: Mapping[str, Any], weights: Path) -> None:
    """Compare the tensors with what config.json says of them."""
    layers = {int(m[1]) for n in parts.encoder if (m := re.match(r"encoder\.layer\.(\d+)\.", n))}
    # {0, 1, 3} for num_hidden_layers 3: the count is right, but layer 2 is missing
    if len(layers) != config["num_hidden_layers"] or max(layers) != len(layers) - 1:
        raise CheckpointError(
            f"{weights}: holds {len(layers)} layers, but config.json beside it says "
            f"num_hidden_layers {config['num_hidden_layers']}"
        )
    names = [name for theirs in encoder_names(len(layers)).values() for name in theirs]
    missing = [n for n in names if n not in parts.encoder and not n.startswith("pooler.")]
    if missing:
        raise CheckpointError(
            f"{weights}: lacks {len(missing)} of the encoder's {len(names)} tensors:\n"
            + list_limited(missing)
        )
    found = {name: parts.encoder[name] for name in names if name in parts.encoder}
    for head in head_names(config["causal"]).values():
        found |= {name: parts.heads[name] for name in head.values() if name in parts.heads}
    differing = [
        f"{name}: tensor {tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}, "
        f"config.json {expected_shape(name, config)} float"
        for name, tensor in found.items()
        if tuple(tensor.shape) != expected_shape(name, config) or not tensor.is_floating_point()
    ]
    if differing:
        raise CheckpointError(
            f"{weights}: {len(differing)} tensors are not as config.json beside it says:\n"
            + list_limited(differing)
        )


def _drop_tied_decoder(parts: _Parts, weights: Path) -> None:
    """Drop the decoder's copies of tied tensors; refuse a decoder of its own."""
    bias = parts.heads.pop("predictions.decoder.bias", None)
    if bias is not None:
        parts.heads.setdefault("predictions.bias", bias)
    # pytorch_model.bin has copies of tied tensors, model.safetensors leaves them out
    weight = parts.heads.pop("predictions.decoder.weight", None)
    tied = (
        ("weight", weight, parts.encoder[WORD_EMBEDDING]),
        ("bias", bias, parts.heads.get("predictions.bias")),
    )
    for kind, copy, original in tied:
        if copy is None or original is None:
            continue
        if copy.dtype != original.dtype or not torch.equal(copy, original):
            shared = "the token embedding" if kind == "weight" else "cls.predictions.bias"
            raise CheckpointError(
                f"{weights}: cls.predictions.decoder.{kind} is not tied to {shared}; untied "
                "decoders are not supported, as bertlab's language-model heads share that tensor"
            )


def _find_folder(folder_or_hub_name: str | Path) -> Path:
    folder = Path(folder_or_hub_name).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise CheckpointError(f"{folder}: is a file, expected the folder that holds config.json")
    siblings = [path.name for path in folder.parent.iterdir()] if folder.parent.is_dir() else []
    hint = nearest(folder.name, siblings)
    if isinstance(folder_or_hub_name, Path) or not _HUB_NAME.fullmatch(folder_or_hub_name):
        raise CheckpointError(f"{folder}: no such folder{hint}")
    return _download(folder_or_hub_name, hint)


def _download(name: str, hint: str) -> Path:
    """Fetch weights, config and tokenizer of a hub name into Hugging Face's cache."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415  slow, and rarely needed
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        # pytorch_model.bin, of the same size, is fetched only where there is nothing else
        folder = Path(snapshot_download(name, allow_patterns=list(_HUB_SAFETENSORS)))
        if _first_file(folder, WEIGHT_FILES) is None:
            folder = Path(snapshot_download(name, allow_patterns=list(_HUB_BIN)))
    except LocalEntryNotFoundError:
        raise CheckpointError(
            f"{name}: no such folder{hint}, and the Hugging Face hub cannot be reached nor has "
            "its cache this name; check the path, or download the model where there is a network"
        ) from None
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(
            f"{name}: no such folder{hint}, and the Hugging Face hub refused it ({reason}); "
            "hub names look like google-bert/bert-base-uncased"
        ) from None
    return folder
