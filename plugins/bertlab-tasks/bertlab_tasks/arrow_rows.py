"""Rows of Parquet and Arrow files, whose few bytes may stand for very many.

A dictionary, a long list or a packed page says how large it is; what is too large is refused by
name before it is unpacked, and rows are made so few at a time that they take little memory.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, chain
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Literal

import numpy as np

from bertlab.api import DataError, RawExamples
from bertlab.extend import (
    DAMAGED_PACKED,
    check_memory,
    hold,
    holds_no_examples,
    is_packed,
    located,
    open_unpacked,
    reading_budget,
)

_BATCH = 1000  # rows
_BLOCK = 2**20  # bytes
_BYTES_OF_ROW = 1000  # of memory: an Example, and its sequence before it is packed


def read_arrow(
    path: str, form: Literal["parquet", "arrow"], only: Sequence[str] | None = None
) -> RawExamples:
    """Read a Parquet or Arrow file; class names that ``datasets`` wrote into it are kept.

    ``arrow`` is a file or stream of record batches, such as Feather. Of ``only`` these columns, the
    ones that are there are read; all if None.
    """
    import datasets  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    with _explain_failed_read(path, form):
        file, stored = _seekable(path)
        opened: Any = _opened(file, stored, path, form)
        schema = opened.schema_arrow if form == "parquet" else opened.schema
        features = datasets.Features.from_arrow_schema(schema)
    wanted = [each for each in schema.names if only is None or each in only]
    for column in wanted:
        if wanted.count(column) > 1:
            raise DataError(f"{path}: has a column {column!r} twice; rename one of the two")

    def batches() -> Iterator[Mapping[str, list[Any]]]:
        row = 1
        with _explain_failed_read(path, form):
            if form == "parquet":
                found: Iterator[pa.RecordBatch] = _groups(opened, file, stored, path, wanted)
            elif isinstance(opened, pa.RecordBatchFileReader):
                found = map(opened.get_batch, range(opened.num_record_batches))
            else:
                found = iter(opened)
            hold(path, 0, stored)
            for batch in found:
                yield from light_parts(batch, wanted, path, row)
                row += len(batch)

    rows = rows_of_batches(batches(), path) if wanted else iter(())
    first = next(rows, None)
    if first is None and only is None:
        raise holds_no_examples(path)
    rows = chain([] if first is None else [first], rows)
    names = class_names(features)
    return RawExamples(path, tuple(schema.names), rows, class_names=names, form=form)


def _groups(
    opened: Any,  # noqa: ANN401
    file: Any,  # noqa: ANN401
    stored: int,
    path: str,
    wanted: Sequence[str],
) -> Iterator[Any]:
    """Yield batches of rows of a Parquet file, whose row groups say how large they are."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    meta = opened.metadata
    leaves = [opened.schema.column(n) for n in range(meta.num_columns)]
    # x, x.list and x.list.element of x.list.element: the first is the column
    read = [n for n, leaf in enumerate(leaves) if not _prefixes(leaf.path).isdisjoint(wanted)]
    texts = [leaves[n].path for n in read if leaves[n].physical_type == "BYTE_ARRAY"]
    coded = pq.ParquetFile(file, metadata=meta, read_dictionary=texts)
    for number in range(meta.num_row_groups):
        group = meta.row_group(number)
        if not group.num_rows:
            continue
        chunks = [group.column(place) for place in read]
        packed = min(stored, sum(chunk.total_compressed_size for chunk in chunks))
        sizes = {each.path_in_schema: 3 * each.total_uncompressed_size for each in chunks}
        _check_group(f"{path}: row group {number}", sizes, packed)
        # a text that stands in the dictionary of a column once may be that of all rows
        ahead = coded.iter_batches(1, row_groups=[number], columns=wanted)
        longest = max(1, *map(_longest, _parts(next(ahead).columns)))
        for place, chunk in zip(read, chunks, strict=True):
            if leaves[place].max_repetition_level:  # long lists take no place in a file
                sizes[chunk.path_in_schema] += (16 + longest) * chunk.num_values
        _check_group(f"{path}: row group {number}", sizes, packed)
        rows = _light() // max(longest, sum(sizes.values()) // group.num_rows)
        size = min(max(rows, 1), _BATCH)
        yield from opened.iter_batches(size, row_groups=[number], columns=wanted)


def _check_group(name: str, sizes: Mapping[str, int], packed: int) -> None:
    most = max(sizes, key=sizes.__getitem__)
    check_memory(name, f"with column {most!r} it", sum(sizes.values()), packed)


def _prefixes(path: str) -> set[str]:
    return set(accumulate(path.split("."), "{}.{}".format))


def _light() -> int:
    """Return the bytes that the rows may take that are made at a time."""
    return reading_budget() // 16


def _parts(arrays: Sequence[Any]) -> Iterator[Any]:
    """Yield arrays, and those that they are nested of."""
    for array in arrays:
        yield array
        if array.type.num_fields:
            inside = array.flatten()
            yield from _parts(inside if isinstance(inside, list) else [inside])


