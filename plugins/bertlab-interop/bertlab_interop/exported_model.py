"""What an ONNX export says of the model beside the file, so that bertlab can use it once more.

``config.json`` has it below ``bertlab``: plain values, no weights and no paths. Whoever wrote the
folder, it is read as the config of a checkpoint is.
"""

import math
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import torch

from bertlab import BertEncoder, CheckpointError, Pretrained, load_tokenizer
from bertlab.api import Encoder, Head, Labels, Task, TaskContext
from bertlab.extend import (
    BertModule,
    DamagedCheckpointError,
    OptimizerConfig,
    build_encoder,
    build_tasks,
    head_settings,
    known_tokenizer,
    read_huggingface_config,
    read_stored_config,
    refusing_config,
)

SECTION = "bertlab"
# of data what is read, and how; not where
_READING = (
    *("columns", "delimiter", "quote", "header", "empty", "doubtful", "bad_rows"),
    *("format", "label_separator", "label_names", "cluster", "batch_size"),
)
_LONGEST = 512  # tokens that are read of a folder's model, as bertlab predict does
_MOST_POSITIONS = 2**20
_SENTENCES = ("single_sentence", "sentence_pair")  # heads of equal layers


def describe_model(
    start: Pretrained, encoder: Encoder, tasks: Mapping[str, Task], left_out: list[str]
) -> dict[str, Any]:
    """Return what ``config.json`` says of a model whose tasks are in an ONNX file.

    Args:
        start: what was exported.
        encoder: of it.
        tasks: those in the file, by name.
        left_out: names of the others.
    """
    most = encoder.max_position_embeddings
    model: dict[str, Any] = {"encoder": {"name": start.encoder_config["name"]}}
    data: dict[str, Any] = {"max_seq_length": start.longest_read(most, _LONGEST)}
    if start.config is not None:
        own = start.config["data"]
        data["max_seq_length"] = min(most, start.trained_max_length or _LONGEST)
        data |= {key: own[key] for key in _READING if own.get(key) is not None}
    head = next((each for each in tasks.values() if isinstance(each, Head)), None)
    if head is None:
        given = {} if start.config is None else start.config["model"].get("objectives") or {}
        model["objectives"] = {name: given.get(name) or {} for name in tasks}
        data = {"max_seq_length": data["max_seq_length"]}
    elif start.head is not None:
        model["head"] = head_settings(start.head)
    else:
        model["head"] = start.head_config
    labels = None if head is None else head.labels
    return {
        "config": {"seed_everything": 0, "model": model, "data": data, "trainer": {}},
        "labels": None if labels is None else labels.to_dict(),
        "max_position_embeddings": most,
        "causal": encoder.causal,
        "one_or_two_texts": start.head is not None,  # the class of transformers does not say
        "buffers": {name: _numbers_beside(task) for name, task in tasks.items()},
        "left_out": left_out,
    }


def _numbers_beside(task: Task) -> dict[str, float]:
    """Return the numbers that a task keeps beside its layers, such as a threshold."""
    parameters = {name for name, _ in task.named_parameters()}
    kept = {name: each for name, each in task.state_dict().items() if name not in parameters}
    return {name: each.item() for name, each in kept.items() if each.dim() == 0}


