"""Config files, and arguments that override them, as plain data within bounds.

Of YAML 1.1, only texts, numbers, true, false, null, lists and mappings are taken. A few lines can
stand for gigabytes (an anchor of anchors of anchors), or for no end at all (a list that holds
itself). All of that is measured on the parsed nodes, before anything is built of them.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from argparse import Action, ArgumentParser

    from jsonargparse import Namespace

from bertlab.errors import CommandError, ConfigError, ConfigFileError, kind_of
from bertlab.files import read_text

_MOST_VALUES = 100_000  # with each alias counted as often as it is used
_DEEPEST = 50
_PREFIX = "tag:yaml.org,2002:"
_HALVES = re.compile("[\ud800-\udfff]")  # of characters, which UTF-8 does not have
_LARGEST = 2**20  # characters; PyYAML reads about 100,000 in a second


def load_yaml(text: str, loader: "type[_PlainLoader] | None" = None) -> Any:  # noqa: ANN401
    """Return what one YAML document says.

    Args:
        text: the document.
        loader: that of config files if None.

    Raises:
        yaml.YAMLError: it is not YAML, has a tag or a key twice, a number of over 64 bits, or is
            too large.
    """
    if len(text) > _LARGEST:
        raise yaml.YAMLError(f"it has {len(text):,} characters, expected at most {_LARGEST:,}")
    try:
        return yaml.load(text, loader or _PlainLoader)  # noqa: S506  both are SafeLoaders
    except RecursionError:
        raise BoundsError(None, None, "lists or mappings are nested too deep", None) from None
    except (AttributeError, TypeError, ValueError):  # PyYAML's, of "!!map x"
        raise yaml.YAMLError("a tag that does not fit its value") from None


def load_argument(text: str) -> Any:  # noqa: ANN401
    """Return what an argument says; as :func:`load_yaml`, and ``1e5`` is a number.

    What YAML reads as nothing, a comment or an anchor, is the text that was given.
    """
    value = load_yaml(text, _ArgumentLoader)
    return text if value is None and text.strip().lower() not in ("", "~", "null") else value


class BoundsError(yaml.MarkedYAMLError):
    """YAML that is nested too deep, holds itself, or stands for too many values."""


def check_texts(value: object, where: str) -> None:
    """Refuse texts that stand for too much as YAML: jsonargparse reads some without bounds."""
    if isinstance(value, str):
        try:
            load_yaml(value)
        except BoundsError as error:
            raise ConfigError(f"{where}: found {value[:40]!r}…: {error.problem}") from None
        except yaml.YAMLError:
            pass  # a text need not be YAML
    for key, part in _parts(value):
        check_texts(part, f"{where}: {key}" if isinstance(key, str) else where)


def check_numbers(value: object, key: str) -> None:
    """Refuse whole numbers of over 64 bits, which nothing takes."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        digits = f"{len(str(value))} digits" if value.bit_length() < 10_000 else "many digits"
        raise ConfigError(f"{key}: found a number of {digits}, expected at most 64 bits")
    for name, part in _parts(value):
        check_numbers(part, f"{key}.{name}".lstrip(".") if isinstance(name, str) else key)


def nulls(parsed: "Namespace", parser: "ArgumentParser") -> "Iterator[Action]":
    """Yield the arguments that are null, and are not by default."""
    for action in parser._actions:
        if action.default is not None and parsed.get(action.dest, action.default) is None:
            yield action


def _parts(value: object) -> Iterable[tuple[object, object]]:
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


class _PlainLoader(yaml.SafeLoader):
    """Refuses what is too large, and a key given twice, of which PyYAML would keep the last."""

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        # here already, as PyYAML takes minutes for a line of brackets
        if self.flow_level > _DEEPEST:
            raise BoundsError(
                None, None, f"over {_DEEPEST} brackets in each other", self.get_mark()
            )
        super().fetch_flow_collection_start(token)

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None:
            _measure(node, {}, 0)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == f"{_PREFIX}merge":  # "<<: *other"
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                continue  # refused below, with its place
            if key in seen:
                raise _refused(f"key {str(key)[:80]!r} is given twice", key_node)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _measure(node: yaml.Node, sizes: dict[int, int], depth: int) -> int:
    """Return how many values a node stands for; refuse too many, too deep, and a cycle."""
    # sizes: by id, as an alias is the same node again; 0 marks one that is being measured
    if isinstance(node, yaml.ScalarNode):
        # JSON writes an emoji as two halves, "\ud83d\ude00"
        node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        if part := "a NUL" if "\0" in node.value else _HALVES.search(node.value) and "half a":
            raise _refused(f"a text holds {part} character", node)
        return 1
    known = sizes.get(id(node))
    if known is not None:
        if known == 0:
            raise _too_much("a list or mapping holds itself", node)
        return known
    if depth > _DEEPEST:
        raise _too_much(f"lists or mappings are nested deeper than {_DEEPEST} levels", node)
    sizes[id(node)] = 0
    size = 1
    for entry in node.value:
        # of a mapping (key, value), of a list the node
        for each in entry if isinstance(entry, tuple) else (entry,):
            size += _measure(each, sizes, depth + 1)
            if size > _MOST_VALUES:
                raise _too_much(f"it stands for over {_MOST_VALUES:,} values", node)
    sizes[id(node)] = size
    return size


