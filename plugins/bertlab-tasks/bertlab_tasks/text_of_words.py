"""Where the words of a row stand in its text, and what they were before a transform."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

from bertlab_tasks.printed_cells import as_list

WORD_COLUMNS = ("words", "tokens", "text")  # of the column of words, or of their text


def same_but_for_capitals(text: str, other: str) -> bool:
    """Return whether two texts are equal, capitals apart, so that places are those of both.

    ``"In Rome"``, ``"in rome"`` → True; ``"ß"``, ``"SS"`` → False
    """
    # not lower(), by which the end of "ΣΑΣ" is another letter than that of "σασ"
    return len(text) == len(other) and text.casefold() == other.casefold()


def words_as_given(words: Sequence[str], row: Mapping[str, Any]) -> list[str]:
    """Return the words in the capitals of the row, where a transform made small letters.

    They are a list of the row, all of a text of it but the spaces, or texts of its columns.

    ``["in", "rome"]``, ``{"sentence": "In Rome"}`` → ``["In", "Rome"]``
    """
    lists = (_same_words(words, value) for value in row.values())
    found = filter(None, [*lists, _in_columns(words, row)])
    return min(found, key=lambda given: given != list(words), default=list(words))


def _in_columns(words: Sequence[str], row: Mapping[str, Any]) -> list[str] | None:
    """Return the texts of columns, in their order, that are words but for capitals."""
    texts = (value for value in row.values() if isinstance(value, str))
    found = [
        next((text for text in texts if same_but_for_capitals(text, word)), None) for word in words
    ]
    return [text for text in found if text is not None] if None not in found else None


def _same_words(words: Sequence[str], value: object) -> list[str] | None:
    """Return the words of a list or a text that are these but for capitals; None if there are none.

    ``["a", "b"]`` of ``["A", "b"]`` or ``"A b"`` → ``["A", "b"]``
    """
    if isinstance(value, str):
        places = _parted(words, value)
        if places is not None:
            return [value[start:end] for start, end in places]
        value = as_list(value)  # that was printed into a cell
    if not isinstance(value, list) or len(value) != len(words):
        return None
    is_same = all(isinstance(each, str) for each in value) and all(
        map(same_but_for_capitals, value, words)
    )
    return list(value) if is_same else None


def word_places(words: Sequence[str], row: Mapping[str, Any]) -> list[list[int]] | None:
    """Return first and end character of each word in the text that the words are of.

    It is the text of which they are all but the spaces, in capitals or not, or else one that the
    row has for its words. None if no text has them.

    ``["a", "b"]``, ``{"url": "a-b", "title": "A b"}`` → ``[[0, 1], [2, 3]]``
    """
    names = [name for name in WORD_COLUMNS if name in row]
    texts = [row[name] for name in dict.fromkeys([*names, *row]) if isinstance(row[name], str)]
    found = (_parted(words, text) for text in texts)
    beside = (_found(words, row[name]) for name in names if isinstance(as_list(row[name]), str))
    return next(filter(None, chain(found, beside)), None)


def _parted(words: Sequence[str], text: str) -> list[list[int]] | None:
    """Return the places of words that are all of a text but its spaces; None if they are not."""
    # "A  bc" -> places of characters [0, 3, 4]; "a", "bc" -> [[0, 1], [3, 5]]
    characters = [place for place, character in enumerate(text) if not character.isspace()]
    joined = "".join(words)
    if not same_but_for_capitals(joined, "".join(text.split())):
        return None
    ends = list(accumulate(map(len, words)))
    spans = zip([0, *ends], ends, strict=False)
    places = [[characters[start], characters[end - 1] + 1] for start, end in spans]
    is_whole = all(
        end - start == len(word) for (start, end), word in zip(places, words, strict=True)
    )
    return places if is_whole else None


def _found(words: Sequence[str], text: str) -> list[list[int]] | None:
    """Return the places at which a text has words one behind the other; None if it lacks one."""
    places, end = [], 0
    for word in words:
        start = text.find(word, end)
        if start < 0:
            return None
        end = start + len(word)
        places.append([start, end])
    return places
