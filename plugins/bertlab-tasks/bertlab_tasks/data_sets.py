"""Data sets by ``datasets``: of the Hugging Face hub, and those that it saved to a folder.

``datasets`` is imported when first needed (1.4 s). No code of a data set is ever run.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bertlab import nearest
from bertlab.api import CorpusError, DataError, DataSource, RawDocument, RawExamples
from bertlab.extend import hold, holds_no_examples, open_all, read_object, texts_of_rows
from bertlab_tasks.arrow_rows import (
    class_names,
    first_line,
    light_parts,
    read_arrow,
    rows_of_batches,
)

HUB_PREFIX = "hf:"
_BATCH = 1000  # rows


def _read_hub(location: str, split: str | None) -> RawExamples:
    """Read a split of ``hf:NAME``, ``hf:OWNER/NAME`` or ``hf:OWNER/NAME/CONFIG``.

    ``hf:NAME:CONFIG`` is read as well. The split may be a slice: ``train[:10%]``. Where it is not
    given, it stands behind the name, as that of a corpus does: ``hf:NAME::SPLIT``.
    """
    name, config, own, *_ = [*location.removeprefix(HUB_PREFIX).split(":", 2), "", ""]
    if own:
        if split is not None:
            raise DataError(f"{location}: found splits {own!r} and {split!r}, expected one of them")
        location, split = location.removesuffix(f":{own}").rstrip(":"), own
    # hf:a -> hf:a::test, hf:a/b/c -> hf:a/b/c::test, hf:a:b -> hf:a:b:test
    place = f"{location.rstrip(':')}{'' if config else ':'}:test"
    if name.count("/") == 2 and not config:  # OWNER/NAME/CONFIG
        name, _, config = name.rpartition("/")
    if not name or name.count("/") > 1:
        raise DataError(f"{location}: expected hf:OWNER/NAME or hf:OWNER/NAME/CONFIG")
    if split is None:
        raise DataError(f"{location}: which split is not said; give one, for example {place}")
    dataset = _load_hub(name, config, split, f"{location}: split {split!r}")
    return _raw_rows(dataset, f"{location} {split}")


def _load_corpus(source: str) -> Any:  # noqa: ANN401
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
            f"{called} cannot be loaded: {first_line(error)}; check the name, configuration and "
            "split, and the network, or give local files"
        ) from None


def read_saved(folder: Path, split: str | None) -> RawExamples:
    """Read what ``save_to_disk`` of ``datasets`` wrote; a set without splits is read whole."""
    name, part = str(folder), folder
    try:
        if (folder / "dataset_dict.json").is_file():
            splits = read_object(folder / "dataset_dict.json", {"splits": list})["splits"]
            if split is None:
                places = ", ".join(str(folder / str(each)) for each in splits)
                raise DataError(f"{folder}: which split is not said; give one: {places}")
            if split not in splits:
                raise DataError(
                    f"{folder}: no split {split!r}{nearest(str(split), map(str, splits))}; "
                    f"there are {', '.join(map(str, splits))}"
                )
            name, part = f"{folder} {split}", folder / str(split)
        listed = read_object(part / "state.json", {"_data_files": list})["_data_files"]
        # names, not paths: they lie in the folder
        paths = [str(part / Path(each["filename"]).name) for each in listed]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder}: not a readable saved data set: {first_line(error)}") from None
    if not paths:
        raise holds_no_examples(name)
    raw = open_all(paths, lambda path: read_arrow(path, "arrow"))
    raw.name, raw.form = name, "a data set"
    return raw


def _raw_rows(dataset: Any, name: str) -> RawExamples:  # noqa: ANN401
    """Return the rows of a ``datasets.Dataset``."""
    if not len(dataset):
        raise holds_no_examples(name)
    columns = tuple(dataset.column_names)

    def batches() -> Iterator[Mapping[str, list[Any]]]:
        hold(name, 0, dataset.data.nbytes)
        row = 1
        for table in dataset.with_format("arrow").iter(batch_size=_BATCH):
            for batch in table.to_batches():
                yield from light_parts(batch, columns, name, row)
                row += len(batch)

    rows, names = rows_of_batches(batches(), name), class_names(dataset.features)
    return RawExamples(name, columns, rows, class_names=names, form="a data set")


class HuggingFaceHub(DataSource):
    """Data sets of the Hugging Face hub, by ``datasets``; no code of a data set is run.

    ``hf:NAME[:CONFIG][:SPLIT]`` are documents, a row each; ``hf:NAME`` or ``hf:OWNER/NAME/CONFIG``
    are labelled rows.
    """

    def documents(self) -> Iterator[RawDocument]:
        """Yield the texts of ``text_column``, empty ones as well."""
        raw = _raw_rows(_load_corpus(self.name), self.name)
        for source, text in texts_of_rows(raw, self.text_column):
            yield RawDocument(text, False, source)

    def fingerprint(self) -> str:
        """Return what ``datasets`` calls the fingerprint."""
        fingerprint: str = _load_corpus(self.name)._fingerprint
        return fingerprint

    def raw_examples(self, split: str | None) -> RawExamples:
        """Return the rows, with the class names that the data set declares."""
        return _read_hub(self.name, split)
