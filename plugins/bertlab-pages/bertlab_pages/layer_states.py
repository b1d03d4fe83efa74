"""Hidden states of all layers of a fixed encoder, a batch at a time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from bertlab.api import Encoder, EncoderOutput, EvaluationError, PackedBatch, pack

Batches = Iterable[list[int]]


class ReadModel(Protocol):
    """A model whose states are read: a ``PretrainedModel`` or an ``EvaluatedModel``."""

    @property
    def source(self) -> str:
        """Where it comes from, for messages."""

    @property
    def encoder(self) -> Encoder:
        """In evaluation mode."""


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
    model: ReadModel,
    sequences: Sequence[Sequence[int]],
    batch_tokens: int,
    token_type_ids: Sequence[Sequence[int]] | None = None,
    track: Callable[[list[list[int]]], Batches] = iter,
) -> Iterator[LayerStates]:
    """Yield the states of all layers of N sequences, longest first, a batch at a time.

    ``track`` may draw a bar of the batches: that of an ``EvaluatedModel`` does.
    """
    device = model.encoder.token_embedding.weight.device
    for numbers in track(list(_batches([len(ids) for ids in sequences], batch_tokens))):
        segments = None if token_type_ids is None else [token_type_ids[each] for each in numbers]
        batch = pack([sequences[number] for number in numbers], segments).to(device)
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
