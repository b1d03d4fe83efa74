"""Which tokens are masked: exact shares, whole units, and keys that ignore batch composition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bertlab.errors import BertlabError, ConfigError
from bertlab.objectives.masked_lm import MaskedLM
from bertlab.objectives.masking import (
    MaskableTokens,
    MaskingRecipe,
    TokenClasses,
    dynamic_draws,
    mask_tokens,
    masking_unit,
)
from tests.objectives.samples import (
    FIRST_CONTINUATION,
    FIRST_WORD,
    MASK,
    RNG,
    UNK,
    VOCAB,
    ToyTokenizer,
    built,
    many,
    packed,
    pair,
    with_epoch,
)

UNITS = ["token", "whole_word", "span"]
CLASSES = TokenClasses.of(ToyTokenizer())
MILLION = 8192  # sequences of 128: 1,048,576 tokens


@pytest.fixture(scope="module")
def million():
    return many(MILLION)


def unit_starts(sequences, tokens, unit, draws):
    return masking_unit(unit).starts(MaskableTokens(sequences, tokens, CLASSES, draws))


def apply(sequences, unit="token", **recipe):
    """Mask a copy; return it with positions and labels."""
    copy = with_epoch(sequences, int(sequences.epochs[0]))
    draws = dynamic_draws(copy, RNG)
    positions, labels = mask_tokens(copy, MaskingRecipe(unit=unit, **recipe), CLASSES, draws)
    return copy, positions, labels


def naive_words(sequences):
    """Lists of flat positions, one a word, by the plainest loop."""
    words, open_word = [], False
    sequence_of = sequences.sequence_of_token
    for t, token in enumerate(sequences.input_ids):
        if token < FIRST_WORD or sequences.corpus_offsets[t] < 0:
            open_word = False
            continue
        if t and sequence_of[t] != sequence_of[t - 1]:
            open_word = False
        if open_word and token >= FIRST_CONTINUATION:
            words[-1].append(t)
        else:
            words.append([t])
        open_word = True
    return words


def naive_spans(sequences):
    """The spans that masking cuts the batch into, as lists of flat positions."""
    tokens = np.flatnonzero(CLASSES.countable(sequences))
    starts = unit_starts(sequences, tokens, "span", dynamic_draws(sequences, RNG))
    return np.split(tokens, starts[1:])


@pytest.mark.nightly
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_realised_share_is_the_rate(million, unit, rate):
    _, positions, _ = apply(million, unit, rate=rate)
    sequence = million.sequence_of_token
    maskable = np.bincount(sequence[CLASSES.countable(million)], minlength=MILLION)
    selected = np.bincount(sequence[positions], minlength=MILLION)
    assert stats.ttest_1samp(selected - rate * maskable, 0).pvalue > 0.001
    assert selected.sum() / maskable.sum() == pytest.approx(rate, abs=0.001)
    if unit == "token":  # the budget itself: rounded down or up, up as often as it should be
        up = selected - np.floor(rate * maskable)
        assert set(np.unique(up)) <= {0, 1}
        share = rate * maskable % 1
        score = (up - share).sum() / np.sqrt((share * (1 - share)).sum())
        assert abs(score) < 3.3


@pytest.mark.nightly
def test_every_position_is_as_likely_as_another(million):
    _, positions, _ = apply(million)
    countable = million.position_ids[CLASSES.countable(million)]
    maskable = np.bincount(countable, minlength=128)
    observed = np.bincount(million.position_ids[positions], minlength=128)
    places = maskable > 0
    expected = maskable[places] * observed.sum() / maskable.sum()
    assert stats.chisquare(observed[places], expected).pvalue > 0.001


@pytest.mark.parametrize("unit", ["token", "whole_word"])
@pytest.mark.parametrize("shares", [(0.8, 0.1, 0.1), (0.5, 0.2, 0.3)])
def test_fates_of_tokens_have_their_shares(million, unit, shares):
    names = ("mask_share", "random_share", "keep_share")
    copy, positions, labels = apply(million, unit, **dict(zip(names, shares, strict=True)))
    found = copy.input_ids[positions]
    masked = (found == MASK).sum()
    changed = ((found != MASK) & (found != labels)).sum()
    observed = np.array([masked, changed, len(found) - masked - changed])
    mask, random, keep = shares
    lucky = random / (VOCAB - FIRST_WORD)  # a random token may be the one that stood there
    expected = np.array([mask, random - lucky, keep + lucky]) * len(found)
    assert stats.chisquare(observed, expected).pvalue > 0.001


@pytest.mark.slow
def test_a_span_has_one_fate_with_its_share(million):
    copy, positions, labels = apply(million, "span")
    original = million.input_ids
    assert np.array_equal(original[positions], labels)
    selected = np.zeros(len(original), dtype=bool)
    selected[positions] = True
    outcomes = [0, 0, 0]
    for span in naive_spans(million):
        assert selected[span].all() or not selected[span].any()
        if not selected[span[0]]:
            continue
        found = copy.input_ids[span]
        if (found == MASK).any():
            assert (found == MASK).all()
            outcomes[0] += 1
        else:
            outcomes[1 if (found != original[span]).any() else 2] += 1
    expected = np.array([0.8, 0.1, 0.1]) * sum(outcomes)
    assert stats.chisquare(outcomes, expected).pvalue > 0.001


def test_random_replacements_are_uniform_over_ordinary_ids(million):
    copy, positions, _ = apply(million, mask_share=0, random_share=1, keep_share=0)
    counts = np.bincount(copy.input_ids[positions], minlength=VOCAB)
    assert counts[:FIRST_WORD].sum() == 0
    assert stats.chisquare(counts[FIRST_WORD:]).pvalue > 0.001


@pytest.mark.parametrize("unit", UNITS)
def test_never_a_special_token_and_nothing_else_changes(million, unit):
    copy, positions, labels = apply(million, unit)
    assert not CLASSES.special[labels].any()
    assert (million.corpus_offsets[positions] >= 0).all()
    assert (np.diff(positions) > 0).all()
    assert np.array_equal(labels, million.input_ids[positions])
    others = np.ones(len(copy.input_ids), dtype=bool)
    others[positions] = False
    assert np.array_equal(copy.input_ids[others], million.input_ids[others])


def test_tokens_from_outside_the_corpus_are_not_selected():
    sequence = pair(60, 60)
    sequence.offsets[1:30] = -1
    _, positions, _ = apply(packed([sequence]), rate=1.0)
    assert positions.min() == 30


@pytest.mark.parametrize("unit", ["whole_word", "span"])
def test_whole_words_are_selected(unit):
    sequences = many(200, seed=3)
    _, positions, _ = apply(sequences, unit)
    selected = set(positions.tolist())
    words = naive_words(sequences)
    assert {t for word in words for t in word} >= selected
    hit = [word for word in words if selected & set(word)]
    assert all(set(word) <= selected for word in hit)
    assert any(len(word) > 1 for word in hit)


def test_words_begin_where_the_naive_loop_says():
    sequences = many(100, seed=4)
    tokens = np.flatnonzero(CLASSES.countable(sequences))
    draws = dynamic_draws(sequences, RNG)
    starts = tokens[unit_starts(sequences, tokens, "whole_word", draws)]
    assert starts.tolist() == [word[0] for word in naive_words(sequences)]


def test_neighbouring_sequences_without_special_tokens_stay_apart():
    one, two = pair(8, 0, index=0), pair(8, 0, index=1)
    for sequence in (one, two):  # nothing but continuations, so only the border can cut
        sequence.ids = np.full(8, VOCAB - 1)
        sequence.types = np.zeros(8)
        sequence.offsets = np.arange(8)
    sequences = packed([one, two])
    tokens = np.arange(16)
    draws = dynamic_draws(sequences, RNG)
    assert unit_starts(sequences, tokens, "whole_word", draws).tolist() == [0, 8]
    assert unit_starts(sequences, tokens, "span", draws).tolist() == [0, 8]


def test_span_lengths_are_geometric_clipped_at_ten_words():
    sequence = pair(200_000, 0)
    sequence.ids[1:-2] = FIRST_WORD  # one-token words and no [UNK]: only chance cuts
    sequences = packed([sequence])
    lengths = np.array([len(span) for span in naive_spans(sequences)][:-1])
    observed = np.bincount(lengths, minlength=11)[1:]
    geometric = 0.2 * 0.8 ** np.arange(10)
    geometric[-1] = 0.8**9  # every longer one is cut at 10
    assert len(observed) == 10
    assert stats.chisquare(observed, geometric * observed.sum()).pvalue > 0.001
    assert lengths.mean() == pytest.approx((1 - 0.8**10) / 0.2, rel=0.01)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=8),
    unit=st.sampled_from(UNITS),
    setting=st.sampled_from(["dynamic", "static", "evaluation"]),
    data=st.data(),
)
def test_masks_do_not_depend_on_the_batch(lengths, unit, setting, data):
    objective, _ = built(MaskedLM(rate=0.3, unit=unit, dynamic=setting == "dynamic"))
    sequences = [pair(a, b, index=i) for i, (a, b) in enumerate(lengths)]
    whole = packed(sequences, epoch=2)
    training = setting != "evaluation"
    objective.prepare(whole, RNG, training)
    order = data.draw(st.permutations(range(len(sequences))))
    kept = order[: data.draw(st.integers(1, len(order)))]
    part = packed([sequences[i] for i in kept], epoch=2)
    objective.prepare(part, RNG, training)
    for place, i in enumerate(kept):
        rows = slice(*part.cu_seqlens[place : place + 2])
        assert np.array_equal(
            part.input_ids[rows], whole.input_ids[slice(*whole.cu_seqlens[i : i + 2])]
        )

        def selected(batch, b):
            start, end = batch.cu_seqlens[b : b + 2]
            positions = batch.fields["mlm_positions"]
            return (positions[(positions >= start) & (positions < end)] - start).tolist()

        assert selected(part, place) == selected(whole, i)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=6),
    rate=st.floats(0.01, 1.0),
    unit=st.sampled_from(UNITS),
    epoch=st.integers(0, 5),
)
def test_budget_of_each_sequence_holds(lengths, rate, unit, epoch):
    sequences = packed([pair(a, b, index=i) for i, (a, b) in enumerate(lengths)], epoch)
    _, positions, _ = apply(sequences, unit, rate=rate)
    of = sequences.sequence_of_token
    maskable = np.bincount(of[CLASSES.countable(sequences)], minlength=len(lengths))
    selected = np.bincount(of[positions], minlength=len(lengths))
    longest = np.zeros(len(lengths), dtype=int)
    units = naive_words(sequences) if unit == "whole_word" else naive_spans(sequences)
    for positions_of_unit in units:
        if len(positions_of_unit):
            b = of[positions_of_unit[0]]
            longest[b] = max(longest[b], len(positions_of_unit))
    slack = 0 if unit == "token" else np.maximum(longest - 1, 0)
    assert (selected <= np.minimum(maskable, np.maximum(1, np.ceil(rate * maskable)) + slack)).all()
    floor = np.where(maskable > 0, np.maximum(1, np.floor(rate * maskable)), 0)
    assert (selected >= floor - slack).all()
    if rate == 1:
        assert np.array_equal(selected, maskable)


def test_a_short_sequence_has_one_prediction():
    sequences = packed([pair(1, 1 + i % 2, seed=8, index=i) for i in range(200)])
    _, positions, _ = apply(sequences)
    maskable = np.unique(sequences.sequence_of_token[CLASSES.countable(sequences)])
    assert np.array_equal(sequences.sequence_of_token[positions], maskable)


def test_a_sequence_with_nothing_maskable_is_left_alone():
    empty, unknown, plain = pair(0, 0, index=0), pair(5, 5, index=1), pair(40, 40, index=2)
    unknown.ids[1:6] = unknown.ids[7:12] = UNK
    for unit in UNITS:
        objective, _ = built(MaskedLM(unit=unit))
        alone = packed([empty, unknown])
        assert objective.prepare(alone, RNG, True) == 0
        assert alone.fields["mlm_positions"].dtype == alone.fields["mlm_labels"].dtype == np.int64
        mixed = packed([empty, plain, unknown])
        assert objective.prepare(mixed, RNG, True) > 0
        assert set(mixed.sequence_of_token[mixed.fields["mlm_positions"]]) == {1}


@pytest.mark.parametrize("unit", UNITS)
def test_static_masks_return_and_dynamic_ones_do_not(unit):
    sequences = many(32, seed=5)

    def masks(objective, epoch, training=True):
        batch = with_epoch(sequences, epoch)
        built(objective)[0].prepare(batch, RNG, training)
        return batch.input_ids.tolist()

    static = MaskedLM(unit=unit, dynamic=False, static_copies=3)
    assert masks(static, 0) == masks(static, 3) == masks(static, 6)
    assert len({str(masks(static, epoch)) for epoch in range(6)}) == 3
    dynamic = MaskedLM(unit=unit)
    assert len({str(masks(dynamic, epoch)) for epoch in range(12)}) == 12


def test_static_draws_go_with_the_text_and_not_with_the_sequence():
    sequence, moved = pair(50, 70, index=0), pair(50, 70, index=0)
    moved.index = 99
    moved.ids = np.concatenate([moved.ids[:51], moved.ids[52:]])  # no [SEP] between the segments
    moved.offsets = np.concatenate([moved.offsets[:51], moved.offsets[52:]])
    moved.types = moved.types[:-1]
    objective, _ = built(MaskedLM(dynamic=False))
    one, two = packed([sequence]), packed([moved], epoch=10)
    objective.prepare(one, RNG, True)
    objective.prepare(two, RNG, True)
    chosen = [b.corpus_offsets[b.fields["mlm_positions"]].tolist() for b in (one, two)]
    assert chosen[0] == chosen[1]
    assert one.input_ids[one.corpus_offsets >= 0].tolist() == (
        two.input_ids[two.corpus_offsets >= 0].tolist()
    )


def test_evaluation_ignores_training_settings_and_the_epoch():
    sequences = many(32, seed=6)
    results = set()
    for objective in (
        MaskedLM(),
        MaskedLM(rate=0.4, unit="span", mask_share=0.2, random_share=0.3, keep_share=0.5),
        MaskedLM(dynamic=False, static_copies=2, unit="whole_word"),
    ):
        for epoch in (0, 1, 7):
            batch = with_epoch(sequences, epoch)
            count = built(objective)[0].prepare(batch, RNG, training=False)
            assert count == pytest.approx(0.15 * CLASSES.countable(sequences).sum(), rel=0.02)
            results.add(str((batch.input_ids.tolist(), batch.fields["mlm_positions"].tolist())))
    assert len(results) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rate": 0}, "mlm.rate: found 0, expected over 0 and at most 1"),
        ({"rate": 1.5}, "rate: found 1.5"),
        ({"rate": float("nan")}, "rate: found nan"),
        (
            {"unit": "whole-word"},
            "mlm.unit: no masking_unit is called 'whole-word'; did you mean 'whole_word'",
        ),
        ({"mask_share": -0.1}, "mask_share: found -0.1, expected between 0 and 1"),
        ({"mask_share": 0.9}, r"found mask_share 0.9, .* \(sum 1.1\), expected shares of sum 1"),
        ({"static_copies": 0}, "static_copies: found 0, expected 1 or more"),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(arguments, message):
    with pytest.raises(BertlabError, match=message):
        MaskedLM(**arguments)


@pytest.mark.slow
def test_evaluation_masks_as_training_does_where_it_is_asked_to():
    own = MaskedLM(rate=0.3, unit="span", evaluation="training")
    shares, spans, words = {}, {}, CLASSES.countable(many(512)).sum()
    for name, objective in {"standard": MaskedLM(rate=0.3, unit="span"), "training": own}.items():
        batch = many(512)
        count = built(objective)[0].prepare(batch, RNG, training=False)
        positions = batch.token_labels("mlm").positions
        shares[name] = count / words
        spans[name] = (np.diff(positions) == 1).mean()  # neighbours that are both masked
    assert shares == pytest.approx({"standard": 0.15, "training": 0.3}, abs=0.01)
    assert spans["standard"] < 0.2
    assert spans["training"] > 0.6
    again = many(512)
    built(own)[0].prepare(again, RNG, training=False)
    assert np.array_equal(again.token_labels("mlm").positions, positions)  # the same each time


def test_another_word_for_the_masks_of_evaluation_is_refused():
    with pytest.raises(ConfigError, match=r"mlm.evaluation: found 'train', expected standard or"):
        MaskedLM(evaluation="train")
