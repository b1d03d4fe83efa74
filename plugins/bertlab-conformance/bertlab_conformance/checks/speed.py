"""Checks of speed: they find loops in Python, not slow arithmetic."""

import math
import time
from collections.abc import Callable
from itertools import cycle, islice
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bertlab import BertEncoder, MaskedLM
from bertlab.api import Example, Head, Labels, TaskContext
from bertlab.extend import SingleSentence
from bertlab_conformance.check import TASK_KINDS, ConformanceFailure, check
from bertlab_conformance.samples import sample_rows
from bertlab_conformance.stack import MAX_LENGTH
from bertlab_conformance.task_cases import EncoderCase, HeadCase, ObjectiveCase, TaskCase

_PREPARE_LIMIT = 20  # times mlm's; a loop over tokens that draws or indexes arrays has 50 to 500
_ENCODE_LIMIT = 50  # times single_sentence's, by token
_FORWARD_LIMIT = 50
_LARGER = 8
_CALLS_OF_A_SEQUENCE = 4  # as many as pad_sequence(split(…)) makes
_SEQUENCES = 128
_ROWS = 40
_REPETITIONS = 3


@check("objective", after=("prepare_returns_a_count",))
def prepare_is_fast(case: ObjectiveCase) -> None:
    """``prepare`` takes at most 20 times as long as that of ``mlm`` on the same sequences."""
    stack = case.stack()
    mlm = MaskedLM()
    mlm.build(case.context(stack.encoder))
    # made before the clock runs, and one for each call, as prepare() writes into them
    fresh = [case.sequences(range(_SEQUENCES)) for _ in range(2 * _REPETITIONS)]
    tokens = len(fresh[0].input_ids)
    theirs = _best(lambda: case.prepare(mlm, fresh.pop()))
    own = _takes_longer(lambda: case.prepare(stack.task, fresh.pop()), _PREPARE_LIMIT * theirs)
    if own:
        raise ConformanceFailure(
            f"prepare() takes {1e3 * own:.1f} ms for {tokens} tokens, mlm's {1e3 * theirs:.1f} ms",
            "compute with whole NumPy arrays instead of a loop over tokens; rng draws arrays",
        )


@check("head", after=("encode_fits_the_encoder",))
def encode_is_fast(case: HeadCase) -> None:
    """``encode`` takes at most 50 times as long for a token as that of ``single_sentence``."""
    tokenizer = case.language.tokenizer
    stack = case.stack()
    simple = SingleSentence()
    simple.build(TaskContext(stack.encoder, tokenizer, labels=Labels(("0", "1", "2"), (1, 1, 1))))
    texts = sample_rows(simple.columns, case.language, _ROWS)
    rows = list(islice(cycle(case.rows), _ROWS))
    head = stack.head
    limit = (  # seconds for a token
        _ENCODE_LIMIT * _best(lambda: _encode(simple, texts, case)) / _encode(simple, texts, case)
    )
    tokens = _encode(head, rows, case)
    own = _takes_longer(lambda: _encode(head, rows, case), limit * tokens)
    if own:
        raise ConformanceFailure(
            f"encode() takes {1e6 * own / tokens:.0f} µs a token, single_sentence's "
            f"{1e6 * limit / _ENCODE_LIMIT:.0f} µs",
            "tokenize a text once, and compute with NumPy arrays",
        )


@check(*TASK_KINDS, after=("loss_is_a_finite_scalar",))
def loss_has_no_loop(case: TaskCase) -> None:
    """``loss`` makes hardly more calls to torch for a large batch than for a small one."""
    stack = case.stack()
    units = list(case.units)
    small, large = (
        stack.rewritten(case.batch(stack, list(islice(cycle(units), len(units) * times))))
        for times in (1, _LARGER)
    )
    outputs = stack.output(small), stack.output(large)
    # calls and not seconds: the same on every machine, however busy it is
    few = _operations(lambda: stack.task.loss(outputs[0], small))
    many = _operations(lambda: stack.task.loss(outputs[1], large))
    _refuse_loop("loss()", few, many, len(large) - len(small))


@check("encoder", after=("shapes_are_right",))
def forward_has_no_loop(case: EncoderCase) -> None:
    """``forward`` makes hardly more calls to torch for a large batch than for a small one."""
    encoder = case.encoder()
    lengths = [9, 1, 16, 5]
    small, large = case.batch(lengths), case.batch(lengths * _LARGER)
    few = _operations(lambda: encoder(small))
    many = _operations(lambda: encoder(large))
    _refuse_loop("forward()", few, many, len(large) - len(small))


@check("encoder", after=("shapes_are_right",))
def forward_is_fast(case: EncoderCase) -> None:
    """``forward`` takes at most 50 times as long as a Transformer of its width and layers."""
    encoder = case.encoder()
    peer = BertEncoder(
        encoder.vocab_size,
        num_hidden_layers=max(1, encoder.num_hidden_layers),
        hidden_size=encoder.hidden_size,
        num_attention_heads=1,
    ).eval()
    batch = case.batch([24] * 64)
    with torch.no_grad():
        theirs = _best(lambda: peer(batch))
        own = _takes_longer(lambda: encoder(batch), _FORWARD_LIMIT * theirs)
    if own:
        raise ConformanceFailure(
            f"forward() takes {1e3 * own:.0f} ms for 64 sequences of 24 tokens, BERT of "
            f"{encoder.num_hidden_layers} layers of width {encoder.hidden_size} "
            f"{1e3 * theirs:.0f} ms",
            "compute with all tokens at once instead of a loop",
        )


def _refuse_loop(words: str, few: int, many: int, added: int) -> None:
    # 8 and 64 sequences: 50 + 4 * 56 calls more are fine, ten for each sequence are a loop
    if many - few > 50 + _CALLS_OF_A_SEQUENCE * added:
        raise ConformanceFailure(
            f"{words} makes {few} calls to torch for a batch, and {many} for one that is "
            f"{_LARGER} times as large",
            "compute with all tokens at once (index, index_add, scatter, batch.pad) instead of a "
            "loop; on a GPU each call costs the time of thousands of tokens",
        )


def _operations(run: Callable[[], object]) -> int:
    counter = _Counter()  # type: ignore[no-untyped-call]
    with counter:
        run()
    return int(counter.calls)


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    calls: int = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,  # noqa: ANN401  torch's signature
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        del types
        self.calls += 1
        return func(*args, **(kwargs or {}))


def _encode(head: Head, rows: list[Example], case: HeadCase) -> int:
    """Encode rows; return how many tokens they have."""
    made = [f for row in rows for f in head.encode(row, case.language.tokenizer, MAX_LENGTH)]
    return sum(len(features.input_ids) for features in made)


def _takes_longer(run: Callable[[], object], limit: float) -> float | None:
    """Return the CPU seconds of the fastest of some runs if all take longer than a limit."""
    fastest = math.inf
    for _ in range(_REPETITIONS):
        fastest = min(fastest, _seconds(run))
        if fastest <= limit:  # noise only ever adds
            return None
    return fastest


def _best(run: Callable[[], object]) -> float:
    """Return the CPU seconds of the fastest of some runs."""
    return min(_seconds(run) for _ in range(_REPETITIONS))


def _seconds(run: Callable[[], object]) -> float:
    start = time.process_time()  # what other processes take does not count
    run()
    return time.process_time() - start
