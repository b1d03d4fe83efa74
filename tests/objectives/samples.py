"""A toy vocabulary, encoder and packed sequences for the objectives' tests."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import torch

from bertlab.api.batch import EncoderOutput, PackedBatch, PackedSequences
from bertlab.api.rng import CounterRNG
from bertlab.api.task import TaskContext

VOCAB, FIRST_WORD, FIRST_CONTINUATION = 1000, 5, 700
PAD, UNK, CLS, SEP, MASK = range(5)
RNG = CounterRNG(7, "tests")


def _flags(ids: range) -> np.ndarray:
    return np.isin(np.arange(VOCAB), ids)


@dataclass
class ToyTokenizer:
    vocab_size: int = VOCAB
    mask_id: int = MASK
    special_mask: np.ndarray = field(default_factory=lambda: _flags(range(5)))
    continuation_mask: np.ndarray = field(
        default_factory=lambda: _flags(range(FIRST_CONTINUATION, VOCAB))
    )
    closing_mask: np.ndarray | None = None

    def token(self, token: int) -> str:
        return f"t{token}"

    readable = token


class ToyEncoder(torch.nn.Module):
    """What an objective asks of an encoder; its hidden states are the embeddings."""

    activation = staticmethod(torch.nn.functional.gelu)

    def __init__(self, hidden_size: int = 16) -> None:
        super().__init__()
        self.vocab_size, self.hidden_size = VOCAB, hidden_size
        self.layer_norm_eps, self.initializer_range = 1e-12, 0.02
        self.token_embedding = torch.nn.Embedding(VOCAB, hidden_size)
        torch.nn.init.normal_(self.token_embedding.weight, std=0.02)
        self.pooler = torch.nn.Linear(hidden_size, hidden_size)

    def forward(self, batch: PackedBatch) -> EncoderOutput:
        return EncoderOutput(self.token_embedding(batch.input_ids), batch, self.pooler)


def built(objective, token_counts=None, hidden_size=16):
    torch.manual_seed(0)
    encoder = ToyEncoder(hidden_size)
    objective.build(TaskContext(encoder, ToyTokenizer(), token_counts))
    return objective, encoder


def text(length: int, generator: np.random.Generator, continuations: float = 0.3) -> np.ndarray:
    """Corpus ids: words, ``##`` continuations and one ``[UNK]`` in a hundred."""
    words = generator.integers(FIRST_WORD, FIRST_CONTINUATION, length)
    pieces = generator.integers(FIRST_CONTINUATION, VOCAB, length)
    ids = np.where(generator.random(length) < continuations, pieces, words)
    return np.where(generator.random(length) < 0.01, UNK, ids)


def pair(a: int, b: int, seed: int = 0, index: int = 0) -> SimpleNamespace:
    """``[CLS] A [SEP] B [SEP]`` with a and b corpus tokens, offsets running on."""
    generator = np.random.default_rng([seed, index])
    start = 1000 * index
    offsets = np.arange(start, start + a + b)
    one, two = text(a, generator), text(b, generator)
    return SimpleNamespace(
        ids=np.concatenate([[CLS], one, [SEP], two, [SEP]]),
        types=np.repeat([0, 1], [a + 2, b + 1]),
        offsets=np.concatenate([[-1], offsets[:a], [-1], offsets[a:], [-1]]),
        index=index,
    )


def packed(sequences: list[SimpleNamespace], epoch: int = 0) -> PackedSequences:
    lengths = [len(s.ids) for s in sequences]
    return PackedSequences(
        input_ids=np.concatenate([s.ids for s in sequences]).astype(np.int64),
        token_type_ids=np.concatenate([s.types for s in sequences]).astype(np.int64),
        position_ids=np.concatenate([np.arange(n) for n in lengths]),
        cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]),
        corpus_offsets=np.concatenate([s.offsets for s in sequences]).astype(np.int64),
        epochs=np.full(len(sequences), epoch),
        indices=np.array([s.index for s in sequences], dtype=np.int64),
    )


def many(count: int, length: int = 128, seed: int = 0) -> PackedSequences:
    """``count`` pairs of ``length`` tokens whose borders differ."""
    return packed(
        [pair(20 + i % 80, length - 23 - i % 80, seed=seed, index=i) for i in range(count)]
    )


def with_epoch(sequences: PackedSequences, epoch: int) -> PackedSequences:
    """A fresh copy in another epoch."""
    return PackedSequences(
        input_ids=sequences.input_ids.copy(),
        token_type_ids=sequences.token_type_ids,
        position_ids=sequences.position_ids,
        cu_seqlens=sequences.cu_seqlens,
        corpus_offsets=sequences.corpus_offsets,
        epochs=np.full_like(sequences.epochs, epoch),
        indices=sequences.indices,
    )
