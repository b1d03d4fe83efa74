"""Bytes of text files, packed or not, and what a file that is no UTF-8 may be."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from bertlab.errors import BertlabError

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
