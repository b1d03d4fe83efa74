"""Reading the sorted tables that TensorFlow keeps the index of a checkpoint in, as untrusted data.

The format is LevelDB's (``doc/table_format.md`` there; ``tensorflow/core/lib/io/table`` for what
TensorFlow changed): blocks of entries whose keys share prefixes, a block with the places of these,
and a footer with the place of that. Every size is checked before anything of it is made.
"""

from collections.abc import Iterator
from functools import cache

import numpy as np
import numpy.typing as npt

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48  # bytes: two places in 40, and the magic number
_TRAILER = 5  # bytes behind a block: its compression, and a checksum
_MOST_BYTES = 2**24  # of all blocks, packed and unpacked; BERT-large's index has 30 kB
_MOST_ENTRIES = 100_000
_LONGEST_KEY = 1024
_POLYNOMIAL = 0x82F63B78  # of CRC-32C (Castagnoli), bits reversed
_LANE = 4096  # bytes; long data are summed in lanes of it, side by side


class DamagedTableError(ValueError):
    """The bytes are not what TensorFlow writes; the text says where."""


def read_table(data: bytes) -> dict[bytes, bytes]:
    """Return the entries of a table by key.

    Raises:
        DamagedTableError: the table is damaged, or larger than an index is.
    """
    if len(data) < _FOOTER or int.from_bytes(data[-8:], "little") != _MAGIC:
        raise DamagedTableError("its end is not that of a table")
    footer = data[-_FOOTER:-8]
    _, place = _read_place(footer, 0)  # of the block about blocks, which is empty
    (offset, size), _ = _read_place(footer, place)
    entries: dict[bytes, bytes] = {}
    count = used = 0  # of all blocks, one that is named again and again each time
    for _, where in _entries(_read_block(data, offset, size)):
        (offset, size), _ = _read_place(where, 0)
        block = _read_block(data, offset, size)
        used += size + len(block)
        if used > _MOST_BYTES:
            raise DamagedTableError(f"its blocks have over {_MOST_BYTES:,} bytes")
        count += 1
        for key, value in _entries(block):
            entries[key] = value
            count += 1
        if count > _MOST_ENTRIES:
            raise DamagedTableError(f"it has over {_MOST_ENTRIES:,} entries")
    return entries


def read_varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a number of 7 bits a byte, and the place behind it.

    Raises:
        DamagedTableError: the data end within it, or it has more than 64 bits.
    """
    # 0xAC 0x02 -> 0x2C + (0x02 << 7) = 300
    number = 0
    for shift in range(0, 64, 7):
        if place >= len(data):
            break
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
    raise DamagedTableError("a number has no end")


def _read_place(data: bytes, place: int) -> tuple[tuple[int, int], int]:
    offset, place = read_varint(data, place)
    size, place = read_varint(data, place)
    return (offset, size), place


def _read_block(data: bytes, offset: int, size: int) -> bytes:
    end = offset + size
    if end + _TRAILER > len(data):
        raise DamagedTableError(f"a block ends at byte {end}, of {len(data)}")
    if unmasked(int.from_bytes(data[end + 1 : end + _TRAILER], "little")) != crc32c(
        np.frombuffer(data, np.uint8, size + 1, offset)
    ):
        raise DamagedTableError("a block does not have its checksum")
    block, kind = data[offset:end], data[end]
    if kind == 0:
        return block
    if kind == 1:
        return unpack_snappy(block)
    raise DamagedTableError(f"a block has the compression {kind}, expected none or Snappy")


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block; each key begins with a part of the one before."""
    if len(block) < 4:
        raise DamagedTableError("a block is shorter than its end")
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * restarts
    if end < 0:
        raise DamagedTableError("a block is shorter than its end")
    key, place = b"", 0
    while place < end:
        # bert/pooler/dense/bias, then 18 shared and 6 own: bert/pooler/dense/kernel
        shared, place = read_varint(block, place)
        own, place = read_varint(block, place)
        size, place = read_varint(block, place)
        if shared > len(key) or shared + own > _LONGEST_KEY or place + own + size > end:
            raise DamagedTableError("an entry goes beyond its block")
        key = key[:shared] + block[place : place + own]
        place += own + size
        yield key, block[place - size : place]


