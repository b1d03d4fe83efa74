"""docs/plugin-reference.md is what the code says."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_is_up_to_date() -> None:
    page = runpy.run_path(str(DOCS / "make_plugin_reference.py"))
    expected = page["reference"]()
    hint = "run: python docs/make_plugin_reference.py"
    assert (DOCS / "plugin-reference.md").read_text("utf-8") == expected, hint
