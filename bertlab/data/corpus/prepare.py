"""Preparing a corpus, once: text in, token store and data report out.

One process reads the documents, ``workers`` processes split sentences and tokenize, and the
results are written in the order of the documents, so the store does not depend on ``workers``.
Memory does not grow with the corpus: only a few batches exist at any time.
"""

import contextlib
import hashlib
import json
import logging
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt
from filelock import FileLock, Timeout
from rich.console import Console

from bertlab.api.examples import RawDocument
from bertlab.api.tokenizer import TokenArray, Tokenizer, TokenizerKind
from bertlab.data.corpus.corpus import Corpus, describe_formats, naming, read_raw_documents
from bertlab.data.corpus.documents import split_sentences
from bertlab.data.corpus.store import (
    FORMAT_VERSION,
    StoreReport,
    TokenStore,
    check_store,
    length_quantiles,
)
from bertlab.data.corpus.store_writer import TokenStoreWriter, check_free, store_writer
from bertlab.data.rows.lines import explain_failed_read
from bertlab.data.sources import RemoteFile, default_cache_dir, is_url, located
from bertlab.errors import ConfigError, CorpusError, TokenStoreError, check_processes, working
from bertlab.files import make_folder, remove_abandoned, write_json
from bertlab.tokenizer.files import load_tokenizer
from bertlab.tokenizer.kinds import TRAINING_VERSION, WordPiece, save_new, train_tokenizer

logger = logging.getLogger(__name__)

# calls the second for each batch that the first reads, somewhere; yields results in order
OrderedMap = Callable[[Callable[[], Iterable[Any]], Callable[[Any], Any]], Generator[Any]]

_BATCH_CHARACTERS = 2**20  # at a time to a worker
_BATCH_DOCUMENTS = 4096  # or so many, where they are short
_UNKNOWN_KEPT = 10_000


def unwritable_cache(folder: Path, error: OSError) -> TokenStoreError:
    """Return the error of a folder of the cache that cannot be written."""
    return TokenStoreError(
        f"{folder}: cannot write the cache: {error.strerror or error}; choose another folder with "
        "the environment variable BERTLAB_CACHE"
    )


def prepare(
    corpus: Corpus,
    tokenizer: Tokenizer,
    output: str | Path,
    workers: int = 1,
    shard_tokens: int | None = None,
    away: OrderedMap | None = None,
) -> TokenStore:
    """Tokenize a corpus into a token store, with ``report.json`` in it."""
    check_free(Path(output))
    check_processes("workers", workers, 1)
    bytes_of_text = words = dropped = 0
    unknown: Counter[str] = Counter()
    started = time.monotonic()
    batches = partial(read_batches, corpus if away is None else corpus.absolute())
    with store_writer(output, tokenizer, corpus.fingerprint, shard_tokens) as writer:
        function = partial(encode_batch, tokenizer=tokenizer, language=corpus.language)
        encoded = (away or partial(_map_here, workers))(batches, function)
        # Closing the generator ends the workers, whatever happens here.
        with contextlib.closing(encoded), Console(stderr=True).status("preparing") as line:
            for batch in encoded:
                writer.add_documents(batch.tokens, batch.sentence_lengths, batch.document_sentences)
                bytes_of_text += batch.bytes_of_text
                words += batch.words
                dropped += batch.dropped
                if len(unknown) < _UNKNOWN_KEPT:
                    unknown.update(batch.unknown)
                megabytes = bytes_of_text / 1e6
                rate = megabytes / (time.monotonic() - started)
                line.update(
                    f"preparing {writer.documents:,} documents {megabytes:,.1f} MB {rate:.1f} MB/s"
                )
        corpus.check_unchanged()
        writer.words = words
        report = _report(writer, bytes_of_text, dropped, unknown)
        with naming(corpus):
            # in the block: a store that is refused is removed, not renamed
            check_store(report, describe_formats(corpus) if report.documents == 1 else "")
        write_json(writer.folder / "report.json", asdict(report))
    return TokenStore.open(output)


def open_prepared_before(corpus: Corpus, tokenizer: Tokenizer, folder: Path) -> TokenStore | None:
    """Open the store in a folder if it is of this text and tokenizer; None if it is not."""
    if not (folder / "store.json").is_file():
        return None
    store = TokenStore.open(folder)
    there = store.metadata.corpus_fingerprint, store.metadata.tokenizer_fingerprint
    return store if there == (corpus.fingerprint, tokenizer.fingerprint) else None


@dataclass(frozen=True)
class EncodedBatch:
    """Some documents, tokenized."""

    tokens: TokenArray  # of all sentences, end to end
    sentence_lengths: npt.NDArray[np.int64]  # tokens of each sentence, none zero
    document_sentences: npt.NDArray[np.int64]  # sentences of each document, none zero
    bytes_of_text: int  # in UTF-8
    words: int  # of the text, as white space parts them
    dropped: int  # documents that yield no token
    unknown: Counter[str]  # words that became [UNK], of at most 100 sentences


