"""The corpus: which documents to pre-train on, and how to read them.

Preparing in several processes reads with :func:`read_raw_documents` in one and calls
:func:`split_sentences` in the others.
"""

import contextlib
import glob
import hashlib
import importlib.metadata
import json
import logging
import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

from bertlab.api.examples import DataSource, RawDocument, RawExamples
from bertlab.data.corpus.documents import (
    Document,
    Format,
    detect_format,
    read_text_file,
    split_sentences,
    texts_of_rows,
)
from bertlab.data.rows.files import ROW_ENDINGS, matching_files, open_rows
from bertlab.data.rows.lines import (
    MAX_LINE,
    PACKED,
    Errors,
    content_ending,
    ending,
    explain_failed_read,
    read_lines,
    unreadable_kind,
)
from bertlab.data.rows.tables import RowReading
from bertlab.data.sources import (
    File,
    RemoteFile,
    default_cache_dir,
    is_url,
    located,
    open_source,
    remembered,
    sha256_of,
    source_of,
    state_of,
)
from bertlab.errors import ConfigError, CorpusError, DataError
from bertlab.files import describe_missing
from bertlab.plugins.index import installed, load_class

logger = logging.getLogger(__name__)

_NAMED_SOURCES = 3

READER_VERSION = 1
"""Part of the fingerprint: raise it when the same bytes give other documents or sentences."""

# the others were read as plain text before there was one reader of rows
_READ_SINCE_2 = {*ROW_ENDINGS, *PACKED} - {".csv", ".json", ".jsonl", ".parquet", ".gz", ".lzma"}


