"""Token stores behind URLs: shards are fetched when they are read, kept for a while, and dropped.

What a store has once is fetched when it is opened, its shards into the same folder of the cache::

    $BERTLAB_CACHE/remote/3f2a…/store.json, tokenizer/, token_counts.npy, …
    $BERTLAB_CACHE/remote/3f2a…/shards/00017.tokens.npy

The processes of a node share them. Nothing is fetched that ``store.json`` does not name, and no
more of it than it says. All of it counts against the room of the cache from its first byte on:
shards that were not read for the longest time are dropped for it, then the rest of other stores.
"""

import contextlib
import errno
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy.typing as npt
from filelock import FileLock

from bertlab.api import ConfigError
from bertlab.extend import (
    LARGEST_FILE,
    TokenStoreError,
    check_nothing_leads_out,
    checked_fields,
    damaged,
    default_cache_dir,
    make_folder,
    parse_json,
    remove_abandoned,
    replacing,
    sha256_of,
    unwritable_cache,
)
from bertlab_cluster.url_files import UrlFile

SHARD_FOLDER = "shards"
DEFAULT_ROOM = 50.0
_BLOCK = 2**20
_TRIES = 5
_WAIT = 0.1  # seconds, until others may have fetched what takes the room
_ABANDONED = 600.0  # seconds without a byte: nobody fetches it any more

ShardArray = npt.NDArray[Any]


def room() -> int:
    """Return how many bytes the cache may hold of stores behind URLs, by ``$BERTLAB_CACHE_GB``.

    Raises:
        ConfigError: it is no number above nought.
    """
    given = os.environ.get("BERTLAB_CACHE_GB") or str(DEFAULT_ROOM)
    try:
        gigabytes = float(given)
    except ValueError:
        gigabytes = 0.0
    if not 0 < gigabytes < float("inf"):
        raise ConfigError(f"BERTLAB_CACHE_GB: found {given!r}, expected gigabytes, such as 50")
    return int(gigabytes * 1e9)


def others_may_write(folder: Path) -> bool:
    """Return whether another user than this one and root could put files into a folder."""
    place = folder.resolve()
    for each in (place, *place.parents):
        found = each.stat()
        mine = found.st_uid in (0, getattr(os, "getuid", int)())
        # in /tmp, whose sticky bit is set, only the owner of a folder moves it away
        open_to_all = found.st_mode & 0o022 and not (found.st_mode & stat.S_ISVTX and each != place)
        if not mine or open_to_all:
            return True
    return False


class _Cached(NamedTuple):
    store: Path
    file: Path
    size: int
    time: float  # when it was read or written last

    @property
    def is_partial(self) -> bool:
        return self.file.suffix == ".partial"

    @property
    def is_alone(self) -> bool:
        """Whether a store can do without it for a while."""
        return self.is_partial or self.file.parent.name == SHARD_FOLDER


def _is_fetched(partial: _Cached) -> bool:
    """Whether somebody may be writing it; what a killed process of this host left is removed."""
    # .00017.tokens.npy.HOST.PROCESS.RANDOM.partial -> 00017.tokens.npy
    if target := re.match(r"\.(\d+\.\w+\.npy)\.", partial.file.name):
        remove_abandoned(partial.file.with_name(target[1]))
    return partial.file.exists() and time.time() - partial.time < _ABANDONED


