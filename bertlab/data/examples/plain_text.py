"""New text without truth: a row a line."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from tokenizers.pre_tokenizers import BertPreTokenizer

from bertlab.api.examples import Column
from bertlab.api.source import RawExamples, holds_no_examples
from bertlab.data.rows.lines import input_name, numbered, read_lines
from bertlab.errors import DataError


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
