"""The top level of the command: dispatch, exit codes, and a start without torch."""

import errno
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from bertlab import __version__, cli
from bertlab.errors import ConfigError
from tests.conftest import Command


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def main(command: str, argv: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli.importlib, "import_module", lambda name: SimpleNamespace(main=main))


def test_version(bertlab: Command) -> None:
    assert bertlab("--version") == (0, f"bertlab {__version__}\n", "")


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_names_every_command(bertlab: Command, arguments: list[str]) -> None:
    code, output, error = bertlab(*arguments)
    assert code == 0
    assert not error
    assert all(f"\n  {name} " in output for name in cli.COMMANDS)


@pytest.mark.parametrize(
    ("argument", "words"),
    [("fti", "did you mean 'fit'"), ("--config", "there are: fit"), ("", "there are: fit")],
)
def test_an_unknown_command(bertlab: Command, argument: str, words: str) -> None:
    code, output, error = bertlab(argument)
    assert code == 2
    assert not output
    assert error.startswith("bertlab: error: ")
    assert repr(argument) in error
    assert words in error
    assert error.count("\n") == 1


def test_arguments_and_exit_code_are_the_commands(
    bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def main(command: str, argv: list[str]) -> int:
        seen.append((command, argv))
        return 7

    monkeypatch.setattr(cli.importlib, "import_module", lambda name: SimpleNamespace(main=main))
    assert bertlab("fit", "--version", "x")[0] == 7
    assert seen == [("fit", ["--version", "x"])]


def test_ctrl_c(bertlab: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(KeyboardInterrupt(), monkeypatch)
    assert bertlab("fit") == (130, "", "bertlab: interrupted\n")


class MisconfigurationException(Exception):  # noqa: N818  Lightning's name for it
    """As Lightning raises it about the user's Trainer."""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConfigError("data.x: no such key"), "data.x: no such key"),
        (OSError(errno.ENOSPC, "No space left on device", "a/b"), "a/b: No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied"), "Permission denied"),
        (MisconfigurationException("No gpu\n found"), "No gpu found"),
    ],
)
def test_mistakes_are_one_message_unless_debugging(
    bertlab: Command, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    fail_with(error, monkeypatch)
    assert bertlab("fit") == (2, "", f"bertlab: error: {message}\n")
    monkeypatch.setenv("BERTLAB_DEBUG", "1")
    with pytest.raises(type(error)):
        bertlab("fit")


@pytest.mark.parametrize("error", [ValueError("x"), FileNotFoundError(errno.ENOENT, "x")])
def test_bugs_keep_their_traceback(
    bertlab: Command, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    fail_with(error, monkeypatch)
    with pytest.raises(type(error)):
        bertlab("fit")


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_the_top_level_starts_without_torch(argument: str) -> None:
    code = (
        "import json, sys\n"
        "from bertlab.cli import main\n"
        f"assert main([{argument!r}]) == 0\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(process.stdout.splitlines()[-1]))
    assert not loaded & {"torch", "lightning", "numpy", "jsonargparse", "datasets"}


def test_python_dash_m_and_the_exit_code() -> None:
    command = [sys.executable, "-m", "bertlab"]
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout == f"bertlab {__version__}\n"
    wrong = subprocess.run([*command, "fti"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "did you mean 'fit'" in wrong.stderr


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m bertlab --help | true; echo ${{PIPESTATUS[0]}}"
    process = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert process.stdout.strip() in {"0", "141"}
    assert not process.stderr
