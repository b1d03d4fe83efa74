"""Commands of bertlab in processes forked from one that has imported torch, to be hurt.

What is hurt is then the command's work, not the start of Python.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from bertlab.cli.main import main as bertlab
from bertlab.training.cli import BertlabCLI  # noqa: F401  imported once, before the forks

# OpenMP's threads do not survive a fork: the children of a parent that has some would wait for ever
torch.set_num_threads(1)


def start(
    arguments: list[str] | Callable[[], int], log: Path, prepare: Callable[[], object] = int
) -> int:
    """Start a command in a process and a group of its own; return the process.

    Args:
        arguments: after ``bertlab``; or what is called in its place.
        log: where to append what it prints.
        prepare: is called before the command.
    """
    process = os.fork()
    if process:
        return process
    os.setpgid(0, 0)
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(written, 1)
    os.dup2(written, 2)
    code = 1
    try:
        prepare()
        code = arguments() if callable(arguments) else bertlab(arguments)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(process: int, seconds: float | None = None) -> int | None:
    """Return the exit code, negative for a signal; None if it goes on after so many seconds."""
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if end is not None and time.monotonic() >= end:
            return None
        time.sleep(0.005)
