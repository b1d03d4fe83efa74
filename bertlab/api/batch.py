"""The only batch there is: sequences laid end to end with no padding.

``PackedSequences`` is its NumPy form, made and corrupted in the data workers; ``PackedBatch`` is
its torch form, which the encoder and the tasks read. T is the number of tokens of a batch, B the
number of its sequences, H the hidden size.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from bertlab.api.optimizer import Progress
from bertlab.errors import PluginError

IntArray = npt.NDArray[np.int64]
ArrayT = TypeVar("ArrayT", IntArray, Tensor)


@dataclass(frozen=True)
class TokenLabels(Generic[ArrayT]):
    """The tokens that an objective predicts in a batch: what it tells the other objectives.

    NumPy arrays in :class:`PackedSequences`, tensors in :class:`PackedBatch`.

    Attributes:
        positions: ``(K,)`` int64 flat positions whose hidden states predict. Of ``mlm`` these are
            the masked tokens, ascending: ``[CLS] a [MASK] [SEP] [CLS] [MASK] [SEP]`` has
            ``[2, 5]``. Of ``clm`` each is the position before the predicted token.
        labels: ``(K,)`` int64 ids to predict: of ``mlm``, those that stood there before.
    """

    positions: ArrayT
    labels: ArrayT

    @classmethod
    def read(cls, objective: str, fields: Mapping[str, Any]) -> "TokenLabels[ArrayT]":
        """Return what an objective wrote.

        Raises:
            PluginError: it wrote none, or is prepared later.
        """
        names = f"{objective}_positions", f"{objective}_labels"
        if any(name not in fields for name in names):
            raise PluginError(
                f"no objective {objective!r} has written token labels to this batch (its fields: "
                f"{', '.join(fields) or 'none'}; nothing is prepared in prediction)"
            )
        return cls(*(fields[name] for name in names))


@dataclass
class PackedSequences:
    """Sequences of one micro-batch as NumPy arrays, before they become tensors.

    Attributes:
        input_ids: ``(T,)`` int64 ids, special tokens included. Objectives may overwrite them.
        token_type_ids: ``(T,)`` int64, 0 for segment A, 1 for segment B.
        position_ids: ``(T,)`` int64, counts from 0 in every sequence.
        cu_seqlens: ``(B + 1,)`` int64; sequence b is ``[cu_seqlens[b], cu_seqlens[b + 1])``.
        corpus_offsets: ``(T,)`` int64 position of the token in the token store, -1 for the special
            tokens that the sampler added.
        epochs: ``(B,)`` int64 epoch that each sequence belongs to.
        indices: ``(B,)`` int64 number of the sequence in its epoch, different for each. Draws that
            are keyed by ``epochs`` and ``indices`` do not depend on batch composition.
        fields: arrays of the tasks and of the sampler by name, for example
            ``next_sentence_label`` ``(B,)`` (0: B follows A, 1: B is random, as Hugging Face).
        counts: number of predictions that each task makes in this batch.
        progress: the optimiser step that the batch belongs to, and the steps of the run; None where
            there is no run: in evaluation, prediction and reports of data.
    """

    input_ids: IntArray
    token_type_ids: IntArray
    position_ids: IntArray
    cu_seqlens: IntArray
    corpus_offsets: IntArray
    epochs: IntArray
    indices: IntArray
    fields: dict[str, npt.NDArray[np.generic]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    progress: Progress | None = None

    @property
    def lengths(self) -> IntArray:
        """``(B,)`` number of tokens of each sequence."""
        return np.diff(self.cu_seqlens)

    def token_labels(self, objective: str) -> TokenLabels[IntArray]:
        """Return what an objective predicts here, by its config name; errors as ``read``."""
        return TokenLabels[IntArray].read(objective, self.fields)

    def write_token_labels(self, objective: str, positions: IntArray, labels: IntArray) -> None:
        """Keep ``(K,)`` flat positions and ``(K,)`` labels; others read :meth:`token_labels`."""
        self.fields |= {f"{objective}_positions": positions, f"{objective}_labels": labels}

    @property
    def sequence_of_token(self) -> IntArray:
        """``(T,)`` number of the sequence that each token belongs to."""
        # lengths [2, 3] -> [0, 0, 1, 1, 1]
        return np.repeat(np.arange(len(self.cu_seqlens) - 1), self.lengths)

    def to_batch(self, window_counts: dict[str, int] | None = None) -> "PackedBatch":
        """Return the torch form; ``window_counts`` as in :class:`PackedBatch`."""
        return PackedBatch(
            input_ids=torch.from_numpy(self.input_ids),
            token_type_ids=torch.from_numpy(self.token_type_ids),
            position_ids=torch.from_numpy(self.position_ids),
            cu_seqlens=torch.from_numpy(self.cu_seqlens.astype(np.int32)),  # for flash kernels
            max_seqlen=int(self.lengths.max()),
            fields={name: torch.from_numpy(array) for name, array in self.fields.items()},
            counts=dict(self.counts),
            window_counts=dict(self.counts if window_counts is None else window_counts),
        )


@dataclass
class PackedBatch:
    """Sequences of one micro-batch as tensors.

    Attributes:
        input_ids: ``(T,)`` int64.
        token_type_ids: ``(T,)`` int64.
        position_ids: ``(T,)`` int64.
        cu_seqlens: ``(B + 1,)`` int32 cumulative lengths, starts with 0.
        max_seqlen: length of the longest sequence.
        fields: the tasks' own tensors by name; ``causal`` ``(B,)`` is for the encoder.
        counts: number of predictions of each task in this batch.
        window_counts: the same over all batches of this process that one optimiser step
            accumulates, so that accumulation weighs by predicted tokens.
        tokens_read: ``(N,)`` int64 positions of the tokens whose states the tasks read besides
            those that stand for sequences; None: all of them. An encoder may leave the other states
            zero.
    """

    input_ids: Tensor
    token_type_ids: Tensor
    position_ids: Tensor
    cu_seqlens: Tensor
    max_seqlen: int
    fields: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    window_counts: dict[str, int] = field(default_factory=dict)
    tokens_read: Tensor | None = None
    _rows_of_heads: dict[int, Tensor] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __len__(self) -> int:
        """Number of sequences B."""
        return len(self.cu_seqlens) - 1

    @property
    def causal(self) -> Tensor | None:
        """``(B,)`` bool, True of sequences to read left to right: the field ``causal``, if any."""
        return self.fields.get("causal")

    def token_labels(self, objective: str) -> TokenLabels[Tensor]:
        """Return what an objective predicts here, by its config name; errors as ``read``."""
        return TokenLabels[Tensor].read(objective, self.fields)

    @cached_property
    def lengths(self) -> Tensor:
        """``(B,)`` int64 number of tokens of each sequence."""
        return (self.cu_seqlens[1:] - self.cu_seqlens[:-1]).long()

    @cached_property
    def padded_index(self) -> Tensor:
        """``(T,)`` int64 position of each token in the flattened ``(B * max_seqlen)`` layout."""
        # lengths [2, 3]: starts [0, 2], shift [0, 1] -> [0, 1, 3, 4, 5]; position 2 is padding
        starts = self.cu_seqlens[:-1].long()
        shift = torch.arange(len(self), device=starts.device) * self.max_seqlen - starts
        total = self.input_ids.shape[0]
        return torch.arange(total, device=starts.device) + torch.repeat_interleave(
            shift, self.lengths, output_size=total
        )

    @cached_property
    def attention_mask(self) -> Tensor:
        """``(B, max_seqlen)`` bool, True where the padded layout holds a token."""
        # lengths [2, 3]: [[True, True, False], [True, True, True]]
        return torch.arange(self.max_seqlen, device=self.cu_seqlens.device) < self.lengths[:, None]

    @cached_property
    def token_index(self) -> Tensor:
        """``(B, max_seqlen)`` int64 packed position of each padded one; any for padding."""
        # lengths [2, 3]: [[0, 1, 2], [2, 3, 4]]; the first row's 2 stands for padding
        places = torch.arange(self.max_seqlen, device=self.cu_seqlens.device)
        starts = self.cu_seqlens[:-1, None].long()
        return (starts + places).clamp(max=len(self.input_ids) - 1)  # the last sequence's padding

    def rows_of_heads(self, num_heads: int) -> Tensor:
        """Return ``(T, A)`` int64 positions of the tokens in a ``(B * A * max_seqlen)`` layout.

        Made once for each number of heads A.
        """
        # lengths [2, 3], A = 2: sequence 0 has positions 0-2 for head 0 and 3-5 for head 1,
        # sequence 1 has 6-8 and 9-11: [[0, 3], [1, 4], [6, 9], [7, 10], [8, 11]]
        if num_heads not in self._rows_of_heads:
            index, longest = self.padded_index, self.max_seqlen
            first = index + index // longest * ((num_heads - 1) * longest)  # (T,), in head 0
            heads = torch.arange(num_heads, device=index.device) * longest
            self._rows_of_heads[num_heads] = first[:, None] + heads
        return self._rows_of_heads[num_heads]

    def each_once(self, rows: Tensor) -> Tensor:
        """Return ``(N,)`` int64 rows in ascending order, each once."""
        found: Tensor = rows.unique()  # type: ignore[no-untyped-call]
        return found

    def pad(self, values: Tensor, fill: float = 0) -> Tensor:
        """Return ``(T, …)`` values of the tokens as ``(B, max_seqlen, …)``, others ``fill``."""
        rows = values.new_full((len(self) * self.max_seqlen, *values.shape[1:]), fill)
        rows.index_copy_(0, self.padded_index, values)
        return rows.view(len(self), self.max_seqlen, *values.shape[1:])

    def to(self, device: torch.device) -> "PackedBatch":
        """Return the batch on ``device``; a copy to a GPU may still be under way."""
        # the CPU could read a copy to it before it is there; a GPU's kernels wait for theirs
        on_gpu = torch.device(device).type == "cuda"

        return self.map_tensors(lambda tensor: tensor.to(device, non_blocking=on_gpu))

    def pin_memory(self) -> "PackedBatch":
        """Return the batch in page-locked memory, as ``DataLoader(pin_memory=True)`` asks."""
        return self.map_tensors(Tensor.pin_memory)

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> "PackedBatch":
        """Return a batch of what ``change`` makes of each tensor."""
        # a new batch makes its cached indices anew, on its own device
        read = self.tokens_read
        return replace(
            self,
            input_ids=change(self.input_ids),
            token_type_ids=change(self.token_type_ids),
            position_ids=change(self.position_ids),
            cu_seqlens=change(self.cu_seqlens),
            fields={name: change(tensor) for name, tensor in self.fields.items()},
            tokens_read=None if read is None else change(read),
        )


def pack(
    input_ids: Sequence[Sequence[int]], token_type_ids: Sequence[Sequence[int]] | None = None
) -> PackedBatch:
    """Pack plain lists of ids, one list a sequence, for prediction and tests.

    Args:
        input_ids: ids of each sequence, special tokens included; none may be empty.
        token_type_ids: segment ids of the same shape; zeros if None.
    """
    lengths = [len(sequence) for sequence in input_ids]
    if not lengths or min(lengths) == 0:
        raise ValueError(f"expected at least one sequence and no empty one, got lengths {lengths}")
    flat = torch.tensor([token for sequence in input_ids for token in sequence])
    if token_type_ids is None:
        types = torch.zeros_like(flat)
    elif [len(sequence) for sequence in token_type_ids] != lengths:
        raise ValueError(f"expected token_type_ids of the lengths of input_ids, {lengths}")
    else:
        types = torch.tensor([kind for sequence in token_type_ids for kind in sequence])
    return PackedBatch(
        input_ids=flat,
        token_type_ids=types,
        position_ids=torch.cat([torch.arange(length) for length in lengths]),
        cu_seqlens=torch.tensor([0, *np.cumsum(lengths).tolist()], dtype=torch.int32),  # [0, 2, 5]
        max_seqlen=max(lengths),
    )


def first_token(tokens: Tensor, batch: PackedBatch) -> Tensor:
    """Return the ``(B, H)`` states of ``[CLS]``, of ``(T, H)`` states of all tokens."""
    return tokens[batch.cu_seqlens[:-1].long()]


def last_token(tokens: Tensor, batch: PackedBatch) -> Tensor:
    """Return the ``(B, H)`` states of the final ``[SEP]``, of ``(T, H)`` states of all tokens.

    Only the last token of a left-to-right encoder has seen the whole text. GPT classifies its state
    (Radford et al. 2018, sec. 3.2).
    """
    return tokens[batch.cu_seqlens[1:].long() - 1]


FILL = 64


def pad_to_multiple_of(values: Tensor, multiple: int | None = None) -> Tensor:
    """Return ``(T, …)`` values, followed by zeros up to a multiple of 64 rows, or of so many.

    Tensors of a few sizes fit into memory that earlier steps freed. Where each step has a size of
    its own, a CPU's memory fragments: after 200 steps BERT-tiny held 0.75 GB more than at its start
    and kept growing, against 0.33 GB.
    """
    rows = -len(values) % (FILL if multiple is None else multiple)  # 70 -> 58, which makes 128
    # F.pad counts dimensions from the last: (T, A, H) takes (0, 0, 0, 0, 0, rows)
    return F.pad(values, (0, 0) * (values.dim() - 1) + (0, rows)) if rows else values


def _no_encoder(batch: PackedBatch) -> "EncoderOutput":
    del batch
    raise PluginError("this output is not of a run: it has no encoder to encode once more")


@dataclass
class EncoderOutput:
    """Hidden states of a batch, and the shapes that tasks ask for.

    Attributes:
        tokens: ``(T, H)`` hidden states that tasks read: of the last layer, or of what the encoder
            has on top of it. Zeros may be in place of those that no task reads.
        batch: the batch that was encoded.
        pooler: maps :attr:`cls` ``(B, H)`` to ``(B, H)`` (paper sec. 3.1, C).
        all_layers: ``L + 1`` tensors ``(T, H)``, embeddings first, or None if not asked for.
        summary: picks from ``tokens`` what stands for each sequence, ``(B, H)``: the state of a
            token that has seen all of it.
        encode: encodes a batch, this one once more (in training with new dropout, as SimCSE's
            second view of a text) or another.
    """

    tokens: Tensor
    batch: PackedBatch
    pooler: Callable[[Tensor], Tensor]
    all_layers: list[Tensor] | None = None
    summary: Callable[[Tensor, PackedBatch], Tensor] = first_token
    encode: "Callable[[PackedBatch], EncoderOutput]" = field(default=_no_encoder, repr=False)

    @property
    def cls(self) -> Tensor:
        """``(B, H)`` state that stands for each sequence: of ``[CLS]``, or as ``summary`` says."""
        return self.summary(self.tokens, self.batch)

    @cached_property
    def pooled(self) -> Tensor:
        """``(B, H)`` pooled output; computed once, and only if a task asks for it."""
        return self.pooler(self.cls)

    def padded(self) -> Tensor:
        """``(B, max_seqlen, H)`` hidden states, zeros where there is no token."""
        return self.batch.pad(self.tokens)
