"""YAML as plain data within bounds: what a config file, an argument or a study file may say.

Of YAML 1.1, only texts, numbers, true, false, null, lists and mappings are taken. A few lines can
stand for gigabytes (an anchor of anchors of anchors), or for no end at all (a list that holds
itself). All of that is measured on the parsed nodes, before anything is built of them.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import yaml

from bertlab.errors import ConfigError

_MOST_VALUES = 100_000  # with each alias counted as often as it is used
_DEEPEST = 50
_PREFIX = "tag:yaml.org,2002:"
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
        if "\0" in node.value:
            raise _refused("a text holds a NUL character", node)
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
