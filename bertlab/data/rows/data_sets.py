"""Data sets by ``datasets`` and Arrow: of the hub, saved folders, Parquet and Arrow files.

``datasets`` is imported when first needed (1.4 s). No code of a data set is ever run.
"""

import re
import shutil
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, chain, islice
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Literal

from bertlab.api.examples import DataSource, RawDocument, RawExamples, holds_no_examples
from bertlab.data.rows.lines import PACKED, Errors, open_unpacked
from bertlab.data.sources import RemoteFile, located
from bertlab.errors import CorpusError, DataError, nearest
from bertlab.files import check_memory, reading_budget

_LOOKED_AT = 20  # rows, by which a column of numbers is known
_NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?")


def looks_like_names(texts: Sequence[object]) -> bool:
    """Return whether all texts are numbers, as in a column of ids; False of none."""
    return bool(texts) and all(
        isinstance(text, str) and _NUMBER.fullmatch(text.strip()) for text in texts
    )


def texts_of_rows(
    raw: RawExamples, column: str, errors: Errors = "strict"
) -> Iterator[tuple[str, str]]:
    """Yield place and text of each row; the text is empty where the row has none."""
    if column not in raw.columns and not raw.rows_vary:
        raise _no_column(raw.name, column, raw.columns)
    ahead = list(islice(raw.rows, _LOOKED_AT))
    found = [(place, text) for place, row in ahead if (text := row.get(column)) not in (None, "")]
    if looks_like_names([text for _, text in found]):
        raise CorpusError(
            f"{found[0][0]}: column {column!r} holds numbers ({found[0][1]!r}), expected a text; "
            "name another column with text_column"
        )
    for place, row in chain(ahead, raw.rows):
        if column not in row:
            raise _no_column(place, column, list(row))
        text = "" if row[column] is None else row[column]
        if not isinstance(text, str):
            raise CorpusError(
                f"{place}: column {column!r} holds {type(text).__name__} {str(text)[:40]!r}, "
                "expected a text; name another column with text_column"
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:  # an escaped half of a surrogate pair
            if errors == "strict":
                raise CorpusError(
                    f"{place}: column {column!r} holds a lone surrogate "
                    f"\\u{ord(text[error.start]):04x}, which is no character; mend it, or go on "
                    "with '?' in its place: --errors replace, or data.errors: replace"
                ) from None
            text = text.encode(errors="replace").decode()
        yield place, text


def _no_column(place: str, column: str, columns: Sequence[str]) -> CorpusError:
    return CorpusError(
        f"{place}: no column {column!r}; there are {', '.join(map(repr, columns)) or 'none'}"
        f"{nearest(column, columns)} (set text_column)"
    )


HUB_PREFIX = "hf:"
_BATCH = 1000


def read_hub(location: str, split: str | None) -> RawExamples:
    """Read a split of ``hf:NAME``, ``hf:OWNER/NAME`` or ``hf:OWNER/NAME/CONFIG``.

    ``hf:NAME:CONFIG`` is read as well. The split may be a slice: ``train[:10%]``.
    """
    name, _, config = location.removeprefix(HUB_PREFIX).partition(":")
    if name.count("/") == 2 and not config:  # OWNER/NAME/CONFIG
        name, _, config = name.rpartition("/")
    if not name or name.count("/") > 1:
        raise DataError(f"{location}: expected hf:OWNER/NAME or hf:OWNER/NAME/CONFIG")
    if split is None:
        raise DataError(f"{location}: which split is not said; give one, for example test")
    dataset = _load_hub(name, config, split, f"{location}: split {split!r}")
    return raw_rows(dataset, f"{location} {split}")


def load_hub_corpus(source: str) -> Any:  # noqa: ANN401
    """Load ``hf:NAME[:CONFIG][:SPLIT]`` as a memory-mapped ``datasets.Dataset``.

    Two parts are NAME and CONFIG; ``hf:NAME::SPLIT`` leaves CONFIG out. SPLIT is ``train`` unless
    given.
    """
    # hf:a:b -> ["a", "b", "", ""]: name a, config b, no split, and nothing too many
    name, config, split, *rest = [*source.removeprefix(HUB_PREFIX).split(":"), "", ""]
    if not name or any(rest):
        raise CorpusError(f"source {source!r}: expected hf:NAME[:CONFIG][:SPLIT]")
    return _load_hub(name, config, split or "train", f"source {source!r}: data set")


def _load_hub(name: str, config: str, split: str, called: str) -> Any:  # noqa: ANN401
    import datasets  # noqa: PLC0415

    try:
        return datasets.load_dataset(name, config or None, split=split)
    except Exception as error:
        raise DataError(
            f"{called} cannot be loaded: {_first_line(error)}; check the name, configuration and "
            "split, and the network, or give local files"
        ) from None


def is_saved(folder: Path) -> bool:
    """Return whether a folder was written by ``save_to_disk`` of ``datasets``."""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def saved_files(location: str) -> list[Path]:
    """Return the files of a saved data set; none of another source."""
    return list(Path(location).expanduser().rglob("*.arrow")) if Path(location).is_dir() else []


def read_saved(folder: Path, split: str | None) -> RawExamples:
    """Read what ``save_to_disk`` of ``datasets`` wrote; a set without splits is read whole."""
    import datasets  # noqa: PLC0415

    try:
        dataset = datasets.load_from_disk(str(folder))
    except Exception as error:
        raise DataError(f"{folder}: not a readable saved data set: {_first_line(error)}") from None
    if isinstance(dataset, datasets.Dataset):
        return raw_rows(dataset, str(folder))
    if split not in dataset:
        raise DataError(
            f"{folder}: no split {split!r}{nearest(str(split), dataset)}; "
            f"there are {', '.join(dataset)}"
        )
    return raw_rows(dataset[split], f"{folder} {split}")


def raw_rows(dataset: Any, name: str) -> RawExamples:  # noqa: ANN401
    """Return the rows of a ``datasets.Dataset``."""
    if not len(dataset):
        raise holds_no_examples(name)
    dataset = dataset.with_format(None)  # Python's values, not tensors
    batches = (dict(batch) for batch in dataset.iter(batch_size=_BATCH))
    columns = tuple(dataset.column_names)
    names = _class_names(dataset.features)
    return RawExamples(name, columns, _rows(batches, name), class_names=names, form="a data set")


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
        file = _seekable(path)
        opened: Any = _opened(file, path, form)
        schema = opened.schema_arrow if form == "parquet" else opened.schema
        features = datasets.Features.from_arrow_schema(schema)
    wanted = [each for each in schema.names if only is None or each in only]

    def batches() -> Iterator[Mapping[str, list[Any]]]:
        row = 1
        with _explain_failed_read(path, form):
            if form == "parquet":
                found: Iterator[pa.RecordBatch] = _groups(opened, file, path, wanted)
            elif isinstance(opened, pa.RecordBatchFileReader):
                found = map(opened.get_batch, range(opened.num_record_batches))
            else:
                found = iter(opened)
            for batch in found:
                start = 0
                while start < len(batch):
                    part = _light_rows(batch.select(wanted), start, f"{path}: row {row + start}")
                    yield part.to_pydict()
                    start += len(part)
                row += start

    rows = _rows(batches(), path) if wanted else iter(())
    first = next(rows, None)
    if first is None and only is None:
        raise holds_no_examples(path)
    rows = chain([] if first is None else [first], rows)
    names = _class_names(features)
    return RawExamples(path, tuple(schema.names), rows, class_names=names, form=form)


def _groups(opened: Any, file: Any, path: str, wanted: Sequence[str]) -> Iterator[Any]:
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
        chunks = [group.column(place) for place in read]
        packed = sum(chunk.total_compressed_size for chunk in chunks)
        sizes = {each.path_in_schema: 3 * each.total_uncompressed_size for each in chunks}
        _check_group(f"{path}: row group {number}", sizes, packed)
        # a text that stands in the dictionary of a column once may be that of all rows
        ahead = coded.iter_batches(1, row_groups=[number], columns=wanted)
        arrays = next(ahead).columns if group.num_rows else []
        longest = max(1, *map(_longest, _parts(arrays)))
        for place, chunk in zip(read, chunks, strict=True):
            if leaves[place].max_repetition_level:  # long lists take no place in a file
                sizes[chunk.path_in_schema] += (16 + longest) * chunk.num_values
        _check_group(f"{path}: row group {number}", sizes, packed)
        rows = _light() // max(longest, sum(sizes.values()) // max(group.num_rows, 1))
        size = min(max(rows, 1), _BATCH)
        yield from opened.iter_batches(size, row_groups=[number], columns=wanted)


def _check_group(name: str, sizes: Mapping[str, int], packed: int) -> None:
    most = max(sizes, key=sizes.__getitem__)
    check_memory(name, f"with column {most!r} it", sum(sizes.values()), packed)


def _prefixes(path: str) -> set[str]:
    return set(accumulate(path.split("."), "{}.{}".format))


def _light() -> int:
    """Return the bytes that the rows may take that are made at a time."""
    return reading_budget() // 8


def _parts(arrays: Sequence[Any]) -> Iterator[Any]:
    """Yield arrays, and those that they are nested of."""
    for array in arrays:
        yield array
        if array.type.num_fields:
            inside = array.flatten()
            yield from _parts(inside if isinstance(inside, list) else [inside])


def _longest(array: Any) -> int:  # noqa: ANN401
    """Return the bytes of the longest text in an array's dictionary; 0 of one without."""
    import pyarrow.compute as pc  # noqa: PLC0415

    values = getattr(array, "dictionary", None)
    lengths = None if values is None or values.type.num_fields else pc.binary_length(values)
    return 0 if lengths is None else pc.max(lengths).as_py() or 0


def _light_rows(batch: Any, start: int, name: str) -> Any:  # noqa: ANN401
    """Return the next rows of a batch, so few that they take little memory as Python's values."""
    rows = batch.slice(start, _BATCH)
    while True:
        parts = list(_parts(rows.columns))
        taken = sum(each.nbytes + (64 + _longest(each)) * len(each) for each in parts)
        if taken <= _light() or len(rows) == 1:
            check_memory(name, "this row", taken)
            return rows
        rows = rows.slice(0, max(1, min(len(rows) // 2, len(rows) * _light() // taken)))


def _opened(file: Any, path: str, form: str) -> Any:  # noqa: ANN401
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    if form == "parquet":
        return pq.ParquetFile(file)
    _check_packed(file, path)
    try:
        return pa.ipc.open_file(file)
    except pa.ArrowInvalid:  # no footer: a stream, as datasets keeps in its cache
        file.seek(0)
        return pa.ipc.open_stream(file)


def _check_packed(file: Any, path: str) -> None:  # noqa: ANN401
    """Refuse an Arrow file with packed batches that become too large; they say how large."""
    import pyarrow as pa  # noqa: PLC0415

    file.seek(8 if file.read(6) == b"ARROW1" else 0)  # a file is a stream behind its first bytes
    with suppress(StopIteration):
        for number, message in enumerate(iter(pa.ipc.MessageReader.open_stream(file))):
            if message.body is not None:
                taken = 3 * _unpacked_size(message.metadata, memoryview(message.body))
                check_memory(path, f"message {number}", taken, len(message.body))


def _unpacked_size(meta: Any, body: memoryview) -> int:  # noqa: ANN401
    """Return the bytes that the buffers of a record batch say they have, unpacked; 0 of a plain one.

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
    return sum(max(0, struct.unpack_from("<q", body, at)[0]) for at in places if at + 8 <= len(body))


def _seekable(path: str) -> Any:  # noqa: ANN401
    """Return what Arrow can seek in: the end of a file says where its columns are."""
    import pyarrow as pa  # noqa: PLC0415

    file = located(path)
    if isinstance(file, RemoteFile) or file.suffix.lower() in PACKED:
        with open_unpacked(file) as stream, NamedTemporaryFile() as copied:
            shutil.copyfileobj(stream, copied)
            copied.flush()
            return pa.memory_map(copied.name)  # stays readable without its name
    return pa.memory_map(path)


@contextmanager
def _explain_failed_read(path: str, form: str) -> Iterator[None]:
    import pyarrow as pa  # noqa: PLC0415

    try:
        yield
    except (pa.ArrowException, OSError, ValueError, EOFError, zlib.error, struct.error) as error:
        reason = getattr(error, "strerror", None) or _first_line(error)
        kind = "Parquet" if form == "parquet" else "Arrow"
        raise DataError(f"{path}: not a readable {kind} file: {reason}") from None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _rows(
    batches: Iterator[Mapping[str, list[Any]]], name: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    number = 0
    for batch in batches:
        for values in zip(*batch.values(), strict=True):
            number += 1
            yield f"{name}: row {number}", dict(zip(batch, values, strict=True))


def _class_names(features: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the names of the classes of columns that hold class ids, or lists of them."""
    names = {}
    for column, feature in features.items():
        # a list of classes has its ClassLabel in .feature
        declared = getattr(getattr(feature, "feature", feature), "names", None)
        if declared:
            names[column] = tuple(declared)
    return names


class HuggingFaceHub(DataSource):
    """Data sets of the Hugging Face hub, by ``datasets``; no code of a data set is run.

    ``hf:NAME[:CONFIG][:SPLIT]`` are documents, a row each; ``hf:NAME`` or ``hf:OWNER/NAME/CONFIG``
    are labelled rows.
    """

    def documents(self) -> Iterator[RawDocument]:
        """Yield the texts of ``text_column``, empty ones as well."""
        raw = raw_rows(load_hub_corpus(self.name), self.name)
        for source, text in texts_of_rows(raw, self.text_column):
            yield RawDocument(text, False, source)

    def fingerprint(self) -> str:
        """Return what ``datasets`` calls the fingerprint."""
        fingerprint: str = load_hub_corpus(self.name)._fingerprint
        return fingerprint

    def raw_examples(self, split: str | None) -> RawExamples:
        """Return the rows, with the class names that the data set declares."""
        return read_hub(self.name, split)
