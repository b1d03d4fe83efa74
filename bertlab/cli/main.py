"""The ``bertlab`` command. Nothing heavy is imported until a subcommand needs it."""

import contextlib
import io
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertlab import __version__
from bertlab.errors import (
    REFUSALS,
    BertlabError,
    CommandError,
    PluginError,
    add_to_json,
    mistake_in,
    nearest,
    printable,
    say,
    show_logs_visibly,
)

if TYPE_CHECKING:
    from bertlab.api.command import Command

# the core's own, with a line of help
COMMANDS = {
    "fit": "train from a config",
    "validate": "score a checkpoint on held-out text or rows",
    "test": "score a fine-tuned checkpoint on test rows",
    "predict": "predict on new text or rows, as JSON lines",
    "tokenizer": "train a tokenizer: WordPiece, BPE, Unigram",
    "prepare": "tokenise a corpus once and print its data report",
}
# of keys below data, for predict
_SHORT = ("--text", "--text_pair", "--input", "--input_format")
_LOAD = Path("/proc/loadavg")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Returns:
        The exit code: 2 for the user's mistakes, 1 for a bug, 130 for Ctrl-C, 143 for SIGTERM.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    _share_processors()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # names of files and results of JSON may hold what has no UTF-8
        sys.stdout.reconfigure(errors="backslashreplace")
    # for the thread that writes TensorBoard's files, whose traceback would hide our message
    threads_hook, threading.excepthook = threading.excepthook, _say_of_thread
    try:
        show_logs_visibly()
        exit_code = run(arguments)
        # in here, so that a closed pipe shows itself below and not when Python ends
        sys.stdout.flush()
        return exit_code
    except KeyboardInterrupt:
        sys.stderr.write("bertlab: interrupted\n")
        return 130
    except (BrokenPipeError, SystemExit) as error:  # as of `bertlab … | head`; rich exits by it
        if BrokenPipeError not in (type(error), type(error.__context__)):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more
        return 141  # 128 + SIGPIPE, as a shell reports it
    except Exception as error:
        if os.environ.get("BERTLAB_DEBUG") == "1":
            raise
        mistake = mistake_in(error) or _mistake_of_others(error)
        if mistake is not None:
            add_to_json(error={"code": mistake.code, "message": str(mistake)})
            sys.stderr.write(f"bertlab: error {mistake.code}: {printable(str(mistake))}\n")
            return 2
        from bertlab.cli.errors import explain_bug  # noqa: PLC0415  for bugs only

        words = explain_bug(error, arguments)
        add_to_json(error={"code": None, "message": words})
        sys.stderr.write(f"bertlab: internal error: {printable(words)}\n")
        return 1
    finally:
        threading.excepthook = threads_hook


def _share_processors() -> None:
    """Let OpenMP's threads, which spin while they wait, sleep sooner where other programs compute.

    Beside one busy program 40 steps on two processors took more than a minute in place of 12 s: a
    thread spun for one that had no processor. Does nothing where the user has set how threads wait.
    """
    with contextlib.suppress(OSError, ValueError):  # no Linux, or a sandbox with another form
        # "1.02 0.80 0.61 3/412 4711": mean of the last minute; 3 run now, of which one is this
        load, *_, running, _ = _LOAD.read_text("ascii").split()
        is_set = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & {*os.environ}
        if float(load) > 0.5 and int(running.split("/")[0]) > 1 and not is_set:
            os.environ["GOMP_SPINCOUNT"] = "1000"  # else 300,000, about a millisecond


def _mistake_of_others(error: Exception) -> BertlabError | None:
    """Return an error that names the plugin or callback which raised one; None if it is ours."""
    try:
        from bertlab.plugins.strangers import mistake_of_others  # noqa: PLC0415  for errors only

        return mistake_of_others(error)
    except Exception:  # of broken metadata: the error itself is what counts
        return None


def _say_of_thread(failed: threading.ExceptHookArgs) -> None:
    """Leave what the disk refused a writing thread to the next write, by the main one."""
    error = failed.exc_value
    if not (isinstance(error, OSError) and error.errno in REFUSALS):
        threading.__excepthook__(failed)


