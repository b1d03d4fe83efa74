"""Hidden states of a fixed encoder as features (paper sec. 5.3), written text by text."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Literal

import numpy as np
import torch
from torch import Tensor

from bertlab.api.batch import IntArray, PackedBatch, pack
from bertlab.api.encoder import Encoder
from bertlab.errors import CheckpointError
from bertlab.heads.feature_tagging import Combination, combine_layers

Pool = Literal["none", "cls", "mean"]
Precision = Literal["float32", "float16"]


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


def embed(encoder: Encoder, batch: PackedBatch, choice: FeatureChoice) -> list[Tensor]:
    """Return the features of each sequence of a batch, ``(tokens, D)`` or, pooled, ``(1, D)``.

    Args:
        encoder: in evaluation mode.
        batch: B sequences, on the encoder's device.
        choice: which ones.

    Raises:
        ConfigError: if the encoder has no such layer; the allowed range is named.
        CheckpointError: if the encoder does not give its layers, or gives values that are not
            finite.
    """
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
        sequences = [tokens[start:end] for start, end in pairwise(batch.cu_seqlens.tolist())]
    if choice.pool == "cls":
        return list(output.summary(tokens, batch).split(1))
    if choice.pool == "mean":
        return [sequence.mean(0, keepdim=True) for sequence in sequences]
    return sequences


def batches_by_length(lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """Return the numbers of N sequences in batches, longest first, so that none waits for padding.

    What does not fit into memory then fails at the start.
    """
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def write_embeddings(
    file: IO[bytes],
    encoder: Encoder,
    sequences: Sequence[Sequence[int]],
    choice: FeatureChoice,
    batches: Iterable[Sequence[int]],
    precision: Precision,
    metadata: Mapping[str, str],
) -> tuple[int, int]:
    """Embed sequences and write them as safetensors; of vectors, one batch is in memory.

    The file has ``embeddings`` ``(T, D)`` or, pooled, ``(N, D)``; ``offsets`` ``(N + 1,)`` int64:
    the tokens of sequence n are ``[offsets[n], offsets[n + 1])``; ``input_ids`` ``(T,)`` int64.

    Args:
        file: empty, open for writing.
        encoder: in evaluation mode.
        sequences: N lists of ids, special tokens included; at least one.
        choice: which features.
        batches: numbers of the sequences, each once, in any order.
        precision: of ``embeddings``.
        metadata: for the file's header.

    Returns:
        Shape of ``embeddings``.

    Raises:
        ConfigError, CheckpointError: as :func:`embed`; or a value is too large for float16.
    """
    device = encoder.token_embedding.weight.device
    shortest = min(sequences, key=len)
    width = embed(encoder, pack([shortest]).to(device), choice)[0].shape[1]
    offsets = np.cumsum([0, *map(len, sequences)], dtype=np.int64)
    rows = offsets if choice.pool == "none" else np.arange(len(sequences) + 1)
    dtype = np.dtype(precision).newbyteorder("<")
    shape = int(rows[-1]), width
    file.write(_header(offsets, shape, dtype, metadata))
    file.write(offsets.astype("<i8").tobytes())
    for sequence in sequences:
        file.write(np.asarray(sequence, "<i8").tobytes())
    start = file.tell()
    for batch in batches:
        packed = pack([sequences[number] for number in batch]).to(device)
        for number, vectors in zip(batch, embed(encoder, packed, choice), strict=True):
            array = vectors.float().cpu().numpy()
            if np.abs(array).max() > np.finfo(dtype).max:
                raise CheckpointError(
                    f"--model: a value of {np.abs(array).max():g} does not fit into {precision}; "
                    "use --dtype float32"
                )
            file.seek(start + int(rows[number]) * width * dtype.itemsize)
            file.write(array.astype(dtype).tobytes())
    return shape


def _header(
    offsets: IntArray,
    shape: tuple[int, int],
    dtype: np.dtype[np.floating],
    metadata: Mapping[str, str],
) -> bytes:
    """Return the start of a safetensors file; the library writes only what is whole in memory."""
    code = f"F{8 * dtype.itemsize}"
    layout = {  # in the order of the data
        "offsets": ("I64", [len(offsets)], 8 * len(offsets)),
        "input_ids": ("I64", [int(offsets[-1])], 8 * int(offsets[-1])),
        "embeddings": (code, [*shape], shape[0] * shape[1] * dtype.itemsize),
    }
    content: dict[str, object] = {"__metadata__": dict(metadata)}
    place = 0
    for name, (kind, sizes, length) in layout.items():
        content[name] = {"dtype": kind, "shape": sizes, "data_offsets": [place, place + length]}
        place += length
    text = json.dumps(content).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
