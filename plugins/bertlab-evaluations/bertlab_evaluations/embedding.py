"""Hidden states of texts as features (paper sec. 5.3)."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from operator import index
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertlab import CheckpointError, PretrainedModel, check_at_least, check_choice
from bertlab.api import ConfigError, DataError, Encoder, PackedBatch, pack
from bertlab.extend import kind_of
from bertlab_tasks.layers import Combination, check_layers, combine_layers
from bertlab_tasks.long_text import Pooling, pooled_rows, text_windows

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
        windows: how texts that are longer than a window are read; None: none is.
    """

    layers: Sequence[int]
    combine: Combination
    pool: Pool
    windows: "Windows | None" = None


@dataclass(frozen=True)
class Windows:
    """Windows over the texts that are longer than one, whose vectors are pooled.

    Attributes:
        length: tokens of a window, special tokens included.
        pooling: ``mean`` or ``max`` of the windows' vectors, or the ``first``, as head
            ``long_text`` has it.
        stride: tokens from the start of a window to the next one's; half a window if None.
    """

    length: int
    pooling: Pooling = "mean"
    stride: int | None = None

    def of(self, ids: Sequence[int]) -> list[list[int]]:
        """Return the windows of a text, each with its special tokens; one if it fits."""
        first, *inner, last = ids
        spans = text_windows(len(inner), self.length - 2, self.stride)
        kept = spans[:1] if self.pooling == "first" else spans
        return [[first, *inner[start:end], last] for start, end in kept]


def check_windows(
    pooling: Pooling | None, stride: int | None, pool: Pool, truncate: bool = False
) -> None:
    """Raise ConfigError unless windows give vectors that can be pooled."""
    if pooling is not None and truncate:
        raise ConfigError("truncate: window_pooling reads texts in place of cutting them; give one")
    if pooling is None and stride is not None:
        raise ConfigError("window_stride: needs window_pooling: mean, max or first")
    if pooling is not None and pool == "none":
        raise ConfigError("window_pooling: pool none has vectors of tokens; set pool mean or cls")


def text_features(
    encoder: Encoder, texts: Sequence[Sequence[int]], choice: FeatureChoice, batch_size: int
) -> list[Tensor]:
    """Return the features of each of N texts, read in windows if need be.

    Args:
        encoder: in evaluation mode.
        texts: their ids, special tokens included.
        choice: which features.
        batch_size: windows that are encoded at a time.
    """
    device = encoder.token_embedding.weight.device
    cut = [[list(ids)] if choice.windows is None else choice.windows.of(ids) for ids in texts]
    flat = [window for windows in cut for window in windows]
    found = [
        vectors
        for start in range(0, len(flat), batch_size)
        for vectors in features_of(
            encoder, pack(flat[start : start + batch_size]).to(device), choice
        )
    ]
    if choice.windows is None:
        return found
    # two texts of 3 and 1 windows -> ends [3, 4]: found[0:3] and found[3:4]
    ends = np.cumsum([len(windows) for windows in cut]).tolist()
    pooling = choice.windows.pooling
    return [pooled_rows(found[a:b], pooling) for a, b in pairwise([0, *ends])]


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
    window_pooling: Pooling | None = None,
    window_stride: int | None = None,
) -> npt.NDArray[np.float32]:
    """Return a vector for each text, ``(N, D)`` float32 (paper sec. 5.3): ``model.embed(texts)``.

    Args:
        model: what :func:`bertlab.load` returns.
        texts: one text or N.
        layers: layers to combine: 0 is the embeddings, -1 the last layer.
        combine: ``concat``, ``sum`` or ``mean`` of these layers.
        pool: ``mean`` over all tokens; ``cls``: that of ``[CLS]``; ``none``: the vectors of the
            tokens of all texts, end to end, ``(T, D)``.
        batch_size: texts encoded at a time.
        window_pooling: how the vectors of windows are pooled, in which a text that is too long is
            read: ``mean``, ``max`` or the ``first``; None: it is refused.
        window_stride: tokens from the start of a window to the next one's; half of one if None.

    Raises:
        ConfigError: there is no such layer, or no such way to combine or pool, or a number is none.
        DataError: there is no text, or one is too long or no str.
    """
    # the items of a DataFrame are the names of its columns, those of a set have no order
    if isinstance(texts, bytes | Set) or hasattr(texts, "columns"):
        raise DataError(f"found {texts!r:.80}, expected a text, or several in their order")
    are_many = isinstance(texts, Iterable) and not isinstance(texts, str | Mapping)
    listed = texts if are_many else [cast("str", texts)]
    # a command's parser knows these, a call from Python has none
    check_choice("combine", combine, Combination)
    check_choice("pool", pool, Pool)
    if window_pooling is not None:
        check_choice("window_pooling", window_pooling, Pooling)
    size = _whole_number("batch_size", batch_size)
    check_at_least("batch_size", size, 1)
    stride = None if window_stride is None else _whole_number("window_stride", window_stride)
    places = _whole_numbers(layers)
    check_layers(places, model.encoder.num_hidden_layers + 1, "layers")
    check_windows(window_pooling, stride, pool)
    longest = model.encoder.max_position_embeddings
    windows = window_pooling and Windows(longest, window_pooling, stride)
    sequences = [_ids(model, text, number, bool(windows)) for number, text in enumerate(listed)]
    if not sequences:
        raise DataError("found no text to embed, expected one or more")
    choice = FeatureChoice(places, combine, pool, windows)
    found: dict[int, Tensor] = {}
    for numbers in batches_by_length([len(each) for each in sequences], size):
        ids = [sequences[number] for number in numbers]
        # batches come by length; found puts the vectors into the order of the texts again
        vectors = text_features(model.encoder, ids, choice, size)
        found |= dict(zip(numbers, vectors, strict=True))
    # (N, D), or (T, D) without pooling; float(), as NumPy has no bfloat16
    return torch.cat([found[n] for n in range(len(sequences))]).float().cpu().numpy()


def _whole_number(key: str, found: Any) -> int:  # noqa: ANN401  of a call from Python
    try:
        return index(found)
    except TypeError:
        raise ConfigError(f"{key}: found {found!r:.80}, expected a whole number") from None


def _whole_numbers(layers: Sequence[int]) -> list[int]:
    if isinstance(layers, int):
        raise ConfigError(f"layers: found {layers}, expected a list, [{layers}]")
    try:
        return [index(each) for each in layers]  # of NumPy's integers as well
    except TypeError:
        raise ConfigError(
            f"layers: found {layers!r:.80}, expected a list of whole numbers, such as [0, -1]"
        ) from None


def _ids(model: PretrainedModel, text: str, number: int, in_windows: bool) -> list[int]:
    if not isinstance(text, str):
        raise DataError(f"text {number}: found {kind_of(text)}, expected a text")
    ids = model.tokenizer.build_inputs(model.tokenizer.encode(text))[0]
    longest = model.encoder.max_position_embeddings
    if len(ids) > longest and not in_windows:
        raise DataError(
            f"text {number}: {len(ids)} tokens with [CLS] and [SEP], expected at most {longest}; "
            "split the text"
        )
    return ids