Documents = Sequence[RawDocument]
Encode = Callable[[Documents], EncodedBatch]


def _report(
    writer: TokenStoreWriter, bytes_of_text: int, dropped: int, unknown: Counter[str]
) -> StoreReport:
    tokenizer, counts = writer.tokenizer, writer.token_counts
    # a word has one token that continues no other
    unsplit = writer.tokens - int(counts[tokenizer.continuation_mask].sum())
    return StoreReport(
        documents=writer.documents,
        documents_dropped=dropped,
        single_sentence_documents=writer.single_sentence_documents,
        sentences=writer.sentences,
        tokens=writer.tokens,
        mean_sentence_length=writer.tokens / max(writer.sentences, 1),
        document_length_quantiles=length_quantiles(writer.document_lengths),
        bytes_of_text=bytes_of_text,
        tokens_per_byte=writer.tokens / max(bytes_of_text, 1),
        tokens_per_word=writer.tokens / max(unsplit, 1),
        unk_share=int(counts[tokenizer.unk_id]) / max(writer.tokens, 1),
        vocab_size=tokenizer.vocab_size,
        vocabulary_used=int(np.count_nonzero(counts)),
        commonest_unknown=[
            word for word, _ in sorted(unknown.items(), key=lambda item: (-item[1], item[0]))
        ][:10],
        words=writer.words,
        repeated_documents=writer.documents - len(np.unique(np.asarray(writer.document_hashes))),
    )


def read_batches(corpus: Corpus) -> Iterator[list[RawDocument]]:
    """Yield the documents of a corpus, so many at a time as a worker takes."""
    batch: list[RawDocument] = []
    characters = 0
    for document in read_raw_documents(corpus, with_empty=True):
        batch.append(document)
        characters += len(document.text)
        if characters >= _BATCH_CHARACTERS or len(batch) >= _BATCH_DOCUMENTS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def open_prepared(corpus: Corpus, cache_dir: Path | None = None) -> TokenStore | None:
    """Open the corpus if it is the output of ``bertlab prepare``; None if it is text.

    Args:
        corpus: what may be a store, here or behind a URL.
        cache_dir: for the shards of a store behind a URL; :func:`default_cache_dir` if None.

    Raises:
        ConfigError: there is other text beside such an output.
        TokenStoreError: it is damaged.
    """
    places = [each if is_url(each) else str(Path(each).expanduser()) for each in corpus.sources]
    stores = [path for path in places if _is_store(path)]
    if not stores:
        return None
    if len(corpus.sources) > 1:
        said = f"data.corpus: {stores[0]} is the output of bertlab prepare, which stands alone"
        raise ConfigError(f"{said}; prepare all the text together")
    return TokenStore.open(stores[0], cache_dir)


def _is_store(source: str) -> bool:
    place = located(source)
    if not isinstance(place, RemoteFile):
        return (place / "store.json").is_file()
    if PurePath(place.name).suffix or "*" in source:  # a file or a pattern: not asked for
        return False
    with explain_failed_read(source, CorpusError):
        return located(f"{source.rstrip('/')}/store.json").exists()


def prepare_cached(
    corpus: Corpus, tokenizer: Tokenizer, cache_dir: Path | None = None, workers: int = 1
) -> TokenStore:
    """Open the token store of a corpus and a tokenizer; prepare it first if there is none.

    The store is found by the content of corpus and tokenizer. Of several processes one prepares
    and the others wait for it.
    """
    key = _key(corpus.fingerprint, tokenizer.fingerprint, FORMAT_VERSION)
    folder = (cache_dir or default_cache_dir()) / "stores" / key
    with _made_once(folder) as missing:
        if missing:
            return prepare(corpus, tokenizer, folder, workers)
    return TokenStore.open(folder)


def tokenizer_cached(
    corpus: Corpus,
    vocab_size: int,
    lowercase: bool = True,
    cache_dir: Path | None = None,
    kind: TokenizerKind | None = None,
    special: Sequence[str] = (),
) -> Tokenizer:
    """Load the tokenizer that was trained on a corpus; train it first if there is none."""
    key = _key(corpus.fingerprint, vocab_size, lowercase, *_identity(kind), *special)
    folder = (cache_dir or default_cache_dir()) / "tokenizers" / key
    with _made_once(folder) as missing:
        if missing:
            texts = (document.text for document in read_raw_documents(corpus))
            with working(f"training a tokenizer of {vocab_size:,} tokens"):
                settings = (vocab_size, lowercase, special)
                tokenizer = train_tokenizer(kind or WordPiece(), texts, *settings)
            corpus.check_unchanged()
            save_new(tokenizer, folder)
    return load_tokenizer(folder)


