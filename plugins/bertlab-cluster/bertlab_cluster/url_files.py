"""Files behind URLs (``https://``, ``s3://``, ``hf://`` and whatever else fsspec reads), streamed.

Credentials are those that the protocol's own package finds, such as ``~/.aws``.
"""

import contextlib
import errno
import io
import re
from collections.abc import Iterator
from glob import has_magic
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from bertlab import nearest
from bertlab.extend import RemoteFile, hold, is_url

PATIENCE = 60.0
"""Seconds without an answer after which a web server is given up; other protocols have their own
limits."""

_BUFFER = 2**20
# what file systems of fsspec tell; the Last-Modified of a web server is too coarse, in seconds
_TAGS = (
    *("ETag", "etag", "Content-MD5", "Digest", "md5Hash", "md5", "generation", "blob_id", "sha256"),
    *("LastModified", "last_modified", "mtime", "modified", "modify", "created", "updated"),
)


class UrlFile(RemoteFile):
    """A file, or folder, behind a URL.

    Args:
        url: where it is.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The last part of the path, without what a web server is asked for beside it."""
        return PurePosixPath(urlsplit(self.url).path if self._is_web else self.url).name

    @property
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

    def state(self) -> object:
        """Return size, times and tags of the file; None if the server tells none."""
        try:
            with explain_remote(self.url):
                system, path = self._reached()
                system.invalidate_cache()
                found = system.info(path)
        except OSError:  # reading it says why
            return None
        tags = {name: str(found[name]) for name in _TAGS if found.get(name)}
        return [found.get("size"), tags] if tags else None

    def files(self) -> "list[UrlFile] | None":
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

    def inside(self) -> "list[UrlFile]":
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

    def _other(self, system: Any, path: str) -> "UrlFile":  # noqa: ANN401
        if is_url(path):
            return UrlFile(path)
        # a server (ftp, sftp) is no part of the path, as a bucket (s3) is
        if system._get_kwargs_from_urls(self.url).get("host"):
            scheme, _, host, *_ = self.url.split("/")
            return UrlFile(f"{scheme}//{host}/{path.lstrip('/')}")
        return UrlFile(system.unstrip_protocol(path))


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
        hold(self._url, 0, len(content))  # as many as have come: a server may name any size
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
        # ftp looks for a name in a list
        absent = isinstance(found, StopIteration) or getattr(found, "status", None) == 404
        absent = absent or found is error
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
    scheme = re.match(r"(\w[\w+.-]*)://", url)
    if isinstance(error, ValueError) and "Protocol not known" in str(error) and scheme is not None:
        import fsspec  # noqa: PLC0415

        near = nearest(scheme[1], fsspec.available_protocols())
        return f"no protocol is called {scheme[1]!r}{near}"
    return " ".join(_without_parts_of(url, f"{error}").split())[:300] or type(error).__name__


def _without_parts_of(url: str, words: str) -> str:
    """Return words of a protocol's package, which may quote a URL's secrets without the URL."""
    user = re.search("://([^/?#]*)@", url)
    parts = [user[1], user[1].partition(":")[2]] if user else []
    for part in (*parts, *re.findall("[?&;#][^=&;#]*=([^&;#]*)", url)):
        words = words.replace(part, "***") if len(part) > 3 else words
    return words
