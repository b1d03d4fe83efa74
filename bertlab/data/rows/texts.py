"""The texts in a column of rows: what a corpus takes from them."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from bertlab.api.source import RawExamples
from bertlab.data.rows.lines import Errors
from bertlab.errors import CorpusError, nearest

_LOOKED_AT = 20  # rows, by which a column of numbers is known
_NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?")


def looks_like_names(texts: Sequence[object]) -> bool:
    """Return whether all texts are numbers, as in a column of ids; False of none."""
    return bool(texts) and all(
        isinstance(text, str) and _NUMBER.fullmatch(text.strip()) for text in texts
    )


def texts_of_rows(
    raw: RawExamples, column: str, errors: Errors = "strict"
) -> Iterator[tuple[str, str]]:
    """Yield place and text of each row; the text is empty where the row has none.

    Raises:
        CorpusError: there is no such column, or it holds no texts.
    """
    if column not in raw.columns and not raw.rows_vary:
        raise _no_column(raw.name, column, raw.columns)
    ahead = list(islice(raw.rows, _LOOKED_AT))
    found = [(place, text) for place, row in ahead if (text := row.get(column)) not in (None, "")]
    if looks_like_names([text for _, text in found]):
        raise CorpusError(
            f"{found[0][0]}: column {column!r} holds numbers ({found[0][1]!r}), expected a text; "
            "name another column with text_column"
        )
    for place, row in chain(ahead, raw.rows):
        if column not in row:
            raise _no_column(place, column, list(row))
        text = "" if row[column] is None else row[column]
        if not isinstance(text, str):
            raise CorpusError(
                f"{place}: column {column!r} holds {type(text).__name__} {str(text)[:40]!r}, "
                "expected a text; name another column with text_column"
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:  # an escaped half of a surrogate pair
            if errors == "strict":
                raise CorpusError(
                    f"{place}: column {column!r} holds a lone surrogate "
                    f"\\u{ord(text[error.start]):04x}, which is no character; mend it, or go on "
                    "with '?' in its place: --errors replace, or data.errors: replace"
                ) from None
            text = text.encode(errors="replace").decode()
        yield place, text


def _no_column(place: str, column: str, columns: Sequence[str]) -> CorpusError:
    return CorpusError(
        f"{place}: no column {column!r}; there are {', '.join(map(repr, columns)) or 'none'}"
        f"{nearest(column, columns)} (set text_column)"
    )
