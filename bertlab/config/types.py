"""Types of arguments in a user's words."""

import importlib
import inspect
import re
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from bertlab.errors import nearest

TypeForm = Any  # a class, or a form such as ``int | None`` or ``Literal["a", "b"]``
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    NoneType: "null",
}


def describe(hint: TypeForm) -> str:
    """Return what values a type takes, for example ``a whole number or null``."""
    members = list(_members(hint))
    literals = [repr(choice) for member in members for choice in _choices(member)]
    words = [f"one of {', '.join(literals)}"] if literals else []
    words += [_word(member) for member in members if _origin(member) is not Literal]
    return " or ".join(dict.fromkeys(words))


def nearest_choice(found: str, hint: TypeForm) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest literal of a type, or an empty string."""
    literals = [str(choice) for member in _members(hint) for choice in _choices(member)]
    return nearest(found, literals)


def takes_null(hint: TypeForm) -> bool:
    """Whether None is among the values of a type."""
    return hint is Any or any(member in (Any, NoneType) for member in _members(hint))


def explain_class(details: str, hint: TypeForm) -> str:
    """Explain jsonargparse's refusal of a class that a config names; empty if it is not that."""
    argument = re.search(r"given class_path '([^']+)':\s*Option '([^']+)' is not accepted", details)
    if argument:
        module, _, name = argument[1].rpartition(".")
        arguments = inspect.signature(getattr(importlib.import_module(module), name)).parameters
        return f"{argument[1]} has no argument {argument[2]!r}{nearest(argument[2], arguments)}"
    unknown = re.search(r"Expected a dot import path string: (.*)", details)
    bases = [base for member in _members(hint) for base in _classes(member)]
    if unknown and bases:
        names = [each.__name__ for base in bases for each in _subclasses(base)]
        kind = " or ".join(dict.fromkeys(base.__name__ for base in bases))
        return (
            f"found no {kind} class called {unknown[1]!r}{nearest(unknown[1], names)} "
            "(expected class_path: its name or dotted path)"
        )
    return ""


def _members(hint: TypeForm) -> Iterator[TypeForm]:
    """Yield the alternatives of a union; any other type itself."""
    if _origin(hint) in (Union, UnionType):
        for member in get_args(hint):
            yield from _members(member)
    else:
        yield hint


def _origin(form: TypeForm) -> TypeForm:
    return get_origin(form)


def _choices(member: TypeForm) -> tuple[Any, ...]:
    return get_args(member) if _origin(member) is Literal else ()


def _word(member: TypeForm) -> str:
    if member in _WORDS:
        return _WORDS[member]
    arguments = [each for each in get_args(member) if each is not Ellipsis]
    origin = _origin(member)
    if origin is tuple:
        return f"a list [{', '.join(describe(each).removeprefix('a ') for each in arguments)}]"
    if origin is dict or member is dict:
        return "a mapping"
    if arguments:
        return f"a list of {describe(arguments[0]).removeprefix('a ')}s"
    return f"a {getattr(member, '__name__', str(member))}"


def _classes(member: TypeForm) -> list[type]:
    """Return the class of a member, or of its items, that a config may name."""
    inner: list[TypeForm] = [member, *get_args(member)]
    return [each for each in inner if isinstance(each, type) and not _is_plain(each)]


def _is_plain(kind: type) -> bool:
    return kind in _WORDS or _origin(kind) is not None or kind.__module__ == "builtins"


def _subclasses(base: type) -> Iterator[type]:
    subclasses: list[type] = base.__subclasses__()
    for each in subclasses:
        yield each
        yield from _subclasses(each)
