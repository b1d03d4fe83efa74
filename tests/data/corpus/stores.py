"""Token stores of random text."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bertlab.data.corpus.store import TokenStore
from bertlab.data.corpus.store_writer import store_writer
from bertlab.tokenizer.files import SPECIAL_TOKENS, WordPieceTokenizer

LETTERS = "abcdefghijklmno"
TOKENIZER = WordPieceTokenizer.from_vocabulary(
    [*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
)


def write(
    path: Path, documents: Sequence[Sequence[int]], shard_tokens: int | None = None, batch: int = 7
) -> TokenStore:
    """Write a store of random tokens; each document is given by its sentences' lengths."""
    rng = np.random.default_rng(0)
    with store_writer(path, TOKENIZER, "corpus", shard_tokens) as writer:
        for start in range(0, len(documents), batch):
            part = documents[start : start + batch]
            lengths = np.concatenate([np.asarray(each, np.int64) for each in part])
            ids = rng.integers(5, TOKENIZER.vocab_size, lengths.sum())
            writer.add_documents(ids, lengths, [len(each) for each in part])
        writer.words = 1
    return TokenStore.open(path)


def texts(documents: int, seed: int = 0) -> list[list[int]]:
    """Return the lengths of the sentences of some documents."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 12, documents)
    return [rng.integers(3, 30, size).tolist() for size in sizes]
