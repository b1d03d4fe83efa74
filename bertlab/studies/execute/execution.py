"""Ctrl-C and its like, noted instead of obeyed at once.

One attempt at one run of a study: a process of its own, which holds the run's lock.

The lock is a file descriptor that the process inherits: it is held as long as the process lives,
also when the runner that started it is killed. A runner that comes later finds the run at work and
waits for it. That needs a file system with ``flock`` (every local one; NFS since version 4).
"""

import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from bertlab.checkpoints.run_directory import MANIFEST
from bertlab.errors import ExecutorError, StudyError
from bertlab.studies.execute.run_state import (
    LOG_HEAD,
    STATE_ENTRIES,
    Attempt,
    Outcome,
    State,
    holders,
    is_done,
    is_resumable,
    lock_file,
    read_attempts,
    seconds_until_last_sign,
    write_attempts,
)
from bertlab.studies.plan.plan import WEIGHTS, PlannedRun


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
        self.number = self.number or number
        self.count += 1


FIT = (sys.executable, "-m", "bertlab", "fit")
POLL = 0.1  # seconds between looks at a process
GRACE = 30.0  # seconds that a process has to stop in before it is killed
_STOPPED = 128  # a shell's exit code of a signal is above it


@dataclass
class Work:
    """An attempt at work.

    Attributes:
        run: of the study.
        study: its directory.
        process: that does it; the leader of a process group.
        lock: descriptor of the locked file.
        attempts: at the run; the last one is this.
    """

    run: PlannedRun
    study: Path
    process: subprocess.Popen[bytes]
    lock: int
    attempts: list[Attempt]

    def poll(self, stopping: bool = False) -> int | None:
        """Return the exit code of the attempt once it has ended and is written down, else None.

        Args:
            stopping: the process was told to stop.

        Returns:
            0 if the run is done, and only then.
        """
        code = self.process.poll()
        if code is None:
            return None
        _signal_group(self.process.pid, signal.SIGKILL)  # data workers hold the lock as well
        if is_done(self.run.directory(self.study)):
            outcome, code = Outcome.DONE, 0
        else:
            outcome, code = Outcome.STOPPED if stopping else Outcome.FAILED, code or 1
        attempt = self.attempts[-1]
        attempt.outcome, attempt.exit_code = outcome, code
        attempt.seconds = round(time.time() - attempt.started, 3)
        write_attempts(self.run, self.study, self.attempts)
        os.close(self.lock)
        return code

    def tell(self, number: int) -> None:
        """Send a signal to the process, whose children are its own to stop."""
        self.process.send_signal(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)


def execute(
    run: PlannedRun,
    study: Path,
    *,
    environment: Mapping[str, str],
    program: Sequence[str] = FIT,
    working_directory: Path | None = None,
) -> int:
    """Make one attempt at a run, or wait for the one that is at work.

    Args:
        run: of the study.
        study: its directory.
        environment: variables for the process, besides this one's.
        program: the command that takes the arguments of ``fit``.
        working_directory: of the process; this one's if None.

    Returns:
        0 if the run is done, the exit code of an attempt that failed, 128 and the number of the
        signal if this process was told to stop.

    Raises:
        StudyError: if the run whose weights it needs is not done, or files cannot be locked.
    """
    with StopSignals() as stop:
        work: Work | State = State.RUNNING
        while work is State.RUNNING:
            if stop.number is not None:
                return _STOPPED + stop.number
            work = start(run, study, environment, program, working_directory)
            if work is State.RUNNING:
                time.sleep(POLL)
        if not isinstance(work, Work):
            return 0
        try:
            while (code := work.poll()) is None:
                if stop.number is not None:
                    stop_all([work], stop)
                    return 0 if is_done(run.directory(study)) else _STOPPED + stop.number
                time.sleep(POLL)
        except BaseException:
            stop_all([work], stop)
            raise
        return code


def start(
    run: PlannedRun,
    study: Path,
    environment: Mapping[str, str],
    program: Sequence[str] = FIT,
    working_directory: Path | None = None,
) -> Work | State:
    """Start an attempt at a run, if nobody works at it and something is left to do.

    Returns:
        The attempt; ``State.RUNNING`` if somebody works at the run, ``State.DONE`` if it is done.

    Raises:
        StudyError: if the run whose weights it needs is not done, or files cannot be locked.
    """
    lock = _take_lock(lock_file(run, study))
    if lock is None:
        return State.RUNNING
    try:
        attempts = _settle(run, study)
        if is_done(run.directory(study)):
            os.close(lock)
            return State.DONE
        arguments = fit_arguments(run, study)
        attempts.append(Attempt(round(time.time(), 3), resumed=is_resumable(run, study)))
        if not attempts[-1].resumed and run.directory(study).exists():
            _clear(run.directory(study), study)
        write_attempts(run, study, attempts)
        command = [*program, *arguments]
        process = _start_process(run.log(study), command, environment, working_directory, lock)
    except BaseException:
        os.close(lock)
        raise
    return Work(run, study, process, lock, attempts)


