"""Writing a token store as a stream: memory does not grow with the corpus."""

import contextlib
import errno
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

import bertlab
from bertlab.api.tokenizer import TokenArray, Tokenizer
from bertlab.data.corpus.store import ARRAYS, FORMAT_VERSION, IntArray, StoreMetadata
from bertlab.errors import OutputError
from bertlab.files import new_folder, write_json

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

    Attributes:
        folder: the temporary folder, for files that should go with the store.
        tokens: number of tokens so far.
        sentences: number of sentences so far.
        documents: number of documents so far.
        token_counts: ``(V,)`` int64 occurrences so far.
        document_lengths: number of documents of each length in tokens.
        single_sentence_documents: number of documents of one sentence.
        words: number of words of the text, which whoever has the text sets; None if not counted.
    """

    def __init__(self, path: str | Path, tokenizer: Tokenizer, corpus_fingerprint: str) -> None:
        self.path = Path(path)
        self.tokenizer = tokenizer
        self.corpus_fingerprint = corpus_fingerprint
        self.tokens = self.sentences = self.documents = 0
        self.token_counts = np.zeros(tokenizer.vocab_size, np.int64)
        self.document_lengths: Counter[int] = Counter()
        self.single_sentence_documents = 0
        self.words: int | None = None

    def __enter__(self) -> "TokenStoreWriter":
        check_free(self.path)
        dtypes = {
            "tokens": self.tokenizer.dtype,
            "sentence_offsets": np.dtype(np.int64),
            "document_offsets": np.dtype(np.int64),
        }
        with self._explain_failed_write(), contextlib.ExitStack() as open_files:
            self.folder = open_files.enter_context(new_folder(self.path))
            self._columns: dict[str, _Column] = {}
            for name, dtype in dtypes.items():
                self._columns[name] = _Column(self.folder / f"{name}.npy", dtype)
                open_files.callback(self._columns[name].close)
            self._columns["sentence_offsets"].append(np.zeros(1, np.int64))
            self._columns["document_offsets"].append(np.zeros(1, np.int64))
            # only here: an error above closes and removes all
            self._open_files = open_files.pop_all()
        return self

    def add_documents(
        self,
        tokens: npt.ArrayLike,
        sentence_lengths: npt.ArrayLike,
        document_sentences: npt.ArrayLike,
    ) -> None:
        """Append documents.

        Args:
            tokens: ids of all sentences end to end.
            sentence_lengths: number of tokens of each sentence, none zero.
            document_sentences: number of sentences of each document, none zero.

        Raises:
            ValueError: the lengths do not add up or an id is outside the vocabulary.
            OSError: from the disk; the ``with`` block turns a full one into OutputError.
        """
        ids: TokenArray = np.asarray(tokens)
        lengths, counts = (
            np.asarray(values, np.int64) for values in (sentence_lengths, document_sentences)
        )
        _check_documents(ids, lengths, counts, self.tokenizer.vocab_size)
        if not len(counts):
            return
        # lengths [3, 2, 4], counts [2, 1] -> sentence_ends [3, 5, 9], document_ends [2, 3],
        # tokens of each document [5, 4]
        sentence_ends = np.cumsum(lengths)
        document_ends = np.cumsum(counts)
        self._columns["tokens"].append(ids)
        self._columns["sentence_offsets"].append(sentence_ends + self.tokens)
        self._columns["document_offsets"].append(document_ends + self.sentences)
        self.token_counts += np.bincount(ids, minlength=len(self.token_counts))
        self.document_lengths.update(np.diff(sentence_ends[document_ends - 1], prepend=0).tolist())
        self.single_sentence_documents += int(np.count_nonzero(counts == 1))
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
        with (self.folder / "token_counts.npy").open("wb") as file:
            np.save(file, self.token_counts)
        self.tokenizer.save(self.folder / "tokenizer")
        metadata = StoreMetadata(
            format_version=FORMAT_VERSION,
            bertlab_version=bertlab.__version__,
            corpus_fingerprint=self.corpus_fingerprint,
            tokenizer_fingerprint=self.tokenizer.fingerprint,
            vocab_size=self.tokenizer.vocab_size,
            tokens=self.tokens,
            sentences=self.sentences,
            documents=self.documents,
            dtype=self.tokenizer.dtype.name,
            bytes={name: (self.folder / f"{name}.npy").stat().st_size for name in ARRAYS},
            words=self.words,
        )
        write_json(self.folder / "store.json", asdict(metadata))

    @contextlib.contextmanager
    def _explain_failed_write(self) -> Iterator[None]:
        """Re-raise an OSError inside the block as OutputError; the store is removed by then."""
        try:
            yield
        except OSError as error:
            if error.errno not in _DISK_FULL:
                reason = error.strerror or error
                raise OutputError(
                    f"{self.path}: cannot write the token store: {reason}; nothing was left behind"
                ) from error
            # 8: an int64 offset for each sentence
            written = self.tokens * self.tokenizer.dtype.itemsize + 8 * self.sentences
            free = shutil.disk_usage(self.path.parent).free
            raise OutputError(
                f"{self.path}: the disk is full: {self.documents:,} documents took "
                f"{written / 1e6:,.1f} MB and there are more; {free / 1e6:,.1f} MB are free in "
                f"{self.path.parent} now that the unfinished store is removed; free more space or "
                "put the store on another disk"
            ) from error


class _Column:
    """An ``.npy`` file that grows: the header is padded, and rewritten at the end."""

    def __init__(self, path: Path, dtype: np.dtype[np.integer]) -> None:
        self._dtype = dtype
        self._length = 0
        self._file = path.open("wb")
        self._write_header()

    def append(self, values: npt.NDArray[np.integer]) -> None:
        # the buffer itself; tobytes() would copy
        self._file.write(np.ascontiguousarray(values, self._dtype).data)
        self._length += len(values)

    def finish(self) -> None:
        self._file.seek(0)
        self._write_header()
        self._file.close()

    def close(self) -> None:
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
        raise OutputError(
            f"{path}: holds {what} already; delete it or choose another output folder"
        )


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
