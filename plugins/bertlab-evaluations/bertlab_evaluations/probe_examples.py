"""What a probe learns: places in sentences with a class each, split into training and test."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import numpy.typing as npt

from bertlab import IntArray
from bertlab.api import DataError, Example, Tokenizer
from bertlab_evaluations.contract import FloatArray


@dataclass(frozen=True)
class ProbeExamples:
    """The classes of the rows.

    Attributes:
        labels: of each of N rows the classes of its words, or one of the sentence; empty of a row
            that takes no part.
        types: of the same form, the word types that the control task labels; empty lists if it has
            none.
        notes: what was left out.
    """

    labels: list[list[str]]
    types: list[list[str]]
    notes: list[str] = field(default_factory=list)


def words_of(row: Example) -> list[str]:
    """Return the words of a row; those between spaces of one that has a text.

    Raises:
        DataError: it has neither.
    """
    if "words" in row.values:
        return list(row.values["words"])
    if "text" in row.values:
        return str(row.values["text"]).split()
    raise DataError(f"{row.where}: found neither words nor text, expected one of the two columns")


def tag_examples(rows: Sequence[Example]) -> ProbeExamples:
    """Return the tags of the words.

    Raises:
        DataError: a row has no tags, or not one for each word.
    """
    labels, types = [], []
    for row in rows:
        words = words_of(row)
        if "words" not in row.values or "tags" not in row.values:
            raise DataError(
                f"{row.where}: found no words with tags, expected the columns words and tags; "
                "settings.task sentence_length and word_content need no tags"
            )
        tags = [str(tag) for tag in row.values["tags"]]
        if len(tags) != len(words):
            raise DataError(
                f"{row.where}: tags: found {len(tags)} for {len(words)} words, expected a tag for "
                "each word"
            )
        labels.append(tags)
        types.append(words)
    return ProbeExamples(labels, types)


def length_examples(
    rows: Sequence[Example], is_test: npt.NDArray[np.bool_], bins: int
) -> ProbeExamples:
    """Return the bin of each sentence's number of words; bins hold as many training rows each.

    Raises:
        DataError: all rows for training have the same number of words.
    """
    lengths = np.array([len(words_of(row)) for row in rows])
    known = lengths[~is_test] if (~is_test).any() else lengths
    edges = np.unique(np.quantile(known, np.linspace(0, 1, bins + 1)[1:-1], method="lower"))
    edges = edges[edges > known.min()]  # below the least there is none
    if not len(edges):  # over half of the rows are of the least length: they are a bin
        longer = known[known > known.min()]
        if not len(longer):
            raise DataError(
                f"{rows[0].where}: all {len(known):,} rows for training have {known[0]} words, "
                f"expected several lengths for settings.bins, {bins}"
            )
        edges = longer.min(keepdims=True)
    # edges [8, 20]: 7 -> 0, 8 -> 1, 30 -> 2
    numbers = np.searchsorted(edges, lengths, side="right")
    return ProbeExamples([[str(number)] for number in numbers], [[] for _ in rows])


def content_examples(
    rows: Sequence[Example], is_test: npt.NDArray[np.bool_], words: int, skip: int
) -> ProbeExamples:
    """Return which one of some frequent words each sentence holds (Conneau et al. 2018).

    Words are lower-cased and have letters only. The most frequent ``skip`` are function words, of
    which a sentence holds many; the next ``words`` are asked for. Rows with none or several of them
    take no part. Frequencies are those of the rows for training.

    Raises:
        DataError: the rows have too few words.
    """
    found = [{word.lower() for word in words_of(row) if word.isalpha()} for row in rows]
    counts = Counter(
        word for each, test in zip(found, is_test, strict=True) if not test for word in each
    )
    # of equally frequent ones the first by name
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    asked = set(ranked[skip : skip + words])
    if len(asked) < 2:
        raise DataError(
            f"{rows[0].where}: found {len(ranked)} different words in the rows for training, "
            f"expected more than settings.skip_words, {skip}; give more rows, or lower it"
        )
    labels = [sorted(each & asked) if len(each & asked) == 1 else [] for each in found]
    left = sum(not each for each in labels)
    notes = [f"{left} rows hold none or several of the {len(asked)} words, and were not scored"]
    return ProbeExamples(labels, [[] for _ in rows], notes if left else [])


def draw(seed: int, stream: str, key: str) -> float:
    """Return a number in [0, 1) that depends on its key alone, in any process."""
    digest = hashlib.blake2b(key.encode(), digest_size=8, key=f"{seed}/{stream}".encode()).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def control_labels(types: Sequence[str], shares: FloatArray, seed: int) -> npt.NDArray[np.int64]:
    """Return a class for each word, drawn by its type (Hewitt and Liang 2019).

    Args:
        types: T words; equal ones get the same class.
        shares: ``(C,)`` how frequent each class is, with which it is drawn.
        seed: of the draws.
    """
    ends = np.cumsum(shares)
    drawn = {each: draw(seed, "control", each) for each in dict.fromkeys(types)}
    # shares [0.7, 0.3]: 0.5 -> 0, 0.8 -> 1
    places = np.searchsorted(ends, [drawn[each] * ends[-1] for each in types], side="right")
    return np.minimum(places, len(shares) - 1).astype(np.int64)


@dataclass(frozen=True)
class WordIds:
    """The ids of a sentence, special tokens included, and ``(W,)`` places of its words' firsts."""

    ids: list[int]
    firsts: IntArray


def encode_words(row: Example, tokenizer: Tokenizer) -> WordIds:
    """Return the ids of a row's words, each tokenized on its own.

    Raises:
        DataError: it has no word.
    """
    words = words_of(row)
    if not words:
        raise DataError(f"{row.where}: found no word")
    flat, lengths = tokenizer.encode_texts(words)
    pieces = np.split(flat, np.cumsum(lengths)[:-1])
    # a word without any piece, such as a control character, counts as [UNK]
    ids = [piece.tolist() or [tokenizer.unk_id] for piece in pieces]
    # behind [CLS]: words of 1, 2 and 1 pieces begin at [1, 2, 4]
    firsts = 1 + np.cumsum([0, *map(len, ids[:-1])])
    return WordIds(tokenizer.build_inputs(list(chain.from_iterable(ids)))[0], firsts)