def read_exported(folder: Path, head: str | None = None, pairs: bool = False) -> Pretrained:
    """Return the model of an ONNX export, with an encoder that has no weights to speak of.

    Its tasks, tokenizer and labels are those of the model; what they read is computed by the file.

    Args:
        folder: of the export.
        head: the name that the user gives it; None: its own.
        pairs: the user gives pairs of texts.

    Raises:
        CheckpointError: it is no folder that bertlab wrote, or nothing in it can predict.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise CheckpointError(
            f"{folder}: holds no config.json; expected the folder that bertlab export --format "
            "onnx wrote"
        )
    section = read_huggingface_config(path).get(SECTION)
    if not isinstance(section, dict):
        raise CheckpointError(
            f"{path}: says nothing of bertlab's model, so its outputs have no meaning here; "
            "expected the folder that bertlab export --format onnx wrote"
        )
    config, _ = read_stored_config(section.get("config"), str(path))
    model = config["model"]
    left_out = section.get("left_out") or []
    if not isinstance(left_out, list):
        raise _damaged(path, "left_out", left_out, "a list of names")
    left = [str(each)[:80] for each in left_out]
    if not (model.get("head") or model.get("objectives")):
        why = f"its {', '.join(left)} has more than one layer" if left else "it has an encoder only"
        raise CheckpointError(
            f"{folder}: nothing in the ONNX file predicts: {why}; use the model that was exported"
        )
    of_two = section.get("one_or_two_texts") is True and model.get("head") is not None
    if of_two and model["head"]["name"] in _SENTENCES and (pairs or head in _SENTENCES):
        model["head"]["name"] = head or "sentence_pair"
    model |= {"encoder": _encoder_of(section, path), "optimizer": {}}  # which nothing trains
    start = Pretrained(
        source=str(folder),
        encoder_config=model["encoder"],
        vocab_size=0,
        state={},
        tokenizer=load_tokenizer(folder),
        labels=_labels(section.get("labels"), path),
        path=path,
        config=config,
    )
    assert start.tokenizer is not None
    start.vocab_size = start.tokenizer.vocab_size
    start.state = _state(start, section.get("buffers"), path)
    return start


def _encoder_of(section: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the config of the smallest BERT that reads as long sequences."""
    longest = section.get("max_position_embeddings")
    if type(longest) is not int or not 0 < longest <= _MOST_POSITIONS:
        raise _damaged(path, "max_position_embeddings", longest, f"1 to {_MOST_POSITIONS:,}")
    defaults = {
        name: each.default
        for name, each in signature(BertEncoder).parameters.items()
        if name != "vocab_size"
    }
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
    own = {"max_position_embeddings": longest, "causal": section.get("causal") is True}
    return {"name": "bert", **defaults, **dict.fromkeys(sizes, 1), **own}


def _labels(found: object, path: Path) -> Labels | None:
    if found is None:
        return None
    content = found if isinstance(found, dict) else {}
    names, counts = content.get("names"), content.get("counts")
    if (
        isinstance(names, list)
        and isinstance(counts, list)
        and len(names) == len(counts)
        and all(isinstance(each, str) for each in names)
        and all(type(each) is int and each >= 0 for each in counts)
    ):
        return Labels.from_dict(content)
    raise _damaged(path, "labels", found, "equally many names and counts")


def _state(start: Pretrained, buffers: object, path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of the small module, with what the tasks keep beside their layers."""
    assert start.config is not None
    with refusing_config(str(path), "model"):
        encoder = build_encoder(start.encoder_config, start.vocab_size)
        context = TaskContext(encoder, known_tokenizer(start), labels=start.labels)
        tasks = build_tasks(start.config["model"])
        state = dict(BertModule(encoder, tasks, context, OptimizerConfig()).state_dict())
    given = buffers.items() if isinstance(buffers, dict) else [("buffers", None)]
    for task, numbers in given:
        if not isinstance(numbers, dict):
            raise _damaged(path, f"buffers.{task}", numbers, "a mapping of names to numbers")
        for name, number in numbers.items():
            key = f"tasks.{task}.{name}"
            known = state.get(key)
            is_number = isinstance(number, int | float) and math.isfinite(number)
            if known is None or known.dim() or not is_number:
                raise _damaged(path, f"buffers.{task}.{name}", number, "a number of the head's")
            state[key] = torch.tensor(number, dtype=known.dtype)
    return state


def _damaged(path: Path, key: str, found: object, expected: str) -> DamagedCheckpointError:
    return DamagedCheckpointError(
        f"{path}: {SECTION}.{key[:80]}: found {str(found)[:80]!r}, expected {expected}"
    )
