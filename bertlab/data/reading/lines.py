"""Lines of UTF-8 files, packed or not: those of tables one by one, those of corpora in blocks.

The two readers stay apart: labelled examples are streamed from standard input too, and messages
name their lines; a corpus may have lines of any length, and bytes that are replaced.
"""

import codecs
import errno
import gzip
import io
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import repeat
from pathlib import Path
from typing import IO, Literal, cast

from bertlab.errors import BertlabError, CorpusError, DataError
from bertlab.files.reading import RemoteFile, located, open_to_read

_DISGUISES = {
    b"\x1f\x8b": "it looks like gzip, whose name must end in .gz",
    b"\xff\xfe": "it looks like UTF-16, convert it to UTF-8",
    b"\xfe\xff": "it looks like UTF-16, convert it to UTF-8",
    b"PK\x03\x04": "it looks like a zip file or an office document: unpack it, or save it as text",
    b"%PDF": "it looks like a PDF file, expected its text",
}


Errors = Literal["strict", "replace"]

BLOCK = 2**20
"""Bytes decoded at a time."""

MAX_LINE = 2**20
"""Characters; a longer line is cut at a space and read as several."""


def open_unpacked(path: Path | RemoteFile) -> IO[bytes]:
    """Open a file for reading; a name that ends in ``.gz`` is unpacked on the fly."""
    if path.suffix != ".gz":
        return open_to_read(path)
    if isinstance(path, RemoteFile):
        return cast("IO[bytes]", gzip.open(path.open()))
    if path.is_fifo():
        raise OSError(errno.EINVAL, "is a pipe, expected a gzip file", str(path))
    return cast("IO[bytes]", gzip.open(path))


@contextmanager
def explain_failed_read(name: str, error_class: type[BertlabError]) -> Iterator[None]:
    """Re-raise errors of opening, reading and unpacking a file as errors of bertlab's."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise error_class(
            f"{name}: damaged gzip file ({error}); "
            f"copy or pack the file again (check with: gzip -t {name})"
        ) from None
    except OSError as error:
        raise error_class(f"{name}: cannot be read: {error.strerror or error}") from None


def _disguise(start: bytes) -> str | None:
    """Return what a file that is not UTF-8 looks like by its first bytes, if it looks like any."""
    return next((what for magic, what in _DISGUISES.items() if start.startswith(magic)), None)


STANDARD_INPUT = "-"


def input_name(path: str) -> str:
    """Return the name of a path in messages: ``standard input`` for ``-``."""
    return "standard input" if path == STANDARD_INPUT else path


def read_lines(path: str) -> Iterator[str]:
    """Yield the lines of a file as they are read, without their ends (LF or CR LF).

    A byte order mark is dropped.
    """
    name = input_name(path)
    offset = 0
    with explain_failed_read(name, DataError), _open(path) as file:
        for number, line in enumerate(file, 1):
            yield _decode_line(line, name, number, offset)
            offset += len(line)


def _open(path: str) -> AbstractContextManager[IO[bytes]]:
    if path == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)
    return open_unpacked(located(path))


def _decode_line(line: bytes, name: str, number: int, offset: int) -> str:
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        advice = "convert the file to UTF-8"
        raise DataError(_not_utf8(name, f"{name}:{number}", error, offset, advice)) from None
    if "\0" in text:
        raise DataError(
            f"{name}:{number}: holds a NUL byte at byte offset {offset + line.index(0)}, which no "
            "text does; the file is damaged, binary or not UTF-8"
        )
    if number == 1:
        text = text.removeprefix("\ufeff")
    return text.removesuffix("\n").removesuffix("\r")  # "\r\n": first one, then the other


def numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers from 1, without the empty lines at the end of the file."""
    empty = 0
    for number, line in enumerate(lines, 1):
        if not line:
            empty += 1
            continue
        # ["a", "", "", "b", ""] -> (1, "a"), (2, ""), (3, ""), (4, "b")
        yield from zip(range(number - empty, number), repeat(""))
        empty = 0
        yield number, line


def read_long_lines(
    path: Path | RemoteFile, errors: Errors, max_line: int | None = MAX_LINE
) -> Iterator[str]:
    """Yield the lines of a corpus file, decoded in blocks, without their ends (LF, CR LF or CR).

    A file may be one line of any length, so memory must not depend on lines. Bad bytes are named by
    their offset only.
    """
    pending: list[str] = []
    size = 0
    for text in _decoded_blocks(path, errors):
        first, *rest = text.split("\n")  # "b\nc\nd" after "a" -> lines "ab" and "c"; "d" waits
        pending.append(first)
        size += len(first)
        if rest:
            yield "".join(pending)
            yield from rest[:-1]
            pending, size = [rest[-1]], len(rest[-1])
        if max_line is not None and size > max_line:
            line = "".join(pending)
            # from 1 on, as what is left of the last cut begins with a space
            cut = line.rfind(" ", 1) if " " in line[1:] else len(line)
            yield line[:cut]
            pending, size = [line[cut:]], len(line) - cut
    if size:
        yield "".join(pending)


def _decoded_blocks(path: Path | RemoteFile, errors: Errors) -> Iterator[str]:
    """Yield the text of a file in blocks, line ends translated, byte order mark dropped."""
    utf8 = codecs.getincrementaldecoder("utf-8")(errors)
    decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
    offset = 0
    with explain_failed_read(str(path), CorpusError), open_unpacked(path) as file:
        while block := file.read(BLOCK):
            held = len(utf8.getstate()[0])  # bytes of a character that goes on in this block
            text = _decode_block(decoder, block, path, offset - held)
            yield text.removeprefix("\ufeff") if offset == 0 else text
            offset += len(block)
        held = len(utf8.getstate()[0])
        yield _decode_block(decoder, b"", path, offset - held, final=True)


def _decode_block(
    decoder: io.IncrementalNewlineDecoder,
    block: bytes,
    path: Path | RemoteFile,
    offset: int,
    final: bool = False,
) -> str:
    try:
        return decoder.decode(block, final=final)
    except UnicodeDecodeError as error:
        advice = (
            "convert the file, or go on with U+FFFD in place of such bytes: "
            "--errors replace, or data.errors: replace"
        )
        raise CorpusError(_not_utf8(str(path), str(path), error, offset, advice)) from None


def _not_utf8(name: str, where: str, error: UnicodeDecodeError, offset: int, advice: str) -> str:
    """Return the message about bytes that are not UTF-8; they were read from ``offset`` on."""
    unpacked = " of the unpacked text" if name.endswith(".gz") else ""
    if offset == 0:
        advice = _disguise(error.object) or advice
    return (
        f"{where}: not UTF-8 at byte offset {offset + error.start}{unpacked} "
        f"(found 0x{error.object[error.start]:02x}: {error.reason}); {advice}"
    )