@dataclass(frozen=True)
class Corpus:
    """What to read documents from.

    Attributes:
        sources: files, folders (read with their sub-folders in sorted order, hidden files left
            out), glob patterns for files, or installed sources: ``python-english`` (the English
            that ships with Python), ``hf:NAME[:CONFIG][:SPLIT]`` (a Hugging Face data set), and
            those of plugins. URLs that ``fsspec`` reads (``https://``, ``s3://``, ``hf://``) name
            files, folders and patterns as well. Files may be packed (``.gz``, ``.bz2``, ``.xz``,
            ``.zst``, ``.zip`` with one file). Rows of ``.json``, ``.jsonl``, ``.ndjson``, ``.csv``,
            ``.tsv``, ``.parquet``, ``.arrow`` are a document each.
        format: ``sentences`` (one sentence a line, blank lines between documents), ``document``
            (each file a document), ``lines`` (each line a document), ``wikiextractor`` (``<doc …>``
            to ``</doc>``), or ``auto``, which looks at the start of each file. For rows only
            ``sentences`` matters: their text then holds one sentence a line.
        text_column: column (JSON key) of rows that holds the text.
        errors: for bytes that are not UTF-8: ``strict`` stops, ``replace`` reads them as U+FFFD.
        language: ISO 639 code of the text, for sentence splitting.
        settings: of an installed source that stands alone, by argument of its class.
    """

    sources: list[str]
    format: Format = "auto"
    text_column: str = "text"
    errors: Errors = "strict"
    language: str = "en"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z]{2,3}", self.language):  # anything else would be read as English
            code = "an ISO 639 code in small letters, as de"
            raise ConfigError(f"language: found {self.language!r}, expected {code}")

    @classmethod
    def of(cls, given: object, *how: Any) -> "Corpus":  # noqa: ANN401  format and the others
        """Return what ``data.corpus`` gives: a location, several, or ``source`` with settings."""
        settings = dict(given) if isinstance(given, Mapping) else {}
        places: Any = settings.pop("source", given)
        sources = [places] if isinstance(places, str) else list(places or [])
        return replace(cls(sources, *how), settings=settings)

    @property
    def name(self) -> str:
        """Name of the corpus in messages: its first three sources, and how many more there are."""
        rest = len(self.sources) - _NAMED_SOURCES
        more = f" and {rest} more" if rest > 0 else ""
        return ", ".join(self.sources[:_NAMED_SOURCES]) + more

    def absolute(self) -> "Corpus":
        """Return the corpus for processes in other working directories: with absolute paths."""
        sources = [
            source
            if is_url(source) or source_of(source)
            else str(Path(source).expanduser().absolute())
            for source in self.sources
        ]
        return replace(self, sources=sources)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of all that decides the documents; the sources are read once for it.

        That is the content of the sources in order, wherever they lie, the settings, and the
        versions of the readers and of the sentence splitter.
        """
        digest = hashlib.sha256()

        def add(*fields: str) -> None:
            digest.update(json.dumps(fields).encode())  # keeps ("ab", "c") and ("a", "bc") apart

        add(str(READER_VERSION), importlib.metadata.version("sentencex"))
        add(self.format, self.text_column, self.errors, self.language)
        if self.settings:
            add("settings", json.dumps(self.settings, sort_keys=True))
        for entry, _, content in self.inputs:
            if isinstance(entry, DataSource):
                add("source", content)
                continue
            # a packed file gives other documents than a plain one with the same bytes
            endings = PurePath(entry.path.name).suffixes
            add("file", "".join(endings[-2:]), content)
            if not _READ_SINCE_2.isdisjoint([*endings[-1:], ending(entry.path.name)]):
                add("2")
        return digest.hexdigest()

    @cached_property
    def entries(self) -> "list[_File | DataSource]":
        """Files and other sources in order; all names are checked before any file is read."""
        return list(_entries(self))

    @cached_property
    def inputs(self) -> "list[tuple[_File | DataSource, object, str]]":
        """Each of the entries, its state, and the hash of what it held after that."""
        return [(each, _state(each), each.fingerprint()) for each in self.entries]

    def check_unchanged(self) -> None:
        """Raise CorpusError if a file changed since :attr:`inputs`; for when it was read again."""
        for entry, state, digest in self.inputs:
            changed = state is None or _state(entry) != state
            if changed and entry.fingerprint() != digest:  # not just touched
                raise CorpusError(f"{entry.name}: changed while the text was read; begin again")


def _state(entry: "_File | DataSource") -> object:
    return state_of(entry.path) if isinstance(entry, _File) else ""


@dataclass(frozen=True)
class _File:
    path: File
    named: bool  # by the user, not found in a folder: it must hold text

    @property
    def name(self) -> str:
        return str(self.path)

    def fingerprint(self) -> str:
        """Return the SHA-256 (hex) of its content."""
        with explain_failed_read(self.name, CorpusError):
            return sha256_of(self.path)


def read_documents(corpus: Corpus) -> Iterator[Document]:
    """Yield the documents of a corpus that hold any text, as sentences."""
    for raw in read_raw_documents(corpus):
        if sentences := split_sentences(raw, corpus.language):
            yield Document(sentences, raw.source)


def read_raw_documents(corpus: Corpus, with_empty: bool = False) -> Iterator[RawDocument]:
    """Yield the documents of a corpus that hold any text, in an order that is always the same.

    Every source is looked for before anything is read. Memory does not grow with the corpus:
    documents over 16 Mi characters are split, with a warning.

    Args:
        corpus: sources, and how to read them.
        with_empty: also yield, for whoever counts them, rows without any text.
    """
    found = False
    for entry in corpus.entries:
        found_here = False
        for raw in _read_entry(entry, corpus):
            has_text = bool(raw.text) and not raw.text.isspace()
            found_here = found_here or has_text
            if has_text or with_empty:
                yield raw
        found = found or found_here
        if found_here:
            continue
        if isinstance(entry, _File) and not entry.named:
            logger.warning("%s: holds no text, left out", entry.path)
            continue
        raise CorpusError(f"{entry.name}: holds no text; leave it out of the corpus or fill it")
    if not found:
        raise CorpusError(f"corpus {corpus.name}: no file in it holds any text")


@contextlib.contextmanager
def naming(corpus: Corpus) -> Iterator[None]:
    """Prefix the message of a CorpusError raised inside the block with the name of the corpus.

    For code that sees tokens, not files: checks of a store, the held-out split, samplers.
    """
    try:
        yield
    except CorpusError as error:
        raise CorpusError(f"{corpus.name}: {error}") from error


def _read_entry(entry: _File | DataSource, corpus: Corpus) -> Iterator[RawDocument]:
    try:
        if isinstance(entry, DataSource):
            for raw in entry.documents():
                yield replace(raw, presplit=raw.presplit or corpus.format == "sentences")
            return
        form = ROW_ENDINGS.get(content_ending(entry.path))
        if form is not None:
            yield from _rows(entry.path, form, corpus)
            return
    except DataError as error:  # of the readers, which labelled examples have as well
        raise CorpusError(str(error)) from None
    if (reason := unreadable_kind(entry.path.name)) is not None:
        raise CorpusError(f"{entry.path}: {reason}")
    chosen = text_format(entry.path, corpus)
    if corpus.format == "auto":
        logger.info("%s: read as format %s", entry.path, chosen)
    yield from read_text_file(entry.path, chosen, read_lines(entry.path, corpus.errors, MAX_LINE))


def text_format(path: File, corpus: Corpus) -> Format:
    """Return the format in which a text file of a corpus is read."""
    if corpus.format != "auto":
        return corpus.format
    return detect_format(path, corpus.errors, corpus.language)


def describe_formats(corpus: Corpus) -> str:
    """Return how the first text files of a corpus are read, for messages; nothing if unasked."""
    if corpus.format != "auto":
        return ""
    files = (entry.path for entry in corpus.entries if isinstance(entry, _File))
    texts = (path for path in files if content_ending(path) not in ROW_ENDINGS)
    return "; ".join(
        f"{path} was taken for format {text_format(path, corpus)!r}"
        for path in islice(texts, _NAMED_SOURCES)
    )


def _rows(path: File, form: str, corpus: Corpus) -> Iterator[RawDocument]:
    """Yield a document for each row of a file, also of those without a text."""
    column = corpus.text_column
    raw = open_rows(
        str(path),
        form,
        lambda _: True,
        RowReading(errors=corpus.errors, keys={}),
        names=[column],
        only=[column],
    )
    for place, text in texts_of_rows(raw, column, corpus.errors):
        yield RawDocument(text, corpus.format == "sentences", place)


def _entries(corpus: Corpus) -> Iterator[_File | DataSource]:
    """Yield the files and the other sources of a corpus in order."""
    if not corpus.sources:
        told = "the corpus has no sources; name files, folders"
        raise CorpusError(f"{told}, python-english or hf:NAME (--corpus …, or data.corpus)")
    for source in corpus.sources:
        if source_of(source):
            opened = open_source(source, **corpus.settings)
            opened.text_column = corpus.text_column
            yield opened
            continue
        path = located(source)
        if isinstance(path, RemoteFile):
            yield from _remote(path)
            continue
        path = path.expanduser()
        if path.is_dir():
            yield from _folder(path)
        elif path.is_file():
            yield _File(path, named=True)
        elif glob.has_magic(source):
            yield from (_File(each, named=False) for each in matching_files(source, CorpusError))
        else:
            raise no_such_source(str(path) if is_url(source) else source)


def no_such_source(location: str) -> CorpusError:
    """Return the error for a part of a corpus that is not there; names the nearest that is."""
    sources = installed("source")
    expected = f"a file, a folder, a pattern, or a source: {', '.join(sources)}"
    return CorpusError(describe_missing(location, sources, expected))


def _remote(place: RemoteFile) -> Iterator[_File]:
    with explain_failed_read(str(place), CorpusError):
        found = place.files()
    if found is None:
        yield _File(place, named=True)
    elif not found:
        raise CorpusError(f"{place}: no file is there, or none matches")
    else:
        yield from (_File(file, named=False) for file in found)


def _folder(path: Path) -> Iterator[_File]:
    def fail(error: OSError) -> None:
        raise CorpusError(f"{error.filename}: cannot be read: {error.strerror}") from error

    found, seen = False, set[str]()
    for folder, folders, names in os.walk(path, onerror=fail, followlinks=True):
        # in place: os.walk goes on with what is left, in this order
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if (place := os.path.realpath(folder)) in seen:  # a link may lead to a folder above
            folders.clear()
            continue
        seen.add(place)
        for name in sorted(names):
            if not name.startswith("."):
                found, file = True, Path(folder, name)
                if file.exists() and not file.is_file():  # a device may have no end
                    raise CorpusError(f"{file}: neither a file nor a folder")
                yield _File(file, named=False)
    if not found:
        raise CorpusError(f"{path}: the folder holds no files")


class PythonEnglish(DataSource):
    """The English that ships with Python, offline: ``help()`` topics and docstrings.

    ``python-english`` are documents; ``python-english:packages`` and ``python-english:same_page``
    are labelled rows, which bertlab-tasks brings.
    """

    def documents(self) -> Iterator[RawDocument]:
        """Yield topics and modules, one sentence a line."""
        from bertlab.data.corpus.python_english import python_english_documents  # noqa: PLC0415

        if self.argument:
            raise CorpusError(f"{self.name}: these are labelled rows; the text is python-english")
        for document in python_english_documents():
            yield RawDocument("\n".join(document.sentences), True, document.source)

    def fingerprint(self) -> str:
        """Return the hash of the documents; the cache has it for this Python and this code."""
        of = (sys.version, sysconfig.get_path("stdlib"), importlib.metadata.version("sentencex"))
        files = (Path(__file__).with_name(f"{name}.py") for name in ("python_english", "documents"))
        code = (file.read_text("utf-8") for file in files)
        return remembered(default_cache_dir(), [self.name, *of, *code], super().fingerprint)

    def raw_examples(self, split: str | None) -> RawExamples:
        """Return the rows of the task that the argument names."""
        rows = load_class("source", "python-english-rows", DataSource)
        found: RawExamples = rows(self.name, self.argument).raw_examples(split)
        return found
