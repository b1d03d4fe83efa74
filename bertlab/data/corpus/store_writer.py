"""Writing a token store as a stream: memory does not grow with the corpus."""

import contextlib
import errno
import shutil
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import numpy as np
import numpy.typing as npt

import bertlab
from bertlab.api.tokenizer import TokenArray, Tokenizer
from bertlab.data.corpus.store import ARRAYS, FORMAT_VERSION, IntArray, StoreMetadata
from bertlab.data.sources import sha256_of
from bertlab.errors import ConfigError, OutputError
from bertlab.files import new_folder, write_json
from bertlab.plugins.index import added_name

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # disk, quota, limit of a file's size


class TokenStoreWriter:
    """Context manager that builds a store beside its target and renames it when it is whole.

    An exception inside the ``with`` block removes everything that was written. Usage::

        with TokenStoreWriter(path, tokenizer, corpus_fingerprint) as writer:
            writer.add_documents(tokens, sentence_lengths, document_sentences)
        store = TokenStore.open(path)

    Args:
        path: folder to make; must not exist, or be empty.
        tokenizer: that made the tokens; a copy is kept in the store.
        corpus_fingerprint: hash of the corpus.
    """

    folder: Path  # the temporary one, for files that should go with the store

    def __init__(self, path: str | Path, tokenizer: Tokenizer, corpus_fingerprint: str) -> None:
        self.path = Path(path)
        self.tokenizer = tokenizer
        self.corpus_fingerprint = corpus_fingerprint
        self.tokens = self.sentences = self.documents = 0  # so far, as what follows
        self.token_counts = np.zeros(tokenizer.vocab_size, np.int64)  # (V,)
        self.document_lengths: Counter[int] = Counter()  # documents of each length in tokens
        self.single_sentence_documents = 0
        self.document_hashes = array("q")  # of the tokens of each
        self.words: int | None = None  # of the text, which whoever has it sets; None: not counted
        self._columns: dict[str, GrowingArray] = {}
        self._file_starts = 0, 0  # tokens and sentences before those of the open files

    def __enter__(self) -> "TokenStoreWriter":
        check_free(self.path)
        with self._explain_failed_write(), contextlib.ExitStack() as open_files:
            self.folder = open_files.enter_context(new_folder(self.path))
            open_files.callback(self._close)
            self._open_columns()
            # only here: an error above closes and removes all
            self._open_files = open_files.pop_all()
        return self

    def _close(self) -> None:
        for column in self._columns.values():
            column.close()

    def _open_columns(self) -> None:
        self._open_column("tokens", "tokens", self.tokenizer.dtype)
        for name in ("sentence_offsets", "document_offsets"):
            self._open_column(name, name)

    def _open_column(self, name: str, file: str, dtype: np.dtype[np.integer] | None = None) -> None:
        """Begin the file of an array in the folder; of offsets if it has no ``dtype``."""
        column = GrowingArray(self.folder / f"{file}.npy", dtype or np.dtype(np.int64))
        self._columns[name] = column
        if dtype is None:
            column.append(np.zeros(1, np.int64))

    def add_documents(
        self,
        tokens: npt.ArrayLike,
        sentence_lengths: npt.ArrayLike,
        document_sentences: npt.ArrayLike,
    ) -> None:
        """Append documents."""
        ids: TokenArray = np.asarray(tokens)
        lengths, counts = (
            np.asarray(values, np.int64) for values in (sentence_lengths, document_sentences)
        )
        _check_documents(ids, lengths, counts, self.tokenizer.vocab_size)
        if len(counts):
            self._append(ids, lengths, counts)

    def _append(self, ids: TokenArray, lengths: IntArray, counts: IntArray) -> None:
        # lengths [3, 2, 4], counts [2, 1] -> sentence_ends [3, 5, 9], document_ends [2, 3],
        # tokens of each document [5, 4]
        sentence_ends = np.cumsum(lengths)
        document_ends = np.cumsum(counts)
        self._columns["tokens"].append(ids)
        in_file = self.tokens - self._file_starts[0]
        self._columns["sentence_offsets"].append(sentence_ends + in_file)
        self._columns["document_offsets"].append(document_ends + self.sentences)
        token_ends = sentence_ends[document_ends - 1]
        self.token_counts += np.bincount(ids, minlength=len(self.token_counts))
        self.document_lengths.update(np.diff(token_ends, prepend=0).tolist())
        self.single_sentence_documents += int(np.count_nonzero(counts == 1))
        self.document_hashes.extend(hash(e.tobytes()) for e in np.split(ids, token_ends[:-1]))
        self.tokens += len(ids)
        self.sentences += len(lengths)
        self.documents += len(counts)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Whatever reads the corpus raises CorpusError, so an OSError comes from writing.
        # left from the inside out: files are closed, the folder renamed, then an error is explained
        with self._explain_failed_write(), self._open_files:
            if error is not None:
                raise error  # so that new_folder sees it and removes the folder
            self._finish()

    def _finish(self) -> None:
        for column in self._columns.values():
            column.finish()
        self._save_rest()
        write_json(self.folder / "store.json", self._manifest(FORMAT_VERSION, ARRAYS))

    def _save_rest(self) -> None:
        with (self.folder / "token_counts.npy").open("wb") as file:
            np.save(file, self.token_counts)
        self.tokenizer.save(self.folder / "tokenizer")

    def _manifest(self, format_version: int, names: Sequence[str]) -> dict[str, Any]:
        """Return the content of ``store.json``, for these arrays and all files beside them."""
        others = (each for each in sorted(self.folder.rglob("*")) if each.suffix != ".npy")
        files = {name: self.folder / f"{name}.npy" for name in names}
        files |= {
            each.relative_to(self.folder).as_posix(): each for each in others if each.is_file()
        }
        metadata = StoreMetadata(
            format_version=format_version,
            bertlab_version=bertlab.__version__,
            corpus_fingerprint=self.corpus_fingerprint,
            tokenizer_fingerprint=self.tokenizer.fingerprint,
            vocab_size=self.tokenizer.vocab_size,
            tokens=self.tokens,
            sentences=self.sentences,
            documents=self.documents,
            dtype=self.tokenizer.dtype.name,
            bytes={name: file.stat().st_size for name, file in files.items()},
            words=self.words,
            sha256={name: sha256_of(file) for name, file in files.items()},
        )
        return asdict(metadata)

    @contextlib.contextmanager
    def _explain_failed_write(self) -> Iterator[None]:
        """Re-raise an OSError inside the block as OutputError; the store is removed by then."""
        try:
            yield
        except OSError as error:
            if error.errno not in _DISK_FULL:
                reason = error.strerror or error
                told = f"{self.path}: cannot write the token store: {reason}"
                raise OutputError(f"{told}; nothing was left behind") from error
            # 8: an int64 offset for each sentence
            written = self.tokens * self.tokenizer.dtype.itemsize + 8 * self.sentences
            free = shutil.disk_usage(self.path.parent).free
            raise OutputError(
                f"{self.path}: the disk is full: {self.documents:,} documents took "
                f"{written / 1e6:,.1f} MB and there are more; {free / 1e6:,.1f} MB are free in "
                f"{self.path.parent} now that the unfinished store is removed; free more space or "
                "put the store on another disk"
            ) from error


