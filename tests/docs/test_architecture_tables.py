"""The tables of modules in docs/architecture.md are what the modules' docstrings say."""

import ast
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
HINT = "run: python docs/make_architecture_tables.py"


@pytest.fixture(name="generator")
def _generator() -> dict:
    return runpy.run_path(str(DOCS / "make_architecture_tables.py"))


def test_the_tables_are_up_to_date(generator) -> None:
    page = (DOCS / "architecture.md").read_text("utf-8")
    assert page == generator["with_tables"](page), HINT


def test_every_room_has_one_table(generator) -> None:
    page = (DOCS / "architecture.md").read_text("utf-8")
    assert sorted(generator["tables"](page)) == sorted(generator["rooms"]())


def test_a_row_is_the_first_line_of_a_docstring(generator) -> None:
    page = "before\n<!-- modules: api -->\nold | text\n<!-- end -->\nafter\n"
    lines = generator["with_tables"](page).splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    module = DOCS.parent / "bertlab" / "api" / "batch.py"
    first_line = ast.parse(module.read_text("utf-8")).body[0].value.value.splitlines()[0]
    assert f"| `batch.py` | {first_line.rstrip('.').replace('``', '`')} |" in lines
    assert "old | text" not in lines
