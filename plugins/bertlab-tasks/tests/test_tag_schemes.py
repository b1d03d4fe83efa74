"""Entities of broken and whole tags, and IOB1 as BIO."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertlab.errors import DataError
from bertlab_tasks.tag_schemes import Entity, entities, entity_types, to_bio

TYPES = ("PER", "LOC", "a-b")
any_tags = st.lists(st.sampled_from(["O", *(f"{p}-{t}" for p in "BI" for t in TYPES)]), max_size=12)


@st.composite
def marked_sentences(draw):
    """Entities of a sentence and their tags in BIO and IOB1, written down from the definitions."""
    found, bio, iob1 = [], [], []
    for kind, length in draw(
        st.lists(st.tuples(st.sampled_from(["O", *TYPES]), st.integers(1, 3)), max_size=6)
    ):
        if kind == "O":
            bio += ["O"] * length
            iob1 += ["O"] * length
            continue
        start = len(bio)
        touches = bool(found) and (found[-1].type, found[-1].end_word) == (kind, start)
        found.append(Entity(kind, start, start + length))
        bio += [f"B-{kind}"] + [f"I-{kind}"] * (length - 1)
        iob1 += [f"{'B' if touches else 'I'}-{kind}"] + [f"I-{kind}"] * (length - 1)
    return found, bio, iob1


@pytest.mark.slow
@given(marked_sentences())
def test_bio_and_iob1_mean_the_same_entities(sentence):
    found, bio, iob1 = sentence
    assert entities(bio) == entities(iob1) == found
    assert to_bio(iob1) == to_bio(bio) == bio


@given(any_tags)
def test_bio_of_broken_tags_keeps_their_entities_and_is_whole(tags):
    bio = to_bio(tags)
    assert entities(bio) == entities(tags)
    assert to_bio(bio) == bio
    for before, tag in zip(["O", *bio], bio, strict=False):
        if tag.startswith("I-"):
            assert before[2:] == tag[2:]


def test_conll_2003():
    tags = ["I-ORG", "O", "I-MISC", "B-MISC", "I-MISC", "I-PER", "O", "I-LOC"]
    bio = ["B-ORG", "O", "B-MISC", "B-MISC", "I-MISC", "B-PER", "O", "B-LOC"]
    assert to_bio(tags) == bio
    assert entities(tags)[2] == Entity("MISC", 3, 5)


def test_bare_b_and_i_are_entities_without_a_type():
    assert entities(["I", "I", "B", "O", "B"]) == [
        Entity("_", 0, 2),
        Entity("_", 2, 3),
        Entity("_", 4, 5),
    ]
    assert to_bio(["I", "I", "O"]) == ["B", "I", "O"]


@pytest.mark.parametrize(
    ("names", "scheme", "expected"),
    [
        (["O", "B-PER", "I-LOC"], "auto", ["LOC", "PER"]),
        (["O"], "auto", []),
        (["NOUN", "O", "VERB"], "auto", None),
        (["B-PER", "I-PER"], "none", None),
        (["B", "I", "O"], "bio", ["_"]),
        (["I-X"], "iob1", ["X"]),
        (["B-Y", "B-X"], "bio", ["X", "Y"]),
    ],
)
def test_what_a_tag_set_marks(names, scheme, expected):
    assert entity_types(names, scheme) == expected


@pytest.mark.parametrize(
    ("names", "scheme", "message"),
    [
        (["O", "B-PER", "S-PER"], "auto", "'S-PER'.*convert the tags to BIO"),
        (["O", "NOUN"], "bio", "scheme: bio, but .*'NOUN'"),
        (["O", "E-PER"], "iob1", "scheme: iob1, but .*'E-PER'"),
        (["B", "O"], "auto", "set model.head.scheme to bio, iob1 or none"),
    ],
)
def test_tags_of_another_scheme_are_refused(names, scheme, message):
    with pytest.raises(DataError, match=message):
        entity_types(names, scheme)
