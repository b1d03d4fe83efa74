"""The examples of docs/plugins.md work as they are written, keep their contracts, stay short."""

import ast
import contextlib
import importlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import transformers

import bertlab
from bertlab.checkpoints.huggingface import form_of
from bertlab.data.examples.source import read_rows
from bertlab.heads.sentences import SentencePair
from bertlab.plugins.index import forget_installed
from bertlab.testing import conformance
from bertlab_conformance.signatures import broken_signature
from tests.plugins.strange_packages import install

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text("utf-8")
BLOCKS = dict(re.findall(r"```python\n(?=# (\w+\.py)\n)(.*?)```", PAGE, re.DOTALL))
CLASSES = {
    "long_text": ("LongText", "Objective"),
    "bertlab_mean_pooling": ("MeanPooling", "Head"),
    "lstm_encoder": ("LSTMEncoder", "Encoder"),
    "bertlab_balanced": ("BalancedAccuracy", "Metric"),
    "bertlab_first_word": ("FirstWord", "Evaluation"),
    "bertlab_bytes": ("Bytes", "TokenizerKind"),
}
WHOLE_RUN = "works_in_a_run"


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, code in BLOCKS.items():
        (tmp_path / name).write_text(code, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def passed_checks(test: Callable[[str], None], whole_run: bool = False) -> int:
    """Run a test that ``conformance`` made on each check, as pytest does; return how many passed.

    A whole run takes as long as all other checks.

    In this process, which has imported torch already.
    """
    passed = 0
    for case in test.pytestmark[0].args[1]:
        if (case.id == WHOLE_RUN) == whole_run:
            with contextlib.suppress(pytest.skip.Exception):
                test(case.values[0])
                passed += 1
    return passed


@pytest.mark.parametrize("name", list(BLOCKS))
def test_imports_only_the_public_face(name: str) -> None:
    for node in ast.walk(ast.parse(BLOCKS[name])):
        if isinstance(node, ast.ImportFrom) and re.match(r"bertlab(\.|$)", str(node.module)):
            assert node.module in ("bertlab", "bertlab.api", "bertlab.testing")
        assert not isinstance(node, ast.Import) or "bertlab" not in ast.unparse(node)


@pytest.mark.parametrize(
    "name", ["long_text.py", "bertlab_mean_pooling.py", "bertlab_first_word.py"]
)
def test_a_whole_class_is_thirty_lines_or_less(name: str) -> None:
    after_imports = BLOCKS[name][BLOCKS[name].index("\nclass ") :]
    assert len([line for line in after_imports.splitlines() if line.strip()]) <= 30


@pytest.mark.first_slow
@pytest.mark.parametrize("name", list(CLASSES))
def test_a_class_conforms(name: str, examples: Path) -> None:
    own, contract = CLASSES[name]
    found = getattr(importlib.import_module(name), own)
    base = getattr(bertlab, contract)
    assert issubclass(found, base)
    assert broken_signature(found, base) is None
    assert passed_checks(conformance(found)) > 5


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in CLASSES if name != "bertlab_first_word"])
def test_a_class_works_in_a_run(name: str, examples: Path) -> None:
    found = getattr(importlib.import_module(name), CLASSES[name][0])
    assert passed_checks(conformance(found), whole_run=True) == 1


@pytest.mark.nightly
def test_the_example_objective_is_tested_as_written(examples: Path) -> None:
    """Each check is a test; one of them is enough here: all have run above."""
    test = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_long_text.py"]
    done = subprocess.run(
        [*test, "-k", "has_a_summary"], cwd=examples, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counted = re.search(r"1 passed, (\d+) deselected", done.stdout)
    assert counted is not None, done.stdout
    assert int(counted[1]) >= 23


def test_the_example_source_gives_documents_and_rows(examples: Path) -> None:
    Lines = importlib.import_module("bertlab_lines").Lines
    (examples / "text").write_text("One.\nTwo.\n")
    (examples / "text.train").write_text("a\tOne.\n")
    source = Lines(f"lines:{examples}/text", f"{examples}/text")
    assert [each.text for each in source.documents()] == ["One.", "Two."]
    assert list(source.raw_examples("train").rows) == [
        (f"lines:{examples}/text train: row 1", {"label": "a", "text": "One."})
    ]
    assert len(source.fingerprint()) == 64


def test_the_format_reads(examples: Path, tmp_path: Path) -> None:
    groups = {"bertlab.formats": {"boolq": "boolq:BoolQ"}}
    install(tmp_path, "boolq", groups, {})
    forget_installed()
    row = '{"question": "Is it?", "passage": "It is.", "answer": true}\n'
    (tmp_path / "a.jsonl").write_text(row, "utf-8")
    read = read_rows(str(tmp_path / "a.jsonl"), None, {}, "boolq", SentencePair.columns)
    forget_installed()
    assert read.label_names == ("no", "yes")
    assert [row.values["label"] for row in read.rows] == ["yes"]


def test_the_command_counts(examples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = importlib.import_module("count_command").Count
    assert issubclass(command, bertlab.Command)
    assert command().main(["a", "b"]) == 0
    assert capsys.readouterr().out == "2\n"


def test_the_error_is_raised(examples: Path) -> None:
    with pytest.raises(bertlab.ConfigError, match="found 0, expected 1 or more"):
        importlib.import_module("checked_limit").check_limit(0)


def test_the_example_hook_sees_batches(examples: Path) -> None:
    lengths = importlib.import_module("bertlab_lengths")
    from bertlab.api.batch import pack

    lengths.bertlab_inspect_batch(pack([[1, 2, 3], [4]]))
    assert lengths.longest == 3


def test_the_example_form_reads_a_config_of_its_model_type(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = importlib.import_module("camembert_form").CamembertForm
    groups = {"bertlab.huggingface_forms": {"camembert": "camembert_form:CamembertForm"}}
    install(tmp_path, "camembert", groups, {})
    forget_installed()
    try:
        encoder, found = form_of({"model_type": "camembert"}, tmp_path / "config.json")
    finally:
        forget_installed()
    assert (encoder, type(found)) == ("bert", form)
    assert form.architectures[frozenset({"mlm"})] == "CamembertForMaskedLM"
    named = [*form.architectures.values(), *form.heads]
    assert all(getattr(transformers, name).config_class.model_type == "camembert" for name in named)
