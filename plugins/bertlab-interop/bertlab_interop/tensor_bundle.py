"""TensorFlow 1's checkpoints of BERT, read without TensorFlow and as untrusted data.

``bert_model.ckpt.index`` is a sorted table with an entry for each tensor: dtype, shape, place and
checksum; ``bert_model.ckpt.data-00000-of-00001`` has the numbers
(``tensorflow/core/util/tensor_bundle``). Names become those of the same tensors in
``transformers``.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertlab import CheckpointError
from bertlab.api import CheckpointReader, ForeignCheckpoint
from bertlab.extend import DamagedCheckpointError, config_file, read_bytes, read_huggingface_config
from bertlab_interop.sstable import (
    DamagedTableError,
    crc32c,
    read_table,
    read_varint,
    unmasked,
)

INDEX = ".index"
_DATA = ".data-00000-of-00001"
_MOST_INDEX = 2**24  # bytes
_MOST_DIMENSIONS = 8
_FLOATS = {1: "float32", 2: "float64", 19: "float16"}  # by TensorFlow's numbers
_OPTIMIZER = re.compile(r"/(adam|lamb)_[mv](_\d+)?$|/Adam(_\d+)?$")
_OTHER_NAMES = {
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
}


@dataclass(frozen=True)
class _Entry:
    dtype: int
    shape: tuple[int, ...]
    offset: int
    size: int
    checksum: int
    is_part: bool


class TensorFlowReader(CheckpointReader):
    """BERT's own checkpoints: ``bert_config.json``, ``vocab.txt``, ``bert_model.ckpt.index``."""

    def find(self, path: Path) -> Path | None:
        """Return the index of the one checkpoint that a folder, a file or a beginning names."""
        if not path.is_dir():
            # FOLDER/bert_model.ckpt, as BERT's code names it, or FOLDER/bert_model.ckpt.index
            index = path.with_name(path.name.removesuffix(INDEX) + INDEX)
            return index if index.is_file() else None
        usual = path / f"bert_model.ckpt{INDEX}"
        found = [usual] if usual.is_file() else sorted(path.glob(f"*.ckpt*{INDEX}"))
        if len(found) > 1:
            raise CheckpointError(
                f"{path}: found {len(found)} TensorFlow checkpoints ({found[0].name}, "
                f"{found[1].name}, …), expected one"
            )
        return found[0] if found else None

    def read(self, file: Path) -> ForeignCheckpoint:
        """Read the weights, and the config beside them."""
        config = config_file(file.parent)
        return ForeignCheckpoint(
            read_huggingface_config(config), read_tensorflow(file), config, file
        )


def read_tensorflow(index: Path) -> dict[str, Tensor]:
    """Return the weights of a TensorFlow checkpoint by the names of ``transformers``.

    The optimiser's tensors and whole numbers are left out. Tensors are views of the mapped file
    where they need not be turned.

    Args:
        index: ``PREFIX.index``, with ``PREFIX.data-00000-of-00001`` beside it.

    Raises:
        CheckpointError: a file is missing, or it is of a form that is not read.
        DamagedCheckpointError: it is damaged.
    """
    data = index.with_name(index.name.removesuffix(INDEX) + _DATA)
    if data.exists() and not data.is_file():
        raise CheckpointError(f"{data}: not a file, expected the numbers of {index.name}")
    try:
        entries = dict(_read_index(read_bytes(index, _MOST_INDEX)))
        numbers = np.memmap(data, np.uint8, mode="c")  # c: what is written to it stays in memory
        if sum(each.size for each in entries.values()) > len(numbers):
            raise DamagedTableError(f"its tensors are larger than {data.name}")
        return {
            _name(name): _tensor(name, entry, numbers)
            for name, entry in entries.items()
            if entry.dtype in _FLOATS and not _OPTIMIZER.search(name)
        }
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{error.filename}: no such file; a TensorFlow checkpoint has {index.name} and "
            f"{data.name}"
        ) from None
    except OSError as error:
        raise CheckpointError(
            f"{error.filename or index}: cannot be read: {error.strerror}"
        ) from None
    except ValueError as error:  # np.memmap's of an empty file, too
        raise DamagedCheckpointError(
            f"{index}: not a whole TensorFlow checkpoint ({error}); copy or download it again"
        ) from None


