"""``Stack``: a small encoder with the task under test on top, as a run has them."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from bertlab import BertEncoder
from bertlab.api import Encoder, EncoderOutput, Head, Objective, PackedBatch, Task, TaskLoss

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
    """An encoder and a task that is built for it.

    Attributes:
        encoder: below the task.
        task: under test.
        companions: the objectives that it requires, by name.
    """

    encoder: Encoder
    task: Task
    companions: Mapping[str, Objective] = field(default_factory=dict)

    @property
    def is_fixed(self) -> bool:
        """Whether the encoder only gives features."""
        return isinstance(self.task, Head) and not self.task.trains_encoder

    @property
    def head(self) -> Head:
        """The task, where that is a head."""
        assert isinstance(self.task, Head)
        return self.task

    def output(self, batch: PackedBatch) -> EncoderOutput:
        """Encode a batch as a run does."""
        all_layers = isinstance(self.task, Head) and self.task.reads_all_layers
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.is_fixed):
            output: EncoderOutput = self.encoder(batch, all_layers=all_layers)
        output.encode = self.output
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
        """Return all of it."""
        return list(self._named().values())

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
        """Return a copy of all state dicts, as a checkpoint keeps them."""
        return {name: copy.deepcopy(module.state_dict()) for name, module in self._named().items()}

    def load(self, state: dict[str, dict[str, Any]]) -> None:
        """Load what :meth:`state` gave; every key must fit."""
        for name, module in self._named().items():
            module.load_state_dict(state[name])

    def _named(self) -> dict[str, nn.Module]:
        return {"encoder": self.encoder, "task": self.task, **self.companions}


@torch.no_grad()
def disturb(parameters: Iterable[Tensor]) -> None:
    """Add noise to parameters, so that weights that begin at zero take part too.

    The noise of a matrix of N columns is N(0, 1 / N), which keeps the size of what it maps.
    """
    for parameter in parameters:
        if parameter.is_floating_point():
            # an output is a sum over N columns: N times 1/N of the input's variance
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
