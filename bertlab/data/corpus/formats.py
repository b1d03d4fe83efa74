"""Text files as documents: lines of (packed) UTF-8 files, the three formats and their detection.

Memory does not depend on the size of a file, packed or not: text is decoded in blocks, a line ends
after ``MAX_LINE`` characters at the latest and a document after about ``MAX_DOCUMENT``.
"""

import codecs
import io
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import sentencex

from bertlab.api.source import RawDocument
from bertlab.data.corpus.documents import SENTENCE_END
from bertlab.data.text_files import disguise, open_unpacked, read_errors
from bertlab.errors import CorpusError

logger = logging.getLogger(__name__)

Format = Literal["sentences", "document", "wikiextractor"]
Errors = Literal["strict", "replace"]

BLOCK = 2**20
"""Bytes decoded at a time."""

MAX_LINE = 2**20
"""Characters; a longer line is cut at a space and read as several."""

MAX_DOCUMENT = 16 * 2**20
"""Characters; a longer document is read as several (see :func:`read_document`)."""

DETECTION_CHARS = 2**16
"""Characters at the start of a file that :func:`detect_format` looks at."""


def read_lines(path: Path, errors: Errors, max_line: int | None = MAX_LINE) -> Iterator[str]:
    """Yield the lines of a UTF-8 file without their ends (LF, CR LF or CR).

    Args:
        path: the file; a name that ends in ``.gz`` is unpacked on the fly.
        errors: ``strict`` or ``replace``, for bytes that are not UTF-8.
        max_line: characters after which a line is cut (about), None for never.

    Raises:
        CorpusError: the file cannot be read, its gzip is damaged, or it is not UTF-8.
    """
    pending: list[str] = []
    size = 0
    for text in _decoded_blocks(path, errors):
        first, *rest = text.split("\n")
        pending.append(first)
        size += len(first)
        if rest:
            yield "".join(pending)
            yield from rest[:-1]
            pending, size = [rest[-1]], len(rest[-1])
        if max_line is not None and size > max_line:
            line = "".join(pending)
            cut = line.rfind(" ", 1) if " " in line[1:] else len(line)
            yield line[:cut]
            pending, size = [line[cut:]], len(line) - cut
    if size:
        yield "".join(pending)


def _decoded_blocks(path: Path, errors: Errors) -> Iterator[str]:
    """Yield the text of a file in blocks, line ends translated, byte order mark dropped."""
    utf8 = codecs.getincrementaldecoder("utf-8")(errors)
    decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
    offset = 0
    with read_errors(str(path), CorpusError), open_unpacked(path) as file:
        while block := file.read(BLOCK):
            held = len(utf8.getstate()[0])
            text = _decode(decoder, block, path, offset - held)
            yield text.removeprefix("\ufeff") if offset == 0 else text
            offset += len(block)
        held = len(utf8.getstate()[0])
        yield _decode(decoder, b"", path, offset - held, final=True)


def _decode(
    decoder: io.IncrementalNewlineDecoder,
    block: bytes,
    path: Path,
    offset: int,
    final: bool = False,
) -> str:
    try:
        return decoder.decode(block, final=final)
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        unpacked = " of the unpacked text" if path.suffix == ".gz" else ""
        advice = (
            "convert the file, or go on with U+FFFD in place of such bytes: "
            "--errors replace, or data.errors: replace"
        )
        if offset == 0:
            advice = disguise(error.object) or advice
        raise CorpusError(
            f"{path}: not UTF-8 at byte offset {offset + error.start}{unpacked} "
            f"(found 0x{byte:02x}: {error.reason}); {advice}"
        ) from None


def detect_format(path: Path, errors: Errors, language: str) -> Format:
    """Tell the format of a text file from its first 65,536 characters.

    ``wikiextractor`` if the first line that is not blank starts with ``<doc ``. ``sentences`` if
    blank lines part blocks of two lines or more on average, four lines of five end as a sentence
    does, and four of five hold a single sentence. Everything else is one ``document``.

    Args:
        path: the file.
        errors: as in :func:`read_lines`.
        language: as in :func:`bertlab.data.corpus.documents.split_sentences`.
    """
    lines: list[str] = []
    size = 0
    for line in read_lines(path, errors):
        lines.append(line.strip())
        size += len(line)
        if size > DETECTION_CHARS:
            break
    text = [line for line in lines if line]
    if text and text[0].startswith("<doc "):
        return "wikiextractor"
    blocks = sum(
        bool(line) and not before for before, line in zip(["", *lines], lines, strict=False)
    )
    if blocks < 2 or len(text) < 2 * blocks:
        return "document"
    ended = sum(SENTENCE_END.search(line) is not None for line in text)
    if ended < 0.8 * len(text):
        return "document"
    single = sum(len(list(sentencex.segment(language, line))) == 1 for line in text)
    return "sentences" if single >= 0.8 * len(text) else "document"


class _Builder:
    """Lines of the document being read; :meth:`take` hands them out and starts afresh."""

    def __init__(self, path: Path, presplit: bool) -> None:
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


def read_sentences(path: Path, lines: Iterator[str]) -> Iterator[RawDocument]:
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


def read_document(path: Path, lines: Iterator[str]) -> Iterator[RawDocument]:
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


def read_wikiextractor(path: Path, lines: Iterator[str]) -> Iterator[RawDocument]:
    """Yield the articles of a WikiExtractor file: ``<doc id= url= title=>``, text, ``</doc>``.

    The first line of an article, its title, stays. ``&lt; &gt; &amp;`` are unescaped. Articles over
    ``MAX_DOCUMENT`` characters are split as in :func:`read_document`.

    Raises:
        CorpusError: text outside ``<doc>`` and ``</doc>``, or a ``<doc>`` that is never closed.
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
    return line.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _never_closed(path: Path, opened: int, where: str) -> CorpusError:
    return CorpusError(f"{path}:{opened}: <doc> without its </doc> {where}; extract it again")


READERS: dict[Format, Callable[[Path, Iterator[str]], Iterator[RawDocument]]] = {
    "sentences": read_sentences,
    "document": read_document,
    "wikiextractor": read_wikiextractor,
}
