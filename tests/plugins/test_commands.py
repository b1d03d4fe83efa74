"""Commands of packages: found by name, imported when they are typed, or said where they are."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertlab.plugins import hooks
from bertlab.plugins import index as plugins
from tests.conftest import Command
from tests.plugins.strange_packages import install, without

GREET = '''
from bertlab import Command

class Greet(Command):
    """Say hello."""

    def main(self, arguments):
        print("hello", *arguments)
        return 7

class ONNX(Command):
    """ONNX files are greeted.

    They are many.
    """

    def main(self, arguments):
        return 1 / 0

class Asks(Command):
    """Made of something."""

    def __init__(self, something):
        pass

    def main(self, arguments):
        return 0

class Half(Command):
    """Half of one."""
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder on ``sys.path`` to install packages with commands in."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    monkeypatch.undo()
    plugins.forget_installed()
    hooks.hook_modules.cache_clear()
    for name in ("greetings", "stealing"):
        sys.modules.pop(name, None)


def add(folder: Path, package: str, commands: dict[str, str], code: str = GREET) -> None:
    module = {"polite": "greetings"}.get(package, "stealing")
    targets = {name: f"{module}:{target}" for name, target in commands.items()}
    install(folder, package, {"bertlab.commands": targets}, {module: code})
    plugins.forget_installed()


def test_a_command_is_run_and_listed(folder: Path, bertlab: Command) -> None:
    add(folder, "polite", {"greet": "Greet", "onnx": "ONNX"})
    assert bertlab("greet", "you", "--help") == (7, "hello you --help\n", "")
    text = bertlab("--help")[1]
    assert re.search(r"\n  greet +say hello\n", text)
    assert re.search(r"\n  onnx +ONNX files are greeted\n", text)
    assert text.index("explain") < text.index("greet")
    code, _, error = bertlab("gret")
    assert code == 2
    assert "did you mean 'greet'" in error
    code, _, error = bertlab("onnx")
    assert code == 2
    assert "command 'onnx' of polite 1.0 (greetings:ONNX) raised an error at" in error


@pytest.mark.slow
def test_the_core_commands_and_those_of_first_party_packages_stay_theirs(
    folder: Path, bertlab: Command
) -> None:
    add(folder, "polite", {"explain": "Greet", "study": "Greet"})
    shown = bertlab("--help")[1]
    assert re.search(r"\n  polite:explain +say hello", shown)
    assert re.search(r"\n  explain +what the code", shown)
    assert "usage: bertlab study ACTION" in bertlab("study", "--help")[1]
    assert bertlab("explain", "E101")[0] == 0
    assert "ok     command 'explain' of polite 1.0" in bertlab("plugins", "check")[1]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fail", "command 'fail' of rude 1.0 (stealing:Fail) cannot be imported: RuntimeError"),
        ("half", "it does not define main, see bertlab.api.command.Command"),
        (
            "asks",
            "polite 1.0 (greetings:Asks) is made without arguments, but Asks.__init__() missing 1",
        ),
    ],
)
def test_a_command_that_cannot_be_used_hurts_only_who_types_it(
    folder: Path, bertlab: Command, name: str, words: str
) -> None:
    add(folder, "rude", {"fail": "Fail", "twice": "Fail"}, "raise RuntimeError('no')")
    add(folder, "polite", {"half": "Half", "asks": "Asks", "twice": "Greet", "greet": "Greet"})
    code, output, error = bertlab(name)
    assert (code, output) == (2, "")
    assert words in error
    code, output, error = bertlab("--help")
    assert (code, error) == (0, "")
    assert re.search(rf"\n  {name} +cannot be used; bertlab plugins check says why\n", output)
    assert re.search("greet +say hello", output)


def test_a_command_of_two_packages_is_named_with_its_package(
    folder: Path, bertlab: Command
) -> None:
    add(folder, "rude", {"twice": "Fail"}, "raise RuntimeError('no')")
    add(folder, "polite", {"twice": "Greet"})
    assert "did you mean 'rude:twice'" in bertlab("twice")[2]
    assert bertlab("polite:twice")[0] == 7


@pytest.mark.parametrize(
    ("package", "command", "meant"),
    [
        ("bertlab-studies", "study", "study"),
        ("bertlab-studies", "ablate", "ablate"),
        ("bertlab-evaluations", "embed", "embed"),
        ("bertlab-evaluations", "eval", "evaluate"),
        ("bertlab-pages", "demo", "demo"),
    ],
)
def test_a_missing_first_party_command_says_what_to_install(
    folder: Path,
    bertlab: Command,
    monkeypatch: pytest.MonkeyPatch,
    package: str,
    command: str,
    meant: str,
) -> None:
    without(monkeypatch, package)
    code, output, error = bertlab(command, "x")
    assert (code, output) == (2, "")
    words = f"`bertlab {meant}` comes with {package}: pip install {package}"
    assert error == f"bertlab: error E103: {words}\n"
    assert f"\n  {meant} " not in bertlab("--help")[1]
    assert ("--seeds" in bertlab("fit", "--help")[1]) == (package != "bertlab-studies")


def test_help_imports_neither_torch_nor_a_parser_for_them(tmp_path: Path) -> None:
    entries = {"bertlab.commands": {"greet": "greetings:Greet"}}
    install(tmp_path, "their-greetings", entries, {"greetings": GREET})
    code = (
        "import json, sys\nfrom bertlab.cli.main import main\nmain(['--help'])\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    command, environment = [sys.executable, "-c", code], os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert re.search("  greet +say hello", done.stdout)
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert not loaded & {"torch", "numpy", "jsonargparse", "pluggy", "yaml"}
    assert "bertlab_studies.commands" in loaded
