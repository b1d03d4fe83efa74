"""Lists and objects that a program printed into a cell of a table: ``['a', 'b']``, ``[1 0]``."""

import ast
import re
from typing import Any

from bertlab.extend import looks_printed, parse_json

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<value>'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*"
        |[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|None|True|False|null|true|false|nan)
    |(?:array|frozenset|set)(?=\()|,\s*dtype=[^\s)]+(?=\))
    |(?P<opens>[\[({])|(?P<closes>[\])}])|(?P<mark>[,:])
    )""",
    re.VERBOSE | re.DOTALL,
)
_OF_PYTHON = {"true": "True", "false": "False", "null": "None", "nan": "None"}
_DEEPEST = 8


def as_list(value: object) -> object:
    """Return the list that was printed into a cell; anything else as it is."""
    if not looks_printed(value):
        return value
    try:
        return parse_printed(str(value))
    except ValueError:
        return value


def parse_printed(text: str) -> Any:  # noqa: ANN401
    """Return the list or object that a text shows.

    Raises:
        ValueError: it is no printed list or object of texts and numbers.
    """
    text = text.strip()
    parts: list[str] = []
    place = depth = 0
    follows_value = False
    while place < len(text):
        found = _TOKEN.match(text, place)
        depth += 0 if found is None else bool(found["opens"]) - bool(found["closes"])
        if found is None or depth > _DEEPEST:
            raise ValueError(text)
        place = found.end()
        if found.lastgroup is None:  # array([1], dtype=int64) -> ([1])
            continue
        token = found[0].strip()
        if follows_value and (found["value"] or found["opens"]):
            parts.append(",")  # as numpy prints: [1 0], ['a' 'b']
        parts.append(_OF_PYTHON.get(token, token).replace("\n", "\\n"))
        follows_value = bool(found["value"] or found["closes"])
    try:
        value = parse_json(text)  # of json.dumps: "\ud83d\ude00" is one character
    except ValueError:
        value = _of_python("".join(parts))
    if not isinstance(value, list | dict):
        raise ValueError(text)
    return value


def _of_python(text: str) -> Any:  # noqa: ANN401
    try:
        return _plain(ast.literal_eval(text))  # literals alone: nothing is run
    except (SyntaxError, TypeError):  # brackets that do not close, lists as keys
        raise ValueError(text) from None


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Return lists in place of tuples and sets."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, set):
        value = sorted(value, key=str)
    return [*map(_plain, value)] if isinstance(value, list | tuple) else value
