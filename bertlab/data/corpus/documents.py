"""A document and its sentences.

Reading (cheap, one process) and sentence splitting (may run in worker processes) are apart:
readers make :class:`RawDocument` objects and :func:`split_sentences` turns one into sentences. What
BERT's paper calls a sentence is "an arbitrary span of contiguous text" (Devlin et al. 2019,
sec. 3), so a heading or a line of verse is a sentence of its own.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import sentencex

from bertlab.api.examples import RawDocument

WRAP_WIDTH = 120
"""Columns; text whose lines (19 in 20 of them) are no wider was wrapped by an editor."""

LONG_SENTENCE = 1000
"""Characters; ``sentencex`` never splits inside quotation marks, and an unbalanced one can make it
return half a book, so what is longer is split again at every sentence end."""

# matches the end of: He said "no."
SENTENCE_END = re.compile(r"[.!?…。！？]['\"”’»)\]_*]*$")
# “It ended.” Then … -> “It ended.” | Then …
_INNER_SENTENCE_END = re.compile(r"[.!?…]['\"”’»)\]]*\s+|[。！？][”’」』）]*")
_BROKEN_COMPOUND = re.compile(r"[^\W\d_]-$")  # "a well-", not "in 1990-"


@dataclass(frozen=True)
class Document:
    """A document as sentences.

    Attributes:
        sentences: sentences in order, none empty, no line breaks.
        source: ``file:line`` where the document starts, or dataset and row, for messages.
    """

    sentences: list[str]
    source: str


def split_sentences(raw: RawDocument, language: str = "en") -> list[str]:
    """Return the sentences of a document; pure, so that worker processes can run it.

    Hard-wrapped lines are joined first and no sentence crosses a paragraph.

    Returns:
        Stripped sentences, none empty.
    """
    if raw.presplit:
        return [sentence for line in raw.text.split("\n") if (sentence := line.strip())]
    return [
        sentence
        for paragraph in split_paragraphs(raw.text)
        for piece in sentencex.segment(language, paragraph)
        for part in _split_long(piece)
        if (sentence := part.strip())
    ]


def count_words(text: str) -> int:
    """Return the number of words that white space parts, as BabyLM counts them."""
    return len(text.split())


def split_paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a plain text, each as one line.

    Blank lines part paragraphs. In text whose lines are wider than ``WRAP_WIDTH`` every line is a
    paragraph. In hard-wrapped text lines are joined, except where the line was broken early: where
    the next line's first word would have fitted into four fifths of the width (verse, headings), or
    into the width after the end of a sentence (paragraphs without blank lines between them).
    """
    lines = [line.strip() for line in text.split("\n")]
    lengths = sorted(len(line) for line in lines if line)
    if not lengths:
        return []
    # a few lines may stick out, such as addresses of pages
    width = lengths[int(0.95 * (len(lengths) - 1))]
    if width > WRAP_WIDTH:
        return [line for line in lines if line]
    return list(_join_wrapped(lines, width))


def _join_wrapped(lines: list[str], width: int) -> Iterator[str]:
    paragraph: list[str] = []
    for line, following in pairwise([*lines, ""]):
        if not line:
            continue
        paragraph.append(line)
        if not following or _breaks_early(line, following, width):
            yield "".join(paragraph)
            paragraph = []
        elif not _BROKEN_COMPOUND.search(line):
            paragraph.append(" ")


def _breaks_early(line: str, following: str, width: int) -> bool:
    # how long the line were with the next word, which an editor would have put there
    joined = len(line) + 1 + len(following.split(maxsplit=1)[0])
    if joined <= 0.8 * width:
        return True  # much room was left: the line ends on purpose
    return joined <= 0.95 * width and SENTENCE_END.search(line) is not None


def _split_long(sentence: str) -> Iterator[str]:
    if len(sentence) <= LONG_SENTENCE:
        yield sentence
        return
    start = 0
    for match in _INNER_SENTENCE_END.finditer(sentence):
        yield sentence[start : match.end()]
        start = match.end()
    yield sentence[start:]
