"""Hidden states of a fixed encoder, of all its layers: chosen, combined, a batch at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from bertlab.api.batch import EncoderOutput, PackedBatch, pack
from bertlab.api.evaluation import EvaluatedModel
from bertlab.errors import ConfigError, EvaluationError

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


@dataclass(frozen=True)
class LayerStates:
    """The states of some sequences.

    Attributes:
        numbers: which of the sequences they are, in the order of the batch.
        batch: the sequences as they were encoded, on the encoder's device.
        layers: L + 1 tensors ``(T, H)``, embeddings first.
        output: of the encoder, whose ``summary`` picks what stands for a sequence.
    """

    numbers: list[int]
    batch: PackedBatch
    layers: list[Tensor]
    output: EncoderOutput


def layer_states(
    model: EvaluatedModel,
    sequences: Sequence[Sequence[int]],
    batch_tokens: int,
    token_type_ids: Sequence[Sequence[int]] | None = None,
) -> Iterator[LayerStates]:
    """Yield the states of all layers of N sequences, longest first, a batch at a time."""
    batches = list(_batches([len(ids) for ids in sequences], batch_tokens))
    for numbers in model.track(batches):
        segments = None if token_type_ids is None else [token_type_ids[each] for each in numbers]
        batch = pack([sequences[number] for number in numbers], segments).to(model.device)
        with torch.no_grad():
            output = model.encoder(batch, all_layers=True)
        if output.all_layers is None:
            raise EvaluationError(
                f"{model.source}: its {type(model.encoder).__name__} does not return its layers, "
                "which this evaluation reads"
            )
        if not all(bool(layer.isfinite().all()) for layer in output.all_layers):
            raise EvaluationError(
                f"{model.source}: gives NaN or infinite states; its weights are damaged"
            )
        yield LayerStates(numbers, batch, output.all_layers, output)


def _batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield the numbers of sequences, longest first, so that none waits for padding."""
    # lengths [2, 5, 3], batch_tokens 5 -> [1], [2, 0]
    chosen: list[int] = []
    tokens = 0
    for number in sorted(range(len(lengths)), key=lambda each: -lengths[each]):
        if chosen and tokens + lengths[number] > batch_tokens:
            yield chosen
            chosen, tokens = [], 0
        chosen.append(number)
        tokens += lengths[number]
    if chosen:
        yield chosen
