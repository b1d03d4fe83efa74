"""Predictions for texts or examples at hand in Python, and hidden states as features (sec. 5.3)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from bertlab.api.batch import PackedBatch
from bertlab.api.encoder import Encoder
from bertlab.api.examples import Example
from bertlab.api.task import Head
from bertlab.api.tokenizer import Tokenizer
from bertlab.data.inputs import InputRows, TextRows, given_texts
from bertlab.data.rows.lines import words_of
from bertlab.errors import CheckpointError, ConfigError, DataError
from bertlab.model.module import BertModule

Combination = Literal["concat", "sum", "mean"]
Pool = Literal["none", "cls", "mean"]


@dataclass(frozen=True)
class FeatureChoice:
    """Which features of a text are wanted.

    Attributes:
        layers: indices into the embeddings and the L layers; -1 is the last.
        combine: ``concat`` in the order of ``layers``, ``sum`` or ``mean``.
        pool: ``none``: a vector for each token; ``cls``: that of ``[CLS]``, of a
            left-to-right encoder of the last token; ``mean``: the mean over all tokens, ``[CLS]``
            and ``[SEP]`` included, as sentence encoders have it.
    """

    layers: Sequence[int]
    combine: Combination
    pool: Pool


def check_layers(indices: Sequence[int], count: int, key: str) -> None:
    """Refuse layers that an encoder does not have."""
    if not indices:
        raise ConfigError(f"{key}: found no layer, expected at least one, for example [-1]")
    for index in indices:
        if not -count <= index < count:
            raise ConfigError(
                f"{key}: found {index}, but the encoder has {count - 1} layers; expected 0 "
                f"(embeddings) to {count - 1} (last), or -1 (last) to {-count} (embeddings)"
            )


def combine_layers(
    layers: Sequence[Tensor], indices: Sequence[int], how: Combination, key: str = "layers"
) -> Tensor:
    """Combine hidden states of several layers.

    Args:
        layers: L + 1 tensors ``(T, H)``, embeddings first, as ``EncoderOutput.all_layers``.
        indices: n indices into ``layers``, negative ones from the last.
        how: ``concat`` in the order of ``indices``, ``sum`` or ``mean``.
        key: the config key of ``indices``, to name in errors.

    Returns:
        ``(T, n H)`` for ``concat``, else ``(T, H)``.
    """
    check_layers(indices, len(layers), key)
    chosen = [layers[index] for index in indices]
    if how == "concat":
        return torch.cat(chosen, dim=-1)
    total = torch.stack(chosen).sum(0)
    return total if how == "sum" else total / len(chosen)


def embed_texts(encoder: Encoder, batch: PackedBatch, choice: FeatureChoice) -> list[Tensor]:
    """Return the features of each sequence of a batch, ``(tokens, D)`` or, pooled, ``(1, D)``."""
    with torch.no_grad():
        output = encoder(batch, all_layers=True)
        layers = output.all_layers
        if layers is None:
            raise CheckpointError(
                f"--model: its {type(encoder).__name__} does not return its layers"
            )
        tokens = combine_layers(layers, choice.layers, choice.combine, "--layers")
        if not tokens.isfinite().all():
            raise CheckpointError("--model: gives NaN or infinite values; its weights are damaged")
        # cu_seqlens [0, 3, 5] -> tokens[0:3], tokens[3:5], each (tokens, D)
        sequences = [tokens[start:end] for start, end in pairwise(batch.cu_seqlens.tolist())]
    if choice.pool == "cls":
        return list(output.summary(tokens, batch).split(1))  # (B, D) -> B times (1, D)
    if choice.pool == "mean":
        return [sequence.mean(0, keepdim=True) for sequence in sequences]
    return sequences


def batches_by_length(lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """Return the numbers of N sequences in batches, longest first, so that none waits for padding.

    What does not fit into memory then fails at the start.
    """
    # lengths [2, 5, 3], batch_size 2 -> [[1, 2], [0]]
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


Input = str | tuple[Any, ...] | Mapping[str, Any]  # a text, a pair of texts, an example


@torch.no_grad()
def predict(
    module: BertModule,
    tokenizer: Tokenizer,
    inputs: Sequence[Input],
    max_seq_length: int,
) -> list[dict[str, Any]]:
    """Return a prediction for each input, as ``bertlab predict`` writes them."""
    head = module.head
    if head is None:
        return _of_objectives(module, tokenizer, inputs, max_seq_length)
    examples = [_example(each, number, head) for number, each in enumerate(inputs)]
    (name,) = module.named_tasks()  # a head is the only task
    batches = InputRows(iter(examples), head, name, tokenizer, max_seq_length)
    parts: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for step in batches:
        for batch in step:
            predicted = module.predict_step(batch.to(module.device), 0)
            # rows [0, 0, 1]: a long text was cut in two, and row 0 has two parts to merge
            for number, part in zip(batch.fields["row"].tolist(), predicted, strict=True):
                parts[number].append(part)
    return [head.merge(example, parts[number]) for number, example in enumerate(examples)]


def _of_objectives(
    module: BertModule, tokenizer: Tokenizer, inputs: Sequence[Input], limit: int
) -> list[dict[str, Any]]:
    texts: list[str] = []
    pairs: list[str] = []
    for number, each in enumerate(inputs):
        pair = (each,) if isinstance(each, str) else each
        if not isinstance(pair, tuple) or not 0 < len(pair) <= 2:
            raise DataError(f"text {number}: found {each!r}, expected a text or a pair of texts")
        texts.append(pair[0])
        pairs += pair[1:]
    if pairs and len(pairs) != len(texts):
        raise DataError("found texts and pairs of texts, expected one of the two kinds")
    batches = TextRows(given_texts(texts, pairs or None), tokenizer, limit)
    return [
        prediction
        for step in batches
        for batch in step
        for prediction in module.predict_step(batch.to(module.device), 0)
    ]


def _example(given: Input, number: int, head: Head) -> Example:
    """Return an input under the names of the head's columns."""
    where = f"input {number}"
    columns = [column for column in head.columns if not column.is_truth and column.required]
    if isinstance(given, Mapping):
        values = dict(given)
    else:
        found = given if isinstance(given, tuple) else (given,)
        if len(found) != len(columns):
            names = ", ".join(column.name for column in columns)
            raise DataError(f"{where}: found {given!r}, expected values for {names}")
        values = {column.name: value for column, value in zip(columns, found, strict=True)}
    first = columns[0]
    if len(columns) == 1 and first.kind == "texts" and isinstance(values.get(first.name), str):
        # a text is a sequence, too: of its characters
        values[first.name] = words_of(values[first.name])
    return Example(values, where)
