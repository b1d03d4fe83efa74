"""Lists and objects that a program printed into a cell: ``['a', 'b']``, ``[1 0]``, ``{"a": 1}``."""

import ast
import re
from collections.abc import Iterator
from typing import Any

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<string>'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*")
    |(?P<number>[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)
    |(?P<word>None|True|False|null|true|false|nan)
    |array(?P<opens>\()|,\s*dtype=\S+?(?P<closes>\))
    |(?P<mark>[\[\](){},:])
    )""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = {"True": True, "true": True, "False": False, "false": False}
_CLOSING = {"[": "]", "(": ")", "{": "}"}
_DEEPEST = 8


def looks_printed(value: object) -> bool:
    """Return whether a cell looks like a printed list or object."""
    text = value.strip() if isinstance(value, str) else ""
    return len(text) > 1 and _CLOSING.get(text[0]) == text[-1] and text[0] != "("


def parse_printed(text: str) -> Any:  # noqa: ANN401
    """Return the list or object that a text shows.

    Raises:
        ValueError: it is no printed list or object of texts and numbers.
    """
    tokens = _tokens(text.strip())
    value = _value(next(tokens, ""), tokens, _DEEPEST)
    if next(tokens, None) is not None or not isinstance(value, list | dict):
        raise ValueError(text)
    return value


def _tokens(text: str) -> Iterator[str]:
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise ValueError(text)
        yield found["opens"] or found["closes"] or found[0].strip()
        place = found.end()


def _value(token: str, tokens: Iterator[str], depth: int) -> Any:  # noqa: ANN401
    if token in _CLOSING:
        if not depth:
            raise ValueError("nested too deep")
        return _items(_CLOSING[token], tokens, depth - 1)
    if token[:1] in ("'", '"'):
        try:
            return ast.literal_eval(token)  # one quoted text: nothing else can be in it
        except (SyntaxError, ValueError):  # it spans lines
            return token[1:-1]
    if re.match(r"[-+\d]", token):
        return float(token) if re.search(r"[.eE]", token) else int(token[:19])
    if token in _WORDS:
        return _WORDS[token]
    if token in ("None", "null", "nan"):
        return None
    raise ValueError(token)


def _items(end: str, tokens: Iterator[str], depth: int) -> Any:  # noqa: ANN401
    items: list[Any] = []
    pairs: dict[Any, Any] = {}
    for sign in tokens:
        if sign == end:
            # array([1]) is printed with brackets of its own: [[1]] in () is [1]
            is_wrapped = end == ")" and len(items) == 1 and isinstance(items[0], list)
            return pairs or (items[0] if is_wrapped else items)
        if sign == ":" and items and isinstance(key := items.pop(), str):
            pairs[key] = _value(next(tokens, ""), tokens, depth)
        elif sign != ",":
            items.append(_value(sign, tokens, depth))
    raise ValueError("never closed")
