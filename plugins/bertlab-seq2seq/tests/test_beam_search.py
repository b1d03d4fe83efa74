"""Beam search on made-up probabilities whose best texts are known."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from bertlab_seq2seq.beam_search import beam_search

END, A, B, START = 0, 1, 2, 3

# probability of the next token after what was written so far
TREE: dict[tuple[int, ...], dict[int, float]] = {
    (): {A: 0.6, B: 0.4},
    (A,): {A: 0.4, B: 0.3, END: 0.3},
    (B,): {A: 0.05, B: 0.05, END: 0.9},
    (A, A): {END: 1.0},
}


class Model:
    """Looks a text's continuation up in a tree; every text may have one of its own."""

    def __init__(self, *trees: dict[tuple[int, ...], dict[int, float]]) -> None:
        self.trees = trees
        self.written: list[tuple[int, ...]] = []

    def __call__(self, rows: Tensor, tokens: Tensor) -> Tensor:
        before = self.written or [()] * len(rows)
        first = not self.written
        self.written = [
            () if first else (*before[row], token)
            for row, token in zip(rows.tolist(), tokens.tolist(), strict=True)
        ]
        beam_size = len(rows) // len(self.trees)
        return torch.tensor(
            [
                self._log_probabilities(row // beam_size, written)
                for row, written in enumerate(self.written)
            ]
        )

    def _log_probabilities(self, text: int, written: tuple[int, ...]) -> list[float]:
        following = self.trees[text].get(written, {END: 1.0})
        return [math.log(following[token]) if token in following else -1e9 for token in range(4)]


def search(model: Model, beam_size: int, length_penalty: float = 0.0) -> list[list[int]]:
    return beam_search(
        model,
        texts=len(model.trees),
        beam_size=beam_size,
        max_length=5,
        start_id=START,
        end_id=END,
        length_penalty=length_penalty,
        device=torch.device("cpu"),
    )


def test_greedy_takes_the_best_token_and_misses_the_best_text() -> None:
    assert search(Model(TREE), beam_size=1) == [[A, A]]  # probability 0.24
    assert search(Model(TREE), beam_size=2) == [[B]]  # 0.36


def test_a_penalty_on_short_texts_prefers_the_longer_one() -> None:
    assert search(Model(TREE), beam_size=3, length_penalty=4.0) == [[A, A]]


def test_texts_of_a_batch_are_searched_apart() -> None:
    swapped = {
        tuple({A: B, B: A}[token] for token in written): {
            {A: B, B: A, END: END}[token]: probability for token, probability in following.items()
        }
        for written, following in TREE.items()
    }
    assert search(Model(TREE, swapped, TREE), beam_size=2) == [[B], [A], [B]]


def test_a_text_without_an_end_stops_at_the_maximum() -> None:
    endless = {written: {A: 1.0} for n in range(6) for written in [(A,) * n]}
    assert search(Model(endless), beam_size=1) == [[A] * 5]


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_as_wide_as_all_texts_finds_the_best(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tree = {}
    for length in range(3):
        for written in itertools.product((A, B), repeat=length):
            share = torch.rand(3, generator=generator).softmax(0).tolist()
            tree[written] = dict(zip((END, A, B), share, strict=True))
    probabilities = {}
    for length in range(4):
        for text in itertools.product((A, B), repeat=length):
            places = [(text[:n], (*text, END)[n]) for n in range(length + 1)]
            steps = [tree.get(before, {END: 1.0}).get(token, 0.0) for before, token in places]
            probabilities[text] = math.prod(steps)
    best = max(probabilities, key=lambda text: probabilities[text])
    assert search(Model(tree), beam_size=16) == [list(best)]
