"""Formats of labelled examples alone: CoNLL's columns, SQuAD's JSON, plain new text.

The first two are named formats as well, with the form in which predictions are submitted.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from tokenizers.pre_tokenizers import BertPreTokenizer

from bertlab.api.examples import Column, Example
from bertlab.api.format import NamedFormat, Submission
from bertlab.api.source import RawExamples, holds_no_examples
from bertlab.data.rows.lines import input_name, numbered, read_lines
from bertlab.data.rows.tables import parse_json
from bertlab.errors import DataError
from bertlab.files import explain_failed_write, write_text

_DOCUMENT_START = "-DOCSTART-"
_GAP = re.compile(r"[ \t]+")  # words may hold other kinds of space
_BLANK = " \t\ufeff"  # W-NUT 2017's dev file ends in a byte order mark


def read_columns(path: str) -> RawExamples:
    """Read a file with a word a line, as CoNLL's shared tasks have them, a sentence a row.

    Columns are separated by spaces or tabs, an empty line ends a sentence. ``-DOCSTART-`` lines of
    CoNLL-2003 stand between documents and are no sentences. There are no comments: W-NUT's tweets
    have words that are ``#``. Each column ``"0"``, ``"1"``, … holds a list with a text for each
    word; ``where`` names the first line of a sentence.
    """
    name = input_name(path)
    raw = RawExamples(name, (), iter(()))
    sentences = _sentences(path, name, raw)
    first = next(sentences, None)
    if first is None:
        raise holds_no_examples(name)
    raw.columns = tuple(first[1])
    raw.rows = chain([first], sentences)
    return raw


def _sentences(path: str, name: str, raw: RawExamples) -> Iterator[tuple[str, Mapping[str, Any]]]:
    width = 0
    where = ""
    sentence: list[list[str]] = []
    for number, line in enumerate(chain(read_lines(path), [""]), 1):  # ends the last sentence
        cells = _GAP.split(stripped) if (stripped := line.strip(_BLANK)) else []
        if cells and cells[0] == _DOCUMENT_START:
            raw.skipped[f"{_DOCUMENT_START} lines"] += 1
            cells = []
        if not cells:
            if sentence:
                # [["EU", "B"], ["x", "O"]] -> {"0": ["EU", "x"], "1": ["B", "O"]}
                yield where, {str(place): list(column) for place, column in _columns(sentence)}
            sentence = []
            continue
        width = width or len(cells)
        if len(cells) != width:
            raise DataError(
                f"{name}:{number}: found {len(cells)} column{'s'[: len(cells) != 1]} "
                f"({line.strip()[:40]!r}), expected {width} as in the lines before; mend the "
                "line, or put an empty line where a sentence ends"
            )
        if not sentence:
            where = f"{name}:{number}"
        sentence.append(cells)


def _columns(sentence: list[list[str]]) -> Iterator[tuple[int, tuple[str, ...]]]:
    return enumerate(zip(*sentence, strict=True))


_TYPES = {str: "a text", list: "a list", dict: "an object", int: "a whole number", bool: "a bool"}


def read_squad(path: str) -> RawExamples:
    """Read the questions of SQuAD 1.1 or 2.0 in order, with columns as in the ``datasets`` hub.

    Columns: ``id``, ``title``, ``context``, ``question`` and, unless the question has no
    ``answers`` key, ``answers`` ``{"text": [...], "answer_start": [...]}``, whose lists are empty
    where there is no answer. ``where`` is the path into the JSON.
    """
    name = input_name(path)
    document = parse_json("\n".join(read_lines(path)), name, 1, "one object, as SQuAD's files")
    if not isinstance(document, dict) or "data" not in document:
        raise DataError(
            f"{name}: not SQuAD's JSON, which is an object with the articles as a list under "
            "'data'; an array of objects is format json"
        )
    rows = list(_questions(name, document))
    if not rows:
        raise holds_no_examples(name)
    return RawExamples(name, tuple(rows[0][1]), iter(rows), rows_vary=True)


def _questions(name: str, document: dict[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for at_article, article in _objects(document, "data", f"{name}:"):
        title = article.get("title", "")
        for at_paragraph, paragraph in _objects(article, "paragraphs", f"{at_article}."):
            context = _get(paragraph, "context", str, f"{at_paragraph}.")
            for where, question in _objects(paragraph, "qas", f"{at_paragraph}."):
                row = {
                    "id": _get(question, "id", str, f"{where}."),
                    "title": title,
                    "context": context,
                    "question": _get(question, "question", str, f"{where}."),
                }
                if "answers" in question:
                    row["answers"] = _answers(question, f"{where}.")
                yield where, row


def _answers(question: dict[str, Any], place: str) -> dict[str, list[Any]]:
    answers = list(_objects(question, "answers", place))
    impossible = "is_impossible" in question and _get(question, "is_impossible", bool, place)
    if impossible and answers:
        raise DataError(
            f"{place}is_impossible: found true beside {len(answers)} answers, expected one or the "
            "other (answers that only look right belong into 'plausible_answers')"
        )
    return {
        "text": [_get(answer, "text", str, f"{at}.") for at, answer in answers],
        "answer_start": [_get(answer, "answer_start", int, f"{at}.") for at, answer in answers],
    }


def _objects(parent: dict[str, Any], key: str, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, item in enumerate(_get(parent, key, list, place)):
        at = f"{place}{key}[{number}]"
        if not isinstance(item, dict):
            raise DataError(f"{at}: found {_show(item)}, expected an object")
        yield at, item


def _get(parent: dict[str, Any], key: str, kind: type, place: str) -> Any:  # noqa: ANN401
    if key not in parent:
        keys = ", ".join(map(repr, parent)) or "none"
        raise DataError(f"{place}{key}: is missing, expected {_TYPES[kind]}; there are {keys}")
    value = parent[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):  # a bool is an int
        raise DataError(f"{place}{key}: found {_show(value)}, expected {_TYPES[kind]}")
    return value


def _show(value: object) -> str:
    return f"{type(value).__name__} {str(value)[:40]!r}"


def words_of(text: str) -> list[str]:
    """Return the words of a text as BERT's tokenizer parts them: at spaces and punctuation."""
    return [word for word, _ in BertPreTokenizer().pre_tokenize_str(text)]


