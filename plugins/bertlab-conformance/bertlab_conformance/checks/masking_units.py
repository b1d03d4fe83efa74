"""Checks of masking units: where units begin, and that nothing but their tokens decides it."""

from dataclasses import replace

import numpy as np

from bertlab import IntArray, MaskableTokens, TokenClasses, dynamic_draws
from bertlab.api import CounterRNG, PackedSequences
from bertlab_conformance.cases import Case
from bertlab_conformance.check import ConformanceFailure, check
from bertlab_conformance.samples import short_sequences

_LENGTHS = (1, 2, 3, 9, 30, 60)  # words of a text


def _sequences(case: Case, texts: tuple[int, ...] = _LENGTHS, first: int = 0) -> PackedSequences:
    """Return texts of as many words; ``first`` is the number of the first one."""
    ids = [case.ids(words, words) for words in texts]
    made = short_sequences(case.language, ids, pairs=False)
    return replace(made, indices=made.indices + first)


def _maskable(case: Case, sequences: PackedSequences) -> MaskableTokens:
    classes = TokenClasses.of(case.language.tokenizer)
    positions = np.flatnonzero(classes.countable(sequences))
    draws = dynamic_draws(sequences, CounterRNG(3, "conformance"))
    return MaskableTokens(sequences, positions, classes, draws)


def _starts(case: Case, tokens: MaskableTokens) -> IntArray:
    found: IntArray = np.asarray(case.plugin().starts(tokens))
    return found


@check("masking_unit", after=("is_made_without_arguments",))
def units_begin_in_order(case: Case) -> None:
    """``starts`` gives ascending indices into the maskable tokens, as whole numbers."""
    tokens = _maskable(case, _sequences(case))
    starts, count = _starts(case, tokens), len(tokens.positions)
    fits = starts.ndim == 1 and np.issubdtype(starts.dtype, np.integer)
    # caught: flat positions of the batch, which special tokens have, too
    if not fits or not (np.diff(starts, prepend=-1, append=count) > 0).all():
        raise ConformanceFailure(
            f"starts() of {count} maskable tokens gives {starts.dtype} {starts.tolist()!s:.80}",
            "return ascending indices into tokens.positions, each once: np.flatnonzero(begins)",
        )


@check("masking_unit", after=("units_begin_in_order",))
def units_cross_no_gap(case: Case) -> None:
    """A unit begins wherever a special token or another sequence is before the token."""
    tokens = _maskable(case, _sequences(case))
    left = np.setdiff1d(np.flatnonzero(tokens.run_starts), _starts(case, tokens))
    if left.size:
        raise ConformanceFailure(
            f"the unit of token {tokens.positions[left[0]]} begins before a special token",
            "let a unit begin at each of tokens.run_starts, too",
        )


@check("masking_unit", after=("units_cross_no_gap",))
def units_are_those_of_a_sequence(case: Case) -> None:
    """A sequence has the same units alone as in a batch, and when it is asked for again."""
    together = _maskable(case, _sequences(case))
    begins = np.zeros(len(together.positions), bool)
    begins[_starts(case, together)] = True
    alone = []
    for number, words in enumerate(_LENGTHS):
        tokens = _maskable(case, _sequences(case, (words,), number))
        mine = np.zeros(len(tokens.positions), bool)
        mine[_starts(case, tokens)] = True
        alone.append(mine)
    changed = begins != np.concatenate(alone)
    if changed.any():
        raise ConformanceFailure(
            f"{changed.sum()} of {len(begins)} tokens begin a unit in a batch of {len(_LENGTHS)} "
            "sequences and none alone, or the reverse",
            "draw by tokens.draws, and go by each sequence's own tokens: a run that resumes, or "
            "has other workers, asks for other batches",
        )


@check("masking_unit", after=("units_begin_in_order",))
def nothing_to_mask_is_no_error(case: Case) -> None:
    """Of sequences without a token that may be masked there is no unit."""
    sequences = _sequences(case)
    sequences.input_ids[:] = case.language.tokenizer.cls_id
    starts = _starts(case, _maskable(case, sequences))
    if starts.size:
        raise ConformanceFailure(
            f"{len(starts)} units begin among 0 tokens", "return an array of length 0"
        )


@check("masking_unit", after=("units_begin_in_order",))
def leaves_the_tokens_alone(case: Case) -> None:
    """``starts`` changes none of the tokens: what it is given is masked afterwards."""
    tokens = _maskable(case, _sequences(case))
    ids, positions = tokens.sequences.input_ids.copy(), tokens.positions.copy()
    _starts(case, tokens)
    same = np.array_equal(tokens.sequences.input_ids, ids)
    if not same or not np.array_equal(tokens.positions, positions):
        raise ConformanceFailure("starts() changes its input", "work on a copy")


@check("masking_unit", after=("is_complete",))
def one_fate_is_a_bool(case: Case) -> None:
    """``one_fate`` is True or False."""
    if not isinstance(case.plugin.one_fate, bool):
        raise ConformanceFailure(
            f"one_fate is {case.plugin.one_fate!r}", "write one_fate = True, or leave it out"
        )
