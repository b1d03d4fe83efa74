"""Writing a token store as a stream: memory does not grow with the corpus."""

import contextlib
import errno
import hashlib
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
from bertlab.data.corpus.shards import SHARD_ARRAYS, SHARD_FOLDER, Shard, shard_file
from bertlab.data.corpus.store import (
    ARRAYS,
    FORMAT_VERSION,
    SHARDED_VERSION,
    WHOLE_ARRAYS,
    IntArray,
    StoreMetadata,
    TokenStore,
)
from bertlab.errors import OutputError, check_at_least
from bertlab.files import new_folder, write_json

SHARD_TOKENS = 100_000_000
"""Tokens of a shard at most, unless a document alone has more: 200 MB of ids."""

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
        shard_tokens: tokens after which the next document begins another shard.

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

    def __init__(
        self,
        path: str | Path,
        tokenizer: Tokenizer,
        corpus_fingerprint: str,
        shard_tokens: int = SHARD_TOKENS,
    ) -> None:
        check_at_least("shard_tokens", shard_tokens, 1)
        self.shard_tokens = shard_tokens
        self._shards: list[Shard] = []
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
        with self._explain_failed_write(), contextlib.ExitStack() as open_files:
            self.folder = open_files.enter_context(new_folder(self.path))
            (self.folder / SHARD_FOLDER).mkdir()
            self._columns: dict[str, _Column] = {}
            open_files.callback(self._close)
            for name in ("document_offsets", "document_token_offsets"):
                self._columns[name] = _Column(self.folder / f"{name}.npy", np.dtype(np.int64))
                self._columns[name].append(np.zeros(1, np.int64))
            self._begin_shard()
            # only here: an error above closes and removes all
            self._open_files = open_files.pop_all()
        return self

    def _close(self) -> None:
        for column in self._columns.values():
            column.close()

    def _begin_shard(self) -> None:
        self._shard_starts = self.tokens, self.sentences
        dtypes = self.tokenizer.dtype, np.dtype(np.int64)
        for name, dtype in zip(SHARD_ARRAYS, dtypes, strict=True):
            file = self.folder / shard_file(name, len(self._shards))
            self._columns[name] = _Column(file, dtype)
        self._columns["sentence_offsets"].append(np.zeros(1, np.int64))

    def _end_shard(self) -> None:
        sizes, hashes = {}, {}
        for name in SHARD_ARRAYS:
            self._columns[name].finish()
            file = self.folder / shard_file(name, len(self._shards))
            sizes[name] = file.stat().st_size
            with file.open("rb") as content:
                hashes[name] = hashlib.file_digest(content, "sha256").hexdigest()
        tokens, sentences = self._shard_starts
        shard = Shard(self.tokens - tokens, self.sentences - sentences, sizes, hashes)
        self._shards.append(shard)

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
        # lengths [3, 2, 4], counts [2, 1] -> document_ends [2, 3], token_ends [5, 9]
        document_ends = np.cumsum(counts)
        token_ends = np.cumsum(lengths)[document_ends - 1] if len(counts) else document_ends
        done, tokens_done = 0, 0
        while done < len(counts):
            # 4 tokens left in the shard: none of the documents of 5 and 4 tokens goes into it
            room = self.shard_tokens - (self.tokens - self._shard_starts[0])
            end = int(token_ends.searchsorted(tokens_done + room, side="right"))
            if end <= done:
                if self.tokens > self._shard_starts[0]:
                    self._end_shard()
                    self._begin_shard()
                    continue
                end = done + 1  # a document that is larger than a shard has one of its own
            first = int(document_ends[done - 1]) if done else 0
            self._append(
                ids[tokens_done : token_ends[end - 1]],
                lengths[first : document_ends[end - 1]],
                counts[done:end],
            )
            done, tokens_done = end, int(token_ends[end - 1])

    def _append(self, ids: TokenArray, lengths: IntArray, counts: IntArray) -> None:
        # lengths [3, 2, 4], counts [2, 1] -> sentence_ends [3, 5, 9], document_ends [2, 3],
        # tokens of each document [5, 4]
        sentence_ends = np.cumsum(lengths)
        document_ends = np.cumsum(counts)
        self._columns["tokens"].append(ids)
        in_shard = self.tokens - self._shard_starts[0]
        self._columns["sentence_offsets"].append(sentence_ends + in_shard)
        self._columns["document_offsets"].append(document_ends + self.sentences)
        token_ends = sentence_ends[document_ends - 1]
        self._columns["document_token_offsets"].append(token_ends + self.tokens)
        self.token_counts += np.bincount(ids, minlength=len(self.token_counts))
        self.document_lengths.update(np.diff(token_ends, prepend=0).tolist())
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
        for name in ("document_offsets", "document_token_offsets"):
            self._columns[name].finish()
        with (self.folder / "token_counts.npy").open("wb") as file:
            np.save(file, self.token_counts)
        self.tokenizer.save(self.folder / "tokenizer")
        names: tuple[str, ...] = WHOLE_ARRAYS
        if self._shards:
            self._end_shard()
        else:
            names = ARRAYS
            self._make_whole()
        metadata = StoreMetadata(
            format_version=SHARDED_VERSION if self._shards else FORMAT_VERSION,
            bertlab_version=bertlab.__version__,
            corpus_fingerprint=self.corpus_fingerprint,
            tokenizer_fingerprint=self.tokenizer.fingerprint,
            vocab_size=self.tokenizer.vocab_size,
            tokens=self.tokens,
            sentences=self.sentences,
            documents=self.documents,
            dtype=self.tokenizer.dtype.name,
            bytes={name: (self.folder / f"{name}.npy").stat().st_size for name in names},
            words=self.words,
            shards=tuple(self._shards),
        )
        content = asdict(metadata)
        if not self._shards:
            del content["shards"], content["digest"]
        write_json(self.folder / "store.json", content)
        if self._shards:
            content["digest"] = TokenStore(self.folder).digest
            write_json(self.folder / "store.json", content)

    def _make_whole(self) -> None:
        """Make the only shard the whole store, as all were before there were shards; no hashes."""
        for name in SHARD_ARRAYS:
            self._columns[name].finish()
            (self.folder / shard_file(name, 0)).rename(self.folder / f"{name}.npy")
        (self.folder / SHARD_FOLDER).rmdir()
        (self.folder / "document_token_offsets.npy").unlink()

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
