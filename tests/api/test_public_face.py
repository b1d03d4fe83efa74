"""The public face: light, whole, typed, and all that plugins import."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import bertlab
import bertlab.api
import bertlab.extend
from bertlab.plugins.index import FIRST_PARTY

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "numpy", "lightning", "torchmetrics", "pluggy")


@pytest.mark.parametrize("statement", ["import bertlab", "import bertlab.api", "dir(bertlab)"])
def test_importing_it_is_light(statement: str) -> None:
    code = f"import sys, bertlab; {statement}; print([x for x in {HEAVY} if x in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_names_of_the_contract_are_those_of_the_face() -> None:
    names = set(bertlab.api.__all__) - {"CONTRACT"}
    assert names <= set(dir(bertlab))  # some are of packages
    for name in names:
        assert getattr(bertlab.api, name) is getattr(bertlab, name)


def test_type_checkers_know_what_first_party_packages_add() -> None:
    added = {}
    for pyproject in ROOT.glob("plugins/bertlab-*/pyproject.toml"):
        entry_points = tomllib.loads(pyproject.read_text())["project"].get("entry-points", {})
        given = entry_points.get("bertlab.names", {})
        package = pyproject.parent / pyproject.parent.name.replace("-", "_")
        assert not given or (package / "py.typed").exists(), package
        added |= {name: target for name, target in given.items() if "." not in name}
    typed = bertlab.names_in(ROOT / "bertlab" / "added_names.pyi")
    assert {name: ":".join(home) for name, home in typed.items()} == added


@pytest.mark.parametrize("name", bertlab.__all__)
def test_every_name_resolves_and_is_listed(name: str) -> None:
    assert getattr(bertlab, name) is not None
    assert name in dir(bertlab)


@pytest.mark.parametrize("module", [bertlab, bertlab.api])
def test_an_unknown_name_is_an_attribute_error(module: object) -> None:
    with pytest.raises(AttributeError, match="Objektive"):
        module.Objektive  # type: ignore[attr-defined]  # noqa: B018


def imported(code: str) -> Iterator[str]:
    """Yield what a piece of code imports: modules, and names that the public face lacks."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            if node.module == "bertlab":
                names = {alias.name for alias in node.names}
                yield from (f"bertlab:{name}" for name in names - set(dir(bertlab)))


def pieces_of_code() -> Iterator[tuple[str, str]]:
    """Yield the code of plugins, templates and documents, each with its name."""
    strangers = (each for each in ROOT.glob("plugins/*") if each.name not in FIRST_PARTY)
    for path in sorted(path for each in strangers for path in each.rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text("utf-8")
    for path in sorted(
        ROOT.glob("plugins/bertlab-conformance/bertlab_conformance/templates/*/*.py.template")
    ):
        code = path.read_text("utf-8").replace("$import_line", "")
        yield str(path.relative_to(ROOT)), re.sub(r"\$\w+", "x", code)
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("plugins/*/*.md")]
    signatures = ROOT / "docs/reference/contract-text.md"  # of what the contract has, not code
    for path in sorted({*pages} - {signatures}):
        text = re.sub(r"(?m)^[!%].*", "", path.read_text("utf-8"))  # commands in notebooks
        for block in re.findall(r"(?s)```(?:python|\{code-cell\} python3)\n(.*?)```", text):
            code = re.sub(r"(?s)\A(---.*?---|:tags:[^\n]*)\n", "", block)  # settings of a cell
            yield str(path.relative_to(ROOT)), code


@pytest.mark.parametrize(("where", "code"), list(pieces_of_code()))
def test_plugins_templates_and_documents_import_the_public_face_only(where: str, code: str) -> None:
    allowed = {"bertlab", "bertlab.api", "bertlab.testing"}
    ours = {each for each in imported(code) if re.match(r"bertlab[.:]", each)}
    assert ours <= allowed, where


def test_every_name_for_packages_is_there() -> None:
    for name in bertlab.extend.__all__:
        assert getattr(bertlab.extend, name) is not None, name
    assert not set(bertlab.extend.__all__) & set(bertlab.__all__), "one name has one place"
