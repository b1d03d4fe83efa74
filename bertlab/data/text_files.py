"""Bytes of text files, packed or not, and what a file that is no UTF-8 may be.

Lines of labelled text files: UTF-8, perhaps packed, or standard input.
"""

import gzip
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import repeat
from pathlib import Path
from typing import IO, cast

from bertlab.errors import BertlabError, DataError

_DISGUISES = {
    b"\x1f\x8b": "it looks like gzip, whose name must end in .gz",
    b"\xff\xfe": "it looks like UTF-16, convert it to UTF-8",
    b"\xfe\xff": "it looks like UTF-16, convert it to UTF-8",
    b"PK\x03\x04": "it looks like a zip file, unpack it",
}


def open_unpacked(path: Path) -> IO[bytes]:
    """Open a file for reading; a name that ends in ``.gz`` is unpacked on the fly."""
    return cast("IO[bytes]", gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


@contextmanager
def read_errors(name: str, error_class: type[BertlabError]) -> Iterator[None]:
    """Say what keeps a file from being opened and read.

    Args:
        name: of the file, for messages.
        error_class: of the errors.

    Raises:
        BertlabError: of ``error_class``: the file cannot be read, or its gzip is damaged.
    """
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise error_class(
            f"{name}: damaged gzip file ({error}); "
            f"copy or pack the file again (check with: gzip -t {name})"
        ) from None
    except OSError as error:
        raise error_class(f"{name}: cannot be read: {error.strerror or error}") from None


def disguise(start: bytes) -> str | None:
    """Tell from its first bytes what a file that is no UTF-8 text looks like; None: like none."""
    return next((what for magic, what in _DISGUISES.items() if start.startswith(magic)), None)


STANDARD_INPUT = "-"


def name_of(path: str) -> str:
    """Return what messages call a path: ``standard input`` for ``-``."""
    return "standard input" if path == STANDARD_INPUT else path


def read_lines(path: str) -> Iterator[str]:
    """Yield the lines of a file as they are read, without their ends (LF or CR LF).

    A byte order mark is dropped.

    Args:
        path: the file, unpacked if its name ends in ``.gz``; ``-`` is standard input.

    Raises:
        DataError: the file cannot be read, its gzip is damaged, or it is not UTF-8 text.
    """
    name = name_of(path)
    offset = 0
    with read_errors(name, DataError), _open(path) as file:
        for number, line in enumerate(file, 1):
            yield _decode(line, name, number, offset)
            offset += len(line)


def _open(path: str) -> AbstractContextManager[IO[bytes]]:
    if path == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)
    return open_unpacked(Path(path))


def _decode(line: bytes, name: str, number: int, offset: int) -> str:
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        unpacked = " of the unpacked text" if name.endswith(".gz") else ""
        advice = "convert the file to UTF-8"
        if number == 1:
            advice = disguise(line) or advice
        raise DataError(
            f"{name}:{number}: not UTF-8 at byte offset {offset + error.start}{unpacked} "
            f"(found 0x{line[error.start]:02x}: {error.reason}); {advice}"
        ) from None
    if "\0" in text:
        raise DataError(
            f"{name}:{number}: holds a NUL byte at byte offset {offset + line.index(0)}, which no "
            "text does; the file is damaged, binary or not UTF-8"
        )
    if number == 1:
        text = text.removeprefix("\ufeff")
    return text.removesuffix("\n").removesuffix("\r")


def numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers from 1, less the empty ones at the end of the file."""
    empty = 0
    for number, line in enumerate(lines, 1):
        if not line:
            empty += 1
            continue
        yield from zip(range(number - empty, number), repeat(""))
        empty = 0
        yield number, line
