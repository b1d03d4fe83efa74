"""The examples of docs/plugins.md work as they are written, and stay short."""

import contextlib
import importlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bertlab.testing import conformance

DOCS = Path(__file__).parents[2] / "docs" / "plugins.md"
BLOCKS = {
    match[1]: match[0].removeprefix("```python\n").removesuffix("```")
    for match in re.finditer(r"```python\n# (\w+\.py)\n.*?```", DOCS.read_text("utf-8"), re.DOTALL)
}


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    for name, code in BLOCKS.items():
        (tmp_path / name).write_text(code, "utf-8")
    return tmp_path


def run_pytest(folder: Path, file: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def passed_checks(test: Callable[[str], None]) -> int:
    """Run a test that ``conformance`` made on each check, as pytest does; return how many passed.

    In this process, which has imported torch already.
    """
    passed = 0
    for case in test.pytestmark[0].args[1]:
        with contextlib.suppress(pytest.skip.Exception):
            test(case.values[0])
            passed += 1
    return passed


@pytest.mark.parametrize(
    "name", ["bertlab_digits.py", "bertlab_mean_pooling.py", "bertlab_first_word.py"]
)
def test_a_whole_class_is_thirty_lines_or_less(name: str) -> None:
    after_imports = BLOCKS[name][BLOCKS[name].index("\nclass ") :]
    assert len([line for line in after_imports.splitlines() if line.strip()]) <= 30


@pytest.mark.slow
def test_the_example_objective_conforms_as_written(examples: Path) -> None:
    passed = re.search(r"(\d+) passed", run_pytest(examples, "test_has_digit.py"))
    assert passed is not None
    assert int(passed[1]) >= 24


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("bertlab_mean_pooling", "MeanPooling"),
        ("bertlab_balanced", "BalancedAccuracy"),
        ("bertlab_first_word", "FirstWord"),
        ("bertlab_from_the_left", "FromTheLeft"),
    ],
)
def test_the_other_examples_conform(
    examples: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str
) -> None:
    monkeypatch.syspath_prepend(examples)
    found = getattr(importlib.import_module(module), name)
    assert passed_checks(conformance(found)) > 10


def test_the_example_source_gives_documents_and_rows(
    examples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(examples)
    from bertlab_lines import Lines

    (examples / "text").write_text("One.\nTwo.\n")
    (examples / "text.train").write_text("a\tOne.\n")
    source = Lines(f"lines:{examples}/text", f"{examples}/text")
    assert [each.text for each in source.documents()] == ["One.", "Two."]
    assert list(source.raw_examples("train").rows) == [
        (f"lines:{examples}/text train: row 1", {"label": "a", "text": "One."})
    ]
    assert len(source.fingerprint()) == 64


def test_the_example_hook_sees_batches(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(examples)
    import bertlab_lengths

    from bertlab.api.batch import pack

    bertlab_lengths.bertlab_inspect_batch(pack([[1, 2, 3], [4]]))
    assert bertlab_lengths.longest == 3
