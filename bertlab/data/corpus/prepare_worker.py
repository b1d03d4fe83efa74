"""Splitting documents into sentences and tokenizing them, in one process or several."""

import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process

import numpy as np
import numpy.typing as npt

from bertlab.api.examples import RawDocument
from bertlab.api.tokenizer import TokenArray, Tokenizer
from bertlab.data.corpus.documents import count_words, split_sentences
from bertlab.errors import TokenStoreError

_MAX_UNKNOWN_SENTENCES = 100  # of a batch: a sample, as it costs a second pass


@dataclass(frozen=True)
class EncodedBatch:
    """Some documents, tokenized.

    Attributes:
        tokens: ids of all sentences end to end.
        sentence_lengths: int64 number of tokens of each sentence, none zero.
        document_sentences: int64 number of sentences of each document, none zero.
        bytes_of_text: UTF-8 bytes of the documents.
        words: words of the documents, as white space parts them.
        dropped: documents that were left out because they yield no token.
        unknown: words that became ``[UNK]``, of at most 100 sentences.
    """

    tokens: TokenArray
    sentence_lengths: npt.NDArray[np.int64]
    document_sentences: npt.NDArray[np.int64]
    bytes_of_text: int
    words: int
    dropped: int
    unknown: Counter[str]


def encode_batch(
    documents: Sequence[RawDocument], tokenizer: Tokenizer, language: str
) -> EncodedBatch:
    """Split documents into sentences and tokenize them; what yields no token is left out."""
    sentences: list[str] = []
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
        bytes_of_text=sum(_utf8_length(document.text) for document in documents),
        words=sum(count_words(document.text) for document in documents),
        dropped=int(np.count_nonzero(document_sentences == 0)),
        unknown=_unknown_words(sentences, tokens, lengths, tokenizer),
    )


def encode_all(
    batches: Iterable[Sequence[RawDocument]],
    tokenizer: Tokenizer,
    language: str,
    workers: int,
) -> Generator[EncodedBatch, None, None]:
    """Tokenize batches in ``workers`` processes, in order; 1 works in this process.

    Close the generator to end the workers early.
    """
    if workers == 1:
        for batch in batches:
            yield encode_batch(batch, tokenizer, language)
        return
    # spawn, not fork: the tokenizer, datasets and torch have threads.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (tokenizer, language))
    pending: deque[Future[EncodedBatch]] = deque()
    try:
        for batch in batches:
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
        word
        for number in numbers[:_MAX_UNKNOWN_SENTENCES]
        for word in tokenizer.unknown_words(sentences[number])
    )


def _utf8_length(text: str) -> int:
    # isascii() looks at a flag, encode() copies
    return len(text) if text.isascii() else len(text.encode())


# of a worker process: sent once, not with every batch
_job: tuple[Tokenizer, str] | None = None


def _start_worker(tokenizer: Tokenizer, language: str) -> None:
    global _job  # noqa: PLW0603
    _job = tokenizer, language
    # Ctrl-C reaches the whole group; the parent reports it and ends the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # sys.exit() would end this thread only


def _encode_in_worker(documents: Sequence[RawDocument]) -> EncodedBatch:
    assert _job is not None
    return encode_batch(documents, *_job)
