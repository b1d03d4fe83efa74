"""The first words of a corpus, in whole documents: text of a known size, as BabyLM asks for.

A word is what white space parts, in the text as it is read, before any tokenizer sees it:
``"It's late -- go."`` has four.
"""

import hashlib
import json
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from inspect import signature
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
from jsonargparse import ArgumentParser

import bertlab
from bertlab import CommandError, check_at_least
from bertlab.api import CorpusError, CounterRNG, RawDocument
from bertlab.extend import (
    Corpus,
    add_corpus,
    check_free,
    explain_failed_write,
    name_corpus,
    new_folder,
    parse_arguments,
    print_table,
    read_raw_documents,
    say,
    without_secrets,
    working,
    write_json,
)

MANIFEST = "manifest.json"
TEXT = "text"
"""Folder beside the manifest for ``data.corpus``, which reads all files of a folder."""
HELD_OUT = "held_out"
"""Folder beside it with the words that come next, for ``bertlab evaluate --data``."""
DOCUMENTS = "documents.jsonl"
_OPTIONS = {TEXT: "--words", HELD_OUT: "--held_out"}
_MOST_DIGITS = 300  # of a number of words
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
    held_out: int | None = None,
    command: Sequence[str] = (),
) -> dict[str, Any]:
    """Write the first ``words`` words of a corpus, in whole documents, and what they are.

    A document with more words than are left is passed over, and the next ones are tried until less
    than a thousandth is missing or the corpus ends. So there are never too many words, and
    few are missing where documents are short.

    The folder holds ``manifest.json`` and ``text/documents.jsonl``: a JSON object a line with a
    document's text, and where it was read. A document whose lines are sentences is written with
    blank lines between them, so that none of them are joined when it is read again.

    Returns:
        The manifest.
    """
    asked = {TEXT: words} if held_out is None else {TEXT: words, HELD_OUT: held_out}
    for name, number in asked.items():
        check_at_least(_OPTIONS[name], number, 1)
    check_free(output)
    # first: it names a missing source before hours of reading
    inputs = {each.name: digest for each, _, digest in corpus.inputs}
    with explain_failed_write(f"{output}: cannot be written"), new_folder(output) as folder:
        with ExitStack() as files:
            parts = {}
            for name, number in asked.items():
                (folder / name).mkdir()
                file = files.enter_context((folder / name / DOCUMENTS).open("wb"))
                parts[name] = _Part(corpus, _OPTIONS[name], number, file)
            if seed is None:
                _take_in_order(corpus, list(parts.values()))
            else:
                _take_shuffled(corpus, list(parts.values()), folder, seed)
        corpus.check_unchanged()
        taken = {name: part.totals() | _describe(folder, name) for name, part in parts.items()}
        content = {
            "bertlab": bertlab.__version__,
            "command": list(command),
            "options": {
                "corpus": asdict(corpus), "words": words, "shuffle": seed, "held_out": held_out,
            },
            **taken.pop(TEXT),
            **taken,
            "inputs": inputs,
        }  # fmt: skip
        write_json(folder / MANIFEST, without_secrets(content))
    return content


class _Part:
    """So many words of a corpus: chooses documents, writes and counts them."""

    def __init__(self, corpus: Corpus, option: str, words: int, file: IO[bytes]) -> None:
        self.corpus = corpus
        self.option = option
        self.words = words
        self.file = file
        self.left = words
        self.met = 0  # words of all documents that were looked at
        self.counts = [SourceCount(source) for source in corpus.sources]

    def takes(self, words: int, source: int) -> bool:
        """Return whether a document of so many words belongs to the part."""
        self.met += words
        if words > self.left:
            self.counts[source].passed_over += 1
            return False
        self.left -= words
        return True

    def is_enough(self) -> bool:
        """Return whether no more documents are to be looked at."""
        # the corpus must have all the words, even where fewer are taken
        return self.met >= self.words and self.left <= self.words // _CLOSE

    def check(self) -> None:
        """Raise CorpusError if the corpus ended before there was enough."""
        if self.met < self.words:
            is_text = self.option == _OPTIONS[TEXT]
            before = "" if is_text else " after those of --words"
            passed = (
                "" if is_text else "; documents too long for the rest of --words are in no part"
            )
            raise CorpusError(
                f"corpus {self.corpus.name}: has {self.met:,} words{before}, expected at least "
                f"{self.words:,} ({self.option}); add text or ask for fewer{passed}"
            )
        if self.left == self.words:
            raise CorpusError(
                f"corpus {self.corpus.name}: each of its documents has more words than "
                f"{self.option} {self.words:,}, and documents are taken whole; ask for more"
            )

    def write(self, file: IO[bytes], document: RawDocument, source: int, words: int) -> None:
        """Write and count a document."""
        text = document.text.replace("\n", "\n\n") if document.presplit else document.text
        row = {"text": text, "source": without_secrets(document.source)}
        file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        count = self.counts[source]
        count.documents += 1
        count.words += words
        count.bytes += len(document.text.encode())

    def totals(self) -> dict[str, Any]:
        """Return words, documents and bytes of all that was taken, and of each source."""
        kinds = ("words", "documents", "bytes")
        sources = [asdict(count) for count in self.counts]
        return {kind: sum(each[kind] for each in sources) for kind in kinds} | {"sources": sources}


