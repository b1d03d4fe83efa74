"""Writes docs/reference/contract-text.md: the contract of plugins as it is read in a clone.

Run ``python docs/contract_text.py`` after a change of a docstring or a signature of the contract;
tests/docs/test_reference.py says when.
"""

import inspect
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).parent / "reference" / "contract-text.md"
_PAGES = runpy.run_path(str(Path(__file__).parent / "reference_pages.py"))
_HEAD = """\
---
orphan: true
---

# The contract in full

Written by `docs/contract_text.py` from docstrings and signatures. [Plugins](../plugins.md) shows a whole class of each kind.
"""
_SECTION = re.compile(r"(Args|Attributes|Returns|Raises|Yields):")


def text() -> str:
    """Return the page."""
    parts = [_HEAD]
    for title, names in _PAGES["contract_names"]().items():
        parts.append(f"## {title}\n")
        for name in names:
            parts += _described(name.rpartition(".")[2], _PAGES["_object"](name))
    return "\n".join(parts).rstrip("\n") + "\n"


def _described(name: str, found: object) -> Iterator[str]:
    """Yield the lines of a class and its methods, or of a function."""
    given = name in _PAGES["GIVEN"]  # users do not make it
    yield f"### {name}\n"
    if not given:
        yield f"```text\n{_signature(name, found)}\n```\n"
    yield _markdown(found)
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


def _signature(name: str, found: object) -> str:
    """Return a call as code, an argument a line where it is long."""
    try:
        signature = inspect.signature(found)  # type: ignore[arg-type]
    except ValueError:  # of a class that takes what another does
        return f"{name}(…)"
    short = re.sub(r"<(?:class|object|function|factory)[^>]*>", "…", str(signature))
    short = re.sub(
        r"\b(?:bertlab|torch|pathlib|collections|typing|numpy)[\w.]*\.(\w+)", r"\1", short
    )
    return f"{name}{short.replace(chr(39), '')}"


def _markdown(found: object) -> str:
    """Return a docstring as Markdown: its sections as lists."""
    lines: list[str] = []
    docstring = re.sub(r":(?:\w+:)?\w+:`~?([^`]+)`", r"``\1``", inspect.getdoc(found) or "")
    for line in docstring.splitlines():
        if title := _SECTION.fullmatch(line):
            lines += [f"**{title[1]}**", ""]
        elif item := re.fullmatch(r"    (\*{0,2}[\w.]+): (.*)", line):
            lines.append(f"- `{item[1]}`: {item[2]}")
        elif line.startswith("        ") and lines and lines[-1].startswith("- "):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line.removeprefix("    ") if line.startswith("    ") else line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), "utf-8")
