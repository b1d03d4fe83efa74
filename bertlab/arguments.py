"""Parsing with jsonargparse, and its errors in one line with the nearest valid key."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, Namespace

from bertlab.errors import ConfigError, nearest


def parse_arguments(
    parser: ArgumentParser, argv: Sequence[str], namespace: Namespace | None = None
) -> Namespace:
    """Parse command-line arguments.

    Raises:
        ConfigError: one line that names the argument, what was found and what was expected.
    """
    try:
        parsed: Namespace = parser.parse_args(list(argv), namespace=namespace)
        return parsed
    except ArgumentError as error:
        raise ConfigError(explain(str(error), parser)) from None


def parse_config(
    parser: ArgumentParser, content: Mapping[str, Any], source: str, base: Namespace | None
) -> Namespace:
    """Parse the content of a config file on top of ``base``.

    Raises:
        ConfigError: one line that names the file and the key.
    """
    for key in _leaves(content):
        if not _is_known(key, parser):
            raise ConfigError(f"{source}: {_unknown_key(key, parser)}")
    try:
        parsed: Namespace = parser.parse_object(dict(content), base)
        return parsed
    except ArgumentError as error:
        raise ConfigError(f"{source}: {explain(str(error), parser)}") from None


def explain(message: str, parser: ArgumentParser) -> str:
    """Return jsonargparse's message as one line, with the nearest valid key where it helps."""
    unrecognized = re.match(r"unrecognized arguments: (.*)", message, re.DOTALL)
    if unrecognized:
        first = unrecognized[1].split()[0]
        if not first.startswith("--"):
            return f"found {first!r}, expected an argument that starts with --"
        return _unknown_key(first.removeprefix("--").split("=")[0], parser)
    option = re.match(r"Option '([^']+)' is not accepted", message)
    if option:
        return _unknown_key(option[1], parser)
    wrong = re.match(r'Parser key "([^"]+)":(.*)', message, re.DOTALL)
    if wrong:
        text = " ".join(wrong[2].split())
        got = re.search(r"(?:Got value|value): (.*?)(?: Subtypes|$)", text)
        expected = _type_of(wrong[1], parser)
        if got and expected:
            return f"{wrong[1]}: found {got[1].strip()}, expected {expected}"
        return f"{wrong[1]}: {text}"
    return " ".join(message.split())


def _keys(parser: ArgumentParser) -> set[str]:
    return {action.dest for action in parser._actions if action.dest != "help"}


def _is_known(key: str, parser: ArgumentParser) -> bool:
    """Whether ``key`` is an argument's, or lies below one that takes a class or a mapping."""
    known = _keys(parser)
    parts = key.split(".")
    return any(".".join(parts[: length + 1]) in known for length in range(len(parts)))


def _unknown_key(key: str, parser: ArgumentParser) -> str:
    known = _keys(parser)
    siblings = {name for name in known if name.rpartition(".")[0] == key.rpartition(".")[0]}
    hint = nearest(key, siblings) or nearest(key, known)
    return f"{key}: no such key{hint or '; see --help'}"


def _type_of(key: str, parser: ArgumentParser) -> str:
    for action in parser._actions:
        if action.dest == key:
            hint = getattr(action, "_typehint", None) or action.type
            name = hint.__name__ if isinstance(hint, type) else str(hint)
            return re.sub(r"typing\.|<class '|'>", "", name).replace("NoneType", "null")
    return ""


def _leaves(content: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"
