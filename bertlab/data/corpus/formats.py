"""Text files as documents: the three formats and their detection.

Memory does not depend on the size of a file: a document ends after about ``MAX_DOCUMENT``
characters.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import sentencex

from bertlab.api.source import RawDocument
from bertlab.data.corpus.documents import SENTENCE_END
from bertlab.data.rows.lines import MAX_LINE, Errors, read_lines
from bertlab.errors import CorpusError
from bertlab.files.remote import RemoteFile

logger = logging.getLogger(__name__)

Format = Literal["sentences", "document", "wikiextractor"]

MAX_DOCUMENT = 16 * 2**20
"""Characters; a longer document is read as several (see :func:`read_document`)."""

DETECTION_CHARS = 2**16
"""Characters at the start of a file that :func:`detect_format` looks at."""


def detect_format(path: Path | RemoteFile, errors: Errors, language: str) -> Format:
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


class _Builder:
    """Collects the lines of a document; :meth:`take` yields the document and starts a new one."""

    def __init__(self, path: Path | RemoteFile, presplit: bool) -> None:
        self.path, self.presplit = path, presplit
        self.lines: list[str] = []
        self.start = self.size = 0

    def add(self, number: int, line: str) -> None:
        if not self.lines:
            self.start = number
        self.lines.append(line)
        self.size += len(line) + 1

    def take(self) -> Iterator[RawDocument]:
        text = "\n".join(self.lines)
        if text and not text.isspace():
            yield RawDocument(text, self.presplit, f"{self.path}:{self.start}")
        self.lines, self.size = [], 0

    def take_part(self) -> Iterator[RawDocument]:
        logger.warning(
            "%s:%d: the document is longer than %d characters; what follows is read as another",
            self.path,
            self.start,
            MAX_DOCUMENT,
        )
        yield from self.take()


def read_sentences(path: Path | RemoteFile, lines: Iterator[str]) -> Iterator[RawDocument]:
    """Yield the documents of a file with a sentence a line and blank lines between documents.

    A document over ``MAX_DOCUMENT`` characters is split at a line end, with a warning.
    """
    builder = _Builder(path, presplit=True)
    for number, line in enumerate(lines, 1):
        if line and not line.isspace():
            builder.add(number, line)
            if builder.size > MAX_DOCUMENT:
                yield from builder.take_part()
        elif builder.lines:
            yield from builder.take()
    yield from builder.take()


def read_document(path: Path | RemoteFile, lines: Iterator[str]) -> Iterator[RawDocument]:
    """Yield a whole file as one document.

    A document over ``MAX_DOCUMENT`` characters is split with a warning at the next blank line or
    end of a sentence that is a line end, and after twice as many characters at any line end.
    """
    builder = _Builder(path, presplit=False)
    for number, line in enumerate(lines, 1):
        builder.add(number, line)
        if builder.size > MAX_DOCUMENT and _may_part(line, builder.size):
            yield from builder.take_part()
    yield from builder.take()


def _may_part(line: str, size: int) -> bool:
    return not line.strip() or SENTENCE_END.search(line) is not None or size > 2 * MAX_DOCUMENT


def read_wikiextractor(path: Path | RemoteFile, lines: Iterator[str]) -> Iterator[RawDocument]:
    """Yield the articles of a WikiExtractor file: ``<doc id= url= title=>``, text, ``</doc>``.

    The first line of an article, its title, stays. ``&lt; &gt; &amp;`` are unescaped. Articles over
    ``MAX_DOCUMENT`` characters are split as in :func:`read_document`.
    """
    builder = _Builder(path, presplit=False)
    opened = 0
    for number, line in enumerate(lines, 1):
        if line.startswith("<doc "):
            if opened:
                raise _never_closed(path, opened, f"before the next one in line {number}")
            opened = number
        elif not opened:
            if line.strip():
                raise CorpusError(
                    f"{path}:{number}: found {line.strip()[:40]!r}, expected '<doc id=… url=… "
                    "title=…>'; set corpus_format to document or sentences if this is not from "
                    "WikiExtractor"
                )
        elif line.rstrip().endswith("</doc>"):
            builder.add(number, _unescape(line.rstrip().removesuffix("</doc>")))
            yield from builder.take()
            opened = 0
        else:
            builder.add(number, _unescape(line))
            if builder.size > MAX_DOCUMENT and _may_part(line, builder.size):
                yield from builder.take_part()
    if opened:
        raise _never_closed(path, opened, "at the end of the file, which may be cut short")


def _unescape(line: str) -> str:
    if "&" not in line:
        return line
    # &amp; comes last: "&amp;lt;" stands for the text "&lt;"
    return line.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _never_closed(path: Path | RemoteFile, opened: int, where: str) -> CorpusError:
    return CorpusError(f"{path}:{opened}: <doc> without its </doc> {where}; extract it again")


READERS: dict[Format, Callable[[Path | RemoteFile, Iterator[str]], Iterator[RawDocument]]] = {
    "sentences": read_sentences,
    "document": read_document,
    "wikiextractor": read_wikiextractor,
}