def fit_arguments(run: PlannedRun, study: Path) -> list[str]:
    """Return the arguments of ``fit`` that start a run, or go on with it.

    Raises:
        StudyError: if the run whose weights it needs is not done.
    """
    directory = str(run.directory(study))
    if is_resumable(run, study):
        # of no concern to what is computed, so it is not in the checkpoint's config
        keeps = [each for each in run.arguments if each.startswith("--keep_predictions=")]
        return [*keeps, "--ckpt_path", directory]
    weights = ""
    if run.parent is not None:
        before = study / "runs" / run.parent
        if not is_done(before):
            raise StudyError(
                f"{run.id}: needs the weights of {run.parent}, which is not done; finish that run "
                "first"
            )
        weights = str(before)
    return [*(each.replace(WEIGHTS, weights) for each in run.arguments), "--run_dir", directory]


def stop_all(works: Iterable[Work], stop: StopSignals) -> None:
    """Tell processes to stop, once; kill those that have not after a while, or a second signal."""
    left = list(works)
    for work in left:
        work.tell(stop.number or signal.SIGTERM)
    told, deadline = stop.count, time.monotonic() + GRACE
    while left:
        if stop.count > told or time.monotonic() > deadline:
            for work in left:
                _signal_group(work.process.pid, signal.SIGKILL)
        left = [work for work in left if work.poll(stopping=True) is None]
        if left:
            time.sleep(POLL)


def stop_orphan(run: PlannedRun, study: Path, number: int) -> bool:
    """Tell a process to stop that a killed runner left behind on this machine.

    Returns:
        Whether there is one; one that has a runner which lives is that runner's to stop.
    """
    with contextlib.suppress(ProcessLookupError):
        groups = {os.getpgid(process) for process in holders(lock_file(run, study))}
        if len(groups) == 1:  # a runner would hold the lock as well, in a group of its own
            os.kill(groups.pop(), signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
            return True
    return False


def _clear(directory: Path, study: Path) -> None:
    """Remove what an attempt without a checkpoint left; nothing of the study or of other runs."""
    if directory != study:
        shutil.rmtree(directory)
        return
    for path in directory.iterdir():
        if path.name in STATE_ENTRIES or (path / MANIFEST).is_file():
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _take_lock(path: Path) -> int | None:
    """Return a descriptor of the locked file; None if somebody has it locked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as error:
        os.close(descriptor)
        raise ExecutorError(
            f"{path}: cannot be locked: {error.strerror}; put the study on a file system with "
            "flock (local, NFS version 4, Lustre mounted with -o flock)"
        ) from None
    return descriptor


def settle(run: PlannedRun, study: Path) -> None:
    """Write down the end of an attempt that outlived its runner, unless it is still at work."""
    attempts = read_attempts(run, study)
    if attempts and attempts[-1].outcome is Outcome.OPEN:
        lock = _take_lock(lock_file(run, study))
        if lock is not None:
            try:
                _settle(run, study)
            finally:
                os.close(lock)


def _settle(run: PlannedRun, study: Path) -> list[Attempt]:
    """Return the attempts at a run; one whose end nobody saw is over, as the lock is ours."""
    attempts = read_attempts(run, study)
    if attempts and attempts[-1].outcome is Outcome.OPEN:
        last = attempts[-1]
        last.outcome = Outcome.DONE if is_done(run.directory(study)) else Outcome.LOST
        last.seconds = round(seconds_until_last_sign(run, study, last), 3)
        write_attempts(run, study, attempts)
    return attempts


def _start_process(
    log: Path,
    command: Sequence[str],
    environment: Mapping[str, str],
    working_directory: Path | None,
    lock: int,
) -> subprocess.Popen[bytes]:
    """Start a process that appends to a log and holds the lock.

    It has a group of its own, so that Ctrl-C at the terminal reaches it once: from its runner.
    """
    inherited = dict(os.environ)
    inherited.pop("SLURM_NTASKS", None)  # it starts the processes of its devices itself
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        now = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        output.write(f"{LOG_HEAD}{now}: {shlex.join(command)}\n".encode())
        output.flush()
        return subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**inherited, "PYTHONUNBUFFERED": "1", **environment},
            cwd=working_directory,
            pass_fds=(lock,),
            process_group=0,
        )


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: only zombies
        os.killpg(group, number)
