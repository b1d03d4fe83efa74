"""The process of a run: what a runner does with it, and how one is started from nothing."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol


class RunProcess(Protocol):
    """A process that works at a run; the leader of a group of its own."""

    @property
    def pid(self) -> int:
        """Its number, which is its group's as well."""

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None if it is at work."""

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""


class Launch(Protocol):
    """Starts the process of a run."""

    def __call__(
        self, command: Sequence[str], environment: Mapping[str, str], log: int, lock: int
    ) -> RunProcess:
        """Start a process.

        It has a group of its own, so that Ctrl-C at the terminal reaches it once: from its runner.

        Args:
            command: its program and arguments.
            environment: variables besides this process's.
            log: descriptor that it prints to.
            lock: descriptor that it holds, so that the lock is free when its last holder ends.
        """


def start_fresh(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: int,
    lock: int,
    working_directory: Path | None = None,
) -> RunProcess:
    """Start a process from nothing; see :class:`Launch`.

    Args:
        command: its program and arguments.
        environment: variables besides this process's.
        log: descriptor that it prints to.
        lock: descriptor that it holds.
        working_directory: of the process; this one's if None.
    """
    return subprocess.Popen(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=run_environment(environment),
        cwd=working_directory,
        pass_fds=(lock,),
        process_group=0,
    )


def run_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return all variables of a run's process.

    Args:
        environment: those besides this process's.
    """
    inherited = dict(os.environ)
    inherited.pop("SLURM_NTASKS", None)  # it starts the processes of its devices itself
    # unbuffered: the log has what a killed process printed
    return {**inherited, "PYTHONUNBUFFERED": "1", **environment}
