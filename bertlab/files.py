"""Files: whole-or-absent writes, and bounded reads of what may come from anywhere.

Files and folders are written under a temporary name beside their place and renamed, so that they
are there when they are whole, or not at all. What a killed process leaves there is removed when the
same is written again. A record, config or index is read whole, so a bound on its size is a bound on
memory; a pipe at whose other end nobody is does not hang. Reading has one budget of memory.
"""

import contextlib
import errno
import glob
import io
import json
import os
import platform
import re
import secrets
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from bertlab.errors import ConfigError, OutOfMemoryError, OutputError, kind_of, nearest

LARGEST_FILE = 2**26
"""Bytes of a file that is read whole, if its reader does not say otherwise."""

READING_MB = "BERTLAB_READING_MB"
"""Environment variable: how much memory reading may take."""

_DEFAULT_MB = 512
_FACTOR = 64  # bytes of memory for a byte of a file: 1,000 for a row of 16 bytes
_SMALL = 2**20  # characters that need no look, whatever they become
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


def reading_budget(stored: int = 0) -> int:
    """Return the bytes of memory that may be taken by what a file of ``stored`` bytes becomes.

    It is the user's alone to raise: no config and no checkpoint brings an environment variable.
    """
    given = os.environ.get(READING_MB) or str(_DEFAULT_MB)
    if not (given.isdecimal() and len(given) < 10 and int(given)):
        raise ConfigError(f"{READING_MB}: found {given[:40]!r}, expected a number of MB, as 512")
    return max(int(given) << 20, _FACTOR * stored)


def over_budget(size: int, stored: int = 0) -> str | None:
    """Return why something may not be read that takes ``size`` bytes of memory; None if it may."""
    limit, needed = reading_budget(stored), (size >> 20) + 1
    if size <= limit:
        return None
    enough = 1 << needed.bit_length()  # a power of two, as it may go on growing
    return (
        f"takes {needed:,} MB of memory, expected at most {limit >> 20:,} MB (with "
        f"{READING_MB}={enough} in the environment it may)"
    )


def check_memory(place: object, what: str, size: int, stored: int = 0) -> None:
    """Raise OutOfMemoryError if what is read at a place takes more memory than reading may."""
    if (reason := over_budget(size, stored)) is not None:
        raise OutOfMemoryError(f"{place}: {what} {reason}")


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
    """A file, ``filename``, does not hold what it should; commands print this as one message."""

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
        raise UnreadableError(path, f"found {kind_of(content)}, expected a mapping")
    for key, kind in (kinds or {}).items():
        if not isinstance(content.get(key), kind):
            found = kind_of(content.get(key))
            raise UnreadableError(path, f"{key}: found {found}, expected {kind_of(kind())}")
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
    except (ValueError, TypeError, AttributeError, IndexError, ArithmeticError) as error:
        raise UnreadableError(path, str(error)[:200]) from None


def parse_json(text: str, stored: int = 0) -> Any:  # noqa: ANN401
    """Return what JSON text says, which a file of ``stored`` bytes holds."""
    check_json(text, stored)
    try:
        return json.loads(text, parse_int=_whole_number)
    except RecursionError:
        raise ValueError("nested too deep") from None


def check_json(text: str, stored: int = 0) -> None:
    """Raise ValueError if JSON text takes too much memory as objects: ``[],`` becomes 64 bytes."""
    if len(text) > _SMALL:
        # of CPython: a dict of one key 184, a list 56, a text 49, and what refers to each
        sizes = {"{": 200, "[": 96, '"': 30, ",": 40}
        taken = 2 * sys.getsizeof(text) + sum(n * text.count(sign) for sign, n in sizes.items())
        if (reason := over_budget(taken, stored)) is not None:
            raise ValueError(f"it {reason}")


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


@contextlib.contextmanager
def replacing(
    path: Path, *, durable: bool = False, sole_writer: bool = False
) -> Iterator[IO[bytes]]:
    """Open a new file, which takes the place of ``path`` at the end of the block.

    An exception in the block leaves what stood there before. A device or pipe (``/dev/null``,
    ``/dev/stdout``) is written to and stays what it is.
    """
    if _is_stream(path):
        with os.fdopen(open_patiently(path, os.O_WRONLY), "wb") as file:
            yield file
        return
    remove_abandoned(path, sole_writer)
    partial = _partial_path(path)
    try:
        with partial.open("wb") as file:
            yield file
            # the content first, then the name: a power cut must not leave the name without content
            if durable:
                file.flush()
                os.fsync(file.fileno())
        partial.replace(path)  # atomic: a reader finds the old file or the new one
        if durable:
            _fsync(path.parent)  # which holds the name
    except BaseException as error:
        if isinstance(error, OSError) and error.filename in (None, str(partial)):
            error.filename = str(path)  # the name that messages give
        with contextlib.suppress(OSError):  # of a mount that vanished
            partial.unlink(missing_ok=True)
        raise


def _is_stream(path: Path) -> bool:
    """Whether a path is written to as it is: a device, a pipe, or an open file by its number."""
    try:
        kind = path.stat().st_mode
    except OSError:
        return False
    if stat.S_ISBLK(kind):
        raise OSError(errno.EINVAL, "is a disk, expected a file", str(path))
    # /dev/stdout is a link that may lead to a file: to be followed, not to be replaced
    place = path.parent.resolve().parts[:2]
    open_file = path.is_symlink() and place in (("/", "dev"), ("/", "proc"))
    return open_file or not (stat.S_ISDIR(kind) or stat.S_ISREG(kind))


