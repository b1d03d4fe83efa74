"""Config files, and arguments that override them, as plain data."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from bertlab.config.plain_yaml import load_argument, load_yaml
from bertlab.errors import CommandError, ConfigError, ConfigFileError
from bertlab.files.reading import read_text

Config = dict[str, Any]


class NoValue:
    """Stands for the value of an argument that was given without one."""


def read_config(path: Path) -> Config:
    """Read a YAML config file; no tags, no repeated keys, nothing endless.

    Raises:
        ConfigFileError: if the file is missing, is not UTF-8 or not YAML, or holds no mapping.
    """
    try:
        content = load_yaml(read_text(path))
    except FileNotFoundError:
        raise ConfigFileError(f"{path}: no such config file") from None
    except OSError as error:
        raise ConfigFileError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigFileError(f"{path}: invalid UTF-8 at byte {error.start}") from None
    except yaml.YAMLError as error:
        raise ConfigFileError(f"{path}: not valid YAML: {_where_and_why(error)}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        found = type(content).__name__
        is_data = Path(path).suffix in (".csv", ".tsv", ".txt", ".jsonl", ".gz")
        hint = "; bertlab init writes one for data" if is_data else ""
        raise ConfigFileError(
            f"{path}: found a {found}, expected a mapping of keys to values{hint}"
        )
    for key in content:
        if not isinstance(key, str):
            raise ConfigFileError(f"{path}: found the key {key!r}, expected keys that are texts")
    return content


def _where_and_why(error: yaml.YAMLError) -> str:
    # PyYAML calls the text <unicode string>, and shows the line with a ^ below
    words = " ".join(str(error).replace('in "<unicode string>", ', "at ").split())
    tab = r"found character '\t' that cannot start any token"
    return words.replace(tab, "found a tab, expected spaces")


def split_arguments(argv: Sequence[str]) -> Iterator[tuple[str, str | None, list[str]]]:
    """Yield each argument as its key, its value if any, and its tokens as they were given."""
    position = 0
    while position < len(argv):
        token = argv[position]
        following = argv[position + 1] if position + 1 < len(argv) else None
        # --a=1; --a 1 and --a -1, as a number may be negative; --flag --a has no value
        if token.startswith("--") and "=" in token:
            key, value = token.split("=", 1)
            yield key, value, [token]
            position += 1
        elif token.startswith("-") and following is not None and not following.startswith("--"):
            yield token, following, [token, following]
            position += 2
        else:
            yield token, None, [token]
            position += 1


def join_negative(argv: Sequence[str]) -> list[str]:
    """Return arguments with ``--KEY=-1e-4`` for ``--KEY -1e-4``, which argparse takes for a key."""
    joined = []
    for key, value, tokens in split_arguments(argv):
        is_apart = len(tokens) == 2 and value is not None and _NEGATIVE.match(value)
        joined += [f"{key}={value}"] if is_apart and key.startswith("--") else tokens
    return joined


_NEGATIVE = re.compile(r"-[\d.]")


def which_is_no_yaml(argv: Sequence[str]) -> str:
    """Return the first argument whose value is no YAML; all of them if each is."""
    for key, value, _ in split_arguments(argv):
        if is_no_yaml(value or ""):
            return f"{key.lstrip('-')}: found {(value or '')[:80]!r}"
    return "arguments"


def is_no_yaml(value: object) -> bool:
    """Whether a value is a text that jsonargparse cannot read as YAML."""
    if not isinstance(value, str):
        return False
    try:
        load_argument(value)
        return value.startswith("!")  # jsonargparse's own loader may fail of it
    except yaml.YAMLError:
        return True


def take_options(
    argv: Sequence[str], keys: Sequence[str]
) -> tuple[dict[str, list[str]], list[str]]:
    """Return the values given for each of ``keys``, and the other arguments as they are.

    Raises:
        CommandError: if one of them has no value.
    """
    taken: dict[str, list[str]] = {key: [] for key in keys}
    rest: list[str] = []
    for key, value, tokens in split_arguments(argv):
        if key in taken:
            taken[key].append(needs_value(key, value))
        else:
            rest += tokens
    return taken, rest


def differences(found: Config, expected: Config, prefix: str = "") -> list[str]:
    """Return a line for each key whose values differ: ``key: found x, expected y``."""
    lines = []
    # {"a": {"b": 1}} and {"a": {"b": 2}} -> ["a.b: 1 here, 2 there"]
    for key in sorted(found.keys() | expected.keys()):
        mine, theirs = found.get(key), expected.get(key)
        sections = [each is None or isinstance(each, dict) for each in (mine, theirs)]
        # a schedule may be a name here and a mapping there
        if mine != theirs and all(sections):
            lines += differences(mine or {}, theirs or {}, f"{prefix}{key}.")
        elif mine != theirs:
            lines.append(f"{prefix}{key}: {mine!r} here, {theirs!r} there")
    return lines


def needs_value(key: str, value: str | None) -> str:
    """Return the value of an argument."""
    if value is None:
        raise CommandError(f"{key}: expected a value after it")
    return value


def parse_inline(value: str, key: str, example: str) -> object:
    """Return what an argument gives as YAML; ``example`` says what was expected."""
    try:
        return load_yaml(value)
    except yaml.YAMLError:
        raise ConfigError(f"{key}: cannot read {value!r}; expected {example}") from None


def yaml_inline(value: object) -> str:
    """Return a value as one line of YAML, as the command line takes it; keys keep their order."""
    # PyYAML folds lines at 80 characters, even in flow style
    text: str = yaml.dump(
        value, Dumper=_OneLine, default_flow_style=True, width=1 << 20, sort_keys=False
    )
    # PyYAML ends a document that is one bare word or number: "1\n...\n" -> "1"
    return text.removesuffix("\n").removesuffix("\n...")


def value_at(content: object, key: str) -> object:
    """Return what stands at a dotted key; None if nothing does."""
    # {"model": {"head": {"name": "span"}}}, model.head.name -> span
    for part in key.split("."):
        if not isinstance(content, Mapping):
            return None
        content = content.get(part)
    return content


class _OneLine(yaml.SafeDumper):
    """Writes line breaks as escapes: PyYAML does in values, not in keys of several lines."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # a line break becomes "a\nb" in quotes
    style = '"' if len(text.splitlines()) > 1 or text != text.rstrip() else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_OneLine.add_representer(str, _text)
