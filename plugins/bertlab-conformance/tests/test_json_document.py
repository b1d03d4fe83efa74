"""``--json``: each command prints one document that a program can parse, and nothing else."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertlab.cli.main import command_names
from bertlab.extend import read_results
from bertlab_conformance.json_document import REFUSED, Document
from tests.conftest import Command

ROOT = Path(__file__).parents[3]
# arguments of each command that takes it; words in braces are made by the fixture `places`
COMMANDS: dict[str, str] = {
    "ablate": "--config {tiny_config}",  # a mistake: nothing varies; runs would take long
    "adapter": "{tiny_run} --base {folder}/none --name mine",  # a mistake: there is no base
    "check-plugins": "",
    "embed": "{tiny_run} {text} {folder}/states.safetensors --layers [-1]",
    "evaluate": "{tiny_run} held_out_loss --data {text} --format txt --output {folder}/scores",
    "explain": "E101",
    "export": "{tiny_run} {folder}/exported",
    "extend-vocabulary": "--model {tiny_run} --words {words} --output {folder}/extended",
    "fit": "--config {tiny_config} --run_dir {folder}/run",
    "init": "classification {folder}/my.yaml",
    "new-plugin": "objective my-objective --output {folder}/my-objective",
    "notebooks": "{folder}/notebooks",
    "plugins": "show mlm",
    "prepare": "{sentences} --tokenizer {tiny_run}/tokenizer --output {folder}/store",
    "print-config": "fit --config {tiny_config}",
    "study": "plan {study} --say_cost false",
    "take-words": "--output {folder}/taken {sentences} --words 2000",
    "test": "{tiny_run}",  # a mistake: it has no head
    "tokenizer": "--corpus {corpus_file} --vocab_size 300 --output {folder}/tokenizer",
    "validate": "{tiny_run}",
}
MISTAKES = ("ablate", "adapter", "test")
# what a program finds beside text and tables
VALUES = {
    "evaluate": ("results", "output"),
    "export": ("exports",),
    "extend-vocabulary": ("extended",),
    "fit": ("run", "manifest", "results"),
    "prepare": ("output", "report"),
    "print-config": ("config",),
    "study": ("study", "runs"),
    "tokenizer": ("output", "vocab_size"),
    "validate": ("results",),
}


@pytest.fixture(scope="module")
def places(
    tmp_path_factory: pytest.TempPathFactory, tiny_run: Path, tiny_config: Path, corpus_file: Path
) -> dict[str, Path]:
    """Return what stands for the words in braces."""
    folder = tmp_path_factory.mktemp("json")
    (folder / "text.txt").write_text("A return statement.\n\nA list of names.\n" * 20, "utf-8")
    (folder / "words.txt").write_text("zyzzyva\n", "utf-8")
    study = f"base: {tiny_config}\nvariants: {{both: {{}}, mlm: {{objectives: {{nsp: null}}}}}}\n"
    (folder / "study.yaml").write_text(study + "seeds: 2\n", "utf-8")
    made = {"text": "text.txt", "words": "words.txt", "study": "study.yaml", "folder": "."}
    given = {"tiny_run": tiny_run, "tiny_config": tiny_config, "corpus_file": corpus_file}
    return given | {name: folder / file for name, file in made.items()}


def document(bertlab: Command, *arguments: object) -> dict[str, Any]:
    """Return the document of a command, and check that it is all of standard output."""
    code, out, _ = bertlab(*arguments, "--json")
    assert out.endswith("\n")
    assert out.count("\n") == 1
    assert out.isascii()
    found: dict[str, Any] = json.loads(out, parse_constant=pytest.fail)  # NaN is no JSON
    assert found["exit_code"] == code
    assert ("error" in found) == (code == 2)
    return found


def test_every_command_takes_it_or_says_why_not() -> None:
    assert not COMMANDS.keys() & REFUSED.keys()
    assert COMMANDS.keys() | REFUSED.keys() == set(command_names())


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_it_prints_one_document(
    command: str,
    places: dict[str, Path],
    bertlab: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # for runs/studies
    sentences = f"--corpus {places['corpus_file']} --corpus_format sentences"
    arguments = COMMANDS[command].format(**places, sentences=sentences).split()
    found = document(bertlab, command, *arguments)
    assert found["arguments"] == [command, *arguments]
    assert found.keys() >= set(VALUES.get(command, ()))
    assert found["exit_code"] == 2 * (command in MISTAKES), found
    assert found["text"] or found["tables"] or command in MISTAKES
    for table in found["tables"]:
        assert {len(row) for row in table["rows"]} <= {len(table["headings"]) or 2}


@pytest.mark.parametrize("command", [*sorted(REFUSED), "--help"])
def test_it_is_refused_in_a_line(command: str, bertlab: Command) -> None:
    code, out, error = bertlab(command, "--json")
    assert (code, out) == (2, "")
    assert error.count("\n") == 1
    assert f"--json: found beside {command}, expected none: " in error


def test_help_of_a_command_and_no_command_are_refused(bertlab: Command) -> None:
    for arguments in (["fit", "--help"], ["study", "plan", "-h"], []):
        code, out, error = bertlab(*arguments, "--json")
        assert (code, out, error.count("\n")) == (2, "", 1)


def test_results_are_not_rounded(tiny_run: Path, bertlab: Command) -> None:
    found = document(bertlab, "validate", tiny_run)["results"]
    kept = read_results(tiny_run)
    assert found["mlm/loss"] == pytest.approx(kept["mlm/loss"], abs=1e-6)
    assert found["mlm/loss"] != round(found["mlm/loss"], 3)


def test_an_error_has_code_and_message(bertlab: Command) -> None:
    found = document(bertlab, "plugins", "shwo")
    assert found["error"]["code"] == "E103"
    assert "did you mean 'show'?" in found["error"]["message"]


def test_a_bug_is_told_as_well(
    bertlab: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # for the crash report
    monkeypatch.setattr("bertlab_conformance.explain.catalogue", lambda: 1 / 0)
    code, out, _ = bertlab("explain", "E101", "--json")
    assert code == 1
    error = json.loads(out)["error"]
    assert error["code"] is None
    assert "ZeroDivisionError" in error["message"]


def test_processes_write_to_standard_error() -> None:
    code = (
        "import os, subprocess, sys; from bertlab.cli import main; from bertlab.extend import say\n"
        "def plain(arguments):\n"
        "    print('a'); os.write(1, b'b\\n'); subprocess.run(['echo', 'c']); say('d'); return 0\n"
        "main.train_or_use = lambda *_: plain(_)\n"
        "sys.exit(main.main(['fit', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["text"] == ["d"]
    assert sorted(done.stderr.split()) == ["a", "b", "c", "d"]


def test_other_processes_of_a_run_print_none(
    bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert bertlab("explain", "E101", "--json")[:2] == (0, "")


def test_values_become_plain() -> None:
    made = Document([])
    made.add(results={"a": math.nan, "b": np.float32(0.5)}, steps=np.int64(3), path=Path("x"))
    made.add(results={"c": torch.tensor(2.0)}, text=["\udc80 é"], where="https://me:pw@host/a")
    found = json.loads(made.line())
    assert found["results"] == {"a": None, "b": 0.5, "c": 2.0}
    assert (found["steps"], found["path"]) == (3, "x")
    assert found["text"] == ["\udc80 é"]
    assert "pw" not in made.line()
