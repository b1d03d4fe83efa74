"""Starts runs from a process that has imported PyTorch, Lightning and bertlab once for all of them.

A run that starts from nothing imports for seconds; a fork of :mod:`.fork_server` does not. It is
the same command with the same variables, log, lock and process group, and computes the same bits.
Code of plugins is not imported before the fork: each run reads it anew. bertlab and the packages
that it needs are as they were when ``study run`` began.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from bertlab_studies.execute.fork_server import LARGEST
from bertlab_studies.execute.processes import RunProcess, run_environment, start_fresh

FRESH = "BERTLAB_FRESH_RUNS"  # set to 1: every run starts from nothing
# bertlab's own, and what a run imports late; not datasets, whose Arrow may start threads
PRELOADED = (
    "bertlab.cli.main",
    "bertlab.training.cli",  # which it imports when it trains
    "bertlab_evaluations.evaluate",
    "bertlab.training.callbacks",
    "bertlab.encoders.bert",
    "bertlab.objectives.classification",
    "bertlab.objectives.language_model",
    "bertlab.heads.sentences",
    "bertlab_tasks.span",
    "bertlab_evaluations.minimal_pairs",
    "matplotlib.backends.backend_agg",
    "torch.utils.tensorboard",
)
_SERVER = (sys.executable, "-m", "bertlab_studies.execute.fork_server")


class LostParentError(Exception):
    """The process that forks has ended; whether it has forked once more is not known."""


class WarmParent:
    """Starts the processes of runs; to be entered.

    Where there is no such parent, all are started from nothing: on systems other than Linux, if
    the environment says ``BERTLAB_FRESH_RUNS=1``, for programs that are not ``python -m …``, and
    after the parent was killed.

    Args:
        program: what runs are started with.
        environments: variables of the workers. Those that all have in common are the parent's:
            libraries read the number of their threads when they are imported.
    """

    def __init__(self, program: Sequence[str], environments: Sequence[Mapping[str, str]]) -> None:
        self._is_wanted = (
            sys.platform == "linux"
            and os.environ.get(FRESH) != "1"
            and tuple(program[:2]) == (sys.executable, "-m")
        )
        self._environment = dict(set.intersection(*(set(each.items()) for each in environments)))
        self._server: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._is_importing = False

    def __enter__(self) -> "WarmParent":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._hang_up()
        if self._server is not None:
            self._server.kill()  # it may be importing
            self._server.wait()

    def is_ready(self) -> bool:
        """Whether a run can be started without a wait; the first call starts the parent."""
        if self._is_wanted and self._server is None:
            self._start()
        if self._channel is not None and self._is_importing:
            try:
                told = self._channel.recv(LARGEST, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            self._is_importing = False
            if told != b"true":  # it ended, or must not fork
                self._hang_up()
        return True

    def launch(
        self, command: Sequence[str], environment: Mapping[str, str], log: int, lock: int
    ) -> RunProcess:
        """Start the process of a run; see :class:`~.processes.Launch`.

        Raises:
            LostParentError: if the parent has just ended; the process may be there or not.
        """
        if self._channel is None or tuple(command[:2]) != (sys.executable, "-m"):
            return start_fresh(command, environment, log, lock)
        process = self.ask([command[2:], environment], (log, lock))
        if process is None:
            raise LostParentError
        return ForkedProcess(self, process)

    def ask(self, request: object, descriptors: Sequence[int] = ()) -> int | None:
        """Return what the parent answers.

        Raises:
            LostParentError: if it has ended.
        """
        answer = b""
        if self._channel is not None:
            try:
                socket.send_fds(self._channel, [json.dumps(request).encode()], descriptors)
                answer = self._channel.recv(LARGEST)
            except ConnectionError:
                pass
        if not answer:
            self._hang_up()
            raise LostParentError
        found: int | None = json.loads(answer)
        return found

    def _start(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._is_importing = True
        with theirs:
            self._server = subprocess.Popen(  # noqa: S603
                [*_SERVER, str(theirs.fileno()), *PRELOADED],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # a run that starts from nothing then says the same
                env=run_environment(self._environment),
                pass_fds=(theirs.fileno(),),
                process_group=0,  # as its runs: Ctrl-C at the terminal is the runner's
            )

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class ForkedProcess:
    """A process that the parent has forked; see :class:`~.processes.RunProcess`.

    Args:
        parent: that can tell how it ended.
        pid: its number.
    """

    def __init__(self, parent: WarmParent, pid: int) -> None:
        self.parent = parent
        self.pid = pid
        self.exit_code: int | None = None

    def poll(self) -> int | None:
        """Return its exit code; 1 if it ended after the parent was lost; None if it is at work."""
        if self.exit_code is None:
            try:
                self.exit_code = self.parent.ask(self.pid)
            except LostParentError:
                self.exit_code = None if _is_at_work(self.pid) else 1
        return self.exit_code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self.send_signal(signal.SIGKILL)


def _is_at_work(process: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        # "4711 (python) S 1 4711 …"; Z: it has ended, and nobody has asked how
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
