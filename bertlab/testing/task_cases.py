"""An encoder with the task under test on top, small and the same every time.

What the checks of objectives and heads work with.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertlab.api.batch import EncoderOutput, PackedBatch, PackedSequences
from bertlab.api.encoder import Encoder
from bertlab.api.examples import Labels, Row
from bertlab.api.head import Head
from bertlab.api.task import Objective, Task, TaskContext, TaskLoss
from bertlab.data.examples.encoded import EncodedRows, encode_rows
from bertlab.data.loader import prepare_sequences
from bertlab.data.sampling.formats import InputFormat
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import BertlabError
from bertlab.testing.cases import SEED, Case
from bertlab.testing.check import ConformanceFailure
from bertlab.testing.samples import sample_rows, without_truth

MAX_LENGTH = 64  # of a sequence, in tokens
LEARNING_RATE = 3e-3


def tiny_encoder(vocab_size: int, causal: bool = False) -> BertEncoder:
    """Return a BertEncoder of three layers of width 32 that reads up to 64 tokens."""
    return BertEncoder(
        vocab_size,
        num_hidden_layers=3,
        hidden_size=32,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=MAX_LENGTH,
        causal=causal,
    )


@dataclass
class Stack:
    """An encoder and a task that is built for it."""

    encoder: Encoder
    task: Task

    @property
    def is_fixed(self) -> bool:
        """Whether the encoder only gives features."""
        return isinstance(self.task, Head) and not self.task.trains_encoder

    def output(self, batch: PackedBatch) -> EncoderOutput:
        """Encode a batch as a run does."""
        all_layers = isinstance(self.task, Head) and self.task.reads_all_layers
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.is_fixed):
            output: EncoderOutput = self.encoder(batch, all_layers=all_layers)
        return output

    def rewritten(self, batch: PackedBatch) -> PackedBatch:
        """Return the batch as the encoder reads it in training and evaluation."""
        return self.task.rewrite_input(batch) if isinstance(self.task, Objective) else batch

    def loss(self, batch: PackedBatch) -> TaskLoss:
        """Return the loss on a batch as a training step has it."""
        batch = self.rewritten(batch)
        return self.task.loss(self.output(batch), batch)

    @torch.no_grad()
    def decode(self, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return predictions as ``predict`` does."""
        return self.task.decode(self.output(batch), batch)

    def modules(self) -> list[nn.Module]:
        """Return both."""
        return [self.encoder, self.task]

    def train(self, mode: bool = True) -> "Stack":
        """Switch dropout on or off, as a run does."""
        self.task.train(mode)
        self.encoder.train(mode and not self.is_fixed)
        return self

    def parameters(self) -> list[nn.Parameter]:
        """Return what is trained."""
        if self.is_fixed:
            return list(self.task.parameters())
        return [*self.encoder.parameters(), *self.task.parameters()]

    def optimizer(self) -> torch.optim.AdamW:
        """Return AdamW over what is trained."""
        return torch.optim.AdamW(self.parameters(), lr=LEARNING_RATE, fused=True)

    def step(self, optimizer: torch.optim.Optimizer, batch: PackedBatch) -> None:
        """Make one training step on a batch."""
        self.train()
        optimizer.zero_grad()
        loss = self.loss(batch)
        (loss.sum.float() / max(1, loss.count)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        self.train(False)

    def state(self) -> dict[str, dict[str, Any]]:
        """Return a copy of both state dicts, as a checkpoint keeps them."""
        return copy.deepcopy({"encoder": self.encoder.state_dict(), "task": self.task.state_dict()})

    def load(self, state: dict[str, dict[str, Any]]) -> None:
        """Load what :meth:`state` gave; every key must fit."""
        self.encoder.load_state_dict(state["encoder"])
        self.task.load_state_dict(state["task"])


@torch.no_grad()
def disturb(module: nn.Module) -> None:
    """Add noise to all parameters, so that weights that begin at zero take part too.

    The noise of a matrix of N columns is N(0, 1 / N), which keeps the size of what it maps.
    """
    for parameter in module.parameters():
        if parameter.is_floating_point():
            std = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.2
            parameter.add_(torch.randn_like(parameter) * std)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch; its random state is as before afterwards."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)  # torch.manual_seed also looks for GPUs, which lasts
    try:
        yield
    finally:
        torch.set_rng_state(before)


def tensors_of(batch: PackedBatch) -> dict[str, Tensor]:
    """Return copies of all tensors of a batch by name."""
    named = {
        "input_ids": batch.input_ids,
        "token_type_ids": batch.token_type_ids,
        "position_ids": batch.position_ids,
        "cu_seqlens": batch.cu_seqlens,
    }
    fields = {f"fields[{name!r}]": values for name, values in batch.fields.items()}
    return {name: values.clone() for name, values in (named | fields).items()}


TASK = "plugin"  # the task's name in its run
SEQUENCE_LENGTH = 32


class TaskCase(Case, ABC):
    """A task under test.

    Attributes:
        units: numbers of what a batch is made of: sequences, or rows of which several sequences
            belong together.
    """

    units: range

    @abstractmethod
    def batch(self, stack: Stack, units: Sequence[int]) -> PackedBatch:
        """Return a labelled batch of the units in the order given."""

    @abstractmethod
    def unlabelled(self, stack: Stack) -> PackedBatch:
        """Return a batch to predict, without what is to be predicted."""

    @abstractmethod
    def twice(self, stack: Stack) -> PackedBatch:
        """Return a batch that has every unit twice."""

    @abstractmethod
    def context(self, encoder: Encoder) -> TaskContext:
        """Return what the task is built for."""

    def all(self, stack: Stack) -> PackedBatch:
        """Return the batch of all units."""
        return self.batch(stack, self.units)

    def each(self, stack: Stack) -> list[PackedBatch]:
        """Return a batch of each unit alone."""
        return [self.batch(stack, [unit]) for unit in self.units]

    def encoder(self) -> Encoder:
        """Return a new encoder of the kind that the task needs."""
        vocab_size = self.language.tokenizer.vocab_size
        if self.options.encoder is not None:
            return self.options.encoder(vocab_size)
        return tiny_encoder(vocab_size, getattr(self.plugin, "requires_causal", None) is True)

    def stack(self, seed: int = SEED, disturbed: bool = True) -> Stack:
        """Return encoder and task, built, in evaluation mode.

        Args:
            seed: of the weights.
            disturbed: no weight is zero or too small to make a difference; False: as built.
        """
        with seeded(seed):
            encoder = self.encoder()
            task: Task = self.new()
            task.build(self.context(encoder))
            if disturbed:
                disturb(encoder)
                disturb(task)
        stack = Stack(encoder, task)
        encoder.requires_grad_(not stack.is_fixed)
        return stack.train(False)


class ObjectiveCase(TaskCase):
    """An objective under test, with the sequences of a small corpus."""

    units = range(8)
    plugin: type[Objective]

    @cached_property
    def _sampled(self) -> dict[tuple[object, ...], PackedSequences]:
        return {}

    def context(self, encoder: Encoder) -> TaskContext:
        """Return encoder, tokenizer and counts of the text."""
        return TaskContext(encoder, self.language.tokenizer, self.corpus.token_counts)

    def sequences(
        self,
        units: Sequence[int],
        input_format: InputFormat = "segment_pairs",
        max_seq_length: int = SEQUENCE_LENGTH,
    ) -> PackedSequences:
        """Return the sampler's sequences, as no objective has seen them."""
        key = (tuple(units), input_format, max_seq_length)
        if key not in self._sampled:
            share = 0.0 if self.plugin.rearranges_input else 0.5
            sampler = self.corpus.sampler(input_format, max_seq_length, share)
            indices = np.asarray(units, np.int64) % len(sampler)
            self._sampled[key] = sampler.sample(indices % 2, indices)
        return copy.deepcopy(self._sampled[key])

    def prepare(
        self, task: Task, sequences: PackedSequences, training: bool = True
    ) -> PackedSequences:
        """Let the objective label sequences; return them."""
        assert isinstance(task, Objective)
        prepare_sequences(sequences, {TASK: task}, SEED, training)
        return sequences

    def batch(self, stack: Stack, units: Sequence[int]) -> PackedBatch:
        """Return training sequences by number."""
        return self.prepare(stack.task, self.sequences(units)).to_batch()

    def unlabelled(self, stack: Stack) -> PackedBatch:
        """Return the sequences as they are, without any field."""
        sequences = self.sequences(self.units)
        sequences.fields = {}
        return sequences.to_batch()

    def twice(self, stack: Stack) -> PackedBatch:
        """Return every sequence twice."""
        return self.batch(stack, [*self.units, *self.units])


class HeadCase(TaskCase):
    """A head under test, with rows that its author gave or that are made for its columns."""

    plugin: type[Head]

    @property
    def rows(self) -> list[Row]:
        """Labelled rows, new objects each time: a head may write into them."""
        return [Row({**row.values, **_copied(row)}, row.where) for row in self._rows]

    @rows.setter
    def rows(self, rows: list[Row]) -> None:
        self._rows = rows

    @cached_property
    def _rows(self) -> list[Row]:
        if self.options.rows is None:
            return sample_rows(self.plugin.columns, self.language, 12)
        return [Row(row, f"rows:{number}") for number, row in enumerate(self.options.rows, 1)]

    @cached_property
    def units(self) -> range:  # type: ignore[override]
        """Rows, or their sequences where the head does not keep them together."""
        return range(len(self.encoded(self.stack(), self.rows)))

    def labels(self, rows: Sequence[Row]) -> Labels | None:
        """Return the classes of rows, as a run finds them."""
        head: Head = self.new()
        found = [name for row in rows for name in head.labels_of(row)]
        return Labels.of(found) if found else None

    def context(self, encoder: Encoder) -> TaskContext:
        """Return encoder, tokenizer and labels."""
        return TaskContext(encoder, self.language.tokenizer, labels=self.labels(self._rows))

    def encoded(
        self, stack: Stack, rows: Sequence[Row], max_seq_length: int = MAX_LENGTH
    ) -> EncodedRows:
        """Encode rows that should be fine."""
        assert isinstance(stack.task, Head)
        try:
            return encode_rows(stack.task, rows, self.language.tokenizer, max_seq_length)
        except BertlabError as error:
            given = "the given rows" if self.options.rows else "rows made for the declared columns"
            raise ConformanceFailure(
                f"encode() refuses {given}: {error}",
                "let encode() read them, or give the kit rows that suit the head: rows=[{…}, …]",
            ) from error

    def batch(self, stack: Stack, units: Sequence[int]) -> PackedBatch:
        """Return labelled rows by number."""
        encoded = self.encoded(stack, self.rows)
        return encoded.batch(np.asarray(units, np.int64), TASK)[0]

    def each(self, stack: Stack) -> list[PackedBatch]:
        """Return a batch of each unit alone."""
        encoded = self.encoded(stack, self.rows)
        return [encoded.batch(np.array([unit]), TASK)[0] for unit in self.units]

    def batch_of(self, stack: Stack, rows: Sequence[Row]) -> PackedBatch:
        """Return all sequences of rows."""
        encoded = self.encoded(stack, rows)
        return encoded.batch(np.arange(len(encoded)), TASK)[0]

    def unlabelled(self, stack: Stack) -> PackedBatch:
        """Return the rows without their truth."""
        return self.batch_of(stack, without_truth(self.plugin.columns, self.rows))

    def twice(self, stack: Stack) -> PackedBatch:
        """Return every row twice, the second time as another row."""
        return self.batch_of(stack, [*self.rows, *self.rows])


def _copied(row: Row) -> dict[str, Any]:
    """Return copies of the lists and dicts in a row."""
    return {
        name: copy.deepcopy(value)
        for name, value in row.values.items()
        if isinstance(value, list | dict)
    }
