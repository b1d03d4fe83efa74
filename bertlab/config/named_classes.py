"""Whether a config from elsewhere names a class or function that reading it would import.

jsonargparse imports what ``class_path`` names, and looks for a class of the name where a text
stands at an argument that takes one. It reads a text as YAML where an argument takes any value.
"""

import re
import types
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, is_typeddict

import yaml
from jsonargparse import ArgumentParser

from bertlab.config.yaml_files import Config, put_at, value_at
from bertlab.errors import CheckpointError, ConfigError

CLASS_KEYS = frozenset({"class_path", "init_args"})  # how jsonargparse names a class
# no dot and no capital, so never a class: gpu, ddp_find_unused_parameters_true, 16-mixed, 0,1
WORD = re.compile(r"-?[a-z0-9][a-z0-9_,: +-]{0,80}")
_DEEPEST = 24  # texts within texts
_DEFAULT = "a checkpoint may name plugins only, give classes yourself by --config"
ADVICE: ContextVar[str] = ContextVar("ADVICE", default="")
"""What to do instead of naming a class; where it is set, no config may name one."""


def is_word(text: str) -> bool:
    """Whether a text is a word such as ``ddp``, and no class or file that could name one.

    jsonargparse reads the file of that name where an argument takes a class.
    """
    return WORD.fullmatch(text) is not None and not Path(text).is_file()


def advice() -> str:
    """Return what messages say is to be done instead of naming a class."""
    return ADVICE.get() or _DEFAULT


def check_importable(parser: ArgumentParser, content: Mapping[str, Any], source: str) -> None:
    """Refuse a config that names a class, where :data:`ADVICE` is set.

    Args:
        parser: of the keys.
        content: sections by name, or values by dotted key.
        source: where it stands, for messages.

    Raises:
        ConfigError: if it names one.
    """
    if not ADVICE.get():
        return
    for key in _class_keys(content):
        raise ConfigError(f"{source}: {key}: names a class; {advice()}")
    nested: Config = {}
    for key, value in content.items():
        put_at(nested, key.rstrip("+"), value)  # a.b+=c appends
    try:
        check_no_classes(parser, nested, source)
    except CheckpointError as error:
        raise ConfigError(str(error)) from None


def _class_keys(content: object, key: str = "") -> Iterator[str]:
    """Yield the keys in plain data at which a class is named."""
    if isinstance(content, Mapping):
        for name, value in content.items():
            if CLASS_KEYS & set(str(name).split(".")):
                yield key or str(name)
            yield from _class_keys(value, f"{key}.{name}" if key else str(name))
    elif isinstance(content, list):
        for each in content:
            yield from _class_keys(each, key)
    elif isinstance(content, str) and names_class(content):
        yield key


def names_class(text: str, depth: int = 0) -> bool:
    """Whether a text, read as YAML, would name a class: ``"{class_path: a.Class}"``.

    jsonargparse reads a text as YAML where an argument takes any value, or has no type.
    """
    # without these no scalar of it is such a key: only quotes with escapes hide one
    if not any(key in text for key in CLASS_KEYS) and not ('"' in text and "\\" in text):
        return False
    if depth > _DEEPEST:
        return True
    try:
        # what a loader would refuse later on does not matter: each reads these events
        for event in yaml.parse(text, yaml.SafeLoader):
            if not isinstance(event, yaml.ScalarEvent) or event.value == text:
                continue
            if event.value in CLASS_KEYS or names_class(event.value, depth + 1):
                return True
    except yaml.YAMLError:  # a text that happens to have a brace
        pass
    return False


def check_no_classes(parser: ArgumentParser, content: Config, source: str) -> None:
    """Refuse a stored text where a parser would look for a class or function of that name.

    Classes go out of the types of the arguments that the config gives: there is nothing to import.

    Args:
        parser: of the keys, with those of the named plugins.
        content: a config from elsewhere.
        source: the file, for messages.

    Raises:
        CheckpointError: if there is one.
    """
    for action in parser._actions:
        hint = getattr(action, "_typehint", None) or action.type
        given = value_at(content, action.dest)
        if hint is None or given is None or _is_plain_type(hint):
            continue
        for text in _texts(given):
            if not is_word(text):
                told = f"{source}: {action.dest}: found {text[:80]!r}"
                raise CheckpointError(f"{told}, which names a class or a function; {advice()}")
        # str | Strategy -> str
        if plain := tuple(each for each in get_args(hint) if _is_plain_type(each)):
            action._typehint = Union[plain]  # type: ignore[attr-defined]  # noqa: UP007


def _texts(value: object) -> Iterator[str]:
    """Yield the texts in plain data; keys are none."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _is_plain_type(hint: Any) -> bool:  # noqa: ANN401  a type, or a form of one
    """Whether a text given for a type is taken as a text, and never imported."""
    if get_origin(hint) is Literal or hint is Any or hint in (None, ...) or is_typeddict(hint):
        return True
    origin = get_origin(hint)
    if origin is not None:
        if isinstance(origin, type) and issubclass(origin, type):  # type[Encoder]
            return False
        container = origin in (types.UnionType,) or getattr(origin, "__name__", "") != "Callable"
        return container and all(_is_plain_type(each) for each in get_args(hint))
    plain = (str, int, float, types.NoneType, timedelta, list, dict, tuple, set, Enum, Path)
    return isinstance(hint, type) and issubclass(hint, plain)
