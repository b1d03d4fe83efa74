"""Hidden states of texts as features (paper sec. 5.3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertlab import CheckpointError, PretrainedModel
from bertlab.api import DataError, Encoder, PackedBatch, pack
from bertlab_tasks.layers import Combination, combine_layers

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


def features_of(encoder: Encoder, batch: PackedBatch, choice: FeatureChoice) -> list[Tensor]:
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


def embed_texts(
    model: PretrainedModel,
    texts: str | Sequence[str],
    layers: Sequence[int] = (-1,),
    combine: Combination = "mean",
    pool: Pool = "mean",
    batch_size: int = 32,
) -> npt.NDArray[np.float32]:
    """Return a vector for each text; see :meth:`bertlab.PretrainedModel.embed`."""
    listed = [texts] if isinstance(texts, str) else texts
    sequences = [_ids(model, text, number) for number, text in enumerate(listed)]
    if not sequences:
        raise DataError("found no text to embed, expected one or more")
    choice = FeatureChoice(layers, combine, pool)
    device = model.encoder.token_embedding.weight.device
    found: dict[int, Tensor] = {}
    for numbers in batches_by_length([len(each) for each in sequences], batch_size):
        batch = pack([sequences[number] for number in numbers]).to(device)
        # batches come by length; found puts the vectors into the order of the texts again
        found |= dict(zip(numbers, features_of(model.encoder, batch, choice), strict=True))
    # (N, D), or (T, D) without pooling; float(), as NumPy has no bfloat16
    return torch.cat([found[n] for n in range(len(sequences))]).float().cpu().numpy()


def _ids(model: PretrainedModel, text: str, number: int) -> list[int]:
    ids = model.tokenizer.build_inputs(model.tokenizer.encode(text))[0]
    longest = model.encoder.max_position_embeddings
    if len(ids) > longest:
        raise DataError(
            f"text {number}: {len(ids)} tokens with [CLS] and [SEP], expected at most {longest}; "
            "split the text"
        )
    return ids
