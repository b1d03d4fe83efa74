import pickle
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bertlab.api.rng import CounterRNG
from bertlab.data.pretraining import split_documents
from bertlab.data.run_length import mean_sequence_length
from bertlab.data.sampler import TextPlaces, load_sampler
from bertlab.errors import ConfigError, CorpusError, UnknownPluginError

CLS, SEP, VOCAB = 2, 3, 1000
FORMATS = ["segment_pairs", "sentence_pairs", "full_sentences", "doc_sentences"]
PAIRS = ["segment_pairs", "sentence_pairs"]
ALPHA = 1e-4


@dataclass
class Store:
    tokens: np.ndarray
    sentence_offsets: np.ndarray
    document_offsets: np.ndarray
    document_token_offsets: np.ndarray


@dataclass
class Tokenizer:
    cls_id: int
    sep_id: int
    continuation_mask: np.ndarray
    closing_mask: np.ndarray | None = None


TOKENIZER = Tokenizer(CLS, SEP, np.arange(VOCAB) >= 700)


def make_store(documents):
    """Build a store of random tokens from lists of sentence lengths."""
    sentences = np.concatenate([np.asarray(d, dtype=np.int64) for d in documents])
    sentence_offsets = np.concatenate([[0], np.cumsum(sentences)])
    document_offsets = np.concatenate([[0], np.cumsum([len(d) for d in documents])])
    tokens = np.random.default_rng(0).integers(10, VOCAB, sentence_offsets[-1]).astype(np.uint16)
    return Store(tokens, sentence_offsets, document_offsets, sentence_offsets[document_offsets])


def realistic_store(documents=400, seed=0):
    """Build documents of log-normal size with sentences of 3 to 49 tokens."""
    rng = np.random.default_rng(seed)
    sizes = np.maximum(2, rng.lognormal(2.8, 1, documents)).astype(int)
    return make_store([rng.integers(3, 50, size) for size in sizes])


def sampler_of(
    input_format,
    store,
    *,
    size=128,
    short=0.1,
    seed=1,
    documents=None,
    random_pair_share=0.5,
    in_parts=False,
):
    documents = np.arange(len(store.document_offsets) - 1) if documents is None else documents
    rng = CounterRNG(seed, "sampler")
    made = load_sampler(input_format, in_parts)
    return made(store, TOKENIZER, documents, size, short, rng, random_pair_share)


def whole_epoch(sampler, epoch=0):
    indices = np.arange(len(sampler))
    return sampler.sample(np.full_like(indices, epoch), indices)


def pieces_of(packed):
    """Return for each sequence the corpus offsets of its pieces, an array each."""
    result = []
    for begin, end in zip(packed.cu_seqlens[:-1], packed.cu_seqlens[1:], strict=True):
        offsets = packed.corpus_offsets[begin:end]
        special = np.flatnonzero(offsets < 0)
        result.append([offsets[a + 1 : b] for a, b in pairwise(special)])
    return result


def document_of(store, offset):
    return np.searchsorted(store.document_token_offsets, offset, side="right") - 1


def is_sentence_start(store, offset):
    return np.isin(offset, store.sentence_offsets)


