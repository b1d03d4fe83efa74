"""Entity scores against conlleval's rules, written down again as a pass over the two columns."""

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bertlab_tasks.tag_schemes import entity_score_names, entity_scores, to_bio

TYPES = ("LOC", "ORG", "PER")
TAGS = ["O", *(f"{prefix}-{kind}" for prefix in "BI" for kind in TYPES)]


def parts(tag):
    return ("O", "") if tag == "O" else tuple(tag.split("-", 1))


def ends(before, now):
    return before[0] != "O" and (now[0] in ("B", "O") or now[1] != before[1])


def starts(before, now):
    return now[0] != "O" and (now[0] == "B" or before[0] == "O" or now[1] != before[1])


def scores(hits, found, expected):
    precision = hits / found if found else 0.0
    recall = hits / expected if expected else 0.0
    both = precision + recall
    return precision, recall, 2 * precision * recall / both if both else 0.0


def conlleval(gold, predicted):
    """Count chunks as the CoNLL-2000 script does: word by word, a chunk right while both agree.

    Sentences are parted by an ``O`` in both columns.
    """
    pairs = []
    for one, other in zip(gold, predicted, strict=True):
        pairs += [*zip(one, other, strict=True), ("O", "O")]

    right, in_gold, in_predicted = Counter(), Counter(), Counter()
    last_gold = last_predicted = ("O", "")
    agreeing = False
    for gold_tag, predicted_tag in pairs:
        now_gold, now_predicted = parts(gold_tag), parts(predicted_tag)
        if agreeing:
            gold_ends = ends(last_gold, now_gold)
            predicted_ends = ends(last_predicted, now_predicted)
            if gold_ends and predicted_ends:
                right[last_gold[1]] += 1
                agreeing = False
            elif gold_ends != predicted_ends:
                agreeing = False
        gold_starts = starts(last_gold, now_gold)
        predicted_starts = starts(last_predicted, now_predicted)
        if gold_starts and predicted_starts and now_gold[1] == now_predicted[1]:
            agreeing = True
        in_gold[now_gold[1]] += gold_starts
        in_predicted[now_predicted[1]] += predicted_starts
        last_gold, last_predicted = now_gold, now_predicted

    overall = scores(right.total(), in_predicted.total(), in_gold.total())
    by_type = {f"f1/{t}": scores(right[t], in_predicted[t], in_gold[t])[2] for t in TYPES}
    return dict(zip(("precision", "recall", "f1"), overall, strict=True)) | by_type


@st.composite
def tagged(draw):
    """Sentences with random tags, and predictions that are often near them."""
    gold = draw(st.lists(st.lists(st.sampled_from(TAGS), max_size=10), min_size=1, max_size=4))
    predicted = [
        [draw(st.one_of(st.just(tag), st.sampled_from(TAGS))) for tag in sentence]
        for sentence in gold
    ]
    return gold, predicted


@settings(max_examples=150, deadline=None)
@given(tagged())
@example(([["O", "I-PER", "I-PER"]], [["O", "B-PER", "I-PER"]]))
@example(([["B-PER", "I-LOC"]], [["B-PER", "I-PER"]]))
@example(([["I-PER"], ["I-PER"]], [["I-PER"], ["B-PER"]]))
@example(([["B-PER", "B-PER"]], [["B-PER", "I-PER"]]))
@example(([["O", "O"]], [["O", "O"]]))
@example(([[]], [[]]))
def test_scores_equal_conlleval(columns):
    gold, predicted = columns
    assert entity_scores(gold, predicted, TYPES) == pytest.approx(conlleval(gold, predicted))
    as_bio = [to_bio(tags) for tags in gold], [to_bio(tags) for tags in predicted]
    assert entity_scores(*as_bio, TYPES) == pytest.approx(conlleval(gold, predicted))


def test_names_are_fixed_and_types_may_be_absent():
    scores = entity_scores([("B-PER", "O")], [("B-PER", "O")], ["LOC", "PER"])
    assert list(scores) == entity_score_names(["LOC", "PER"])
    assert scores == {"precision": 1, "recall": 1, "f1": 1, "f1/LOC": 0, "f1/PER": 1}


def test_counts_over_the_set_and_not_over_sentences():
    gold = [["B-PER"] * 3, ["B-LOC"]]
    predicted = [["B-PER"] * 3, ["O"]]
    scores = entity_scores(gold, predicted, [])
    assert scores == pytest.approx({"precision": 1, "recall": 3 / 4, "f1": 6 / 7})
