"""Runs the notebooks of the site and writes them as ``.ipynb``, for the wheel of bertlab-pages.

Usage, after a notebook's page has changed::

    python docs/executed_notebooks.py            # all of them, which takes minutes
    python docs/executed_notebooks.py inside     # one

``bertlab notebooks DIR`` copies what is written here. A test compares the cells with the pages.
"""

import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbformat import NotebookNode

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "notebooks"
NOTEBOOKS = ROOT / "plugins" / "bertlab-pages" / "bertlab_pages" / "notebooks"
SITE = "https://github.com/bertlab/bertlab/blob/main"
NAMES = sorted(path.stem for path in PAGES.glob("*.md") if path.stem != "index")


def cells_of(name: str) -> list[tuple[str, str]]:
    """Return kind, ``markdown`` or ``code``, and source of each cell of a notebook's page."""
    text = (PAGES / f"{name}.md").read_text("utf-8")
    _, _, text = text.split("---\n", 2)  # jupytext's own settings
    # "a ```{code-cell} python3 b ``` c" -> ["a", "b", "c"]: code has the odd places
    pieces = re.split(r"(?ms)^```\{code-cell\} python3\n(.*?)^```\n", text)
    cells = []
    for number, piece in enumerate(pieces):
        if number % 2:
            cells.append(("code", re.sub(r"(?s)\A---\n.*?^---\n", "", piece, flags=re.M).strip()))
        elif piece.strip():
            cells.append(("markdown", _with_links(piece.strip())))
    return cells


def _with_links(text: str) -> str:
    """Let links lead to the other notebooks, and else to the repository: the pages stay there."""
    text = re.sub(r"\]\((\w+)\.md\)", r"](\1.ipynb)", text)
    text = re.sub(r"\]\(\.\./\.\./", f"]({SITE}/", text)
    return re.sub(r"\]\(\.\./", f"]({SITE}/docs/", text)


def run(name: str, folder: str, change: Callable[[str], str] = str) -> "NotebookNode":
    """Run a notebook in a folder and return it with its outputs.

    Args:
        name: of the notebook.
        folder: empty.
        change: gives what is run in place of a cell's code.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell fails.
    """
    import nbformat  # noqa: PLC0415  most tests need the cells alone
    from nbclient import NotebookClient  # noqa: PLC0415

    made = nbformat.v4.new_notebook()
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    for number, (kind, source) in enumerate(cells_of(name)):
        new_cell = getattr(nbformat.v4, f"new_{kind}_cell")
        text = change(source) if kind == "code" else source
        made.cells.append(new_cell(text, id=f"{name}-{number}"))  # the same in each version
    client = NotebookClient(made, timeout=1800, record_timing=False, coalesce_streams=True)
    client.execute(cwd=folder)
    return made


def write(name: str) -> None:
    """Run a notebook in an empty folder and write it with its outputs."""
    import nbformat  # noqa: PLC0415

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        made = run(name, folder)
    for output in (each for cell in made.cells for each in cell.get("outputs", ())):
        if output.output_type == "stream":
            output.text = _tidy(output.text).replace(f"{folder}/", "")
    del made.metadata["language_info"]  # the version of this Python
    nbformat.write(made, NOTEBOOKS / f"{name}.ipynb")


def _tidy(text: str) -> str:
    """Return what a terminal shows in the end, without its colours."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.replace("\r\n", "\n"))
    return re.sub(r"(?m)^.*\r", "", text)  # "10 %\r20 %\n" -> "20 %\n"


if __name__ == "__main__":
    NOTEBOOKS.mkdir(exist_ok=True)
    # commands of the notebooks are those beside this Python
    os.environ["PYTHONWARNINGS"] = "ignore"  # of packages, which name folders of this machine
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for each in sys.argv[1:] or NAMES:
        write(each)
