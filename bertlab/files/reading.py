"""Reading files that may come from anywhere, or may be no files: bounded, and never for ever.

A record, config or index is read whole, so a bound on its size is a bound on memory. Streams
(corpora, rows) are opened here, too: a pipe at whose other end nobody is does not hang.

Files behind URLs (``https://``, ``s3://``, ``hf://`` and whatever else fsspec reads) are streamed,
and what goes wrong with them is an OSError, as with local files. Credentials are those that the
protocol's own package finds, such as ``~/.aws``.
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
from dataclasses import dataclass
from functools import cached_property
from glob import has_magic
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from bertlab.errors import nearest

# JSON itself escapes those below 32; the last two end a line for some readers
_CONTROLS = re.compile("[\x7f-\x9f\u2028\u2029]")


def json_line(content: object) -> str:
    """Return one line of JSON; what JSON does not have, such as a date, is a text."""
    text = json.dumps(content, ensure_ascii=False, default=str)
    # "\x9b" begins a terminal's commands as "\x1b[" does
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


PATIENCE = 60.0
"""Seconds without an answer after which a web server is given up; other protocols have their own
limits."""

_BUFFER = 2**20
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


def is_url(location: str) -> bool:
    """Return whether a location is a URL, and no path and no name of a source."""
    return _SCHEME.match(location) is not None


def located(location: str) -> "Path | RemoteFile":
    """Return the file that a location stands for, which may not be there."""
    if not is_url(location):
        return Path(location)
    local = re.match(r"(?:file|local)://", location, re.IGNORECASE)
    return Path(location[local.end() :]) if local else RemoteFile(location)


@dataclass(frozen=True)
class RemoteFile:
    """A file, or folder, behind a URL; what is asked of it has the names that ``Path`` has.

    Attributes:
        url: where it is.

    Raises:
        OSError: from all methods: it cannot be read; says why.
    """

    url: str

    def __str__(self) -> str:
        return self.url

    @cached_property
    def name(self) -> str:
        """The last part of the path, without what a web server is asked for beside it."""
        return PurePosixPath(urlsplit(self.url).path if self._is_web else self.url).name

    @cached_property
    def suffix(self) -> str:
        """The ending of the name: ``.gz`` of ``a.txt.gz``."""
        return PurePosixPath(self.name).suffix

    @cached_property
    def suffixes(self) -> list[str]:
        """All endings of the name."""
        return PurePosixPath(self.name).suffixes

    @cached_property
    def _is_web(self) -> bool:
        return self.url.lower().startswith(("http://", "https://"))

    def open(self) -> io.BufferedReader:
        """Open the file as a stream of bytes; a web server's cannot be sought in."""
        with explain_remote(self.url):
            system, path = self._reached()
            # a web server may know no ranges: one request for all then, read as it comes
            file = system.open(path, "rb", **({"block_size": 0} if self._is_web else {}))
        return io.BufferedReader(_Stream(file, self.url, not self._is_web), _BUFFER)

    def exists(self) -> bool:
        """Return whether something is there."""
        try:
            with explain_remote(self.url):
                system, path = self._reached()
                system.info(path)
        except FileNotFoundError:
            return False
        return True

    def files(self) -> "list[RemoteFile] | None":
        """Return the files of a folder or pattern in the order of local ones; None of one file.

        Hidden ones are left out. A web server shows no folders.
        """
        with explain_remote(self.url):
            system, path = self._reached()
            if "*" in self.url or (has_magic(self.url) and not self._is_web):
                return [self._other(system, each) for each in sorted(system.glob(path))]
            if self._is_web or system.info(path)["type"] != "directory":
                system.info(path)  # it is there
                return None
            inside = PurePosixPath(path)
            found = [PurePosixPath(each).relative_to(inside).parts for each in system.find(path)]
        # a folder's files stand before those of its folders: a/c, a/b/d
        found = [parts for parts in found if not any(part.startswith(".") for part in parts)]
        found.sort(key=lambda parts: [*((1, part) for part in parts[:-1]), (0, parts[-1])])
        return [self._other(system, str(inside.joinpath(*parts))) for parts in found]

    def inside(self) -> "list[RemoteFile]":
        """Return the files of a folder, without those of its folders."""
        with explain_remote(self.url):
            system, path = self._reached()
            if self._is_web:
                raise ValueError("a web server shows no folders; give s3://, gs://, hf:// or so")
            found = [
                each["name"] for each in system.ls(path, detail=True) if each["type"] == "file"
            ]
        return [self._other(system, each) for each in sorted(found)]

    def _reached(self) -> tuple[Any, str]:
        """Return fsspec's file system, and the path in it."""
        import fsspec  # noqa: PLC0415  not for those who have local files

        if "::" in self.url:  # would open one file by what another one says
            raise ValueError("expected one protocol, found a chain of them (::)")
        settings: dict[str, Any] = {}
        if self._is_web:
            import aiohttp  # noqa: PLC0415

            # the whole takes as long as it takes: only silence is limited
            limit = aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE, sock_read=PATIENCE)
            settings["client_kwargs"] = {"timeout": limit}
        system, path = fsspec.url_to_fs(self.url, **settings)
        return system, path

    def _other(self, system: Any, path: str) -> "RemoteFile":  # noqa: ANN401
        return RemoteFile(path if is_url(path) else system.unstrip_protocol(path))


