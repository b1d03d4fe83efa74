"""Sequences that are read in parts, as shorter ones."""

from functools import partial

import numpy as np
import pytest

from bertlab.data.run_length import StepSettings
from bertlab_modern.parts import AmountsInParts, Parts
from tests.data.sampling import test_sampler
from tests.data.sampling.test_sampler import check_pieces, make_store, realistic_store, whole_epoch

sampler_of = partial(test_sampler.sampler_of, in_parts=True)
FORMATS = ["segment_pairs", "full_sentences", "doc_sentences"]
STORES = {
    "realistic": realistic_store(60),
    "odd": make_store([[400], [300, 2, 1], [9] * 30, [1] * 20, [8], [1, 1, 6]] * 3),
}


def in_parts(sampler, length, indices=None):
    indices = np.arange(len(sampler)) if indices is None else np.asarray(indices)
    return sampler.sample(np.zeros_like(indices), indices, length)


def text_of(packed):
    return np.sort(packed.corpus_offsets[packed.corpus_offsets >= 0])


@pytest.mark.first_slow
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("input_format", FORMATS)
@pytest.mark.parametrize("length", [8, 13, 50, 127])
def test_parts_are_no_longer_and_read_the_same_text(input_format, length, store):
    sampler = sampler_of(input_format, STORES[store], random_pair_share=0)
    whole, packed = whole_epoch(sampler), in_parts(sampler, length)
    check_pieces(sampler, packed)
    assert packed.lengths.max() <= length
    assert packed.lengths.min() >= 4  # two tokens of text
    assert len(np.unique(packed.indices)) == len(packed.indices)
    assert np.array_equal(np.unique(packed.indices % len(sampler)), np.arange(len(sampler)))
    if input_format == "segment_pairs":
        check_pieces(sampler, in_parts(sampler_of(input_format, STORES[store]), length))
    assert np.array_equal(text_of(packed), text_of(whole))


@pytest.mark.parametrize("input_format", FORMATS)
def test_parts_do_not_depend_on_the_batch(input_format):
    sampler = sampler_of(input_format, STORES["realistic"])
    packed = in_parts(sampler, 20)
    for index in (0, 7, len(sampler) - 1):
        alone = in_parts(sampler, 20, [index])
        tokens = np.repeat(packed.indices % len(sampler) == index, packed.lengths)
        assert np.array_equal(alone.input_ids, packed.input_ids[tokens])
        assert np.array_equal(alone.indices, packed.indices[packed.indices % len(sampler) == index])


@pytest.mark.parametrize("input_format", FORMATS)
def test_full_length_is_one_part(input_format):
    sampler = sampler_of(input_format, STORES["realistic"])
    whole = whole_epoch(test_sampler.sampler_of(input_format, STORES["realistic"]))
    for length in (None, 128, 500):
        assert np.array_equal(in_parts(sampler, length).input_ids, whole.input_ids)


def test_parts_of_a_pair_have_labels_of_their_own():
    labels = in_parts(sampler_of("segment_pairs", STORES["realistic"]), 32).fields
    assert labels["next_sentence_label"].mean() == pytest.approx(0.5, abs=0.05)


def test_parts_begin_with_sentences_where_one_is_near():
    store = make_store([[4] * 200] * 3)
    packed = in_parts(sampler_of("doc_sentences", store, short=0), 66)  # reach 8: two sentences
    starts = packed.corpus_offsets[packed.cu_seqlens[:-1] + 1]
    assert np.isin(starts, store.sentence_offsets).all()


def test_spans_are_cut_where_parts_may_begin():
    parts = Parts.cut(
        np.array([0, 100, 200]),
        np.array([20, 108, 209]),
        8,
        lambda places, spans, reach: places + reach * (spans == 0),
    )
    assert parts.spans.tolist() == [0, 0, 0, 1, 2, 2]
    assert parts.numbers.tolist() == [0, 1, 2, 0, 0, 1]
    assert parts.starts.tolist() == [0, 8, 16, 100, 200, 207]
    assert parts.ends.tolist() == [8, 16, 20, 108, 207, 209]


def test_amounts_are_those_of_the_run():
    sampler = sampler_of("segment_pairs", STORES["realistic"])
    settings = StepSettings.read(
        {"max_seq_length": {"from": 16, "to": 128}, "batch_size": {"from": 8, "to": 40}}
    )
    amounts = AmountsInParts(sampler, settings)
    steps, ids, text, sequences = 100, 0, 0, 0
    for step in range(steps):
        chosen = np.arange(8 * step, 8 * step + round(8 + 32 * step / steps)) % len(sampler)
        packed = in_parts(sampler, round(16 + 112 * step / steps), chosen)
        ids, text = ids + len(packed.input_ids), text + len(text_of(packed))
        sequences += len(packed.lengths)
    a_sequence, a_step = amounts.tokens(steps)
    assert a_step == pytest.approx(ids / steps, rel=0.02)
    assert a_sequence == pytest.approx(ids / sequences, rel=0.05)
    assert amounts.text(steps) == pytest.approx(text / steps, rel=0.02)