def utf8(text: str) -> bytes:
    """Return UTF-8; what of a text has none, as of a file name of odd bytes, is an escape.

    In JSON the escape reads back as what it stands for.
    """
    return text.encode(errors="backslashreplace")  # "\udcff" -> rb"\udcff"


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file, or leave what stood there."""
    with replacing(path) as file:
        file.write(utf8(text))


def write_json(path: Path, content: object) -> None:
    """Write something as indented JSON; errors as :func:`write_text`."""
    write_text(path, _json(content))


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it; raise OutputError for a URL."""
    check_is_path(folder)
    folder.mkdir(parents=True, exist_ok=True)


def check_is_path(place: Path) -> None:
    """Refuse to write to a URL, which would be below a folder ``https:``; ``C:/x`` is a drive."""
    if re.match(r"[A-Za-z][\w+.:-]+:/", str(place)):
        raise OutputError(f"{place}: is a URL; expected a path: bertlab writes to this machine")


def create_text(path: Path, text: str) -> None:
    """Write a file that must not exist yet; of several processes that try, one succeeds."""
    with path.open("x", encoding="utf-8", errors="backslashreplace") as file:
        try:
            file.write(text)
            file.flush()
        except OSError:
            path.unlink()  # half a file would keep all others out
            raise


def create_json(path: Path, content: object) -> None:
    """Write a JSON file that must not exist yet; as :func:`create_text`."""
    create_text(path, _json(content))


def _json(content: object) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def open_to_append(path: Path) -> IO[bytes]:
    """Open a file, or make it, to add to its end; a link is refused by the system."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o666), "ab")


class WholeFile:
    """A text file that is written bit by bit, and put in its place by :meth:`close`.

    Args:
        path: its place; missing folders on the way are made.

    Raises:
        OutputError: here and in the methods, if it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._failure = f"{path}: cannot be written"
        with explain_failed_write(self._failure):
            if path.is_dir():
                raise IsADirectoryError(0, "it is a folder")
            make_folder(path.parent)
            self._block = replacing(path)
            self._file = self._block.__enter__()  # a with block that spans calls

    def write(self, text: str) -> None:
        """Add text."""
        with explain_failed_write(self._failure):
            self._file.write(utf8(text))

    def close(self) -> None:
        """Put the file in its place, over what was there."""
        with explain_failed_write(self._failure):
            self._block.__exit__(None, None, None)

    def discard(self) -> None:
        """Leave no file; does nothing after :meth:`close`."""
        error = InterruptedError()
        self._block.__exit__(type(error), error, None)  # replacing() removes the partial file


@contextlib.contextmanager
def new_folder(target: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a new folder to fill, which takes the place of ``target`` at the end of the block.

    Its files are on the disk before it is renamed. An exception in the block removes it.
    """
    if not target.name:  # "" and "." are the working directory, ".." is found when it is renamed
        raise OutputError(f"output: found {str(target)!r}, expected the name of a folder to make")
    remove_abandoned(target)
    folder = _partial_path(target)
    try:
        make_folder(folder)
        yield folder
        for path in [*folder.rglob("*"), folder]:  # before the rename shows it
            _fsync(path)
        # rename() replaces an empty folder, but none that holds files
        with _moved_away(target) if overwrite and target.is_dir() else contextlib.nullcontext():
            folder.rename(target)
        _fsync(target.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # gone already if it was renamed


@contextlib.contextmanager
def _moved_away(target: Path) -> Iterator[None]:
    """Rename a folder for the length of the block, then remove it; an error brings it back."""
    old = _partial_path(target).with_suffix(".old")  # never taken for abandoned
    target.rename(old)
    try:
        yield
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def remove_abandoned(target: Path, sole_writer: bool = False) -> None:
    """Remove what killed processes of this host left beside ``target``."""
    own = _own_prefix(target)
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.partial"):
        process = left.name.removeprefix(own).split(".")[0]
        dead = left.name.startswith(own) and process.isdecimal() and not _is_alive(int(process))
        if sole_writer or dead:
            _remove(left)


def _own_prefix(target: Path) -> str:
    return f".{target.name}.{platform.node()}."


def _partial_path(target: Path) -> Path:
    """Return an unused temporary name beside ``target``; it tells host and process."""
    # random at the end: threads of one process may write the same file
    return target.with_name(f"{_own_prefix(target)}{os.getpid()}.{secrets.token_hex(4)}.partial")


def _remove(left: Path) -> None:
    if left.is_dir():
        shutil.rmtree(left, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            left.unlink()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)  # 0 is no signal: it only asks
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def _fsync(path: Path) -> None:
    """Make a file's content, or a rename in a folder, survive a power cut, where that is known."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def explain_failed_write(failure: str, consequence: str = "") -> Iterator[None]:
    """Re-raise an OSError inside the block as OutputError."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"{failure}: {reason}{consequence}") from None


@contextlib.contextmanager
def explain_vanished_folder(folder: Path, hint: Callable[[], str] = str) -> Iterator[None]:
    """Re-raise a FileNotFoundError inside the block as OutputError if ``folder`` has vanished."""
    try:
        yield
    except FileNotFoundError as error:
        if folder.is_dir():
            raise
        raise OutputError(f"{folder}: is gone (its disk?){hint()}") from error
