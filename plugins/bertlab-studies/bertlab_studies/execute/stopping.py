"""How the runs of a study are stopped: a signal is noted, then passed on to their processes."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from bertlab_studies.execute.run_state import holders, lock_file
from bertlab_studies.plan.plan import PlannedRun

if TYPE_CHECKING:
    from bertlab_studies.execute.execution import Work

POLL = 0.1  # seconds between looks at a process
GRACE = 30.0  # seconds that a process has to stop in before it is killed


class StopSignals:
    """Notes Ctrl-C, SIGTERM and SIGHUP instead of ending the process, while it is entered.

    Attributes:
        number: of the first signal; None before it.
        count: of signals so far: a second one means at once.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.count = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = self.number or number  # the first one decides the exit code
        self.count += 1


def stop_all(works: Iterable["Work"], stop: StopSignals) -> None:
    """Tell processes to stop, once; kill those that have not after a while, or a second signal."""
    left = list(works)
    for work in left:
        work.tell(stop.number or signal.SIGTERM)
    told, deadline = stop.count, time.monotonic() + GRACE  # signals from now on mean: at once
    while left:
        if stop.count > told or time.monotonic() > deadline:
            for work in left:
                signal_group(work.process.pid, signal.SIGKILL)
        left = [work for work in left if work.poll(stopping=True) is None]
        if left:
            time.sleep(POLL)


def stop_orphan(run: PlannedRun, study_dir: Path, number: int) -> bool:
    """Tell a process to stop that a killed runner left behind on this machine.

    Returns:
        Whether there is one; one that has a runner which lives is that runner's to stop.
    """
    with contextlib.suppress(ProcessLookupError):
        groups = {os.getpgid(process) for process in holders(lock_file(run, study_dir))}
        if len(groups) == 1:  # a runner would hold the lock as well, in a group of its own
            os.kill(groups.pop(), signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
            return True
    return False


def signal_group(group: int, number: int) -> None:
    """Send a signal to all processes of a group that is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: only zombies
        os.killpg(group, number)