def run(arguments: list[str]) -> int:
    """Dispatch to a subcommand."""
    if not all(map(_can_be_given, arguments)):
        expected = "a NUL character, half a character or bytes that are not UTF-8, as none may"
        raise CommandError(f"an argument holds {expected}")
    if "--json" in arguments:
        return find_command("json").main(arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        from bertlab.cli.fit_help import usage  # noqa: PLC0415

        say(usage({name: line_of(name) for name in command_names()}))
        return 0
    command, rest = arguments[0], arguments[1:]
    if command == "--version":
        say(f"bertlab {__version__}")
        return 0
    if command == "tokenizer" and any(each.split("=")[0] == "--extend" for each in rest):
        command = "extend-vocabulary"
    if command not in COMMANDS:
        return find_command(command).main(rest)
    if command in ("tokenizer", "prepare"):
        from bertlab.cli import data  # noqa: PLC0415  jsonargparse

        return data.main(command, rest)
    return train_or_use(command, rest)


def train_or_use(command: str, argv: list[str]) -> int:
    """Run ``fit``, ``validate``, ``test`` or ``predict``; return the exit code."""
    from bertlab.config.merge import read_request  # noqa: PLC0415  YAML and entry points
    from bertlab.plugins.hooks import opened_by_package  # noqa: PLC0415

    argv = with_config_options(with_model(command, argv))
    if command == "predict":
        if len(argv) > 2 and not argv[2].startswith("-"):  # behind --ckpt_path MODEL
            model, given = argv[1:3]
            if Path(model).is_file() and Path(given).is_dir():
                expected = f"the model first: bertlab predict {given} --input {model}"
                raise CommandError(f"predict: found {model} before {given}, expected {expected}")
            key = "--input" if os.path.lexists(given) else "--text"
            raise CommandError(f"predict: found {given!r} on its own, expected {key} before it")
        # --input=x is short for --data.input=x
        argv = [f"--data.{each[2:]}" if each.split("=")[0] in _SHORT else each for each in argv]
    request = read_request(argv)
    if request.helps == "short":
        from bertlab.cli.fit_help import short_help  # noqa: PLC0415

        say(short_help(command, request))
        return 0
    if request.prints is not None:
        return find_command("print-config").main([command, *argv])
    if (opened := opened_by_package(command, request)) is None:
        from bertlab.training.cli import open_command  # noqa: PLC0415

        opened = open_command(command, request)
    return opened.run()


def with_model(command: str, argv: list[str]) -> list[str]:
    """Return arguments with ``--ckpt_path`` before a model that stands in front of all."""
    from bertlab.config.shipped import shipped_configs  # noqa: PLC0415  YAML

    first = argv[0] if argv and command != "fit" else "-"
    if first.startswith("-") or first.endswith(".yaml") or first in shipped_configs():
        return argv
    if any(each.split("=")[0] == "--ckpt_path" for each in argv):
        raise CommandError(f"{command}: found {first} and --ckpt_path, expected one model")
    return ["--ckpt_path", *argv]


def with_config_options(argv: Sequence[str]) -> list[str]:
    """Return arguments with ``--config`` before each config that stands in front of the options.

    ``quickstart --trainer.max_steps 3`` becomes ``--config quickstart --trainer.max_steps 3``.
    """
    first_option = next((i for i, each in enumerate(argv) if each.startswith("-")), len(argv))
    named = [part for each in argv[:first_option] for part in ("--config", each)]
    return [*named, *argv[first_option:]]


def _can_be_given(argument: str) -> bool:
    """Whether an argument is text that a config can hold."""
    try:
        return b"\0" not in argument.encode()
    except UnicodeEncodeError:  # "\ud800", or a byte of a name that is not UTF-8: "\udce9"
        return False


def command_names() -> list[str]:
    """Return what can be typed after ``bertlab``, in the order of its help."""
    from bertlab.plugins.index import installed  # noqa: PLC0415  reads the entry points

    return [*COMMANDS, *(name for name in installed("command") if name not in COMMANDS)]


def find_command(name: str) -> "Command":
    """Return a command that a package adds."""
    from bertlab.api.command import Command  # noqa: PLC0415  not for the core's own commands
    from bertlab.plugins.index import make_alone, package_of  # noqa: PLC0415

    known = command_names()
    if name not in known:
        from bertlab.config.parse import OTHER_COMMANDS  # noqa: PLC0415  for errors only

        meant = OTHER_COMMANDS.get(name, name)
        if meant not in known and (package := package_of("command", meant)) is not None:
            raise CommandError(f"`bertlab {meant}` comes with {package}: pip install {package}")
        told = f"no subcommand is called {name!r}{nearest(meant, known)} (there are"
        raise CommandError(f"{told}: {', '.join(known)})")
    return make_alone("command", name, Command)


def line_of(command: str) -> str:
    """Return the help of a command in one line."""
    if command in COMMANDS:
        return COMMANDS[command]
    try:
        line = (find_command(command).__doc__ or "").strip().partition("\n")[0].rstrip(".")
    except PluginError:
        return "cannot be used; bertlab plugins check says why"
    # "Run an ablation." -> "run an ablation", but "ONNX …" stays
    return line if line[1:2].isupper() else line[:1].lower() + line[1:]
