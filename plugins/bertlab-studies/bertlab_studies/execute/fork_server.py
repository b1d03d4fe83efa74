"""A process that has imported what runs need, and forks itself into each run of a study.

``python -m bertlab_studies.execute.fork_server SOCKET MODULE …`` imports the modules and then
answers its runner (:mod:`bertlab_studies.execute.warm_parent`), one packet of JSON for another:

=================================================  ============================================
``[["bertlab", "fit", …], {"NAME": "value"}]``     number of the process that runs ``python -m``
with two descriptors: the log, the lock            with these arguments and variables
``4711``, such a process                           its exit code; null if it is at work
=================================================  ============================================

It ends when its runner does; runs that are at work go on. It does no work of its own: OpenMP's
threads and CUDA do not survive a fork, so none may exist here. Python's own ``forkserver`` is no
choice: each of its children would import the user's script, as ``__mp_main__``.
"""

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

LARGEST = 2**20  # bytes of a packet; Linux takes no argument above 2**17


def main(argv: Sequence[str]) -> None:
    """Import modules, then fork a process for each request until the runner is gone.

    Args:
        argv: descriptor of the socket, modules to import.
    """
    leave = Leave()
    atexit.register(leave)  # before any import: the first to be registered is the last to be called
    channel = socket.socket(fileno=int(argv[0]))
    for module in argv[1:]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # collections in the children skip what was imported, so that its pages stay shared
    command: list[str] | None = None
    with contextlib.suppress(ConnectionError), channel:  # ConnectionError: the runner was killed
        channel.send(json.dumps(may_fork()).encode())
        command = _serve(channel)
    if command is not None:  # this is a child now
        module, *sys.argv[1:] = command
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)  # as python -m does
            leave.code = 0
        except SystemExit as ended:
            leave.code = ended.code if isinstance(ended.code, int) else None
            raise


class Leave:
    """Ends a process once all else that is to be done at its exit is done.

    Python would free all that was imported, object by object, which takes half a second of a
    child's own: their pages are shared with the parent until they are written to.

    Attributes:
        code: the exit code; None: Python ends the process as it always does.
    """

    code: int | None = None

    def __call__(self) -> None:
        """Write what files that nobody closed have in their buffers, then end."""
        if self.code is None:
            return
        for each in gc.get_objects():
            if issubclass(type(each), io.TextIOWrapper | io.BufferedWriter):
                with contextlib.suppress(Exception):  # closed, or its disk is full
                    each.flush()
        os._exit(self.code)


def may_fork(descriptors: Path = Path("/proc/self/fd")) -> bool:
    """Return whether no import has begun to use a GPU, which a child could not use then.

    Args:
        descriptors: a folder with a link to each file that this process has open.
    """
    opened = []
    for descriptor in descriptors.iterdir():
        with contextlib.suppress(OSError):  # the one that lists the others
            opened.append(str(descriptor.readlink()))
    return not any(path.startswith("/dev/nvidia") for path in opened)


def _serve(channel: socket.socket) -> list[str] | None:
    """Answer requests; return a command in the child that is to run it, None at the end."""
    while True:
        packet, descriptors, _, _ = socket.recv_fds(channel, LARGEST, 2)
        if not packet:
            return None
        request = json.loads(packet)
        if descriptors:
            command, environment = request
            answer: int | None = os.fork()
            if not answer:
                _become_run(environment, *descriptors)
                return list(command)
            for descriptor in descriptors:  # the lock is the run's and the runner's alone
                os.close(descriptor)
        else:
            ended, status = os.waitpid(request, os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if ended else None
        channel.send(json.dumps(answer).encode())


def _become_run(environment: dict[str, str], log: int, lock: int) -> None:
    """Give a child what :func:`~bertlab_studies.execute.processes.start_fresh` gives a process."""
    os.setpgid(0, 0)
    for standard in (1, 2):
        os.dup2(log, standard)
    os.close(log)
    os.set_inheritable(lock, True)
    os.environ.update(environment)
    # Python's own generator is seeded anew by a fork, NumPy's is not
    np.random.seed()  # noqa: NPY002  the one that plugins may draw from


if __name__ == "__main__":
    main(sys.argv[1:])
