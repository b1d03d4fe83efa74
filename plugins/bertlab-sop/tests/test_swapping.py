"""Swapping segments, against a plain loop over plain lists."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bertlab import PackedSequences
from bertlab_sop.swapping import swap_segments, text_lengths

CLS, SEP = 2, 3
Pairs = list[tuple[list[int], list[int]]]
pairs = st.lists(
    st.tuples(
        st.lists(st.integers(5, 99), min_size=1, max_size=9),
        st.lists(st.integers(5, 99), min_size=1, max_size=9),
    ),
    min_size=1,
    max_size=6,
)


def packed(content: Pairs) -> PackedSequences:
    """Return ``[CLS] A [SEP] B [SEP]`` of each pair; a token's offset is ten times its id."""
    ids = [[CLS, *a, SEP, *b, SEP] for a, b in content]
    kinds = [[0] * (len(a) + 2) + [1] * (len(b) + 1) for a, b in content]
    flat = np.concatenate(ids)
    return PackedSequences(
        input_ids=flat,
        token_type_ids=np.concatenate(kinds),
        position_ids=np.concatenate([np.arange(len(each)) for each in ids]),
        cu_seqlens=np.cumsum([0, *map(len, ids)]),
        corpus_offsets=np.where(flat > SEP, 10 * flat, -1),
        epochs=np.zeros(len(ids), np.int64),
        indices=np.arange(len(ids)),
        fields={"next_sentence_label": np.zeros(len(ids), np.int64)},
    )


@given(pairs, st.data())
def test_swapped_is_the_pair_the_other_way_round(content: Pairs, data: st.DataObject) -> None:
    swapped = data.draw(st.lists(st.booleans(), min_size=len(content), max_size=len(content)))
    sequences = packed(content)
    swap_segments(sequences, np.array(swapped))
    other_way = [(b, a) if swap else (a, b) for (a, b), swap in zip(content, swapped, strict=True)]
    expected = packed(other_way)
    for name in ("input_ids", "token_type_ids", "position_ids", "cu_seqlens", "corpus_offsets"):
        np.testing.assert_array_equal(getattr(sequences, name), getattr(expected, name), name)


@given(pairs)
def test_swapping_twice_changes_nothing(content: Pairs) -> None:
    sequences = packed(content)
    for _ in range(2):
        swap_segments(sequences, np.ones(len(content), bool))
    np.testing.assert_array_equal(sequences.input_ids, packed(content).input_ids)
    np.testing.assert_array_equal(sequences.token_type_ids, packed(content).token_type_ids)


@given(pairs)
def test_text_lengths_leave_special_tokens_out(content: Pairs) -> None:
    a_lengths, b_lengths = text_lengths(packed(content))
    assert a_lengths.tolist() == [len(a) for a, _ in content]
    assert b_lengths.tolist() == [len(b) for _, b in content]