def _read_index(content: bytes) -> Iterator[tuple[str, _Entry]]:
    table = read_table(content)
    header = dict(_fields(table.pop(b"", b"")))  # the first key is empty
    if header.get(2, 0) != 0:
        raise DamagedTableError("its numbers are big-endian, which is not read")
    if header.get(1) != 1:
        raise DamagedTableError(f"it has {header.get(1)!r} files of data, expected 1")
    for key, value in table.items():
        name = key.decode("ascii", "replace")
        yield name, _entry(name, value)


def _entry(name: str, value: bytes) -> _Entry:
    """Read a ``BundleEntryProto``."""
    numbers: dict[int, int] = {}
    shape: tuple[int, ...] = ()
    is_part = False
    for field, content in _fields(value):
        if isinstance(content, int):
            numbers[field] = content
        elif field == 2:
            shape = tuple(_sizes(content))
        elif field == 7:
            is_part = True  # of a variable that is cut into slices
    dtype, shard, offset, size, checksum = (numbers.get(n, 0) for n in (1, 3, 4, 5, 6))
    if len(shape) > _MOST_DIMENSIONS:
        raise DamagedTableError(f"{name}: a tensor of {len(shape)} dimensions")
    if any(each > 2**31 for each in shape) or shard != 0:
        raise DamagedTableError(f"{name}: shape {shape}, in file {shard}")
    return _Entry(dtype, shape, offset, size, checksum, is_part)


def _sizes(shape: bytes) -> Iterator[int]:
    """Yield the dimensions of a ``TensorShapeProto``."""
    for field, content in _fields(shape):
        if field == 2 and isinstance(content, bytes):
            size = dict(_fields(content)).get(1, 0)
            yield size if isinstance(size, int) else 0


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a protocol buffer."""
    place = 0
    while place < len(data):
        tag, place = read_varint(data, place)
        kind = tag & 7
        value: int | bytes
        if kind == 0:
            value, place = read_varint(data, place)
        elif kind in (1, 5):  # 8 or 4 bytes
            size = 8 if kind == 1 else 4
            value = int.from_bytes(data[place : place + size], "little")
            place += size
        elif kind == 2:
            size, place = read_varint(data, place)
            value = data[place : place + size]
            place += size
        else:
            raise DamagedTableError(f"a field is of kind {kind}")
        if place > len(data):
            raise DamagedTableError("a field goes beyond its end")
        yield tag >> 3, value


def _tensor(name: str, entry: _Entry, numbers: npt.NDArray[np.uint8]) -> Tensor:
    dtype = np.dtype(_FLOATS[entry.dtype]).newbyteorder("<")
    if entry.is_part:
        raise DamagedTableError(f"{name}: cut into slices, which is not read")
    if math.prod(entry.shape) * dtype.itemsize != entry.size:
        raise DamagedTableError(f"{name}: {entry.size} bytes for shape {entry.shape}")
    if entry.offset + entry.size > len(numbers):
        raise DamagedTableError(f"{name}: its numbers lie beyond the end of the file")
    content = numbers[entry.offset : entry.offset + entry.size]
    if crc32c(content) != unmasked(entry.checksum):
        raise DamagedTableError(f"{name}: its numbers do not have their checksum")
    values = np.frombuffer(content, dtype).reshape(entry.shape)
    # torch reads numbers at multiples of their size only
    values = values if values.flags.aligned else values.copy()
    tensor = torch.from_numpy(values)
    # TensorFlow multiplies by (inputs, outputs), torch by (outputs, inputs)
    return tensor.T.contiguous() if name.endswith("/kernel") and tensor.dim() == 2 else tensor


def _name(name: str) -> str:
    """Return the name in ``transformers``: ``bert/pooler/dense/kernel`` is ``….dense.weight``."""
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    parts = re.sub(r"/layer_(\d+)/", r"/layer/\1/", name).split("/")
    ends = {"kernel": "weight", "gamma": "weight", "beta": "bias"}
    if parts[-1].endswith("_embeddings"):
        parts.append("weight")
    parts[-1] = ends.get(parts[-1], parts[-1])
    return ".".join(parts)
