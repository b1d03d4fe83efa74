"""Run commands in forks of one process that has imported everything; say what memory each took.

Each line of standard input is a list of arguments, each line of standard output what
:class:`Measured` has. A fork's peak is its own: it begins with what it has got.
"""

import json
import os
import resource
import signal
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

_MOST = 3 << 30  # bytes that a command may ask for: a test must not fill the machine
_SECONDS = 120


@dataclass(frozen=True)
class Measured:
    """What a command did: exit code, megabytes at its peak, and what it wrote to stderr.

    A code below zero is the signal that ended it: SIGALRM after two minutes.
    """

    code: int
    peak: int
    error: str


def _peak() -> int:
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


def _run(arguments: list[str], told: int) -> None:
    """Run a command in this process, which ends with it."""
    from bertlab.cli.main import main

    resource.setrlimit(resource.RLIMIT_DATA, (_MOST, _MOST))
    signal.alarm(_SECONDS)
    code = main(arguments)
    sys.stdout.flush()
    os.write(told, f"{code} {_peak()}".encode())
    os._exit(0)


def measure(arguments: list[str]) -> Measured:
    """Run a command in a fork."""
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as error:
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(error.fileno(), 1)
            os.dup2(error.fileno(), 2)
            try:
                _run(arguments, writer)
            finally:
                os._exit(1)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            told = pipe.read().split()
        _, status, used = os.wait4(child, 0)
        if not told:  # it was killed: by its alarm, or as it was refused memory
            told = [str(os.waitstatus_to_exitcode(status)), str(used.ru_maxrss >> 10)]
        error.seek(0)
        return Measured(int(told[0]), int(told[1]), error.read().decode(errors="replace"))


def _serve() -> None:
    """Answer the commands of standard input."""
    import datasets  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import torchmetrics  # noqa: F401

    import bertlab.data.fine_tuning
    import bertlab.training.cli  # noqa: F401

    for line in sys.stdin:
        print(json.dumps(asdict(measure(json.loads(line)))), flush=True)


if __name__ == "__main__":
    _serve()
