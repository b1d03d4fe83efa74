"""The first words of a corpus, in whole documents: text of a known size, as BabyLM asks for.

A word is what white space parts, in the text as it is read, before any tokenizer sees it:
``"It's late -- go."`` has four.
"""

import hashlib
import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

import bertlab
from bertlab.api.rng import CounterRNG
from bertlab.api.source import RawDocument
from bertlab.data.corpus.corpus import Corpus, input_digests, read_raw_documents
from bertlab.data.corpus.documents import count_words
from bertlab.data.corpus.store_writer import check_free
from bertlab.errors import CorpusError, check_at_least
from bertlab.files import explain_failed_write, new_folder, write_json

MANIFEST = "manifest.json"
TEXT = "text"
"""Folder beside the manifest for ``data.corpus``, which reads all files of a folder."""
DOCUMENTS = "documents.jsonl"
_CLOSE = 1000  # the words that are missing are few if they are below a 1000th


@dataclass
class SourceCount:
    """What was taken from one source.

    Attributes:
        source: as ``--corpus`` names it.
        documents: number of documents taken.
        words: their words.
        bytes: their text in UTF-8.
        passed_over: documents before the last one taken that had more words than were left.
    """

    source: str
    documents: int = 0
    words: int = 0
    bytes: int = 0
    passed_over: int = 0


def take_words(
    corpus: Corpus,
    words: int,
    output: Path,
    seed: int | None = None,
    command: Sequence[str] = (),
) -> dict[str, Any]:
    """Write the first ``words`` words of a corpus, in whole documents, and what they are.

    A document with more words than are left is passed over, and the next ones are tried until less
    than a thousandth is missing or the corpus ends. So there are never too many words, and
    few are missing where documents are short.

    The folder holds ``manifest.json`` and ``text/documents.jsonl``: a JSON object a line with a
    document's text, and where it was read. A document whose lines are sentences is written with
    blank lines between them, so that none of them are joined when it is read again.

    Args:
        corpus: what to read.
        words: how many to take.
        output: folder to make; must not exist, or be empty.
        seed: take documents in an order that the seed decides, in which all sources mix; None for
            the order of the corpus. The corpus is then read twice, and what is taken lies on the
            disk twice for a while.
        command: that was given, for the manifest.

    Returns:
        The manifest.

    Raises:
        CorpusError: the corpus cannot be read, has fewer words, or none of its documents is short
            enough.
        OutputError: the folder exists or cannot be written.
    """
    check_at_least("--words", words, 1)
    check_free(output)
    inputs = input_digests(corpus)  # first: it names a missing source before hours of reading
    with explain_failed_write(f"{output}: cannot be written"), new_folder(output) as folder:
        (folder / TEXT).mkdir()
        taking = _Taking(corpus, words)
        with (folder / TEXT / DOCUMENTS).open("wb") as file:
            if seed is None:
                taking.write_in_order(file)
            else:
                with (folder / "unordered").open("w+b") as unordered:
                    taking.write_shuffled(file, unordered, seed)
                (folder / "unordered").unlink()
        content = {
            "bertlab": bertlab.__version__,
            "command": list(command),
            "options": {"corpus": asdict(corpus), "words": words, "shuffle": seed},
            **taking.totals(),
            "inputs": inputs,
            "output": _describe(folder / TEXT / DOCUMENTS),
        }
        write_json(folder / MANIFEST, content)
    return content


class _Taking:
    """Chooses documents and counts what was taken."""

    def __init__(self, corpus: Corpus, words: int) -> None:
        self.corpus = corpus
        self.words = words
        self.left = words
        self.met = 0  # words of all documents that were looked at
        self.counts = [SourceCount(source) for source in corpus.sources]

    def write_in_order(self, file: IO[bytes]) -> None:
        """Write documents as they come."""
        for source, document in self._documents():
            words = count_words(document.text)
            if self._takes(words, source):
                self._write(file, document, source, words)
            if self._is_enough():
                break
        self._check()

    def write_shuffled(self, file: IO[bytes], unordered: IO[bytes], seed: int) -> None:
        """Write documents in the order of a seed; those taken pass through ``unordered``."""
        # memory: 12 bytes a document and a few arrays of that length, not its text
        words, sources = array("q"), array("l")
        for source, document in self._documents():
            words.append(count_words(document.text))
            sources.append(source)
        order = np.argsort(CounterRNG(seed, "take words").bits(np.arange(len(words))))
        chosen: list[int] = []
        for number in order.tolist():
            if self._takes(words[number], sources[number]):
                chosen.append(number)
            if self._is_enough():
                break
        self._check()
        places: dict[int, tuple[int, int]] = {number: (0, 0) for number in chosen}
        for number, (source, document) in enumerate(self._documents()):
            if number >= len(words) or count_words(document.text) != words[number]:
                raise CorpusError(f"{document.source}: changed while it was read; try again")
            if number in places:
                start = unordered.tell()
                self._write(unordered, document, source, words[number])
                places[number] = start, unordered.tell() - start
        for number in chosen:
            start, length = places[number]
            unordered.seek(start)
            file.write(unordered.read(length))

    def totals(self) -> dict[str, Any]:
        """Return words, documents and bytes of all that was taken, and of each source."""
        kinds = ("words", "documents", "bytes")
        sources = [asdict(count) for count in self.counts]
        return {kind: sum(each[kind] for each in sources) for kind in kinds} | {"sources": sources}

    def _documents(self) -> Iterator[tuple[int, RawDocument]]:
        for number, source in enumerate(self.corpus.sources):
            for document in read_raw_documents(replace(self.corpus, sources=[source])):
                yield number, document

    def _takes(self, words: int, source: int) -> bool:
        self.met += words
        if words > self.left:
            self.counts[source].passed_over += 1
            return False
        self.left -= words
        return True

    def _is_enough(self) -> bool:
        # the corpus must have all the words, even where fewer are taken
        return self.met >= self.words and self.left <= self.words // _CLOSE

    def _check(self) -> None:
        if self.met < self.words:
            raise CorpusError(
                f"corpus {self.corpus.name}: has {self.met:,} words, expected at least "
                f"{self.words:,} (--words); add text or ask for fewer"
            )
        if self.left == self.words:
            raise CorpusError(
                f"corpus {self.corpus.name}: each of its documents has more words than --words "
                f"{self.words:,}, and documents are taken whole; ask for more"
            )

    def _write(self, file: IO[bytes], document: RawDocument, source: int, words: int) -> None:
        text = document.text.replace("\n", "\n\n") if document.presplit else document.text
        row = {"text": text, "source": document.source}
        file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        count = self.counts[source]
        count.documents += 1
        count.words += words
        count.bytes += len(document.text.encode())


def _describe(file: Path) -> dict[str, Any]:
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return {"file": f"{TEXT}/{file.name}", "sha256": digest, "size": file.stat().st_size}
