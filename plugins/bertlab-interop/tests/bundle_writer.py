"""Writes checkpoints of TensorFlow with plain Python, to compare the reader in bertlab with."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

MAGIC = 0xDB4775248B80FB57
NUMBERS = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "float16": 19}


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def crc(data: bytes) -> int:
    """CRC-32C bit by bit."""
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    found = crc(data)
    return ((found >> 15 | found << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def entry(
    array: npt.NDArray[np.generic], offset: int, size: int | None = None, shape: bytes | None = None
) -> bytes:
    """A BundleEntryProto."""
    if shape is None:
        shape = b"".join(field(2, field(1, each)) for each in array.shape)
    data = array.tobytes()
    parts = [field(1, NUMBERS[array.dtype.name]), field(2, shape), field(4, offset)]
    parts.append(field(5, len(data) if size is None else size))
    return b"".join(parts) + varint(6 << 3 | 5) + masked(data).to_bytes(4, "little")


def block(entries: Mapping[bytes, bytes], interval: int = 16) -> bytes:
    found, before, restarts = b"", b"", []
    for number, (key, value) in enumerate(entries.items()):
        shared = 0
        if number % interval:
            while key[:shared] == before[:shared] and shared < min(len(key), len(before)):
                shared += 1
            shared -= key[:shared] != before[:shared]
        else:
            restarts.append(len(found))
        found += varint(shared) + varint(len(key) - shared) + varint(len(value))
        found, before = found + key[shared:] + value, key
    restarts = restarts or [0]
    return found + b"".join(each.to_bytes(4, "little") for each in [*restarts, len(restarts)])


def packed(data: bytes) -> bytes:
    """Snappy with literals, and a copy where eight bytes came before."""
    found, place = varint(len(data)), 0
    while place < len(data):
        piece = data[place : place + 8]
        back = place - data.rfind(piece, 0, place) if data.rfind(piece, 0, place) >= 0 else 0
        if len(piece) == 8 and 0 < back < 2**16:
            found += bytes([7 << 2 | 2]) + back.to_bytes(2, "little")
        else:
            found += bytes([len(piece) - 1 << 2]) + piece
        place += len(piece)
    return found


def table(entries: Mapping[bytes, bytes], a_block: int = 20, kind: int = 0) -> bytes:
    """An SSTable with so many entries in a block; kind 1: packed with Snappy."""
    names = sorted(entries)
    groups = [names[n : n + a_block] for n in range(0, len(names), a_block)]
    return table_of({group[-1]: block({n: entries[n] for n in group}) for group in groups}, kind)


def table_of(blocks: Mapping[bytes, bytes], kind: int = 0) -> bytes:
    """An SSTable of blocks by their last keys."""
    found = b""

    def add(content: bytes) -> bytes:
        nonlocal found
        body = packed(content) if kind == 1 else content
        place = varint(len(found)) + varint(len(body))
        body += bytes([kind])
        found += body + masked(body).to_bytes(4, "little")
        return place

    places = {last: add(content) for last, content in blocks.items()}
    ends = add(block({})) + add(block(places, 1))
    return found + ends.ljust(40, b"\0") + MAGIC.to_bytes(8, "little")


HEADER = field(1, 1) + field(3, field(1, 1))  # one file of data, little-endian, version 1


def write_bundle(
    prefix: Path,
    arrays: Mapping[str, npt.NDArray[np.generic]],
    kind: int = 0,
    changed: Mapping[bytes, bytes] | None = None,
) -> None:
    """Write ``PREFIX.index`` and ``PREFIX.data-00000-of-00001``; entries may be others."""
    entries, data = {b"": HEADER}, b""
    for name in sorted(arrays):
        entries[name.encode()] = entry(arrays[name], len(data))
        data += arrays[name].tobytes()
    content = table({**entries, **(changed or {})}, kind=kind)
    prefix.with_name(f"{prefix.name}.index").write_bytes(content)
    prefix.with_name(f"{prefix.name}.data-00000-of-00001").write_bytes(data)