def store_writer(
    path: str | Path, tokenizer: Tokenizer, corpus_fingerprint: str, shard_tokens: int | None
) -> TokenStoreWriter:
    """Return the writer of bertlab-cluster, which makes shards; the core's own if it is missing."""
    try:
        sharded = cast("type", added_name("bertlab.data", "ShardedWriter"))
    except ImportError as error:
        if shard_tokens is not None:
            raise ConfigError(f"shard_tokens: cannot write shards: {error}") from None
        return TokenStoreWriter(path, tokenizer, corpus_fingerprint)
    made = sharded(path, tokenizer, corpus_fingerprint, shard_tokens)
    return cast("TokenStoreWriter", made)


class GrowingArray:
    """An ``.npy`` file that grows: the header is padded, and rewritten at the end."""

    def __init__(self, path: Path, dtype: np.dtype[np.integer]) -> None:
        self._dtype = dtype
        self._length = 0
        self._file = path.open("wb")
        self._write_header()

    def append(self, values: npt.NDArray[np.integer]) -> None:
        """Write ``(N,)`` values behind the others."""
        # the buffer itself; tobytes() would copy
        self._file.write(np.ascontiguousarray(values, self._dtype).data)
        self._length += len(values)

    def finish(self) -> None:
        """Write the length, and close the file."""
        self._file.seek(0)
        self._write_header()
        self._file.close()

    def close(self) -> None:
        """Close the file, finished or not."""
        # Closing flushes, which fails again on a full disk.
        with contextlib.suppress(OSError):
            self._file.close()

    def _write_header(self) -> None:
        header = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self._length,),
        }
        # NumPy leaves room for the largest length: 128 bytes for 0 items as for 10**9
        np.lib.format.write_array_header_1_0(self._file, header)


def check_free(path: Path) -> None:
    """Raise OutputError if ``path`` exists and is not an empty folder."""
    if path.is_dir() and not any(path.iterdir()):
        return
    if path.exists():
        what = "a token store" if (path / "store.json").is_file() else "something else"
        raise OutputError(f"{path}: holds {what} already; delete it or choose another folder")


def _check_documents(
    ids: TokenArray, sentence_lengths: IntArray, document_sentences: IntArray, vocab_size: int
) -> None:
    sums = int(sentence_lengths.sum()), int(document_sentences.sum())
    if sums != (len(ids), len(sentence_lengths)):
        raise ValueError(
            f"expected lengths that add up to {len(ids)} tokens and {len(sentence_lengths)} "
            f"sentences, got {sums[0]} and {sums[1]}"
        )
    for lengths in (sentence_lengths, document_sentences):
        if len(lengths) and lengths.min() < 1:
            raise ValueError("expected no empty sentence and no empty document")
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < vocab_size:
        raise ValueError(f"expected ids from 0 to {vocab_size - 1}, got up to {ids.max()}")