def _too_much(problem: str, node: yaml.Node) -> BoundsError:
    return BoundsError(None, None, problem, node.start_mark)


def _refused(problem: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _checked(construct: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a constructor of scalars whose every failure names the line."""

    def constructed(loader: _PlainLoader, node: yaml.ScalarNode) -> object:
        shown = node.value[:40]
        if len(node.value) > 400:  # int() of 5,000 digits raises, of "1:1:1:…" takes long
            raise _refused(f"{shown}…: a number of {len(node.value)} characters", node)
        try:
            value = construct(loader, node)
        except (ValueError, OverflowError, LookupError):
            raise _refused(f"{shown!r} is no such value", node) from None
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise _refused(f"{shown}: a number of over 64 bits", node)
        # of base 8 and 60: 010 is 8, 1:30 is 90
        if re.fullmatch(r"[-+]?0[0-7_]*[1-7][0-7_]+|.*:.*", node.value):
            raise _refused(f"{shown} is {value} in YAML; write that, or put it in quotes", node)
        return value

    return constructed


_PlainLoader.add_constructor(f"{_PREFIX}int", _checked(yaml.SafeLoader.construct_yaml_int))
_PlainLoader.add_constructor(f"{_PREFIX}bool", _checked(yaml.SafeLoader.construct_yaml_bool))
_PlainLoader.add_constructor(f"{_PREFIX}float", _checked(yaml.SafeLoader.construct_yaml_float))
# 2026-11-25 is a text here: nothing takes a date
_PlainLoader.yaml_constructors[f"{_PREFIX}timestamp"] = yaml.SafeLoader.construct_yaml_str
for _kind in ("binary", "omap", "pairs", "set"):
    del _PlainLoader.yaml_constructors[f"{_PREFIX}{_kind}"]


class _ArgumentLoader(_PlainLoader):
    """As jsonargparse's own loader, takes ``1e5`` for a number; YAML 1.1 wants ``1.0e+5``."""


_ArgumentLoader.add_implicit_resolver(
    f"{_PREFIX}float",
    re.compile(r"[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][0-9]+$"),
    list("-+0123456789"),
)


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
        content, found = error, f"not valid YAML: {_where_and_why(error)}"
    else:
        found = f"found {kind_of(content)}, expected a mapping of keys to values"
    if content is None:
        return {}
    if not isinstance(content, dict):
        if Path(path).suffix in (".csv", ".tsv", ".txt", ".jsonl", ".gz"):
            found = "is data, expected a config; bertlab init writes one for data"
        raise ConfigFileError(f"{path}: {found}")
    if others := [key for key in content if not isinstance(key, str)]:
        raise ConfigFileError(f"{path}: found the key {others[0]!r}, expected keys that are texts")
    return content


def _where_and_why(error: yaml.YAMLError) -> str:
    # PyYAML calls the text <unicode string>, and shows the line with a ^ below
    words = " ".join(str(error).replace('in "<unicode string>", ', "at ").split())
    tab = r"found character '\t' that cannot start any token"
    return words.replace(tab, "found a tab, expected spaces")


def split_arguments(argv: Sequence[str]) -> Iterator[tuple[str, str | None, list[str]]]:
    """Yield each argument as its key, its value if any, and its tokens as they were given."""
    rest = list(argv)
    while rest:
        token = rest.pop(0)
        # --a=1; --a 1 and --a -1, as a number may be negative; --flag --a has no value
        if token.startswith("--") and "=" in token:
            key, value = token.split("=", 1)
            yield key, value, [token]
        elif token.startswith("-") and rest and not rest[0].startswith("--"):
            value = rest.pop(0)
            yield token, value, [token, value]
        else:
            yield token, None, [token]


def join_negative(argv: Sequence[str]) -> list[str]:
    """Return arguments with ``--KEY=-1e-4`` for ``--KEY -1e-4``, which argparse takes for a key."""
    joined = []
    for key, value, tokens in split_arguments(argv):
        is_apart = len(tokens) == 2 and value is not None and _NEGATIVE.match(value)
        joined += [f"{key}={value}"] if is_apart and key.startswith("--") else tokens
    return joined


_NEGATIVE = re.compile(r"-[\d.]")


def first_no_yaml(values: Iterable[tuple[str, object]]) -> str:
    """Return key and text of the first value that jsonargparse cannot read, or nothing."""
    for key, text in values:
        if not isinstance(text, str):
            continue
        try:
            load_argument(text)
            refused = text.startswith("!")  # jsonargparse's own loader may fail of it
        except yaml.YAMLError:
            refused = True
        if refused:
            return f"{key}: found {text[:80]!r}"
    return ""


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
    unfolded: dict[str, Any] = {"default_flow_style": True, "width": 1 << 20}  # PyYAML folds lines
    try:
        text: str = yaml.dump(plain(value), Dumper=_OneLine, sort_keys=False, **unfolded)
    except yaml.YAMLError as error:
        expected = "text, numbers, lists or mappings; a config that is a mapping may hold objects"
        raise ConfigError(f"found {type(error.args[-1]).__name__}, expected {expected}") from None
    # PyYAML ends a document that is one bare word or number: "1\n...\n" -> "1"
    return text.removesuffix("\n").removesuffix("\n...")


def plain(value: Any, at: str = "") -> Any:  # noqa: ANN401  any value
    """Return a value of Python as YAML has it: a path is a text, a number of NumPy a number."""
    if isinstance(value, Mapping):  # at "data: " there is a "data.source: "
        return {key: plain(each, f"{at.replace(': ', '.')}{key}: ") for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each, at) for each in value]
    if hasattr(value, "to_json"):  # of pandas, and of datasets
        writes = "its to_json('rows.jsonl', orient='records', lines=True) writes one"
        raise ConfigError(f"{at}found {type(value).__name__}, expected a file with rows: {writes}")
    if isinstance(value, str) and _HALVES.search(value):
        raise ConfigError(f"{at}found {value!r:.80}, expected text of whole characters")
    # of arrays, and of NumPy's and PyTorch's numbers
    found = value.tolist() if hasattr(value, "tolist") else value
    return str(found) if isinstance(found, Path) else found


def value_at(content: object, key: str) -> object:
    """Return what stands at a dotted key; None if nothing does."""
    # {"model": {"head": {"name": "span"}}}, model.head.name -> span
    for part in key.split("."):
        if not isinstance(content, Mapping):
            return None
        content = content.get(part)
    return content


def put_at(content: Config, key: str, value: object) -> None:
    """Set the value at a dotted key; the mappings on the way are made."""
    *above, last = key.split(".")
    for part in above:
        content = content.setdefault(part, {})
    content[last] = value


def leaves(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the value of all that is no section; an empty one is a value."""
    for name, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def nested(key: str, value: object) -> Config:
    """Return a mapping with a value at a dotted key."""
    content: Config = {}
    put_at(content, key, value)  # model.encoder, bert -> {"model": {"encoder": "bert"}}
    return content


def keys_of(parser: "ArgumentParser") -> set[str]:
    """Return all keys; ``help`` and ``KEY.help`` are only for the command line."""
    dests = {action.dest for action in parser._actions}
    return {dest for dest in dests if dest.rpartition(".")[2] != "help"}


def unknown_keys(
    content: Mapping[str, Any], known: set[str], above: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a config that are not known, with their values."""
    for name, value in content.items():
        key = f"{above}{name}"
        if isinstance(value, Mapping) and names_below(key, known):
            yield from unknown_keys(value, known, f"{key}.")
        elif key not in known and not names_below(key, known):
            yield key, value


def names_below(section: str, known: set[str]) -> set[str]:
    """Return the names one level below a section; of the top level if it is empty."""
    start = f"{section}." if section else ""
    return {key.removeprefix(start).split(".")[0] for key in known if key.startswith(start)}


class _OneLine(yaml.SafeDumper):
    """Writes line breaks as escapes: PyYAML does in values, not in keys of several lines."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # a line break becomes "a\nb" in quotes
    style = '"' if len(text.splitlines()) > 1 or text != text.rstrip() else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_OneLine.add_representer(str, _text)
