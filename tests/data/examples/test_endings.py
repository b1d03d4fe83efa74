"""Endings of files that packages claim for their formats (``bertlab.endings``)."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bertlab.data.examples.splits import locate_split
from bertlab.data.rows.files import ending_format
from bertlab.plugins import hooks
from bertlab.plugins import index as plugins
from tests.plugins.core_alone import leave_the_core_alone
from tests.plugins.strange_packages import install

from .labelled_files import fails, read, streamed, values, write

BARS = """
from pathlib import Path
from bertlab.api import NamedFormat, RawExamples

class Bars(NamedFormat):
    \"\"\"Cells between bars.\"\"\"

    table = None

    def read(self, path):
        names, *rows = [line.split("|") for line in Path(path).read_text().splitlines()]
        cells = (dict(zip(names, row)) for row in rows)
        return RawExamples(path, names, ((f"{path}:{n}", row) for n, row in enumerate(cells, 2)))
"""
ROWS = "text|label\nA fine day.|good\nRain, again.|bad\n"
READ = [{"text": "A fine day.", "label": "good"}, {"text": "Rain, again.", "label": "bad"}]
Add = Callable[..., None]


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Add]:
    """Install a package that claims endings."""
    folder, modules = tmp_path / "site", []
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)

    def add(package: str, *endings: str, name: str = "bars") -> None:
        module = package.replace("-", "_")
        target = f"{module}:Bars"
        groups = {
            "bertlab.formats": {name: target},
            "bertlab.endings": dict.fromkeys(endings, target),
        }
        install(folder, package, groups, {module: BARS})
        modules.append(module)
        plugins.forget_installed()

    yield add
    plugins.forget_installed()
    for module in modules:
        sys.modules.pop(module, None)


def test_a_file_with_a_claimed_ending_is_read_without_a_key(add: Add, tmp_path: Path) -> None:
    add("good-bars", ".bars")
    path = write(tmp_path / "rows.BARS", ROWS)
    assert values(path) == READ
    assert [row.where for row in read(path).rows] == [f"{path}:2", f"{path}:3"]
    assert streamed(path) == READ
    assert locate_split("rows.bars", None, "train")[0] == "rows.bars"  # a file, and no split
    renamed = write(tmp_path / "other.bars", ROWS.replace("text", "review"))
    assert values(renamed, columns={"text": "review"}) == READ


def test_two_packages_with_one_ending_are_named(add: Add, tmp_path: Path) -> None:
    add("good-bars", ".bars")
    add("more-bars", ".bars")
    path = write(tmp_path / "rows.bars", ROWS)
    fails(read, path, matches=["several packages read it", "good_bars:bars, more_bars:bars"])
    assert values(path, form="more_bars:bars") == READ


def test_endings_of_bertlab_stay_as_they_are(add: Add, tmp_path: Path) -> None:
    add("greedy", ".csv", ".conll", ".jsonl")
    assert ending_format("a.csv") == "csv"
    assert ending_format("a.conll") == "conll"
    assert values(write(tmp_path / "a.csv", ROWS.replace("|", ";"))) == READ


def test_an_unknown_ending_names_those_that_are_read(add: Add, tmp_path: Path) -> None:
    add("good-bars", ".bars")
    path = write(tmp_path / "a.dat", ROWS)
    fails(read, path, matches=["or one of these endings: .arrow, .bars, .bio, ", ".txt"])


def test_an_ending_of_a_package_that_is_missing_says_what_to_install(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", "A O\n")
    with pytest.MonkeyPatch.context() as patch:
        leave_the_core_alone(patch)
        fails(read, path, matches="comes with bertlab-tasks: pip install bertlab-tasks")
    plugins.forget_installed()
    hooks.hook_modules.cache_clear()