def _take_in_order(corpus: Corpus, parts: Sequence[_Part]) -> None:
    """Write documents as they come: each part begins where the one before it ended."""
    documents = _documents(corpus)
    for part in parts:
        for source, document in documents:
            words = len(document.text.split())
            if part.takes(words, source):
                part.write(part.file, document, source, words)
            if part.is_enough():
                break
        part.check()


def _take_shuffled(corpus: Corpus, parts: Sequence[_Part], folder: Path, seed: int) -> None:
    """Write documents in the order of a seed; they pass through a file without a name."""
    # memory: 12 bytes a document and a few arrays of that length, not its text
    words, sources = array("q"), array("l")
    for source, document in _documents(corpus):
        words.append(len(document.text.split()))
        sources.append(source)
    order = iter(np.argsort(CounterRNG(seed, "take words").bits(np.arange(len(words)))).tolist())
    chosen: dict[int, _Part] = {}
    for part in parts:
        for number in order:
            if part.takes(words[number], sources[number]):
                chosen[number] = part
            if part.is_enough():
                break
        part.check()
    places: dict[int, tuple[int, int]] = {}
    with TemporaryFile(dir=folder) as unordered:
        for number, (source, document) in enumerate(_documents(corpus)):
            if number >= len(words) or len(document.text.split()) != words[number]:
                raise CorpusError(f"{document.source}: changed while it was read; try again")
            if number in chosen:
                start = unordered.tell()
                chosen[number].write(unordered, document, source, words[number])
                places[number] = start, unordered.tell() - start
        for number, part in chosen.items():
            start, length = places[number]
            unordered.seek(start)
            part.file.write(unordered.read(length))


def _documents(corpus: Corpus) -> Iterator[tuple[int, RawDocument]]:
    for number, source in enumerate(corpus.sources):
        for document in read_raw_documents(replace(corpus, sources=[source])):
            yield number, document


def _describe(folder: Path, part: str) -> dict[str, Any]:
    name = f"{part}/{DOCUMENTS}"
    with (folder / name).open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return {"output": {"file": name, "sha256": digest, "size": (folder / name).stat().st_size}}


def main(arguments: list[str]) -> int:
    """Run ``bertlab take-words``; return the exit code."""
    options = parse_arguments(make_parser(arguments), arguments).as_dict()
    source = name_corpus(**{name: options.pop(name) for name in signature(name_corpus).parameters})
    take_text(source, **options, command=["bertlab", "take-words", *arguments])
    return 0


def make_parser(argv: Sequence[str] = ()) -> ArgumentParser:
    """Return the parser of the options: those of the corpus stand beside the command's own."""
    parser = ArgumentParser(prog="bertlab take-words", exit_on_error=False)
    add_corpus(parser, argv)
    parser.add_function_arguments(take_text, skip={"source", "command"})
    return parser


def take_text(
    source: Corpus,
    words: str,
    output: str,
    shuffle: int | None = None,
    held_out: str | None = None,
    command: Sequence[str] = (),
) -> None:
    """Write the first N words of a corpus, in whole documents, as a corpus of its own."""
    asked = _read_words("--words", words)
    apart = None if held_out is None else _read_words("--held_out", held_out)
    with working(f"writing {Path(output).name}"):
        found = take_words(source, asked, Path(output), shuffle, apart, command)
    rows = [
        (each["source"], f"{each['words']:,} words, {each['documents']:,} documents")
        for each in found["sources"]
    ]
    print_table(f"{Path(output) / TEXT}", rows)
    say(
        f"{Path(output) / TEXT}: {found['words']:,} words of {asked:,} asked for, in "
        f"{found['documents']:,} whole documents"
    )
    if apart is not None:
        part = found[HELD_OUT]
        say(
            f"{Path(output) / HELD_OUT}: {part['words']:,} words, in {part['documents']:,} whole "
            "documents"
        )


def _read_words(option: str, text: str) -> int:
    """Return the number that ``10M``, ``1e7`` or ``10000000`` stands for."""
    factor = {"K": 10**3, "M": 10**6, "B": 10**9}.get(text[-1:].upper())
    digits = text[:-1] if factor else text
    try:
        float(digits)  # it is stricter: 7_ is none
        number = Decimal(digits)
    except (ValueError, InvalidOperation):
        number = Decimal()
    # 2.01K is 2010 exactly; a few characters may be a number of a million digits, as 1e9999999
    is_near = number.is_finite() and abs(number.adjusted()) < _MOST_DIGITS
    words = Fraction(number) * (factor or 1) if is_near else Fraction()
    if words < 1 or words.denominator != 1:
        raise CommandError(
            f"{option}: found {text!r}, expected a whole number of words as in 10M, 1e7 or 10000000"
        )
    return int(words)