def _identity(kind: TokenizerKind | None) -> tuple[str | int, ...]:
    """Return what names a kind with its settings in the cache."""
    plain = type(kind) is WordPiece and kind.settings() == WordPiece().settings()
    if kind is None or plain:
        return (TRAINING_VERSION,)  # as before there were kinds
    settings = json.dumps(kind.settings(), sort_keys=True)
    return type(kind).__module__, type(kind).__qualname__, kind.version, settings


def _key(*parts: str | int | bool) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]  # 128 bits are enough


@contextlib.contextmanager
def _made_once(folder: Path) -> Iterator[bool]:
    """Hold the lock of ``folder``; yield whether the folder still has to be made."""
    # before the lock, whose file needs the right to write: a shared cache may be read-only
    if folder.exists():
        yield False
        return
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    try:
        make_folder(folder.parent)
        lock.acquire(timeout=0)  # does not wait: whoever waits is told so
    except Timeout:
        logger.warning("another process makes %s: waiting for it", folder)
        lock.acquire()
    except OSError as error:
        raise unwritable_cache(folder.parent, error) from error
    try:
        # whoever held the lock before may have made it
        if not folder.exists():
            remove_abandoned(folder, sole_writer=True)  # by whoever holds the lock
        yield not folder.exists()
    finally:
        lock.release()


_MAX_UNKNOWN_SENTENCES = 100  # of a batch: a sample, as it costs a second pass
_MAX_UNKNOWN_CHARACTERS = 2**16  # of each, as a text of rows may be one sentence
_SHOWN_CHARACTERS = 100  # of a word


def encode_batch(
    documents: Sequence[RawDocument], tokenizer: Tokenizer, language: str
) -> EncodedBatch:
    """Split documents into sentences and tokenize them; what yields no token is left out."""
    sentences, texts = list[str](), [document.text for document in documents]
    ends = np.empty(len(documents), np.int64)  # (D,) sentences up to each document's end
    for number, document in enumerate(documents):
        sentences += split_sentences(document, language)
        ends[number] = len(sentences)
    tokens, lengths = tokenizer.encode_texts(sentences)
    # sentences of 3, 0 and 2 tokens, documents end after sentence 2 and 3 (ends [2, 3])
    # -> kept_before [0, 1, 1, 2] -> document_sentences [1, 1]: empty sentences are left out
    kept_before = np.concatenate([[0], np.cumsum(lengths > 0)])
    document_sentences = np.diff(kept_before[ends], prepend=0)
    return EncodedBatch(
        tokens=tokens,
        sentence_lengths=lengths[lengths > 0],
        document_sentences=document_sentences[document_sentences > 0],
        # isascii() looks at a flag, encode() copies
        bytes_of_text=sum(len(t) if t.isascii() else len(t.encode()) for t in texts),
        words=sum(len(text.split()) for text in texts),
        dropped=int(np.count_nonzero(document_sentences == 0)),
        unknown=_unknown_words(sentences, tokens, lengths, tokenizer),
    )


def _map_here(
    workers: int, read: Callable[[], Iterable[Documents]], function: Encode
) -> Generator[EncodedBatch, None, None]:
    """Call a function for each batch in ``workers`` processes, in order; 1 works in this one."""
    # closing the generator ends the workers early
    if workers == 1:
        yield from map(function, read())
        return
    # spawn, not fork: the tokenizer, datasets and torch have threads.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (function,))
    pending: deque[Future[EncodedBatch]] = deque()
    try:
        for batch in read():
            pending.append(pool.submit(_encode_in_worker, batch))
            if len(pending) > 2 * workers:  # no more of them in memory
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise TokenStoreError(
            f"one of {workers} processes that tokenize the corpus died or could not start (most "
            "often killed for want of memory); nothing was written. Try fewer workers"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _unknown_words(
    sentences: Sequence[str],
    tokens: TokenArray,
    lengths: npt.NDArray[np.int64],
    tokenizer: Tokenizer,
) -> Counter[str]:
    places = np.flatnonzero(tokens == tokenizer.unk_id)
    # sentences of 3 and 2 tokens: cumsum [3, 5], so token 3 is of sentence 1
    numbers = np.unique(np.searchsorted(np.cumsum(lengths), places, side="right"))
    return Counter(
        word[:_SHOWN_CHARACTERS]
        for number in numbers[:_MAX_UNKNOWN_SENTENCES]
        for word in tokenizer.unknown_words(sentences[number][:_MAX_UNKNOWN_CHARACTERS])
    )


# of a worker process: sent once, not with every batch
_job: Encode | None = None


def _start_worker(function: Encode) -> None:
    global _job  # noqa: PLW0603
    _job = function
    # Ctrl-C reaches the whole group; the parent reports it and ends the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # sys.exit() would end this thread only


def _encode_in_worker(documents: Documents) -> EncodedBatch:
    assert _job is not None
    return _job(documents)