class _Stream(io.RawIOBase):
    """A file of fsspec whose errors are OSErrors, whatever its protocol raises."""

    def __init__(self, file: Any, url: str, seekable: bool) -> None:  # noqa: ANN401
        self._file, self._url, self._seekable = file, url, seekable

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._seekable

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        with explain_remote(self._url):
            return int(self._file.seek(offset, whence))

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401
        with explain_remote(self._url):
            content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        if not self.closed:
            with contextlib.suppress(Exception):  # of a connection that is gone anyway
                self._file.close()
        super().close()


@contextlib.contextmanager
def explain_remote(url: str) -> Iterator[None]:
    """Re-raise whatever a protocol's package raises inside the block as OSError."""
    try:
        yield
    except Exception as error:
        found = error
        # fsspec calls much a missing file; what the web server said lies behind it
        if isinstance(error, FileNotFoundError) and error.__cause__ is not None:
            found = error.__cause__ if isinstance(error.__cause__, Exception) else error
        absent = found is error or getattr(found, "status", None) == 404
        if isinstance(error, FileNotFoundError) and absent:
            raise FileNotFoundError(errno.ENOENT, "not found", url) from None
        raise OSError(errno.EIO, _reason(found, url), url) from None


def _reason(error: Exception, url: str) -> str:
    if isinstance(error, ImportError):
        missing = getattr(error, "name", None) or getattr(error.__cause__, "name", None) or ""
        package = missing.partition(".")[0]
        install = f"; install it: pip install {package}" if package else f": {error}"
        return f"its protocol needs a package that is missing{install}"
    if isinstance(error, TimeoutError):
        return f"no answer for {PATIENCE:.0f} s"
    scheme = _SCHEME.match(url)
    if isinstance(error, ValueError) and "Protocol not known" in str(error) and scheme is not None:
        import fsspec  # noqa: PLC0415

        near = nearest(scheme[1], fsspec.available_protocols())
        return f"no protocol is called {scheme[1]!r}{near}"
    return " ".join(f"{error}".split())[:300] or type(error).__name__


LARGEST_FILE = 2**26
"""Bytes of a file that is read whole, if its reader does not say otherwise."""

_MOST_DIGITS = 1000  # transformers writes lengths of 31
_PATIENCE = 10.0  # seconds to wait for the other end of a pipe


def open_to_read(path: Path | RemoteFile) -> io.BufferedReader:
    """Open a file, pipe, device or URL for reading."""
    if isinstance(path, RemoteFile):
        return path.open()
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


def read_object(path: Path, kinds: Mapping[str, type] | None = None) -> dict[str, Any]:
    """Return what a JSON file holds, if that is a mapping with these keys."""
    content = read_json(path)
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
