"""Chi-square tests of 15 %, 80/10/10 and 50/50 on at least a million tokens of a real store.

    python benchmarks/sampling_statistics.py STORE [--tokens 1000000] [--max_seq_length 128]

STORE is the output of ``bertlab prepare``. A p-value below 0.01 would be a reason to look. The
first test is lenient: the number of selected tokens follows from each sequence's length, rounded up
or down at random, so the share strays less than that of independent draws.
"""

import argparse
from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import chisquare

from bertlab.api.rng import CounterRNG
from bertlab.data.corpus.store import TokenStore
from bertlab.data.loader import paper_sampler
from bertlab.objectives.masking import MaskingRecipe, TokenClasses, dynamic_draws, mask_tokens

CHUNK = 1000


def main() -> None:
    """Sample until there are enough tokens, count, print the tests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    store = TokenStore.open(arguments.store)
    counts = count(store, arguments.tokens, arguments.max_seq_length, arguments.seed)
    total = int(counts["text"].sum())
    table = Table(title=f"{arguments.store}: {total:,} tokens", title_justify="left")
    for heading in ("share", "expected", "found", "chi-square", "p"):
        table.add_column(heading, justify="left" if heading == "share" else "right")
    add_test(table, "selected (of the text's tokens)", counts["text"], (0.15, 0.85))
    add_test(table, "[MASK] / random / kept (of the selected)", counts["fate"], (0.8, 0.1, 0.1))
    add_test(table, "B follows A / B is random", counts["pairs"], (0.5, 0.5))
    Console().print(table)


def count(store: TokenStore, tokens: int, max_seq_length: int, seed: int) -> dict[str, np.ndarray]:
    """Return counts: selected and not; masked, random and kept; pairs that follow and random."""
    tokenizer = store.tokenizer
    sampler = paper_sampler(store, max_seq_length, seed)
    classes, rng = TokenClasses.of(tokenizer), CounterRNG(seed, "objective/mlm")
    ordinary = tokenizer.vocab_size - len(tokenizer.special_ids)
    text, fate, pairs = np.zeros(2), np.zeros(3), np.zeros(2)
    start = 0
    while text.sum() < tokens:
        epochs, indices = np.divmod(np.arange(start, start + CHUNK), len(sampler))
        sequences = sampler.sample(epochs, indices)
        before = sequences.input_ids.copy()
        positions, _ = mask_tokens(
            sequences, MaskingRecipe(), classes, dynamic_draws(sequences, rng)
        )
        after = sequences.input_ids[positions]
        masked = (after == tokenizer.mask_id).sum()
        same = (after == before[positions]).sum()
        text += (len(positions), (sequences.corpus_offsets >= 0).sum() - len(positions))
        fate += (masked, len(positions) - masked - same, same)
        pairs += np.bincount(sequences.fields["next_sentence_label"], minlength=2)
        start += CHUNK
    # a random token is the old one once in as many as there are ordinary tokens
    moved = fate[1] / (ordinary - 1)
    fate += (0, moved, -moved)
    return {"text": text, "fate": fate, "pairs": pairs}


def add_test(table: Table, name: str, found: np.ndarray, expected: Sequence[float]) -> None:
    """Add a row with the shares and the chi-square test of the counts."""
    total = found.sum()
    test = chisquare(found, np.array(expected) * total)
    table.add_row(
        name.replace("[", r"\["),
        " / ".join(f"{share:.1%}" for share in expected),
        " / ".join(f"{share:.3%}" for share in found / total),
        f"{test.statistic:.2f}",
        f"{test.pvalue:.3f}",
    )


if __name__ == "__main__":
    main()
