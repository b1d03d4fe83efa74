"""Minimal pairs: bertlab against minicons, an independent implementation.

    bertlab export RUN hf-model
    python benchmarks/minimal_pairs_speed.py hf-model --data ../shared/data/blimp --pairs 500

Both score the same pairs of the same model in turn, on the same threads. Prints the seconds of each
round, the ratio of the medians, and the largest difference of a score. Pairs are spread evenly over
the files.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from minicons import scorer
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from bertlab import load
from bertlab.training.trainer import keep_freed_memory
from bertlab_evaluations.entries import EvaluationEntry
from bertlab_evaluations.evaluate import read_entry_rows
from bertlab_evaluations.minimal_pairs import Method, MinimalPairs, sentence_scores

Array = NDArray[np.float64]


def main() -> None:
    """Score, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="Hugging Face folder of a masked language model")
    parser.add_argument("--data", default="../shared/data/blimp")
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--batch_size", type=int, default=32, help="sentences of minicons at a time"
    )
    parser.add_argument("--method", choices=("within_word_l2r", "original"), default="original")
    given = parser.parse_args()
    keep_freed_memory()  # for both
    sentences = read_sentences(given.data, given.pairs)
    ours = scorer_of_bertlab(given.model, given.method)
    theirs = scorer_of_minicons(given.model, given.method, given.batch_size)
    for score in (ours, theirs):
        score(sentences[:8])  # warm
    found, expected, seconds = np.zeros(0), np.zeros(0), ([], [])
    for number in range(1, given.rounds + 1):
        found, took = timed(ours, sentences)
        expected, peer_took = timed(theirs, sentences)
        seconds[0].append(took)
        seconds[1].append(peer_took)
        print(f"round {number}: bertlab {took:.1f} s, minicons {peer_took:.1f} s", flush=True)
    one, other = map(statistics.median, seconds)
    print(f"{len(sentences):,} sentences, {torch.get_num_threads()} threads, {given.method}")
    print(f"medians: bertlab {one:.1f} s, minicons {other:.1f} s: {other / one:.1f} times")
    print(f"largest difference of a score: {np.abs(found - expected).max():.1e}")


def read_sentences(data: str, pairs: int) -> list[str]:
    """Return both sentences of some pairs, evenly spread."""
    pairs_of = MinimalPairs()
    rows = read_entry_rows(
        EvaluationEntry("pairs", "minimal_pairs", pairs_of, data, "auto", None, {}, {})
    )
    chosen = rows[:: max(1, len(rows) // pairs)][:pairs]
    return [str(row.values[side]) for row in chosen for side in ("good", "bad")]


def scorer_of_bertlab(folder: str, method: Method) -> Callable[[list[str]], Array]:
    """Return a function from sentences to scores; it tokenizes, as the peer does."""
    model = load(folder).evaluated()

    def score(sentences: list[str]) -> Array:
        ids = [model.tokenizer.encode(sentence) for sentence in sentences]
        with torch.no_grad():
            return sentence_scores(model, ids, method)

    return score


def scorer_of_minicons(folder: str, method: Method, batch: int) -> Callable[[list[str]], Array]:
    """Return the same by minicons, some sentences at a time, of similar length as they come."""
    if not hasattr(PreTrainedTokenizerBase, "batch_encode_plus"):
        # minicons 0.3.39 calls it by the name that it had before transformers 5
        PreTrainedTokenizerBase.batch_encode_plus = PreTrainedTokenizerBase.__call__
    peer = scorer.MaskedLMScorer(folder, "cpu")

    def score(sentences: list[str]) -> Array:
        found: list[float] = []
        for start in range(0, len(sentences), batch):
            part = sentences[start : start + batch]
            found += peer.sequence_score(part, lambda x: x.sum(0).item(), PLL_metric=method)
        return np.array(found)

    return score


def timed(score: Callable[[list[str]], Array], sentences: list[str]) -> tuple[Array, float]:
    """Return scores and seconds."""
    start = time.perf_counter()
    found = score(sentences)
    return found, time.perf_counter() - start


if __name__ == "__main__":
    main()
