"""Token stores behind URLs: shards are fetched when they are read, kept for a while, and dropped.

What a store has once is fetched when it is opened, its shards into the same folder of the cache::

    $BERTLAB_CACHE/remote/3f2a…/store.json, tokenizer/, token_counts.npy, …
    $BERTLAB_CACHE/remote/3f2a…/shards/00017.tokens.npy

The processes of a node share them. Those that were not read for the longest time are dropped where
a new one would need more room than there is for all, whatever store they are of.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy.typing as npt

from bertlab.api import ConfigError
from bertlab.extend import (
    LARGEST_FILE,
    TokenStoreError,
    default_cache_dir,
    make_folder,
    replacing,
    unwritable_cache,
)
from bertlab_cluster.url_files import UrlFile

SHARD_FOLDER = "shards"
DEFAULT_ROOM = 50.0
_BLOCK = 2**20
_TRIES = 5

ShardArray = npt.NDArray[Any]


def room() -> int:
    """Return how many bytes of shards the cache may hold, by ``$BERTLAB_CACHE_GB``.

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


class RemoteStore:
    """The files of a store behind a URL, and the folder of the cache where they are kept.

    Args:
        url: its folder.
        cache_dir: of all that is cached; :func:`default_cache_dir` if None.

    Attributes:
        folder: of this store in the cache; named by URL and manifest, as the store may change.

    Raises:
        TokenStoreError: here and in the methods: there is no store, it cannot be read, or the cache
            cannot be written.
        ConfigError: the cache has no size.
    """

    def __init__(self, url: str, cache_dir: Path | None = None) -> None:
        self.url = url.rstrip("/")
        self.cache_dir = cache_dir
        self._cache = (cache_dir or default_cache_dir()) / "remote"
        self._room = room()
        self._held: dict[str, ShardArray] = {}
        with self._explained():
            with UrlFile(f"{self.url}/store.json").open() as file:
                manifest = file.read(LARGEST_FILE + 1)
            key = hashlib.sha256(self.url.encode() + b"\0" + manifest).hexdigest()[:32]
            self.folder = self._cache / key
            if not (self.folder / "store.json").is_file():
                self._fetch_whole(manifest)

    def _fetch_whole(self, manifest: bytes) -> None:
        """Fetch all but the shards; the manifest comes last, so that what is there is whole."""
        make_folder(self.folder / SHARD_FOLDER)
        (self.folder / "tokenizer").mkdir(exist_ok=True)
        for inside in ("", "/tokenizer"):
            for file in UrlFile(self.url + inside).inside():
                if file.name == "store.json":
                    continue
                self._fetch_file(file, f"{inside}/{file.name}".lstrip("/"))
        with replacing(self.folder / "store.json") as target:
            target.write(manifest)

    def _fetch_file(self, file: UrlFile, name: str) -> None:
        with file.open() as source, replacing(self.folder / name) as target:
            while block := source.read(_BLOCK):
                target.write(block)

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
            if not file.is_file():
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

    def _fetch(self, name: str, size: int, sha256: str) -> None:
        self._make_room(size)
        file = self.folder / name
        digest = hashlib.sha256()
        found = 0
        url = f"{self.url}/{name}"
        with self._explained(), UrlFile(url).open() as source, replacing(file) as target:
            # never more than it should have, from whoever answers there
            while found <= size and (block := source.read(_BLOCK)):
                digest.update(block)
                found += len(block)
                target.write(block)
            if (found, digest.hexdigest()) != (size, sha256):
                raise TokenStoreError(
                    f"{url}: damaged token store: its content is not what store.json says; copy "
                    "the store there again"
                )

    def _make_room(self, size: int) -> None:
        """Drop the shards that were not read for the longest time, until one more fits."""
        there = []
        for file in self._cache.glob(f"*/{SHARD_FOLDER}/*.npy"):
            with contextlib.suppress(OSError):
                status = file.stat()
                there.append((status.st_mtime, status.st_size, file))
        used = sum(each[1] for each in there)
        for _, freed, file in sorted(there):
            if used + size <= self._room:
                return
            file.unlink(missing_ok=True)
            used -= freed

    @contextlib.contextmanager
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
