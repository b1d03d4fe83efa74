"""The snippets of docs/how-to-add.md run, keep their contracts, and import only the public face."""

import ast
import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import bertlab
from bertlab.data.examples.source import read_rows
from bertlab.heads.sentences import SentencePair
from bertlab.plugins.index import forget_installed
from bertlab.plugins.signatures import broken_signature
from bertlab.testing import conformance
from tests.docs.test_plugin_docs import passed_checks
from tests.plugins.strange_packages import install

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "how-to-add.md").read_text("utf-8")
SNIPPETS = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, re.DOTALL))
CLASSES = {
    "long_text": ("LongText", "Objective"),
    "sentiment": ("Sentiment", "Head"),
    "lstm_encoder": ("LSTMEncoder", "Encoder"),
    "numbers_source": ("Numbers", "DataSource"),
    "error_rate": ("ErrorRate", "Metric"),
}


@pytest.fixture
def snippets(tmp_path: Path) -> Path:
    for name, code in SNIPPETS.items():
        (tmp_path / f"{name}.py").write_text(code, "utf-8")
    return tmp_path


def load(name: str, snippets: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, snippets / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_block_of_code_is_a_snippet() -> None:
    assert PAGE.count("```python") == len(SNIPPETS)
    assert set(CLASSES) < set(SNIPPETS)


@pytest.mark.parametrize("name", list(SNIPPETS))
def test_imports_only_the_public_face(name: str) -> None:
    for node in ast.walk(ast.parse(SNIPPETS[name])):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("bertlab"):
            assert node.module in ("bertlab", "bertlab.api")
        assert not isinstance(node, ast.Import) or "bertlab" not in ast.unparse(node)


@pytest.mark.parametrize("name", list(CLASSES))
def test_a_class_keeps_its_contract(name: str, snippets: Path) -> None:
    own, contract = CLASSES[name]
    found = getattr(load(name, snippets), own)
    base = getattr(bertlab, contract)
    assert issubclass(found, base)
    assert broken_signature(found, base) is None
    assert conformance(found)


@pytest.mark.parametrize("name", list(CLASSES))
def test_a_class_conforms(name: str, snippets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(snippets)
    found = getattr(importlib.import_module(name), CLASSES[name][0])
    arguments = {"argument": "30"} if name == "numbers_source" else {}
    assert passed_checks(conformance(found, arguments=arguments)) > 5


def test_the_source_gives_documents(snippets: Path) -> None:
    documents = list(load("numbers_source", snippets).Numbers("numbers:2", "2").documents())
    assert [each.source for each in documents] == ["numbers:2 0", "numbers:2 1"]
    with pytest.raises(bertlab.CorpusError, match="expected numbers:N"):
        list(load("numbers_source", snippets).Numbers("numbers:two", "two").documents())


def test_the_format_reads(snippets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {"bertlab.formats": {"boolq": "boolq:BoolQ"}}
    install(tmp_path, "boolq", groups, {})
    monkeypatch.syspath_prepend(snippets)
    forget_installed()
    row = '{"question": "Is it?", "passage": "It is.", "answer": true}\n'
    (tmp_path / "a.jsonl").write_text(row, "utf-8")
    read = read_rows(str(tmp_path / "a.jsonl"), None, {}, "boolq", SentencePair.columns)
    forget_installed()
    assert read.label_names == ("no", "yes")
    assert [row.values["label"] for row in read.rows] == ["yes"]


def test_the_command_counts(snippets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = load("count_command", snippets).Count
    assert issubclass(command, bertlab.Command)
    assert command().main(["a", "b"]) == 0
    assert capsys.readouterr().out == "2\n"


def test_the_hooks_are_hooks(snippets: Path, tmp_path: Path) -> None:
    module = load("my_hooks", snippets)
    assert len(module.bertlab_callbacks(tmp_path)) == 1


def test_the_error_is_raised(snippets: Path) -> None:
    with pytest.raises(bertlab.ConfigError, match="found 0, expected 1 or more"):
        load("checked_limit", snippets).check_limit(0)


def test_modules_and_pages_that_it_names_exist() -> None:
    for place in re.findall(r"`((?:bertlab|docs)/[\w/]+(?:\.py)?)`", PAGE):
        assert (DOCS.parent / place).exists(), place
    for page in re.findall(r"\]\(([\w-]+\.md)", PAGE):
        assert (DOCS / page).is_file(), page
