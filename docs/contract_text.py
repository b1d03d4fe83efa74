"""Writes docs/reference/contract-text.md: the contract of plugins as it is read in a clone.

Run ``python docs/contract_text.py`` after a change of a docstring or a signature of the contract;
tests/docs/test_reference.py says when.
"""

import dataclasses
import inspect
import re
import runpy
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from bertlab.testing import list_checks
from bertlab_conformance.scaffold import GROUP_OF_KIND

PAGE = Path(__file__).parent / "reference" / "contract-text.md"
_PAGES = runpy.run_path(str(Path(__file__).parent / "reference_pages.py"))
_HEAD = """\
---
orphan: true
---

# The contract in full

Written by `docs/contract_text.py` from docstrings and signatures. [Plugins](../plugins.md) shows a whole class of each kind.
Names without an import are in `bertlab`. Types of attributes stand behind their names, with the default if it is short.
"""
_SECTION = re.compile(r"(Args|Attributes|Returns|Raises|Yields):")


def text() -> str:
    """Return the page."""
    parts = [_HEAD]
    blocks = _PAGES["building_block_names"]().items()
    sections = {f"Building blocks: {title.lower()}": names for title, names in blocks}
    for title, names in {**_PAGES["contract_names"](), **sections}.items():
        parts.append(f"## {title}\n")
        for name in names:
            module, _, own = name.rpartition(".")
            is_elsewhere = module != "bertlab" and not own.startswith("bertlab_")
            line = f"`from {module} import {own}`\n" if is_elsewhere else ""
            parts += _described(own, _PAGES["_object"](name), line)
    parts += ["## Checks of the kit\n", "| check | of | what it says |", "| --- | --- | --- |"]
    parts += _checks()
    return "\n".join(parts).rstrip("\n") + "\n"


def _checks() -> Iterator[str]:
    """Yield a row for each check of the kit, with the kinds of plugins that it is of."""
    checks = [(kind, *each) for kind in GROUP_OF_KIND for each in list_checks(kind)]
    for name, words in dict.fromkeys(each[1:] for each in checks):
        kinds = [kind for kind, *each in checks if each == [name, words]]
        of = "all" if len(kinds) == len(GROUP_OF_KIND) else ", ".join(kinds)
        yield f"| `{name}` | {of} | {' '.join(words.replace('``', '`').split())} |"


def _described(name: str, found: object, line: str) -> Iterator[str]:
    """Yield the lines of a class and its methods, or of a function; ``line`` imports it."""
    given = name in _PAGES["GIVEN"]  # users do not make it
    yield f"### {name}\n"
    if line:
        yield line
    if not given:
        yield f"```text\n{_signature(name, found)}\n```\n"
    yield _markdown(found, {} if _is_call_shown(found, given) else _attributes(found))
    own = vars(found) if inspect.isclass(found) and name not in _PAGES["FIELDS_ONLY"] else {}
    for method, member in own.items():
        value = getattr(member, "__func__", member)  # of a classmethod
        function = value.fget if isinstance(value, property) else getattr(value, "func", value)
        if method.startswith("_") or not inspect.isfunction(function) or not function.__doc__:
            continue
        is_call = inspect.isfunction(value)
        shown = _signature(method, function) if is_call else f"{method}  # an attribute"
        yield f"#### {name}.{method}\n\n```text\n{shown}\n```\n"
        yield _markdown(function)


def _is_call_shown(found: object, given: bool) -> bool:
    """Tell whether the signature above has the types of the attributes."""
    return not given and dataclasses.is_dataclass(found)


def _attributes(found: object) -> dict[str, str]:
    """Return types, and defaults if they are short, of a class's attributes, as code."""
    shown: dict[str, str] = {}
    for each in reversed(inspect.getmro(found)) if inspect.isclass(found) else ():
        for name, kind in inspect.get_annotations(each).items():
            code = kind if isinstance(kind, str) else inspect.formatannotation(kind)
            shown[name] = re.sub(r"^ClassVar\[(.*)\]$", r"\1", _short(code))
        for name in shown:
            value = vars(each).get(name, found)
            text = _short(repr(value))
            if isinstance(value, bool | int | float | str | tuple | dict | None) and len(text) < 60:
                shown[name] = f"{shown[name].partition(' = ')[0]} = {text}"
    return shown


def _short(code: str) -> str:
    """Return code without the modules of its names."""
    short = re.sub(r"<(?:class|object|function|factory)[^>]*>", "…", code)
    packages = "bertlab|torch|torchmetrics|pathlib|collections|typing|numpy"
    return re.sub(rf"\b(?:{packages})[\w.]*\.(\w+)", r"\1", short)


def _signature(name: str, found: object) -> str:
    """Return a call as code, an argument a line where it is long."""
    try:
        signature = inspect.signature(found)  # type: ignore[arg-type]
    except ValueError:  # of a class that takes what another does
        return f"{name}(…)"
    return f"{name}{_short(str(signature)).replace(chr(39), '')}"


def _markdown(found: object, types: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a docstring as Markdown: its sections as lists, with the types of attributes."""
    lines: list[str] = []
    docstring = re.sub(r":(?:\w+:)?\w+:`~?([^`]+)`", r"``\1``", inspect.getdoc(found) or "")
    for line in docstring.splitlines():
        if title := _SECTION.fullmatch(line):
            lines += [f"**{title[1]}**", ""]
        elif item := re.fullmatch(r"    (\*{0,2}[\w.]+): (.*)", line):
            kind = f", `{types[item[1]]}`" if item[1] in types else ""
            lines.append(f"- `{item[1]}`{kind}: {item[2]}")
        elif line.startswith("        ") and lines and lines[-1].startswith("- "):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line.removeprefix("    ") if line.startswith("    ") else line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), "utf-8")
