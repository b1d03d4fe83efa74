"""What code a run was made with: said where it goes on under another, and recorded each time."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bertlab.config.merge import read_request
from bertlab.data.rows.files import unknown_format
from bertlab.errors import UnknownPluginError
from bertlab.plugins import hooks
from bertlab.plugins import index as plugins
from bertlab.plugins.strangers import content_hash, named_package
from bertlab.training.record import plugin_facts, sessions_of
from tests.conftest import Command
from tests.plugins.strange_packages import install

MODULE = "sentences_of_a_stranger"
CODE = "from bertlab import NextSentencePrediction as Base\nclass Sentences(Base):\n    pass\n"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder on ``sys.path`` with a package of one objective."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    put(folder, CODE, "1.0")
    yield folder
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    afresh()


def put(folder: Path, code: str, version: str) -> None:
    """Install the package, in the place of another version."""
    for old in folder.glob("*.dist-info"):
        shutil.rmtree(old)
    entries = {"bertlab.objectives": {"sentences": f"{MODULE}:Sentences"}}
    install(folder, "their-sentences", entries, {MODULE: code}, version)
    afresh()


def afresh() -> None:
    """Forget what a new process would not know."""
    plugins.forget_installed()
    hooks.hook_modules.cache_clear()
    content_hash.cache_clear()
    sys.modules.pop(MODULE, None)


def manifest(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "manifest.json").read_text())
    return content


@pytest.fixture
def run(packages: Path, bertlab: Command, tiny_config: Path, tmp_path: Path) -> Path:
    """A run with the objective, stopped at step 3 of 6."""
    directory = tmp_path / "run"
    code, _, message = bertlab(
        *("fit", "--config", tiny_config, "--model.objectives", "[mlm, sentences]"),
        *("--run_dir", directory),
    )
    assert code == 0, message
    return directory


def go_on(bertlab: Command, run: Path) -> str:
    """Go on from step 3; return what is said on standard error."""
    code, _, message = bertlab("fit", "--ckpt_path", run / "checkpoints" / "step-3.ckpt")
    assert code == 0, message
    return message


@pytest.mark.slow
def test_the_manifest_tells_files_of_plugins_apart(packages: Path, run: Path) -> None:
    found = manifest(run)
    assert found["plugins"]["their-sentences"] == "1.0"
    assert found["plugin_names"] == {"objective sentences": "their-sentences"}
    before = found["plugin_contents"]["their-sentences"]
    assert before == content_hash("their-sentences")
    put(packages, f"{CODE}\n", "1.0")
    assert content_hash("their-sentences") != before
    put(packages, CODE, "1.0")
    assert content_hash("their-sentences") == before  # whenever it was written


@pytest.mark.slow
def test_a_run_that_goes_on_as_it_was_says_nothing(run: Path, bertlab: Command) -> None:
    afresh()
    assert "other code" not in go_on(bertlab, run)
    first, session = manifest(run)["sessions"]
    assert (first["step"], session["step"]) == (0, 3)
    assert set(session) == {*first, "command"}


@pytest.mark.slow
def test_another_version_is_said_and_recorded(packages: Path, run: Path, bertlab: Command) -> None:
    put(packages, CODE, "1.1")
    assert "warning: the run continues with other code" in (message := go_on(bertlab, run))
    assert "their-sentences 1.0 → 1.1" in message
    put(packages, f"{CODE}    x = 1\n", "1.0")  # step 3 was written by 1.0
    assert "their-sentences 1.0 with other files" in go_on(bertlab, run)
    found = manifest(run)
    assert found["plugins"]["their-sentences"] == "1.0"  # of the session that began it
    versions = [each["plugins"]["their-sentences"] for each in sessions_of(found)[1:]]
    assert versions == ["1.0", "1.1", "1.0"]
    contents = [each["plugin_contents"]["their-sentences"] for each in sessions_of(found)[1:]]
    assert contents[0] == contents[1] != contents[2]


@pytest.mark.nightly
def test_a_run_of_an_older_bertlab_is_compared_by_its_manifest(
    packages: Path, run: Path, bertlab: Command
) -> None:
    file = run / "checkpoints" / "step-3.ckpt"
    content = torch.load(file, weights_only=True)
    del content["bertlab"]["made_with"]
    torch.save(content, file)
    put(packages, CODE, "2.0")
    assert "their-sentences 1.0 → 2.0" in go_on(bertlab, run)


@pytest.mark.slow
def test_a_plugin_that_lacks_is_named_with_its_package(
    packages: Path, run: Path, bertlab: Command
) -> None:
    for path in packages.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    afresh()
    code, _, message = bertlab("validate", "--ckpt_path", run)
    assert code == 2
    assert f"error {UnknownPluginError.code}" in message
    assert "no objective is called 'sentences'" in message
    assert "written with that of the package their-sentences 1.0" in message


def test_a_format_that_lacks_is_named_with_its_package(packages: Path) -> None:
    entries = {"bertlab.formats": {"rows_of_a_stranger": "nowhere:Rows"}}
    install(packages, "their-rows", entries, {})
    afresh()
    data = {"format": "jsonl", "heads": {"a": {"format": "rows_of_a_stranger"}}}
    found = plugin_facts(read_request(["--model.head", "single_sentence"]), {"data": data})
    assert found["plugin_names"] == {"format rows_of_a_stranger": "their-rows"}
    plugins.remember_origin("format", "rows_of_none", "last.ckpt was written with that of theirs")
    told = unknown_format("rows_of_none")
    assert told is not None
    assert told.startswith("found 'rows_of_none'; last.ckpt was written with that of theirs")


@pytest.mark.parametrize(
    ("package", "version", "shown"),
    [
        ("a-b", "1.0", "a-b 1.0"),
        ("a\x1b[2J", "1.0; rm -rf /", "'a\\x1b[2J' '1.0; rm -rf /'"),
        ("x" * 1000, 3, f"{repr('x' * 1000)[:80]} 3"),
    ],
)
def test_names_from_elsewhere_are_shown_as_data(package: str, version: object, shown: str) -> None:
    assert named_package(package, version) == shown


@pytest.mark.parametrize("made_with", ["x", {"plugins": {"a": 1}}, {"plugins": ["a"]}, {1: {}}])
def test_a_checkpoint_with_other_words_of_its_code_is_damaged(
    tiny_run: Path, tmp_path: Path, bertlab: Command, made_with: object
) -> None:
    content = torch.load(tiny_run / "checkpoints" / "last.ckpt", weights_only=True)
    content["bertlab"]["made_with"] = made_with
    file = tmp_path / "last.ckpt"
    torch.save(content, file)
    code, _, message = bertlab("validate", "--ckpt_path", file)
    assert code == 2
    assert "made_with" in message
