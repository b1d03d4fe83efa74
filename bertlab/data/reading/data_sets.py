"""Data sets by ``datasets``: those of the hub, folders they were saved to, Parquet files.

``datasets`` is imported when first needed (1.4 s). No code of a data set is ever run.
"""

import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from bertlab.api.examples import RawExamples, holds_no_examples
from bertlab.data.reading.lines import open_unpacked
from bertlab.errors import DataError, nearest
from bertlab.files.reading import RemoteFile, located

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
    dataset = load_hub(name, config, split, f"{location}: split {split!r}")
    return _raw_rows(dataset, f"{location} {split}")


def load_hub(name: str, config: str, split: str, called: str) -> Any:  # noqa: ANN401
    """Load a split (downloaded once) as a memory-mapped ``datasets.Dataset``."""
    import datasets  # noqa: PLC0415

    try:
        return datasets.load_dataset(name, config or None, split=split)
    except Exception as error:
        raise DataError(
            f"{called} cannot be loaded: {first_line(error)}; check the name, configuration and "
            "split, and the network, or give local files"
        ) from None


def is_saved(folder: Path) -> bool:
    """Return whether a folder was written by ``save_to_disk`` of ``datasets``."""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def read_saved(folder: Path, split: str | None) -> RawExamples:
    """Read what ``save_to_disk`` of ``datasets`` wrote; a set without splits is read whole."""
    import datasets  # noqa: PLC0415

    try:
        dataset = datasets.load_from_disk(str(folder))
    except Exception as error:
        raise DataError(f"{folder}: not a readable saved data set: {first_line(error)}") from None
    if isinstance(dataset, datasets.Dataset):
        return _raw_rows(dataset, str(folder))
    if split not in dataset:
        raise DataError(
            f"{folder}: no split {split!r}{nearest(str(split), dataset)}; "
            f"there are {', '.join(dataset)}"
        )
    return _raw_rows(dataset[split], f"{folder} {split}")


def _raw_rows(dataset: Any, name: str) -> RawExamples:  # noqa: ANN401
    if not len(dataset):
        raise holds_no_examples(name)
    dataset = dataset.with_format(None)  # Python's values, not tensors
    batches = (dict(batch) for batch in dataset.iter(batch_size=_BATCH))
    columns = tuple(dataset.column_names)
    return RawExamples(
        name, columns, _rows(batches, name), class_names=_class_names(dataset.features)
    )


def read_parquet(path: str) -> RawExamples:
    """Read a Parquet file; class names that ``datasets`` wrote into it are kept."""
    import datasets  # noqa: PLC0415

    file = ParquetFile(path)
    with file.explain_failed_read():
        features = datasets.Features.from_arrow_schema(file.file.schema_arrow)
    rows = _rows(file.batches(), path)
    first = next(rows, None)
    if first is None:
        raise holds_no_examples(path)
    names = _class_names(features)
    return RawExamples(path, tuple(first[1]), chain([first], rows), class_names=names)


class ParquetFile:
    """A Parquet file or its URL, unpacked if its name ends in ``.gz``.

    Attributes:
        columns: names of the columns.

    Raises:
        DataError: here and while batches are read, if it is not readable.
    """

    def __init__(self, path: str) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415

        self.path = path
        with self.explain_failed_read():
            self.file = pq.ParquetFile(_opened(path))
        self.columns: list[str] = self.file.schema_arrow.names

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Mapping[str, list[Any]]]:
        """Yield the values of 1,000 rows at a time by column; of all columns if None."""
        with self.explain_failed_read():
            for batch in self.file.iter_batches(_BATCH, columns=columns):
                yield batch.to_pydict()

    @contextmanager
    def explain_failed_read(self) -> Iterator[None]:
        """Re-raise errors inside the block as DataError."""
        import pyarrow as pa  # noqa: PLC0415

        try:
            yield
        except (pa.ArrowException, OSError, ValueError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or (str(error).splitlines() or [""])[0]
            raise DataError(f"{self.path}: not a readable Parquet file: {reason}") from None


def _opened(path: str) -> Any:  # noqa: ANN401
    """Return what Arrow can seek in: the end of a Parquet file says where its columns are."""
    import pyarrow as pa  # noqa: PLC0415

    file = located(path)
    if isinstance(file, RemoteFile):
        with open_unpacked(file) as stream, NamedTemporaryFile() as copied:
            shutil.copyfileobj(stream, copied)
            copied.flush()
            return pa.memory_map(copied.name)  # stays readable without its name
    return open_unpacked(file) if file.suffix == ".gz" else path


def first_line(error: Exception) -> str:
    """Return the first line of an error of ``datasets``, or the name of its class."""
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
