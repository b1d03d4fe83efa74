"""Arrays that lie in many files: the shards of a large token store, each opened when it is read.

They are indexed as the one array would be that all shards make up, with the same result::

    tokens    shard 0: 5 6 7 8 9    shard 1: 9 10 11
    tokens[[1, 6]] -> [6, 10]       place 6 is place 1 of shard 1
"""

import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from bertlab.extend import damaged
from bertlab_cluster.remote_store import SHARD_FOLDER, RemoteStore, ShardArray

SHARD_ARRAYS = ("tokens", "sentence_offsets")

OPEN = 4096
"""Shards that a process keeps open. They cost it address space, no file handle and no memory."""

_HEADER = 1024  # bytes: more than that of any flat array

IntArray = npt.NDArray[np.int64]
OpenShard = Callable[[int], ShardArray]


@dataclass(frozen=True)
class Shard:
    """What ``store.json`` says of a shard.

    Attributes:
        tokens: number of its tokens.
        sentences: number of its sentences.
        bytes: size of each of its files by name of the array.
        sha256: of each of its files.
    """

    tokens: int
    sentences: int
    bytes: dict[str, int]
    sha256: dict[str, str]


def shard_file(name: str, number: int) -> str:
    """Return the file of an array of a shard, in the folder of the store."""
    return f"{SHARD_FOLDER}/{number:05}.{name}.npy"


def mapped(file: Path, dtype: np.dtype[Any], length: int) -> ShardArray:
    """Map a flat ``.npy`` file; the file is closed again, unlike by ``numpy.load``."""
    import pyarrow as pa  # noqa: PLC0415  only for stores of many shards

    with pa.memory_map(str(file)) as opened:
        content = np.frombuffer(opened.read_buffer(), np.uint8)
    start = io.BytesIO(content[:_HEADER].tobytes())
    if np.lib.format.read_magic(start) != (1, 0):
        raise ValueError("it is no .npy file of version 1.0")
    found = np.lib.format.read_array_header_1_0(start)
    if found != ((length,), False, dtype):
        raise ValueError(f"it holds {found[2]} {found[0]}, expected {dtype} {(length,)}")
    items = content[start.tell() :].view(dtype)
    if len(items) != length:
        raise ValueError(f"it holds {len(items)} items, expected {length}")
    return items


class ShardedArray:
    """The items of all shards, end to end, read-only.

    Args:
        firsts: ``(K + 1,)`` place of each shard's first item; the last is the number of all.
        dtype: of the items.
        open_shard: returns the items of a shard; called each time that it is read from.
    """

    def __init__(self, firsts: IntArray, dtype: np.dtype[Any], open_shard: OpenShard) -> None:
        self.firsts = firsts
        self.dtype = dtype
        self.open_shard = open_shard
        self.shape = (int(firsts[-1]),)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: object) -> ShardArray:
        """Return the items at places, as an array would; places count from 0."""
        if isinstance(key, slice):
            key = np.arange(*key.indices(len(self)))
        places = np.asarray(cast("npt.ArrayLike", key))
        if places.size and not 0 <= places.min() <= places.max() < len(self):
            raise IndexError(f"place outside [0, {len(self)})")
        flat = places.ravel()
        found = np.empty(flat.shape, self.dtype)
        for shard, here in by_shard(self.firsts, flat):
            found[here] = self._read(shard, flat[here] - self.firsts[shard])
        return found.reshape(places.shape)[()]

    def _read(self, shard: int, places: IntArray) -> ShardArray:
        found: ShardArray = self.open_shard(shard)[places]
        return found


class ShardedOffsets(ShardedArray):
    """The offsets of sentences into the tokens of all shards; each shard counts from 0 itself.

    Args:
        sentences: ``(K + 1,)`` number of each shard's first sentence, and of all.
        tokens: ``(K + 1,)`` place of each shard's first token, and the number of all.
        open_shard: returns the offsets of a shard, one more than its sentences.
    """

    def __init__(self, sentences: IntArray, tokens: IntArray, open_shard: OpenShard) -> None:
        # the end of all is one more item: sentences [0, 2, 3] -> offsets 0 to 3, the last alone
        ends = np.append(sentences, sentences[-1] + 1)
        super().__init__(ends, np.dtype(np.int64), open_shard)
        self.tokens = tokens

    def _read(self, shard: int, places: IntArray) -> ShardArray:
        # where a shard begins is known without it: its neighbour alone may be asked for
        found = np.full(places.shape, self.tokens[shard])
        inside = np.flatnonzero(places)
        if len(inside):
            found[inside] += self.open_shard(shard)[places[inside]]
        return found

    def searchsorted(self, tokens: npt.ArrayLike, side: Any = "left") -> Any:  # noqa: ANN401
        """Return what ``numpy.ndarray.searchsorted`` does."""
        asked = np.asarray(tokens)
        flat = asked.ravel()
        found = np.empty(flat.shape, np.int64)
        # sought in the shard that has the token, where alone a sentence of it can begin
        for shard, here in by_shard(self.tokens[:-1], np.maximum(flat, 0)):
            inside = self.open_shard(shard).searchsorted(flat[here] - self.tokens[shard], side)
            found[here] = inside + self.firsts[shard]
        return found.reshape(asked.shape)[()]


