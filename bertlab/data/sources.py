"""What a location in a config is: a path, a URL, or an installed source such as ``hf:NAME``."""

import contextlib
import hashlib
import io
import json
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from inspect import signature
from pathlib import Path, PurePosixPath
from typing import Any, cast

from bertlab.api.examples import DataSource
from bertlab.errors import ConfigError
from bertlab.files import make_folder, open_to_read, write_text
from bertlab.plugins.index import installed, load_class, of_package

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


class RemoteFile(ABC):
    """A file, or folder, behind a URL; what is asked of it has the names that ``Path`` has.

    bertlab-cluster has the class of them. All methods raise OSError.
    """

    @abstractmethod
    def __init__(self, url: str) -> None: ...

    @property
    @abstractmethod
    def name(self) -> str:
        """The last part of the path, without what a web server is asked for beside it."""

    @property
    def suffix(self) -> str:
        """The ending of the name: ``.gz`` of ``a.txt.gz``."""
        return PurePosixPath(self.name).suffix

    @property
    def suffixes(self) -> list[str]:
        """All endings of the name."""
        return PurePosixPath(self.name).suffixes

    @abstractmethod
    def open(self) -> io.BufferedReader:
        """Open the file as a stream of bytes, which perhaps cannot be sought in."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether something is there."""

    @abstractmethod
    def state(self) -> object:
        """Return what changes with the content, as :func:`state_of` does."""

    @abstractmethod
    def files(self) -> "Sequence[RemoteFile] | None":
        """Return the files of a folder or pattern in the order of local ones; None of one file."""


File = Path | RemoteFile


def default_cache_dir() -> Path:
    """Return ``$BERTLAB_CACHE``, or ``~/.cache/bertlab``."""
    return Path(os.environ.get("BERTLAB_CACHE") or "~/.cache/bertlab").expanduser()


def is_url(location: str) -> bool:
    """Return whether a location is a URL, and no path and no name of a source."""
    return _SCHEME.match(location) is not None


def located(location: str) -> File:
    """Return the file that a location stands for, which may not be there."""
    if not is_url(location):
        return Path(location)
    local = re.match(r"(?:file|local)://", location, re.IGNORECASE)
    if local:
        return Path(location[local.end() :])
    made = of_package("data.UrlFile", ConfigError, f"{location}: cannot read a URL")
    return cast("RemoteFile", made(location))


def open_file(path: File) -> io.BufferedReader:
    """Open a file, pipe, device or URL for reading."""
    return path.open() if isinstance(path, RemoteFile) else open_to_read(path)


def sha256_of(path: File) -> str:
    """Return the SHA-256 (hex) of what a file holds."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def state_of(path: File) -> object:
    """Return what changes with the content of a file: size, times, tags; None if it is not told."""
    if isinstance(path, RemoteFile):
        return path.state()
    with contextlib.suppress(OSError):
        found = path.stat()
        return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]
    return None


def remembered(cache: Path, of: object, find: Callable[[], str]) -> str:
    """Return what ``find`` finds, which is kept in a folder of the cache that is the user's alone.

    ``of`` says all that it depends on, as JSON. Where no such folder can be made nothing is kept.
    """
    user = getattr(os, "getuid", int)()  # on Windows 0, and no folder is anybody's alone
    folder = cache / f"found-{user}"
    kept = folder / hashlib.sha256(json.dumps(of).encode()).hexdigest()[:32]
    with contextlib.suppress(OSError):
        make_folder(cache)
        folder.mkdir(0o700, exist_ok=True)
        there = folder.lstat()
        if (there.st_uid, there.st_mode) == (user, stat.S_IFDIR | 0o700):
            if not kept.is_file():
                write_text(kept, find())
            return kept.read_text("ascii")
    return find()


def source_of(location: str) -> str | None:
    """Return the installed source that a location names, perhaps with an argument; no URL does."""
    first, _, rest = location.partition(":")
    # lines:FILE, my_package:lines:FILE
    names = (first, f"{first}:{rest.partition(':')[0]}")
    found = (each for each in names if each in installed("source") and not is_url(location))
    return next(found, None)


def class_of_source(location: str) -> tuple[type[DataSource], str]:
    """Import the class of the source that a location names; return its argument, too."""
    name = source_of(location) or location.partition(":")[0]
    return load_class("source", name, DataSource), location[len(name) + 1 :]


def open_source(location: str, /, **settings: Any) -> DataSource:  # noqa: ANN401  as its class says
    """Return the source that a location names, with settings of its own."""
    found, argument = class_of_source(location)
    try:
        signature(found).bind(location, argument, **settings)
    except TypeError as error:
        raise ConfigError(
            f"{location}: {error}; settings are given in a mapping, {{source: {location}, …}}"
        ) from None
    return found(location, argument, **settings)
