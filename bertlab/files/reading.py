"""Reading files that may come from anywhere, or may be no files: bounded, and never for ever.

A record, config or index is read whole, so a bound on its size is a bound on memory. Streams
(corpora, rows) are opened here, too: a pipe at whose other end nobody is does not hang.
"""

import contextlib
import errno
import io
import json
import os
import re
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bertlab.errors import nearest

# JSON itself escapes those below 32; the last two end a line for some readers
_CONTROLS = re.compile("[\x7f-\x9f\u2028\u2029]")


def json_line(content: object) -> str:
    """Return one line of JSON; what JSON does not have, such as a date, is a text."""
    text = json.dumps(content, ensure_ascii=False, default=str)
    # "\x9b" begins a terminal's commands as "\x1b[" does
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


LARGEST_FILE = 2**26
"""Bytes of a file that is read whole, if its reader does not say otherwise."""

_MOST_DIGITS = 1000  # transformers writes lengths of 31
_PATIENCE = 10.0  # seconds to wait for the other end of a pipe


def open_to_read(path: Path) -> io.BufferedReader:
    """Open a file, pipe or device for reading."""
    return os.fdopen(open_patiently(path, os.O_RDONLY), "rb")


def open_patiently(path: Path, flags: int) -> int:
    """Return a descriptor; of a named pipe, wait some seconds for its other end, not for ever."""
    flags |= getattr(os, "O_CLOEXEC", 0)
    kind = path.stat().st_mode
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, "is a folder, expected a file", str(path))
    if stat.S_ISSOCK(kind):
        raise OSError(errno.ENXIO, "is a socket, expected a file", str(path))
    if not stat.S_ISFIFO(kind):
        return os.open(path, flags)
    opened: list[int] = []
    waiting = threading.Thread(target=lambda: opened.append(os.open(path, flags)), daemon=True)
    waiting.start()
    waiting.join(_PATIENCE)
    if waiting.is_alive():
        # both ends at once: this never waits, and lets the thread go
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
        waiting.join()
        for descriptor in opened:
            os.close(descriptor)
        raise OSError(
            errno.ENXIO, f"is a pipe with nobody at its other end for {_PATIENCE:.0f} s", str(path)
        )
    if not opened:  # the thread was refused what we are refused
        return os.open(path, flags | os.O_NONBLOCK)
    return opened[0]


def read_bytes(path: Path, largest: int = LARGEST_FILE) -> bytes:
    """Return what a file holds, if that is at most ``largest`` bytes."""
    with open_to_read(path) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, f"has over {largest:,} bytes, expected fewer", str(path))
    return content


def read_text(path: Path, largest: int = LARGEST_FILE) -> str:
    """Return the text of a UTF-8 file."""
    return read_bytes(path, largest).decode()


class UnreadableError(ValueError):
    """A file does not hold what it should; the command line prints this as one message.

    Attributes:
        filename: the file.
    """

    def __init__(self, filename: Path, reason: str) -> None:
        super().__init__(reason)
        self.filename = str(filename)


def read_json(path: Path, largest: int = LARGEST_FILE) -> Any:  # noqa: ANN401
    """Return what a JSON file holds."""
    with explain_damage(path):
        return parse_json(read_text(path, largest))


def read_object(
    path: Path, kinds: Mapping[str, type] | None = None, largest: int = LARGEST_FILE
) -> dict[str, Any]:
    """Return what a JSON file holds, if that is a mapping with these keys."""
    content = read_json(path, largest)
    if not isinstance(content, dict):
        raise UnreadableError(path, f"found a {type(content).__name__}, expected a mapping")
    for key, kind in (kinds or {}).items():
        if not isinstance(content.get(key), kind):
            found = type(content[key]).__name__ if key in content else "nothing"
            raise UnreadableError(path, f"{key}: found {found}, expected {kind.__name__}")
    return content


@contextlib.contextmanager
def explain_damage(path: Path) -> Iterator[None]:
    """Re-raise what reading a damaged record raises inside the block as UnreadableError."""
    try:
        yield
    except UnreadableError:
        raise
    except UnicodeDecodeError as error:
        raise UnreadableError(path, f"not UTF-8 at byte {error.start}") from None
    except KeyError as error:
        raise UnreadableError(path, f"lacks {error}") from None
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise UnreadableError(path, str(error)[:200]) from None


def parse_json(text: str) -> Any:  # noqa: ANN401
    """Return what JSON text says."""
    try:
        return json.loads(text, parse_int=_whole_number)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _whole_number(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:  # int() of millions of them takes minutes
        raise ValueError(f"a number of {len(digits)} digits, expected at most {_MOST_DIGITS}")
    return int(digits)


DECODER = json.JSONDecoder(parse_int=_whole_number)
"""Parses JSON from a place in a text on."""


def names_in(folder: Path) -> str:
    """Return the first names in a folder, for a message that misses one."""
    return ", ".join(sorted(each.name for each in folder.iterdir())[:8]) or "nothing"


def describe_missing(location: str, others: Iterable[str], expected: str) -> str:
    """Return the message about a location where there is neither a file nor a folder."""
    path = Path(location).expanduser()
    if path.exists():
        return f"{path}: neither a file nor a folder"
    if not path.parent.is_dir():
        return f"{path}: no such file; the folder {path.parent} does not exist either"
    there = sorted(entry.name for entry in path.parent.iterdir())
    hint = nearest(path.name, [*there, *others]) or f"; expected {expected}"
    return f"{location}: no such file or folder in {path.parent.resolve()}{hint}"
