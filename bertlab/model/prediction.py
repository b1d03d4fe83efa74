"""Predictions for texts or examples at hand in Python, and combinations of layers."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from bertlab.api.examples import Example
from bertlab.api.task import Head
from bertlab.api.tokenizer import Tokenizer
from bertlab.data.inputs import InputRows, TextRows, given_texts
from bertlab.data.rows.lines import words_of
from bertlab.errors import ConfigError, DataError
from bertlab.model.module import BertModule

Combination = Literal["concat", "sum", "mean"]


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