def read_text(path: str, wanted: Sequence[Column], is_parted: bool = False) -> RawExamples:
    """Read new text without truth: a row a line.

    The line is the text. Several texts are separated by tabs, in the head's order. Where the head
    reads words, they are those of :func:`words_of`, and the line stays as ``text``.
    """
    name = input_name(path)
    needed = [column for column in wanted if column.required and not column.is_truth]
    columns = tuple(column.name for column in needed)
    if any(column.kind not in ("text", "texts") for column in needed) or (
        len(needed) != 1 and any(column.kind != "text" for column in needed)
    ):
        raise DataError(
            f"{name}: plain text cannot hold what is read here ({', '.join(columns)}); "
            "give JSON lines (.jsonl) with these keys"
        )
    lines = numbered(read_lines(path))
    first = next(lines, None)
    if first is None:
        raise holds_no_examples(name)

    def rows() -> Iterator[tuple[str, Mapping[str, Any]]]:
        for number, line in chain([first], lines):
            where = f"{name}:{number}"
            if needed[0].kind == "texts":
                words = line.split() if is_parted else words_of(line)
                yield where, {columns[0]: words, "text": line}
                continue
            cells = [line] if len(needed) == 1 else line.split("\t")
            if len(cells) != len(needed):
                raise DataError(
                    f"{where}: found {len(cells)} tab-separated text{'s'[: len(cells) != 1]}, "
                    f"expected {len(needed)}: {', '.join(columns)}"
                )
            yield where, dict(zip(columns, cells, strict=True))

    return RawExamples(name, columns, rows())


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


class _SquadSubmission(Submission):
    """``{id: answer}``, and ``{id: odds}`` of no answer beside it if they are predicted."""

    def __init__(self, path: Path, form: NamedFormat) -> None:
        super().__init__(path, form)
        self._answers: dict[str, str] = {}
        self._odds: dict[str, float] = {}

    def write(self, row: Example, prediction: Mapping[str, Any]) -> None:
        name = row.values.get("id")
        if name is None or name in self._answers:
            found = "no id" if name is None else f"id {name!r} for the second time"
            raise DataError(f"{row.where}: found {found}; {self.path} needs an id of each question")
        self._answers[name] = self.get(prediction, "answer", row) or ""
        if prediction.get("null_odds") is not None:
            self._odds[name] = prediction["null_odds"]

    def close(self) -> None:
        self.file.write(_json(self._answers))
        super().close()
        if self._odds:
            path = self.path.with_name(f"{self.path.stem}.null_odds.json")
            with explain_failed_write(f"{path}: cannot be written"):
                write_text(path, _json(self._odds))


def _json(content: Mapping[str, object]) -> str:
    return json.dumps(content, ensure_ascii=False, indent=0) + "\n"


class Squad(NamedFormat):
    """SQuAD 1.1 and 2.0 JSON."""

    columns: ClassVar = {name: (name,) for name in ("question", "context", "answers", "id")}
    table = None
    # train-v1.1.json, dev-v2.0.json
    files: ClassVar = {split: [f"{split}-v[12].[0-9].json"] for split in ("train", "dev")}
    submission = _SquadSubmission

    def read(self, path: str) -> RawExamples:
        """Return a row for each question."""
        return read_squad(path)
