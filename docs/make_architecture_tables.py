"""Writes the tables of modules in docs/architecture.md from the modules' docstrings.

Usage::

    python docs/make_architecture_tables.py      # after a module was added, moved or described anew

A table stands between two comments, the first of which names its room: ``<!-- modules: data -->``
lists ``bertlab/data`` and all below it, ``<!-- modules: . -->`` the modules of the package root.
The rest of the page is written by hand.
"""

import ast
import re
from pathlib import Path

PAGE = Path(__file__).parent / "architecture.md"
PACKAGE = Path(__file__).parents[1] / "bertlab"
ROOT = "."  # the room of modules that lie in no room
_TABLE = re.compile(r"(<!-- modules: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rooms() -> list[str]:
    """Return the rooms of the package, each of which has a table."""
    return [ROOT, *sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))]


def tables(page: str) -> list[str]:
    """Return the rooms that a page has a table of."""
    return [table[2] for table in _TABLE.finditer(page)]


def with_tables(page: str) -> str:
    """Return a page with its tables as the modules are now."""
    return _TABLE.sub(lambda table: f"{table[1]}{_table(table[2])}{table[3]}", page)


def _table(room: str) -> str:
    """Return the rows of a room: a module, and the first line of its docstring."""
    folder = PACKAGE / room
    modules = folder.glob("*.py") if room == ROOT else folder.rglob("*.py")
    ordered = sorted(modules, key=lambda path: (path.parent, path.stem))
    rows = [
        f"| `{path.relative_to(folder).as_posix()}` | {_says(path)} |\n"
        for path in ordered
        if path.name != "__init__.py"
    ]
    return "".join(["| module | what is in it |\n", "| --- | --- |\n", *rows])


def _says(path: Path) -> str:
    """Return the first line of a docstring: Markdown, without the full stop at its end."""
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    first_line = docstring.partition("\n")[0].removesuffix(".")
    first_line = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", first_line)  # :mod:`bertlab.errors`
    return first_line.replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), "utf-8")
