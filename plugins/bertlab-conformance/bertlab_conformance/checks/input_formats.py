"""Checks of input formats: what sequences consist of, and what decides it."""

import numpy as np

from bertlab import IntArray
from bertlab.api import PackedSequences
from bertlab.extend import SequenceSampler
from bertlab_conformance.cases import Case
from bertlab_conformance.check import ConformanceFailure, NotApplicable, check

_LENGTH, _SHORTER = 40, 20  # tokens of the longest sequences
_EPOCHS = 12
_GIVEN = np.array([1, 4, 5, 8, 9, 11])  # documents, of twelve
_READ = 0.8  # of the tokens, in some epoch


def _sampler(case: Case, documents: IntArray | None = None) -> SequenceSampler:
    return case.corpus.sampler(case.plugin, _LENGTH, 0.5, documents)


def _epoch(sampler: SequenceSampler, epoch: int) -> PackedSequences:
    numbers = np.arange(len(sampler))
    return sampler.sample(np.full_like(numbers, epoch), numbers)


def _parts(sequences: PackedSequences, number: int) -> list[list[int]]:
    """Return what is read of one sequence: its ids, segments and places in the corpus."""
    place = slice(*sequences.cu_seqlens[number : number + 2])
    arrays = (sequences.input_ids, sequences.token_type_ids, sequences.corpus_offsets)
    fields = [[int(each[number])] for _, each in sorted(sequences.fields.items())]
    return [each[place].tolist() for each in arrays] + fields


@check("input_format", after=("is_complete", "methods_take_what_they_are_given"))
def sequences_have_text_and_fit(case: Case) -> None:
    """Each sequence of an epoch has text, and at most ``max_seq_length`` tokens."""
    sampler = _sampler(case)
    if not len(sampler):
        raise ConformanceFailure("an epoch has no sequence", "return their number from __len__()")
    sequences = _epoch(sampler, 0)
    lengths = np.diff(sequences.cu_seqlens)
    begins = sequences.cu_seqlens[:-1]
    text = np.add.reduceat(sequences.corpus_offsets >= 0, begins)
    if lengths.max() > _LENGTH or not text.min():
        raise ConformanceFailure(
            f"of at most {_LENGTH} tokens, the longest has {lengths.max()}; the shortest has "
            f"{text.min()} of text",
            "leave room for [CLS] and a [SEP] behind each piece; a piece has a token or more",
        )


@check("input_format", after=("sequences_have_text_and_fit",))
def a_sequence_goes_by_its_number(case: Case) -> None:
    """Asked for alone, in another order, or of a new object, it is the same sequence."""
    sampler, other = _sampler(case), _sampler(case)
    whole = _epoch(sampler, 3)
    other.sample(np.array([1]), np.array([0]))
    for number in reversed(range(len(sampler))):
        asked = np.array([3]), np.array([number])
        alone = [_parts(each.sample(*asked), 0) for each in (sampler, other)]
        if alone != [_parts(whole, number)] * 2:
            raise ConformanceFailure(
                f"sequence {number} of {len(sampler)} is another when it is asked for alone",
                "draw by self.rng with epochs and units, and keep nothing between two calls",
            )


@check("input_format", after=("a_sequence_goes_by_its_number",))
def reads_the_given_documents_alone(case: Case) -> None:
    """Text is of the given documents: the others are held out, or those to train on."""
    sampler = _sampler(case, _GIVEN)
    ends = case.corpus.document_token_offsets
    for epoch in range(_EPOCHS):
        offsets = _epoch(sampler, epoch).corpus_offsets
        found = np.searchsorted(ends, offsets[offsets >= 0], side="right") - 1
        if (others := np.setdiff1d(found, _GIVEN)).size:
            raise ConformanceFailure(
                f"of documents {_GIVEN.tolist()} it reads document {others[0]}",
                "map units to the numbers that _index() is given: documents[unit]",
            )


@check("input_format", after=("reads_the_given_documents_alone",))
def reads_the_documents_whole(case: Case) -> None:
    """Over a few epochs, most tokens of the documents are read."""
    sampler, tokens = _sampler(case), case.corpus.tokens
    seen = np.zeros(len(tokens), bool)
    for epoch in range(_EPOCHS):
        offsets = _epoch(sampler, epoch).corpus_offsets
        seen[offsets[offsets >= 0]] = True
    if seen.mean() < _READ:
        raise ConformanceFailure(
            f"{_EPOCHS} epochs read {seen.mean():.0%} of the text",
            "count units up to the end of each document in _index()",
        )


@check("input_format", after=("sequences_have_text_and_fit",))
def has_pairs_is_true(case: Case) -> None:
    """``has_pairs`` says whether there are segments A and B, and ``next_sentence_label``."""
    sequences = _epoch(_sampler(case), 0)
    count = len(sequences.cu_seqlens) - 1
    labels = sequences.fields.get("next_sentence_label")
    second = np.add.reduceat(sequences.token_type_ids == 1, sequences.cu_seqlens[:-1])
    labelled = labels is not None and labels.shape == (count,) and set(labels.tolist()) <= {0, 1}
    found = f"{(second > 0).sum()} of {count} sequences have a B"
    if case.plugin.has_pairs and not (labelled and second.all()):
        raise ConformanceFailure(
            f"has_pairs is True; {found}, and next_sentence_label is {labels!r:.60}",
            "return pair_pieces(…) and pair_labels(…), or set has_pairs = False",
        )
    if not case.plugin.has_pairs and (labels is not None or second.any()):
        raise ConformanceFailure(
            f"has_pairs is False; {found}" + ", and a label" * (labels is not None),
            "set has_pairs = True, so that nsp can be trained",
        )


@check("input_format", after=("a_sequence_goes_by_its_number",))
def parts_are_the_whole(case: Case) -> None:
    """With ``has_parts``, shorter sequences have all text of the long ones, each token once."""
    if not case.plugin.has_parts or case.plugin.has_pairs:
        raise NotApplicable("its sequences are not divided, or a random B is among them")
    sampler = _sampler(case)
    numbers = np.arange(len(sampler))
    epochs = np.zeros_like(numbers)
    whole, parts = sampler.sample(epochs, numbers), sampler.sample(epochs, numbers, _SHORTER)
    there, found = (
        np.sort(each.corpus_offsets[each.corpus_offsets >= 0]) for each in (whole, parts)
    )
    longest = np.diff(parts.cu_seqlens).max()
    if longest > _SHORTER or not np.array_equal(there, found):
        raise ConformanceFailure(
            f"sequences of at most {_SHORTER} tokens have up to {longest}, and "
            f"{len(found)} tokens of text in place of {len(there)}",
            "divide what is longer than max_length, and name unit and part of each in Pieces; or "
            "set has_parts = False",
        )
