"""CoNLL's columns: a word a line, and the submission that ``conlleval`` scores."""

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from bertlab.api import DataError, Example, NamedFormat, RawExamples, Submission
from bertlab.extend import check_memory, holds_no_examples, input_name, read_lines

_DOCUMENT_START = "-DOCSTART-"
_LOOKED_AT = 10_000  # words after which a sentence is looked at: no empty line may follow
_DOCUMENT = "#document"  # key of a row for the document that it is of
_FEWEST = 20  # documents that empty lines part: a few gaps are there by mistake
_GAP = re.compile(r"[ \t]+")  # words may hold other kinds of space
_BLANK = " \t\ufeff"  # W-NUT 2017's dev file ends in a byte order mark


def read_columns(path: str) -> RawExamples:
    """Read a file with a word a line, as CoNLL's shared tasks have them, a sentence a row.

    Columns are separated by spaces or tabs, an empty line ends a sentence. ``-DOCSTART-`` lines of
    CoNLL-2003 stand between documents and are no sentences. There are no comments: W-NUT's tweets
    have words that are ``#``. Each column ``"0"``, ``"1"``, … holds a list with a text for each
    word; ``where`` names the first line of a sentence. ``#document`` is where the document of a
    sentence begins: behind ``-DOCSTART-`` or, in a file without, behind two empty lines or more, if
    these part it into 20 documents or more.
    """
    name = input_name(path)
    raw = RawExamples(name, (), iter(()))
    sentences = _sentences(path, name, raw)
    first = next(sentences, None)
    if first is None:
        raise holds_no_examples(name)
    raw.columns = tuple(key for key in first[1] if key != _DOCUMENT)
    raw.rows = chain([first], sentences)
    return raw


def _sentences(path: str, name: str, raw: RawExamples) -> Iterator[tuple[str, Mapping[str, Any]]]:
    width = 0
    where = document = ""
    begins, empty, gaps = False, 0, _gaps_part_documents(path)
    sentence: list[list[str]] = []
    for number, line in enumerate(chain(read_lines(path), [""]), 1):  # ends the last sentence
        cells = _GAP.split(stripped) if (stripped := line.strip(_BLANK)) else []
        if cells and cells[0] == _DOCUMENT_START:
            raw.skipped[f"{_DOCUMENT_START} lines"] += 1
            cells, begins = [], True
        if not cells:
            if sentence:
                # [["EU", "B"], ["x", "O"]] -> {"0": ["EU", "x"], "1": ["B", "O"]}
                row: dict[str, object] = {str(n): list(each) for n, each in _columns(sentence)}
                yield where, row | ({_DOCUMENT: document} if document else {})
            sentence, empty = [], empty + 1
            continue
        width = width or len(cells)
        if len(cells) != width:
            if line.startswith("#") or (sentence and sentence[0][0].startswith("#")):
                remedy = "lines that begin with # are no comments here: remove them, if they are"
            else:
                remedy = "mend the line, or put an empty line where a sentence ends"
            raise DataError(
                f"{name}:{number}: found {len(cells)} column{'s'[: len(cells) != 1]} "
                f"({line.strip()[:40]!r}), expected {width} as in the lines before; {remedy}"
            )
        if not sentence:
            where = f"{name}:{number}"
            if begins or (gaps and (empty > 1 or not document)):
                document, begins = where, False
        sentence.append(cells)
        if not len(sentence) % _LOOKED_AT:
            taken = len(sentence) * (200 + 100 * width)
            check_memory(where, f"the sentence of {len(sentence):,} words", taken)
        empty = 0


def _gaps_part_documents(path: str) -> bool:
    """Whether a file without ``-DOCSTART-`` has two empty lines or more between its documents."""
    if not Path(path).expanduser().is_file():  # a stream is read once
        return False
    sentences, documents, empty = 0, 0, 2
    for line in read_lines(path):
        if line.startswith(_DOCUMENT_START):
            return False
        is_empty = not line.strip(_BLANK)
        if not is_empty and empty:
            sentences += 1
            documents += empty > 1
        empty = empty + 1 if is_empty else 0
    return _FEWEST <= documents < sentences


def _columns(sentence: list[list[str]]) -> Iterator[tuple[int, tuple[str, ...]]]:
    return enumerate(zip(*sentence, strict=True))


class _ConllSubmission(Submission):
    """Word, gold tag if there is one, predicted tag, with a space between, as for ``conlleval``."""

    def write(self, row: Example, prediction: Mapping[str, Any]) -> None:
        words = row.values["words"]
        columns = [words, self.get(prediction, "tags", row)]
        if "tags" in row.values:
            columns.insert(1, row.values["tags"])
        if any(len(column) != len(words) for column in columns):
            counts = ", ".join(str(len(column)) for column in columns)
            raise DataError(f"{row.where}: as many tags as words are needed, found {counts}")
        for cells in zip(*columns, strict=True):
            for cell in cells:
                if not cell or re.search(r"\s", cell):
                    raise DataError(
                        f"{row.where}: found {cell!r}, but {self.path} parts words and tags by "
                        "spaces; mend it, or write predictions as JSON lines"
                    )
            self.file.write(" ".join(cells) + "\n")
        self.file.write("\n")


class Conll(NamedFormat):
    """A word a line, the word first and its tag last (CoNLL-2003, W-NUT)."""

    columns: ClassVar = {"words": ("0", "tokens", "words"), "tags": ("-1", "ner_tags", "tags")}
    takes_columns = True
    table = None
    files: ClassVar = {"train": ["eng.train"], "dev": ["eng.testa"], "test": ["eng.testb"]}
    submission = _ConllSubmission

    def read(self, path: str) -> RawExamples:
        """Return a row for each sentence."""
        return read_columns(path)