def _longest(array: Any) -> int:  # noqa: ANN401
    """Return at least the bytes of the longest value in an array's dictionary; 0 without one."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    if not pa.types.is_dictionary(array.type):
        return 0
    values = array.dictionary
    if pa.types.is_primitive(values.type):  # pandas' categories of numbers
        return 8
    if values.type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        longest: int = pc.max(pc.binary_length(values)).as_py() or 0
        return longest
    size: int = values.get_total_buffer_size()
    return size


def _viewed(array: Any) -> int:  # noqa: ANN401
    """Return the bytes of the values of an array of views, of which many may be of one place."""
    import pyarrow as pa  # noqa: PLC0415

    if array.type not in (pa.string_view(), pa.binary_view()):
        return 0
    # a view has 16 bytes, of which the first four are its length
    lengths = np.frombuffer(array.buffers()[1], "<i4")[4 * array.offset :: 4][: len(array)]
    is_there = array.is_valid().to_numpy(zero_copy_only=False)
    return int(lengths[is_there].sum(dtype=np.int64))


def light_parts(
    batch: Any,  # noqa: ANN401
    wanted: Sequence[str],
    name: str,
    row: int,
) -> Iterator[dict[str, list[Any]]]:
    """Yield the columns of a batch, whose first row has a number, few of its rows at a time."""
    batch.validate(full=True)  # a text's wrong place in the file would be read unseen
    start = 0
    while start < len(batch):
        part = _light_rows(batch.select(wanted), start, f"{name}: row {row + start}")
        yield part.to_pydict()
        start += len(part)


def _light_rows(batch: Any, start: int, name: str) -> Any:  # noqa: ANN401
    """Return the next rows of a batch, so few that they take little memory as Python's values."""
    rows = batch.slice(start, _BATCH)
    while True:
        parts = list(_parts(rows.columns))
        shared = sum(_longest(each) * len(each) + _viewed(each) for each in parts)
        taken = sum(each.nbytes + 64 * len(each) for each in parts) + shared
        if taken <= _light() or len(rows) == 1:
            check_memory(name, "this row", taken)
            hold(name, 2 * taken + _BYTES_OF_ROW * len(rows))
            return rows
        rows = rows.slice(0, max(1, min(len(rows) // 2, len(rows) * _light() // taken)))


def _opened(file: Any, stored: int, path: str, form: str) -> Any:  # noqa: ANN401
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    if form == "parquet":
        return pq.ParquetFile(file)
    _check_packed(file, stored, path)
    try:
        return pa.ipc.open_file(file)
    except pa.ArrowInvalid:  # no footer: a stream, as datasets keeps in its cache
        file.seek(0)
        return pa.ipc.open_stream(file)


def _check_packed(file: Any, stored: int, path: str) -> None:  # noqa: ANN401
    """Refuse an Arrow file with packed batches that become too large; they say how large."""
    import pyarrow as pa  # noqa: PLC0415

    file.seek(8 if file.read(6) == b"ARROW1" else 0)  # a file is a stream behind its first bytes
    with suppress(StopIteration):
        for number, message in enumerate(iter(pa.ipc.MessageReader.open_stream(file))):
            if message.body is not None:
                taken = 3 * _unpacked_size(message.metadata, memoryview(message.body))
                check_memory(path, f"message {number}", taken, min(stored, len(message.body)))


def _unpacked_size(meta: Any, body: memoryview) -> int:  # noqa: ANN401
    """Return the bytes that the buffers of a record batch have, unpacked; 0 of a plain one.

    ``meta`` is a flatbuffer: a table says at its place how far before it stands the list of where
    its fields are.
    """

    def number(form: str, at: int) -> int:
        found: int = struct.unpack_from(form, meta, at)[0]
        return found

    def field(table: int, place: int) -> int:
        fields = table - number("<i", table)
        at = number("<H", fields + 4 + 2 * place) if 4 + 2 * place < number("<H", fields) else 0
        return table + at if at else 0

    def follow(at: int) -> int:
        return at + number("<I", at)

    root = follow(0)
    batch = follow(field(root, 2))  # Message.header
    if meta[field(root, 1)] == 2:  # a DictionaryBatch, whose data are a RecordBatch
        batch = follow(field(batch, 1))
    if not field(batch, 3) or not field(batch, 2):  # compression, buffers
        return 0
    buffers = follow(field(batch, 2))
    places = (number("<q", buffers + 4 + 16 * n) for n in range(number("<I", buffers)))
    return sum(
        max(0, struct.unpack_from("<q", body, at)[0]) for at in places if at + 8 <= len(body)
    )


def _seekable(path: str) -> tuple[Any, int]:
    """Return what Arrow can seek in, and how many bytes there are of it, packed if it is packed.

    The end of a file says where its columns are.
    """
    import pyarrow as pa  # noqa: PLC0415

    file = located(path)
    if isinstance(file, Path) and not is_packed(file):
        found = pa.memory_map(path)
        return found, found.size()
    stored = file.stat().st_size if isinstance(file, Path) else 0
    with open_unpacked(file) as stream, NamedTemporaryFile() as copied:
        while block := stream.read(_BLOCK):
            copied.write(block)
            stored += 0 if is_packed(file) else len(block)
            check_memory(path, "unpacked it", copied.tell(), stored)
        copied.flush()
        return pa.memory_map(copied.name), stored  # stays readable without its name


@contextmanager
def _explain_failed_read(path: str, form: str) -> Iterator[None]:
    import pyarrow as pa  # noqa: PLC0415

    try:
        yield
    except (pa.ArrowException, OSError, ValueError, struct.error, *DAMAGED_PACKED) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        kind = "Parquet" if form == "parquet" else "Arrow"
        raise DataError(f"{path}: not a readable {kind} file: {reason}") from None


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or the error's name."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def rows_of_batches(
    batches: Iterator[Mapping[str, list[Any]]], name: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield place and values of each row of batches of columns."""
    number = 0
    for batch in batches:
        for values in zip(*batch.values(), strict=True):
            number += 1
            yield f"{name}: row {number}", dict(zip(batch, values, strict=True))


def class_names(features: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the names of the classes of columns that hold class ids, or lists of them."""
    names = {}
    for column, feature in features.items():
        # a list of classes has its ClassLabel in .feature
        declared = getattr(getattr(feature, "feature", feature), "names", None)
        if declared:
            names[column] = tuple(declared)
    return names