@st.composite
def stores(draw):
    """Draw stores of documents of 1 to 5000 tokens with sentences of 1 to 600."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    documents = []
    for size in draw(st.lists(st.integers(1, 5000) | st.integers(1, 60), min_size=2, max_size=8)):
        longest = draw(st.sampled_from([1, 3, 30, 600]))
        cuts = np.cumsum(rng.integers(1, longest + 1, size))
        documents.append(np.diff(np.concatenate([[0], cuts[cuts < size], [size]])))
    return make_store(documents)


@st.composite
def samplers(draw):
    store = draw(stores())
    size = draw(st.sampled_from([8, 9, 16, 33, 128, 512]))
    short = draw(st.sampled_from([0.0, 0.1, 1.0]))
    seed = draw(st.integers(0, 2**40))
    try:
        return sampler_of(draw(st.sampled_from(FORMATS)), store, size=size, short=short, seed=seed)
    except CorpusError:
        return sampler_of("full_sentences", make_store([[9, 1], [4]]), size=size, seed=seed)


def check_layout(sampler, packed):
    store, starts = sampler.store, packed.cu_seqlens[:-1]
    text = packed.corpus_offsets >= 0
    lengths = packed.lengths
    assert packed.cu_seqlens[0] == 0
    assert packed.cu_seqlens[-1] == len(packed.input_ids)
    assert lengths.max() <= sampler.max_seq_length
    assert lengths.min() >= (5 if sampler.has_pairs else 3)
    assert np.array_equal(packed.input_ids[text], store.tokens[packed.corpus_offsets[text]])
    assert (packed.input_ids[starts] == CLS).all()
    assert not text[starts].any()
    assert (packed.input_ids[packed.cu_seqlens[1:] - 1] == SEP).all()
    assert np.isin(packed.input_ids[~text], [CLS, SEP]).all()
    assert (packed.input_ids == CLS).sum() == len(starts)
    expected = np.concatenate([np.arange(length) for length in lengths])
    assert np.array_equal(packed.position_ids, expected)
    for name in ("input_ids", "token_type_ids", "position_ids", "cu_seqlens", "corpus_offsets"):
        assert getattr(packed, name).dtype == np.int64
    assert ("next_sentence_label" in packed.fields) == sampler.has_pairs


def check_pieces(sampler, packed):
    store = sampler.store
    labels = packed.fields.get("next_sentence_label")
    for row, pieces in enumerate(pieces_of(packed)):
        documents = []
        for piece in pieces:
            assert len(piece) > 0
            assert (np.diff(piece) == 1).all()
            assert document_of(store, piece[0]) == document_of(store, piece[-1])
            documents.append(document_of(store, piece[0]))
        types = packed.token_type_ids[packed.cu_seqlens[row] : packed.cu_seqlens[row + 1]]
        if labels is not None:
            a, b = pieces
            assert np.array_equal(types, np.repeat([0, 1], [len(a) + 2, len(b) + 1]))
            assert (documents[0] != documents[1]) == labels[row]
            if labels[row] == 0 and len(a) + len(b) < sampler.max_seq_length - 3:
                assert b[0] == a[-1] + 1
        else:
            assert not types.any()
            for left, right in pairwise(pieces):
                assert left[-1] + 1 == right[0]
                assert right[0] in store.document_token_offsets


@pytest.mark.slow
@given(samplers(), st.data())
@settings(max_examples=80, deadline=None)
def test_layout_and_batch_independence(sampler, data):
    numbers = st.lists(st.integers(0, len(sampler) - 1), min_size=1, max_size=12)
    indices = np.array(data.draw(numbers))
    epochs = np.array([data.draw(st.integers(0, 3)) for _ in indices])
    packed = sampler.sample(epochs, indices)
    check_layout(sampler, packed)
    check_pieces(sampler, packed)
    singles = [sampler.sample(epochs[i : i + 1], indices[i : i + 1]) for i in range(len(indices))]
    for name in ("input_ids", "token_type_ids", "position_ids", "corpus_offsets", "indices"):
        expected = np.concatenate([getattr(single, name) for single in singles])
        assert np.array_equal(getattr(packed, name), expected)
    assert np.array_equal(packed.lengths, [single.lengths[0] for single in singles])
    for name, values in packed.fields.items():
        assert np.array_equal(values, np.concatenate([s.fields[name] for s in singles]))


@pytest.mark.first_fast
@pytest.mark.parametrize("input_format", FORMATS)
def test_whole_epoch_keeps_every_invariant(input_format):
    sampler = sampler_of(input_format, realistic_store())
    packed = whole_epoch(sampler)
    check_layout(sampler, packed)
    check_pieces(sampler, packed)


@pytest.mark.parametrize("input_format", FORMATS)
def test_deterministic_and_different_by_epoch_and_seed(input_format):
    store = realistic_store(60)
    sampler = sampler_of(input_format, store)
    first = whole_epoch(sampler)
    again = whole_epoch(pickle.loads(pickle.dumps(sampler)))
    assert np.array_equal(first.input_ids, again.input_ids)
    for other in (whole_epoch(sampler, 1), whole_epoch(sampler_of(input_format, store, seed=2))):
        starts, others = (p.corpus_offsets[p.cu_seqlens[:-1] + 1] for p in (first, other))
        assert (starts == others).mean() < 0.1


@pytest.mark.parametrize("input_format", ["doc_sentences", "full_sentences"])
@pytest.mark.parametrize("epoch", [0, 5])
def test_an_epoch_visits_every_chunk_once(input_format, epoch):
    """Sentences of one token make every snap exact, so chunks tile each document evenly."""
    store = make_store([[1] * size for size in (1000, 8, 126, 5, 127, 5000)])
    sampler = sampler_of(input_format, store, short=0.0)
    usable = sum(-(-size // 126) for size in (1000, 8, 126, 127, 5000))
    stream = -(-(1000 + 8 + 126 + 5 + 127 + 5000 + 5) // 126)
    assert len(sampler) == (usable if input_format == "doc_sentences" else stream)
    offsets = whole_epoch(sampler, epoch).corpus_offsets
    counts = np.bincount(offsets[offsets >= 0], minlength=len(store.tokens))
    assert counts.max() <= 2
    inner = counts[-4500:-500]  # inside the longest document
    assert (inner == 1).all()


@pytest.mark.parametrize("input_format", ["segment_pairs", "doc_sentences", "full_sentences"])
def test_each_token_is_covered_about_once_an_epoch_and_surely_over_epochs(input_format):
    rng = np.random.default_rng(3)
    room = 125 if input_format == "segment_pairs" else 126
    # exact multiples of the chunk length have no slack of their own to shift by
    sizes = [room * 2, room * 3, room * 8, 1000, 4000, room, room + 1]
    documents = []
    for size in sizes:
        cuts = np.cumsum(rng.integers(3, 80, size))
        documents.append(np.diff(np.concatenate([[0], cuts[cuts < size], [size]])))
    store = make_store(documents)
    sampler = sampler_of(input_format, store, short=0.0)
    counts = np.zeros((60, len(store.tokens)), dtype=int)
    for epoch in range(60):
        offsets = whole_epoch(sampler, epoch).corpus_offsets
        counts[epoch] = np.bincount(offsets[offsets >= 0], minlength=len(store.tokens))
    assert (counts.sum(axis=0) > 0).all()
    assert 0.9 < counts.mean() < 1.15
    if input_format != "segment_pairs":  # whose random B replaces half of the true ones
        assert (counts > 0).mean() > 0.88


def test_sentence_pairs_read_every_sentence_over_epochs():
    sizes = [2, 3, 10, 11]
    store = make_store([[4] * size for size in sizes] + [[30]])
    sampler = sampler_of("sentence_pairs", store)
    assert len(sampler) == 1 + 1 + 5 + 5
    assert sampler.documents_too_short == 1
    seen = np.zeros(sum(sizes) + 1, dtype=int)
    for epoch in range(20):
        for a, b in pieces_of(whole_epoch(sampler, epoch)):
            assert len(a) == len(b) == 4
            assert a[0] % 4 == b[0] % 4 == 0
            seen[a[0] // 4] += 1
            seen[b[0] // 4] += 1
    assert (seen[: sum(sizes)] > 0).all()
    assert seen[sum(sizes) :] == 0


@pytest.mark.parametrize(("a", "b"), [(5, 90), (90, 5), (60, 60), (90, 80), (3, 4), (31, 200)])
@pytest.mark.parametrize("size", [64, 65])
def test_sentence_pairs_are_truncated_longest_first(a, b, size):
    store = make_store([[a, b], [a, b]])
    lengths = [a, b]
    while sum(lengths) > size - 3:  # Google's loop, at the end only
        lengths[0 if lengths[0] > lengths[1] else 1] -= 1
    for pieces in pieces_of(whole_epoch(sampler_of("sentence_pairs", store, size=size))):
        assert [len(piece) for piece in pieces] == lengths
        assert all(is_sentence_start(store, piece[0]) for piece in pieces)


@pytest.mark.parametrize("input_format", PAIRS)
def test_half_of_the_pairs_are_random_in_every_epoch(input_format):
    sampler = sampler_of(input_format, realistic_store())
    labels = np.stack([whole_epoch(sampler, e).fields["next_sentence_label"] for e in range(4)])
    assert stats.binomtest(int(labels.sum()), labels.size, 0.5).pvalue > ALPHA
    assert abs(np.corrcoef(labels)[np.triu_indices(4, 1)]).max() * np.sqrt(labels.shape[1]) < 4


@pytest.mark.parametrize("input_format", ["segment_pairs", "sentence_pairs"])
def test_the_share_of_random_pairs_is_what_is_asked_for(input_format):
    store = realistic_store()
    labels = {}
    for share in (0, 0.2, 0.5, 1):
        packed = whole_epoch(sampler_of(input_format, store, random_pair_share=share))
        labels[share] = packed.fields["next_sentence_label"]
        assert labels[share].mean() == pytest.approx(share, abs=0 if share in (0, 1) else 0.02)
    assert (labels[0.2] <= labels[0.5]).all()  # the same draws: more of the same pairs
    with pytest.raises(ConfigError, match=r"random_pair_share: found 1.5, expected between"):
        sampler_of(input_format, store, random_pair_share=1.5)


@pytest.mark.first_fast
@pytest.mark.parametrize("input_format", PAIRS)
def test_random_b_comes_from_all_units_of_other_documents_alike(input_format):
    sizes = np.array([400, 100, 800, 1500])  # sentences of 5 tokens; 20 make a chunk of 100
    store = make_store([[5] * size for size in sizes])
    sampler = sampler_of(input_format, store, size=103)
    table = np.zeros((4, 4))
    for epoch in range(20):
        packed = whole_epoch(sampler, epoch)
        labels = packed.fields["next_sentence_label"]
        for (a, b), label in zip(pieces_of(packed), labels, strict=True):
            if label:
                table[document_of(store, a[0]), document_of(store, b[0])] += 1
    assert not table.diagonal().any()
    for row in range(4):
        others = np.arange(4) != row
        expected = sizes[others] / sizes[others].sum() * table[row].sum()
        assert stats.chisquare(table[row][others], expected).pvalue > ALPHA


@pytest.mark.parametrize("input_format", ["doc_sentences", "full_sentences", "segment_pairs"])
def test_a_tenth_of_the_sequences_has_a_short_target(input_format):
    store = make_store([[1] * 100_000] * 3)
    packed = whole_epoch(sampler_of(input_format, store, size=64))
    specials = 3 if input_format == "segment_pairs" else 2
    text = packed.lengths - (packed.corpus_offsets < 0).sum() // len(packed.lengths)
    room = 64 - specials
    short = text[text < room]
    share = 0.1 * (1 - 1 / (room - 1))  # a drawn target may be the full length
    assert stats.binomtest(len(short), len(text), share).pvalue > ALPHA
    counts = np.bincount(short, minlength=room)[2:]
    assert stats.chisquare(counts).pvalue > ALPHA


@pytest.mark.parametrize("input_format", ["doc_sentences", "full_sentences", "segment_pairs"])
def test_sequences_start_at_sentences_or_words(input_format):
    store = realistic_store()
    first = [pieces[0][0] for pieces in pieces_of(whole_epoch(sampler_of(input_format, store)))]
    assert is_sentence_start(store, first).mean() > 0.98
    store = make_store([[5000], [5000]])
    pieces = pieces_of(whole_epoch(sampler_of(input_format, store)))
    starts = np.array([piece[0] for sequence in pieces for piece in sequence])
    begins_word = (store.tokens[starts] < 700) | (starts % 5000 == 0)
    assert begins_word.mean() > 0.98


def test_a_place_moves_to_the_nearest_sentence_within_reach_else_to_the_next_word():
    store, end, reach = make_store([[7, 5, 30, 2, 4], [12]]), 48, 4
    continues = np.arange(VOCAB) % 3 > 0
    expected = []
    for place in range(end):
        starts = [start for start in store.sentence_offsets if start < end]
        nearest = min(starts, key=lambda start: (abs(start - place), start))
        words = range(place, min(place + reach + 1, end))
        word = next((each for each in words if not continues[store.tokens[each]]), place)
        expected.append(nearest if abs(nearest - place) <= reach else word)
    found = TextPlaces(store, continues, reach).sentence_start(np.arange(end), np.full(end, end))
    assert found.tolist() == expected


def test_chunks_without_word_or_sentence_starts_are_still_split():
    store = make_store([[5000], [5000]])
    store.tokens[:] = 900  # one word of continuation pieces
    packed = whole_epoch(sampler_of("segment_pairs", store))
    assert min(len(piece) for pieces in pieces_of(packed) for piece in pieces) >= 1
    assert packed.lengths.max() == 128


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("size", "most_distance", "most_accuracy"), [(128, 0.03, 0.53), (512, 0.06, 0.55)]
)
def test_lengths_and_starts_do_not_give_the_label_away(size, most_distance, most_accuracy):
    """At 512 most documents are shorter than a sequence: a true pair ends with its document then.

    Ending the random B with its chunk, or at the true B's length, gives 0.59 to 0.69 instead.
    """
    store = realistic_store(3000)
    sampler = sampler_of("segment_pairs", store, size=size)
    rows = []
    for epoch in range(80_000 // len(sampler) + 1):
        packed = whole_epoch(sampler, epoch)
        ends = packed.cu_seqlens[1:] - 1
        b_lengths = np.add.reduceat(packed.token_type_ids, packed.cu_seqlens[:-1]) - 1
        b_starts = packed.corpus_offsets[ends - b_lengths]
        sentence = is_sentence_start(store, b_starts)
        label = packed.fields["next_sentence_label"]
        rows.append(np.stack([packed.lengths - 3 - b_lengths, b_lengths, sentence, label]))
    a, b, sentence, label = np.concatenate(rows, axis=1)
    assert abs(sentence[label == 0].mean() - sentence[label == 1].mean()) < 0.01
    assert stats.ks_2samp(b[label == 0], b[label == 1]).statistic < most_distance
    full = a + b == size - 3
    step = size // 32
    cell = (a // step * 64 + b // step) * 2 + full
    votes = np.bincount(cell[::2], 2 * label[::2] - 1)  # majority label of each cell
    guess = np.append(votes, np.zeros(cell.max() + 1 - len(votes)))[cell[1::2]] > 0
    assert (guess == label[1::2]).mean() < most_accuracy


def test_short_and_excluded_documents_are_not_read():
    store = make_store([[7], [4, 4], [300], [100, 100], [2, 2], [50] * 4])
    documents = np.array([0, 1, 3, 4, 5])
    for input_format, left_out in zip(FORMATS, [2, 1, 0, 2], strict=True):
        sampler = sampler_of(input_format, store, documents=documents)
        assert sampler.documents_too_short == left_out
        used = {
            int(document_of(store, piece[0]))
            for epoch in range(9)
            for pieces in pieces_of(whole_epoch(sampler, epoch))
            for piece in pieces
        }
        allowed = {0: {1, 3, 5}, 1: {1, 3, 4, 5}, 2: {0, 1, 3, 4, 5}, 3: {1, 3, 5}}
        assert used == allowed[FORMATS.index(input_format)]


def test_empty_documents_are_skipped():
    store = make_store([[20, 20], [], [30, 9], []])
    for input_format in FORMATS:
        sampler = sampler_of(input_format, store, size=32)
        check_pieces(sampler, whole_epoch(sampler))


def test_mean_sequence_length():
    sampler = sampler_of("doc_sentences", make_store([[1] * 64, [1] * 32]), size=66, short=0.0)
    assert mean_sequence_length(sampler) == (66 + 34) / 2
    assert mean_sequence_length(sampler, sample_size=1) in (66, 34)


def test_index_outside_the_epoch_is_refused():
    sampler = sampler_of("doc_sentences", realistic_store(5))
    for index in (-1, len(sampler)):
        with pytest.raises(IndexError, match="outside"):
            sampler.sample(np.array([0]), np.array([index]))


@pytest.mark.parametrize(
    ("input_format", "documents"),
    [
        ("segment_pairs", [[50, 50]]),
        ("segment_pairs", [[50, 50], [7]]),
        ("sentence_pairs", [[50, 50], [80]]),
        ("full_sentences", [[3], [2]]),
        ("doc_sentences", [[7], [6]]),
    ],
)
def test_unfit_corpora_are_refused(input_format, documents):
    with pytest.raises(CorpusError, match=f"{input_format} needs .*found"):
        sampler_of(input_format, make_store(documents))


def test_wrong_settings_are_refused():
    store = realistic_store(5)
    with pytest.raises(ConfigError, match=r"max_seq_length: found 7, expected 8 or more: room"):
        sampler_of("segment_pairs", store, size=7)
    with pytest.raises(
        ConfigError, match=r"short_sequence_probability: found 1.5, expected between 0 and 1"
    ):
        sampler_of("segment_pairs", store, short=1.5)
    with pytest.raises(UnknownPluginError, match=r"did you mean 'full_sentences'"):
        sampler_of("full_sentence", store)


@pytest.mark.slow
@given(
    st.lists(st.integers(0, 5000) | st.just(200_000), min_size=4, max_size=300),
    st.floats(0.001, 0.999),
    st.integers(0, 9),
)
@settings(deadline=None)
def test_split_documents_partitions(lengths, fraction, seed):
    lengths = np.array(lengths)
    filled = np.flatnonzero(lengths)
    if len(filled) < 4:
        with pytest.raises(CorpusError, match="at least 4"):
            split_documents(lengths, fraction, CounterRNG(seed, "split"))
        return
    train, validation = split_documents(lengths, fraction, CounterRNG(seed, "split"))
    assert min(len(train), len(validation)) >= 2
    assert np.array_equal(np.sort(np.concatenate([train, validation])), filled)
    assert np.array_equal(train, np.sort(train))
    again = split_documents(lengths, fraction, CounterRNG(seed, "split"))
    assert np.array_equal(again[1], validation)


@pytest.mark.parametrize("fraction", [0.01, 0.05, 0.5, 0.9])
def test_split_share_is_close_and_random(fraction):
    lengths = np.random.default_rng(0).lognormal(6, 1.5, 5000).astype(int)
    train, validation = split_documents(lengths, fraction, CounterRNG(0, "split"))
    assert abs(lengths[validation].sum() / lengths.sum() - fraction) < 0.005
    other = split_documents(lengths, fraction, CounterRNG(1, "split"))[1]
    assert len(np.intersect1d(validation, other)) / len(validation) < fraction + 0.05
    # held-out documents are like the others, not the shortest ones
    assert stats.ks_2samp(lengths[train], lengths[validation]).statistic < 0.15


def test_split_refuses_fractions_outside_0_and_1():
    for fraction in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(ConfigError, match="between 0 and 1"):
            split_documents(np.full(10, 100), fraction, CounterRNG(0, "split"))