class RemoteStore:
    """The files of a store behind a URL, and the folder of the cache where they are kept.

    Args:
        url: its folder.
        cache_dir: of all that is cached; :func:`default_cache_dir` if None.
        manifest_sha256: of the ``store.json`` that it has to have; any if None.

    Attributes:
        folder: of this store in the cache; named by URL and manifest, as the store may change.
        manifest_sha256: of its ``store.json``.

    Raises:
        TokenStoreError: here and in the methods: there is no store, it cannot be read, it is not
            what its ``store.json`` says or the run began with, or the cache cannot be written.
        ConfigError: the cache has no size.
    """

    def __init__(
        self, url: str, cache_dir: Path | None = None, manifest_sha256: str | None = None
    ) -> None:
        self.url = url.rstrip("/")
        self.cache_dir = cache_dir
        self._cache = (cache_dir or default_cache_dir()) / "remote"
        self._room = room()
        self._held: dict[str, ShardArray] = {}
        with self._explained():
            manifest = self._read("store.json")
            self.manifest_sha256 = hashlib.sha256(manifest).hexdigest()
            if manifest_sha256 not in (None, self.manifest_sha256):
                raise TokenStoreError(f"{self.url}/store.json: changed while the store was read")
            key = hashlib.sha256(self.url.encode() + b"\0" + manifest).hexdigest()[:32]
            self.folder = self._cache / key
            make_folder(self.folder / SHARD_FOLDER)
            self._is_shared = others_may_write(self.folder)
            if self._is_shared:
                check_nothing_leads_out(self.folder)
            self._fetch_whole(manifest)

    def _fetch_whole(self, manifest: bytes) -> None:
        """Fetch all but the shards; the manifest comes last, so that what is there is whole."""
        kept = self.folder / "store.json"
        if kept.is_file() and kept.read_bytes() == manifest:
            with contextlib.suppress(OSError):  # of another user, who shares it
                os.utime(kept)  # it is read now
        else:
            kept.unlink(missing_ok=True)
        sizes, hashes = self._named(manifest)
        is_there = kept.is_file()
        for name, size in sizes.items():
            file = name if "." in name else f"{name}.npy"
            sha256 = None if hashes is None else str(hashes.get(name))
            if not (is_there and self._is_whole(file, size, sha256)):
                self._fetch(file, size, sha256)
        if hashes is None and not is_there:
            self._fetch_unnamed()
        if not is_there:
            with self._reserved("store.json", len(manifest)) as target:
                target.write(manifest)

    def _named(self, manifest: bytes) -> tuple[Mapping[str, int], Mapping[str, str] | None]:
        """Return the sizes and hashes in a manifest; none of one that is refused later."""
        try:
            content = parse_json(manifest.decode())
        except ValueError as error:
            raise damaged(self.url, f"store.json cannot be read: {error}") from None
        if not isinstance(content, dict) or "bytes" not in content:
            return {}, {}
        fields = checked_fields(self.url, content)
        return fields["bytes"], fields["sha256"]

    def _fetch_unnamed(self) -> None:
        """Fetch what a store of an older bertlab has beside its arrays, each in memory first."""
        for inside in ("", "/tokenizer"):
            for file in UrlFile(f"{self.url}{inside}").inside():
                name = f"{inside}/{file.name}".lstrip("/")
                if name.endswith((".json", ".txt")) and name != "store.json":
                    content = self._read(name)
                    with self._reserved(name, len(content)) as target:
                        target.write(content)

    def _read(self, name: str) -> bytes:
        with UrlFile(f"{self.url}/{name}").open() as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise OSError(errno.EFBIG, f"has over {LARGEST_FILE:,} bytes", f"{self.url}/{name}")
        return content

    def opened(
        self, name: str, size: int, sha256: str, open_file: Callable[[], ShardArray]
    ) -> ShardArray:
        """Return the array in a file of a shard, which is fetched if it is not in the cache.

        Args:
            name: of the file in the store.
            size: of the file in bytes.
            sha256: of the file.
            open_file: opens it, once it is there.
        """
        file = self.folder / name
        for _ in range(_TRIES):
            with contextlib.suppress(OSError):  # dropped, perhaps by another process
                os.utime(file)  # it is read now
                if name in self._held:
                    return self._held[name]
            with self._explained():
                if not self._is_whole(name, size, sha256):
                    self._fetch(name, size, sha256)
            # what was dropped takes room for as long as somebody holds it
            self._held = {key: a for key, a in self._held.items() if (self.folder / key).is_file()}
            try:
                self._held[name] = array = open_file()
                return array
            except TokenStoreError:
                if file.is_file():
                    raise
        raise TokenStoreError(
            f"{self._cache}: shards are dropped before they are read; give the cache room for "
            "those of several batches, by BERTLAB_CACHE_GB"
        )

    def _is_whole(self, name: str, size: int, sha256: str | None) -> bool:
        """Return whether a file is in the cache as it was fetched."""
        file = self.folder / name
        try:
            if not stat.S_ISREG(file.lstat().st_mode) or file.stat().st_size != size:
                return False
            # by its content only where another user could have put it there
            return not self._is_shared or sha256 in (None, sha256_of(file))
        except FileNotFoundError:
            return False

    def _fetch(self, name: str, size: int, sha256: str | None) -> None:
        digest = hashlib.sha256()
        found = 0
        url = f"{self.url}/{name}"
        with self._explained(), UrlFile(url).open() as source, self._reserved(name, size) as target:
            # never more than it should have, from whoever answers there
            while found <= size and (block := source.read(min(_BLOCK, size + 1 - found))):
                digest.update(block)
                found += len(block)
                target.write(block)
            if found != size or sha256 not in (None, digest.hexdigest()):
                raise TokenStoreError(
                    f"{url}: damaged token store: its content is not what store.json says; copy "
                    "the store there again"
                )

    @contextmanager
    def _reserved(self, name: str, size: int) -> Iterator[IO[bytes]]:
        """Open a new file of the cache for so many bytes, which count before they are there."""
        file = self.folder / name
        make_folder(file.parent)
        with ExitStack() as opened:
            while True:
                with FileLock(self._cache / ".lock", mode=0o666):
                    if self._make_room(name, size):
                        target = opened.enter_context(replacing(file))
                        target.truncate(size)
                        break
                time.sleep(_WAIT)
            yield target

    def _make_room(self, name: str, size: int) -> bool:
        """Drop what was not read for the longest time, until so much fits.

        Returns:
            Whether it does; if not, other processes are fetching what takes the room.
        """
        files, is_fetching = list(self._in_cache()), False
        used = sum(each.size for each in files)
        for each in self._in_order(files) if used + size > self._room else ():
            if used + size <= self._room:
                break
            if each.is_partial and _is_fetched(each):
                is_fetching = True
                continue
            each.file.unlink(missing_ok=True)
            used -= each.size
        if used + size > self._room and not is_fetching:
            raise ConfigError(
                f"BERTLAB_CACHE_GB: {self.url}/{name} has {size:,} bytes and {used:,} are in use, "
                f"but the cache holds {self._room:,}; give it more room"
            )
        return used + size <= self._room

    def _in_cache(self) -> Iterator["_Cached"]:
        for store in self._cache.iterdir():
            for folder, _, names in os.walk(store):
                for name in names:
                    with contextlib.suppress(OSError):  # dropped just now
                        found = os.lstat(file := Path(folder, name))
                        yield _Cached(store, file, found.st_size, found.st_mtime)

    def _in_order(self, files: Sequence["_Cached"]) -> list["_Cached"]:
        """Return what may be dropped, first what was not read for the longest time."""
        newest = dict[Path, float]()
        for each in files:
            newest[each.store] = max(newest.get(each.store, 0.0), each.time)

        def order(each: _Cached) -> tuple[float, bool, bool]:
            if each.is_alone:
                return each.time, False, False
            # after the shards of its store; store.json first, as what is left is no store
            return newest[each.store], True, each.file.name != "store.json"

        return sorted((e for e in files if e.is_alone or e.store != self.folder), key=order)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            place = Path(error.filename or self.url)
            # the cache, or one of the folders above it, which mkdir() could not make
            if place.is_relative_to(self._cache) or self._cache.is_relative_to(place):
                raise unwritable_cache(self._cache, error) from None
            name = error.filename or self.url
            raise TokenStoreError(f"{name}: cannot be read: {error.strerror or error}") from None