def by_shard(firsts: IntArray, places: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Yield each shard that has some of the places, and which: their numbers among ``places``."""
    # places [1, 9, 2], firsts [0, 5, 12] -> shards [0, 1, 0] -> (0, [0, 2]), (1, [1])
    shards = firsts.searchsorted(places, side="right") - 1
    order = np.argsort(shards, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(shards[order])) + 1):
        if len(part):
            yield int(shards[part[0]]), part


def read_shards(path: Path, found: object) -> tuple[Shard, ...]:
    """Return what the key ``shards`` of a ``store.json`` says."""
    try:
        shards = tuple(Shard(**each) for each in cast("list[dict[str, Any]]", found))
        for shard in shards:
            sizes = shard.tokens, shard.sentences, *(shard.bytes[name] for name in SHARD_ARRAYS)
            if not all(type(size) is int and size > 0 for size in sizes):
                raise ValueError(f"a shard with {sizes}")
            if not all(isinstance(shard.sha256[name], str) for name in SHARD_ARRAYS):
                raise ValueError("a shard without hashes")
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise damaged(path, f"shards of store.json: {error}"[:200]) from None
    return shards


def open_shards(
    path: Path, shards: Sequence[Shard], dtype: np.dtype[Any], remote: RemoteStore | None = None
) -> dict[str, Any]:
    """Return the arrays of all shards by name; none of their files is opened yet."""
    if remote is None:
        _check_files(path, shards)
    firsts = {
        name: np.cumsum([0, *(getattr(shard, name) for shard in shards)])
        for name in ("tokens", "sentences")
    }

    def opener(name: str, dtype: np.dtype[Any]) -> OpenShard:
        def open_file(number: int) -> ShardArray:
            return _map_shard(path, number, shards[number], name, dtype)

        def fetch(number: int) -> ShardArray:
            assert remote is not None
            file, shard = shard_file(name, number), shards[number]
            opened = partial(open_file, number)
            return remote.opened(file, shard.bytes[name], shard.sha256[name], opened)

        return lru_cache(OPEN)(open_file) if remote is None else fetch

    offsets = opener("sentence_offsets", np.dtype(np.int64))
    return {
        "tokens": ShardedArray(firsts["tokens"], dtype, opener("tokens", dtype)),
        "sentence_offsets": ShardedOffsets(firsts["sentences"], firsts["tokens"], offsets),
    }


def _check_files(path: Path, shards: Sequence[Shard]) -> None:
    """Refuse a store whose shards are not all there, in whole; their folder is listed once."""
    try:
        there = {entry.name: entry.stat().st_size for entry in os.scandir(path / SHARD_FOLDER)}
    except OSError as error:
        raise damaged(path, f"{SHARD_FOLDER} cannot be read: {error.strerror}") from None
    for number, shard in enumerate(shards):
        for name in SHARD_ARRAYS:
            file = shard_file(name, number)
            found, expected = there.get(Path(file).name), shard.bytes[name]
            if found != expected:
                what = "is missing" if found is None else f"has {found} bytes, expected {expected}"
                raise damaged(path, f"{file} {what}")


def _map_shard(
    path: Path, number: int, shard: Shard, name: str, dtype: np.dtype[Any]
) -> ShardArray:
    file = path / shard_file(name, number)
    try:
        array = mapped(file, dtype, shard.tokens if name == "tokens" else shard.sentences + 1)
    except (OSError, ValueError) as error:
        raise damaged(path, f"{file.name} cannot be read: {error}") from error
    rises = name == "tokens" or (array[0] == 0 and (array[1:] > array[:-1]).all())
    if not rises or (name != "tokens" and array[-1] != shard.tokens):
        raise damaged(path, f"{file.name} does not rise from 0 to {shard.tokens}")
    return array
