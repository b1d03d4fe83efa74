"""Precision, recall and F1 of entities, counted as CoNLL's scorer ``conlleval`` counts them."""

from collections.abc import Sequence

from bertlab.heads.tag_schemes import OUTSIDE, split_tag


def entity_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], types: Sequence[str]
) -> dict[str, float]:
    """Score entities over a whole evaluation set, with seqeval.

    An entity is right if its type and its first and last word are. Broken tags are read as
    ``conlleval`` reads them (:func:`bertlab.heads.tag_schemes.entities`). What would be 0 / 0 is 0.

    Args:
        gold: tags of N sentences, each ``O``, ``B-TYPE`` or ``I-TYPE``.
        predicted: tags of the same sentences.
        types: the types to give an F1 of their own.

    Returns:
        ``precision``, ``recall`` and ``f1`` over all entities, and ``f1/TYPE`` for each of
        ``types``; shares, not percent.
    """
    # slow: imports scikit-learn
    from seqeval.metrics.sequence_labeling import precision_recall_fscore_support  # noqa: PLC0415

    # lists, for seqeval takes a tuple for one long sentence
    truth, guess = [list(tags) for tags in gold], [list(tags) for tags in predicted]
    if not any(truth):
        return dict.fromkeys(entity_score_names(types), 0.0)
    overall = precision_recall_fscore_support(truth, guess, average="micro", zero_division=0)
    scores = dict(zip(("precision", "recall", "f1"), map(float, overall[:3]), strict=True))
    by_type = precision_recall_fscore_support(truth, guess, average=None, zero_division=0)[2]
    tags = {tag for sentence in (*truth, *guess) for tag in sentence} - {OUTSIDE}
    seen = sorted({split_tag(tag)[1] for tag in tags})
    found = dict(zip(seen, map(float, by_type), strict=True))
    return scores | {f"f1/{kind}": found.get(kind, 0.0) for kind in types}


def entity_score_names(types: Sequence[str]) -> list[str]:
    """Return the names that :func:`entity_scores` gives."""
    return ["precision", "recall", "f1", *(f"f1/{kind}" for kind in types)]