def unpack_snappy(data: bytes) -> bytes:
    """Unpack Snappy's format (``format_description.txt`` of google/snappy).

    Raises:
        DamagedTableError: the data are damaged, or unpack to more than an index has.
    """
    total, place = read_varint(data, 0)
    if total > _MOST_BYTES:
        raise DamagedTableError(f"a block unpacks to {total:,} bytes")
    found = bytearray()
    while place < len(data):
        tag = data[place]
        kind, place = tag & 3, place + 1
        extra = 0  # bytes of the number that follows
        if kind == 0 and tag >> 2 >= 60:
            extra = (tag >> 2) - 59
        elif kind:
            extra = (0, 1, 2, 4)[kind]
        number = int.from_bytes(data[place : place + extra], "little")
        place += extra
        if kind == 0:  # these bytes as they are
            length = (number if extra else tag >> 2) + 1
            piece = data[place : place + length]
            place += length
        else:  # bytes that came before; they may reach into what they make
            length = (tag >> 2 & 7) + 4 if kind == 1 else (tag >> 2) + 1
            offset = number | (tag >> 5) << 8 if kind == 1 else number
            if not 0 < offset <= len(found):
                raise DamagedTableError("a packed block copies from before its start")
            start = len(found) - offset
            # b"ab", 5 bytes from 2 back -> b"ababa"
            source = found[start : start + length]
            piece = bytes((source * (length // len(source) + 1))[:length])
        if len(piece) != length or len(found) + length > total:
            raise DamagedTableError("a packed block does not unpack to its size")
        found += piece
    if len(found) != total:
        raise DamagedTableError("a packed block does not unpack to its size")
    return bytes(found)


def unmasked(checksum: int) -> int:
    """Return the CRC-32C behind a checksum as LevelDB stores it: turned, with a constant added."""
    turned = (checksum - 0xA282EAD8) & 0xFFFFFFFF
    return (turned >> 17 | turned << 15) & 0xFFFFFFFF


def crc32c(data: npt.NDArray[np.uint8]) -> int:
    """Return the CRC-32C of ``(N,)`` bytes.

    Long data are cut into lanes that are summed at once: what each byte does to a sum does not
    depend on the others, so that sums of parts can be joined.
    """
    table = _table()
    lanes = len(data) // _LANE
    state = 0xFFFFFFFF
    if lanes > 1:
        # (lanes, 4096) -> (4096, lanes): a step reads one byte of each lane
        columns = np.ascontiguousarray(data[: lanes * _LANE].reshape(lanes, _LANE).T)
        states = np.zeros(lanes, np.uint32)
        states[0] = state
        for column in columns:
            states = table[(states ^ column) & 0xFF] ^ (states >> 8)
        steps = _lane_of_zeros()
        state = 0
        for each in states.tolist():
            low = steps[0][state & 0xFF] ^ steps[1][state >> 8 & 0xFF]
            state = each ^ low ^ steps[2][state >> 16 & 0xFF] ^ steps[3][state >> 24]
        data = data[lanes * _LANE :]
    plain = table.tolist()
    for byte in data.tolist():
        state = plain[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state ^ 0xFFFFFFFF


@cache
def _table() -> npt.NDArray[np.uint32]:
    """Return what each byte does to a sum of zero, ``(256,)``."""
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, values >> 1 ^ np.uint32(_POLYNOMIAL), values >> 1)
    return values.astype(np.uint32)


@cache
def _lane_of_zeros() -> list[list[int]]:
    """Return what a lane of zero bytes makes of each byte of a sum: four lists of 256."""
    table = _table()
    states = np.concatenate([np.arange(256, dtype=np.uint32) << 8 * n for n in range(4)])
    for _ in range(_LANE):
        states = table[states & 0xFF] ^ (states >> 8)
    return [states[256 * n : 256 * (n + 1)].tolist() for n in range(4)]
