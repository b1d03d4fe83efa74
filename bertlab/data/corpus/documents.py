"""A document and its sentences.

Reading (cheap, one process) and sentence splitting (may run in worker processes) are apart:
readers make :class:`RawDocument` objects and :func:`split_sentences` turns one into sentences. What
BERT's paper calls a sentence is "an arbitrary span of contiguous text" (Devlin et al. 2019,
sec. 3), so a heading or a line of verse is a sentence of its own.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Any, Literal

import sentencex

from bertlab.api.examples import RawDocument, RawExamples
from bertlab.data.rows.lines import MAX_LINE, Errors, read_lines
from bertlab.data.sources import File
from bertlab.errors import CorpusError, kind_of, nearest
from bertlab.plugins.index import of_package

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
_LOOKED_AT = 20  # rows, by which a column of numbers is known
_NUMBER = re.compile(r"\s*[-+]?\d+([.,]\d+)?\s*")


@dataclass(frozen=True)
class Document:
    """A document as sentences."""

    sentences: list[str]  # in order, none empty, no line breaks
    source: str  # ``file:line`` where the document starts, or dataset and row, for messages


def split_sentences(raw: RawDocument, language: str = "en") -> list[str]:
    """Return the sentences of a document, stripped; pure, so that worker processes can run it.

    Hard-wrapped lines are joined first and no sentence crosses a paragraph.
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


logger = logging.getLogger(__name__)

Format = Literal["auto", "sentences", "document", "lines", "wikiextractor"]

MAX_DOCUMENT = 4 * 2**20
"""Characters; a longer document is read as several (see :func:`read_text_file`)."""

DETECTION_CHARS = 2**16
"""Characters at the start of a file that :func:`detect_format` looks at."""


def detect_format(path: File, errors: Errors, language: str) -> Format:
    """Return the format of a text file, by its first 65,536 characters.

    ``wikiextractor`` if the first line that is not blank starts with ``<doc ``. ``sentences`` if
    blank lines part blocks of two lines or more on average, four lines of five end as a sentence
    does, and four of five hold a single sentence. Everything else is one ``document``.
    """
    lines: list[str] = []
    size = 0
    for line in read_lines(path, errors, MAX_LINE):
        lines.append(line.strip())
        size += len(line)
        if size > DETECTION_CHARS:
            break
    text = [line for line in lines if line]
    if text and text[0].startswith("<doc "):
        return "wikiextractor"
    # lines that follow a blank one: ["a", "", "b", "c"] -> 2 blocks
    blocks = sum(
        bool(line) and not before for before, line in zip(["", *lines], lines, strict=False)
    )
    # in the format sentences a block is a document, of two lines or more on average
    if blocks < 2 or len(text) < 2 * blocks:
        return "document"
    ended = sum(SENTENCE_END.search(line) is not None for line in text)
    if ended < 0.8 * len(text):
        return "document"
    single = sum(len(list(sentencex.segment(language, line))) == 1 for line in text)
    return "sentences" if single >= 0.8 * len(text) else "document"


Numbered = Iterable[tuple[int, str] | None]  # lines with their numbers; None ends a document


def _documents(
    path: File, lines: Numbered, presplit: bool, may_part: Callable[[str, int], bool]
) -> Iterator[RawDocument]:
    """Yield what stands between the ends; over ``MAX_DOCUMENT`` in parts, where they may part."""
    found: list[str] = []
    start = size = 0
    for each in chain(lines, [None]):
        if each is not None:
            number, line = each
            start = start if found else number
            found.append(line)
            size += len(line) + 1
            if size <= MAX_DOCUMENT or not may_part(line, size):
                continue
            logger.warning(
                "%s:%d: the document is longer than %d characters; what follows is read as another",
                path,
                start,
                MAX_DOCUMENT,
            )
        text = "\n".join(found)
        if text and not text.isspace():
            yield RawDocument(text, presplit, f"{path}:{start}")
        found, size = [], 0


def read_text_file(path: File, form: Format, lines: Iterator[str]) -> Iterator[RawDocument]:
    """Yield the documents of a text file.

    ``document`` is the file, of ``lines`` each is one. ``sentences`` are parted by blank lines. In
    ``wikiextractor`` are articles, ``<doc id= url= title=>``, text, ``</doc>``; the title stays.
    A document over ``MAX_DOCUMENT`` characters is split with a warning: of sentences at a line end,
    else at the next blank line or end of a sentence that is a line end, and after twice as many
    characters at any line end.
    """
    if form == "sentences":
        filled = (
            (number, line) if line and not line.isspace() else None
            for number, line in enumerate(lines, 1)
        )
        return _documents(path, filled, True, lambda line, size: True)
    text: Numbered = enumerate(lines, 1)
    if form == "wikiextractor":
        text = of_package("data.wiki_articles", CorpusError, f"{path}: format {form}")(path, lines)
    elif form == "lines":
        text = (part for each in text for part in (each, None))  # each line ends its document
    return _documents(path, text, False, _may_part)


def _may_part(line: str, size: int) -> bool:
    return not line.strip() or SENTENCE_END.search(line) is not None or size > 2 * MAX_DOCUMENT


def texts_of_rows(
    raw: RawExamples, column: str, errors: Errors = "strict"
) -> Iterator[tuple[str, str]]:
    """Yield place and text of each row; the text is empty where the row has none."""
    if column not in raw.columns and not raw.rows_vary:
        raise _no_column(raw.name, column, raw.columns)
    ahead = list(_first_rows(raw, column))
    found = [(place, text) for place, row in ahead if (text := row.get(column)) not in (None, "")]
    if found and all(isinstance(text, str) and _NUMBER.fullmatch(text) for _, text in found):
        told = f"{found[0][0]}: column {column!r} holds numbers ({found[0][1]!r}), expected a text"
        raise CorpusError(f"{told}; name another column with text_column")
    for place, row in chain(ahead, raw.rows):
        if column not in row:
            raise _no_column(place, column, list(row))
        text = "" if row[column] is None else row[column]
        if not isinstance(text, str):
            told = f"{place}: column {column!r} holds {kind_of(text)} {str(text)[:40]!r}"
            raise CorpusError(f"{told}, expected a text; name another column with text_column")
        try:
            text.encode()
        except UnicodeEncodeError as error:  # an escaped half of a surrogate pair
            if errors == "strict":
                raise CorpusError(
                    f"{place}: column {column!r} holds a lone surrogate "
                    f"\\u{ord(text[error.start]):04x}, which is no character; mend it, or continue "
                    "with '?' in its place: --errors replace, or data.errors: replace"
                ) from None
            text = text.encode(errors="replace").decode()
        yield place, text


def _first_rows(raw: RawExamples, column: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield rows up to the first with a text that is no number: texts may be long."""
    for place, row in islice(raw.rows, _LOOKED_AT):
        yield place, row
        if (text := row.get(column)) and not _NUMBER.fullmatch(str(text)):
            break


def _no_column(place: str, column: str, columns: Sequence[str]) -> CorpusError:
    return CorpusError(
        f"{place}: no column {column!r}; there are {', '.join(map(repr, columns)) or 'none'}"
        f"{nearest(column, columns)} (set text_column)"
    )
