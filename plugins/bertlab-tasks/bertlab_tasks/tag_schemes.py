"""Tags of words: the schemes that mark entities, and the entities that tags mean.

In BIO every entity begins with ``B-TYPE`` and goes on with ``I-TYPE``. In IOB1, as CoNLL-2003 was
published, an entity begins with ``I-TYPE`` too, and ``B-TYPE`` only parts it from an entity of the
same type right before it. :func:`to_bio` leaves BIO as it is and makes BIO of IOB1, so which of the
two a file has need not be known, and the entities are the same before and after.

Precision, recall and F1 of entities, counted as CoNLL's scorer ``conlleval`` counts them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bertlab.api import DataError

Scheme = Literal["auto", "bio", "iob1", "none"]
OUTSIDE = "O"
# B_PER, PER-B, B:PER, b-per, U-PER (BILOU), E-PER
_OTHER_FORM = re.compile(r"[BIESLUM][-_:./|]\S+|\S+[-_:./|][BIESLUM]", re.IGNORECASE)
_UNTYPED = "_"  # the type of a bare "B" or "I", as seqeval has it


@dataclass(frozen=True)
class Entity:
    """Words ``start_word`` to ``end_word``, the last excluded, that together are a ``type``."""

    type: str
    start_word: int
    end_word: int


def split_tag(tag: str) -> tuple[str, str]:
    """Return the prefix and the type of an entity tag: ``("B", "PER")`` of ``B-PER``."""
    prefix, _, kind = tag.partition("-")
    return prefix, kind or _UNTYPED


def is_entity_tag(tag: str) -> bool:
    """Return whether a tag is ``O``, or begins or continues an entity of a named type."""
    return tag == OUTSIDE or tag.startswith(("B-", "I-"))


def entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of a sentence, also of broken tags, by conlleval's rules.

    An entity begins with ``B``, and with an ``I`` that follows ``O``, another type or nothing.
    """
    # B-PER I-PER O I-LOC I-ORG -> PER of words 0 and 1, LOC of word 3, ORG of word 4
    found: list[Entity] = []
    previous = OUTSIDE
    for word, tag in enumerate(tags):
        if tag != OUTSIDE:
            kind = split_tag(tag)[1]
            if _begins(tag, previous):
                found.append(Entity(kind, word, word + 1))
            else:
                found[-1] = Entity(kind, found[-1].start_word, word + 1)
        previous = tag
    return found


def to_bio(tags: Sequence[str]) -> list[str]:
    """Return the same entities in BIO: an ``I`` that begins an entity becomes ``B``."""
    # I-PER I-PER B-PER O I-LOC -> B-PER I-PER B-PER O B-LOC
    bio = list(tags)
    for entity in entities(tags):
        bio[entity.start_word] = "B" + tags[entity.start_word][1:]
    return bio


def _begins(tag: str, previous: str) -> bool:
    (prefix, kind), (_, previous_kind) = split_tag(tag), split_tag(previous)
    return prefix == "B" or previous == OUTSIDE or kind != previous_kind


def entity_types(names: Sequence[str], scheme: Scheme) -> list[str] | None:
    """Return the types of the entities that a tag set marks, sorted.

    Returns:
        The types, or None if the tags mark no entities.
    """
    marked = [name for name in names if name != OUTSIDE]
    if scheme == "auto" and marked and all(name.startswith("S-") for name in marked):
        raise DataError(
            f"tags: the training data has {', '.join(marked[:3])} and no B- or I-, as BIOES where "
            "every entity is one word; write B- for S-, or set model.head.scheme to none if they "
            "mark no entities"
        )
    if scheme in ("bio", "iob1"):
        wrong = [name for name in marked if split_tag(name)[0] not in ("B", "I")]
        if wrong:
            raise DataError(
                f"model.head.scheme: {scheme}, but the training data has the tag {wrong[0]!r}; "
                "expected O, B-TYPE and I-TYPE only (say none for tags that mark no entities)"
            )
    if scheme == "auto":
        other = [name for name in marked if not is_entity_tag(name)]
        if marked and set(marked) <= {"B", "I"}:
            raise DataError(
                f"tags: the training data has only {', '.join(sorted(names))}, which may or may "
                "not mark entities; set model.head.scheme to bio, iob1 or none"
            )
        if other and len(other) < len(marked):
            known = next(name for name in marked if is_entity_tag(name))
            raise DataError(
                f"tags: the training data has {known!r}, as BIO and IOB1 do, and {other[0]!r}, "
                "which is in neither; convert the tags to BIO, or set model.head.scheme to none "
                "if they mark no entities"
            )
        if other:
            return None
    return None if scheme == "none" else sorted({split_tag(name)[1] for name in marked})


def check_plain(names: Sequence[str], counts: Sequence[int]) -> None:
    """Raise DataError if tags that mark no entities in BIO look as if they marked some.

    Args:
        names: of the tags.
        counts: how often each occurs.
    """
    marked = [name for name in names if name.upper() != OUTSIDE]
    shown = ", ".join(marked[:3])
    remedy = "convert them to BIO (B-PER, I-PER, O), or set model.head.scheme to none if they"
    if marked and all(map(_OTHER_FORM.fullmatch, marked)):
        raise DataError(f"tags: {shown} look like a scheme that is not known; {remedy} mark none")
    if all(name.removeprefix("-").isdecimal() for name in names):
        raise DataError(
            f"tags: the training data has numbers alone ({shown}); data.label_names gives their "
            "names, or set model.head.scheme to none"
        )
    outside = sum(count for name, count in zip(names, counts, strict=True) if name == OUTSIDE)
    if marked and outside > sum(counts) / 2:  # of parts of speech none is O so often
        raise DataError(
            f"tags: O is the commonest, as where entities are marked, but {shown} have neither B- "
            f"nor I-; {remedy} are plain tags"
        )


def entity_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], types: Sequence[str]
) -> dict[str, float]:
    """Score entities over a whole evaluation set, with seqeval.

    An entity is right if its type and its first and last word are. Broken tags are read as
    ``conlleval`` reads them (:func:`bertlab_tasks.tag_schemes.entities`). What would be 0 / 0 is 0.

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
    seen = sorted({split_tag(tag)[1] for tag in tags})  # the order in which seqeval gives types
    found = dict(zip(seen, map(float, by_type), strict=True))
    return scores | {f"f1/{kind}": found.get(kind, 0.0) for kind in types}


def entity_score_names(types: Sequence[str]) -> list[str]:
    """Return the names that :func:`entity_scores` gives."""
    return ["precision", "recall", "f1", *(f"f1/{kind}" for kind in types)]
