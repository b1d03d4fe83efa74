"""The top level of the command: dispatch, exit codes, and a start without torch."""

import errno
import json
import logging
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import lightning
import pytest

from bertlab import __version__
from bertlab.cli import main as cli
from bertlab.errors import ConfigError
from bertlab.training.trainer import quiet_lightning
from tests.conftest import Command


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def main(command: str, argv: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "train_or_use", main)


def test_version(bertlab: Command) -> None:
    assert bertlab("--version") == (0, f"bertlab {__version__}\n", "")


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_names_every_command(bertlab: Command, arguments: list[str]) -> None:
    code, output, error = bertlab(*arguments)
    assert code == 0
    assert not error
    assert all(f"\n  {name} " in output for name in cli.command_names())


@pytest.mark.parametrize(
    ("argument", "words"),
    [("fti", "did you mean 'fit'"), ("--config", "there are: fit"), ("", "there are: fit")],
)
def test_an_unknown_command(bertlab: Command, argument: str, words: str) -> None:
    code, output, error = bertlab(argument)
    assert code == 2
    assert not output
    assert error.startswith("bertlab: error E103: ")
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

    monkeypatch.setattr(cli, "train_or_use", main)
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
        (ConfigError("data.x: no such key"), "E101: data.x: no such key"),
        (OSError(errno.ENOSPC, "No space left", "a/b"), "E104: a/b: No space left"),
        (PermissionError(errno.EACCES, "Permission denied"), "E104: Permission denied"),
        (MisconfigurationException("No gpu\n found"), "E105: No gpu found"),
    ],
)
def test_mistakes_are_one_message_unless_debugging(
    bertlab: Command, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    fail_with(error, monkeypatch)
    assert bertlab("fit") == (2, "", f"bertlab: error {message}\n")
    monkeypatch.setenv("BERTLAB_DEBUG", "1")
    with pytest.raises(type(error)):
        bertlab("fit")


@pytest.mark.parametrize("error", [ValueError("x\ny"), FileNotFoundError(errno.ENOENT, "x")])
def test_a_bug_is_reported_to_a_file(
    bertlab: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    monkeypatch.chdir(tmp_path)
    fail_with(error, monkeypatch)
    code, output, message = bertlab("fit", "--config", "my config.yaml")
    (report,) = tmp_path.iterdir()
    assert (code, output) == (1, "")
    said = " ".join(str(error).split())
    bug = "this is a bug of bertlab's or a plugin's, please report it"
    kind = type(error).__name__
    assert message == f"bertlab: internal error: {kind}: {said}: {bug} with {report}\n"
    text = report.read_text("utf-8")
    for part in (__version__, "bertlab fit --config 'my config.yaml'", "\ntorch 2", "Traceback"):
        assert part in text
    monkeypatch.setenv("BERTLAB_DEBUG", "1")
    with pytest.raises(type(error)):
        bertlab("fit")


def test_a_bug_where_nothing_can_be_written(
    bertlab: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*arguments: object, **settings: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", refuse)
    fail_with(ValueError("x"), monkeypatch)
    code, _, message = bertlab("fit")
    assert code == 1
    assert "Traceback" in message
    assert message.endswith("please report it\n")


def test_a_thread_that_cannot_write_leaves_it_to_the_main_one(
    bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(error: Exception) -> None:
        raise error

    def write(arguments: list[str]) -> int:
        for error in (OSError(errno.EROFS, "Read-only file system"), ValueError("a bug")):
            thread = threading.Thread(target=fail, args=[error])
            thread.start()
            thread.join()
        raise OSError(errno.EROFS, "Read-only file system", b"events.out")

    monkeypatch.setattr("bertlab.cli.main.run", write)
    before = threading.excepthook
    code, _, message = bertlab("fit")
    assert code == 2
    assert message.count("Traceback") == 1
    assert "ValueError: a bug" in message
    assert message.endswith("bertlab: error E104: events.out: Read-only file system\n")
    assert threading.excepthook is before


@pytest.mark.parametrize(
    ("load", "given", "count"),
    [
        ("1.02 0.80 0.61 3/412 4711", {}, "1000"),
        ("1.02 0.80 0.61 1/412 4711", {}, None),  # the last minute's program has ended
        ("0.10 0.80 0.61 3/412 4711", {}, None),  # and this one's has just begun
        ("1.02 0.80 0.61 3/412 4711", {"OMP_WAIT_POLICY": "active"}, None),
        ("1.02 0.80 0.61 3/412 4711", {"GOMP_SPINCOUNT": "7"}, "7"),
        (None, {}, None),  # another system than Linux
        ("busy", {}, None),
    ],
)
def test_threads_spin_less_beside_other_programs(
    bertlab: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    load: str | None,
    given: dict[str, str],
    count: str | None,
) -> None:
    monkeypatch.setattr("os.environ", dict(given))
    monkeypatch.setattr(cli, "_LOAD", tmp_path / "loadavg")
    if load is not None:
        (tmp_path / "loadavg").write_text(f"{load}\n")
    bertlab("--version")
    assert os.environ.get("GOMP_SPINCOUNT") == count


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_the_top_level_starts_without_torch(argument: str) -> None:
    code = (
        "import json, sys\n"
        "from bertlab.cli.main import main\n"
        f"assert main([{argument!r}]) == 0\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(process.stdout.splitlines()[-1]))
    assert not loaded & {"torch", "lightning", "numpy", "jsonargparse", "datasets"}


@pytest.mark.slow
def test_preparing_loads_no_layers_and_no_metrics() -> None:
    """They take three seconds, as long as preparing a book."""
    code = "import sys, bertlab.data.corpus.prepare, bertlab.data.loader\n"
    code += "sys.exit(len({'lightning', 'torchmetrics'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_python_dash_m_and_the_exit_code() -> None:
    command = [sys.executable, "-m", "bertlab"]
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout == f"bertlab {__version__}\n"
    wrong = subprocess.run([*command, "fti"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "did you mean 'fit'" in wrong.stderr


@pytest.mark.parametrize("words", ["--help", "plugins list"])  # rich prints the second
def test_a_closed_pipe_is_no_error(words: str) -> None:
    command = f"{sys.executable} -m bertlab {words} | true; echo ${{PIPESTATUS[0]}}"
    process = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert process.stdout.strip() in {"0", "141"}
    assert not process.stderr


def test_help_needs_no_torch() -> None:
    program = """
import contextlib, sys
from bertlab.cli.main import main
for command in ("tokenizer", "prepare", "embed", "export"):
    with contextlib.suppress(SystemExit):
        main([command, "--help"])
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.count(b"usage: ") == 4


@pytest.mark.filterwarnings("default")
def test_logs_and_warnings_of_libraries_print_no_terminal_escapes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "a\x1b[2Jb\x9b1m"

    def library(arguments: list[str]) -> int:
        handler = logging.StreamHandler()
        log = logging.getLogger("a.library")
        log.addHandler(handler)
        log.warning("logged %s", name)
        log.removeHandler(handler)
        sys.stderr.write(warnings.formatwarning(f"warned {name}", UserWarning, "x.py", 1))
        return 0

    monkeypatch.setattr("bertlab.cli.main.run", library)
    assert cli.main([]) == 0
    error = capsys.readouterr().err
    assert "logged a\\x1b[2Jb\\x9b1m" in error
    assert "warned a\\x1b[2Jb\\x9b1m" in error
    assert not set("\x1b\x9b") & set(error)
    quiet_lightning()
    assert "\x1b" not in warnings.formatwarning(name, UserWarning, lightning.__file__, 1)
