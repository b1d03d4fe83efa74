"""One attempt at one run of a study: a process of its own, which holds the run's lock.

The lock is a file descriptor that the process inherits: it is held as long as the process lives,
also when the runner that started it is killed. A runner that comes later finds the run at work and
waits for it. That needs a file system with ``flock`` (every local one; NFS since version 4).
"""

import fcntl
import os
import platform
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from bertlab.extend import (
    MANIFEST_FILE,
    STUDY_ENVIRONMENT,
    VARIANT_ENVIRONMENT,
    make_folder,
    open_to_append,
    utf8,
    visible,
)
from bertlab_studies.errors import ExecutorError, StudyError
from bertlab_studies.execute.processes import Launch, RunProcess, start_fresh
from bertlab_studies.execute.run_state import (
    LOG_HEAD,
    STATE_ENTRIES,
    Attempt,
    Outcome,
    State,
    is_done,
    is_resumable,
    lock_file,
    read_attempts,
    seconds_until_last_sign,
    write_attempts,
)
from bertlab_studies.execute.stopping import POLL, StopSignals, signal_group, stop_all
from bertlab_studies.execute.warm_parent import LostParentError
from bertlab_studies.plan.plan import WEIGHTS, PlannedRun

FIT = (sys.executable, "-m", "bertlab", "fit")
EVALUATE = (sys.executable, "-m", "bertlab", "evaluate")
_STOPPED = 128  # a shell's exit code of a signal is above it


@dataclass
class Work:
    """An attempt at work.

    Attributes:
        run: of the study.
        study_dir: directory of the study.
        process: that does it; the leader of a process group.
        lock: descriptor of the locked file.
        attempts: at the run; the last one is this.
        exit_code: what :meth:`poll` returns once it has ended.
    """

    run: PlannedRun
    study_dir: Path
    process: RunProcess
    lock: int
    attempts: list[Attempt]
    exit_code: int | None = None

    def poll(self, stopping: bool = False) -> int | None:
        """Return the exit code of the attempt once it has ended and is written down, else None.

        Args:
            stopping: the process was told to stop.

        Returns:
            0 if the run is done, and only then.
        """
        if self.exit_code is not None:  # the lock's descriptor may be another file's by now
            return self.exit_code
        code = self.process.poll()
        if code is None:
            return None
        signal_group(self.process.pid, signal.SIGKILL)  # data workers hold the lock as well
        # results decide, not the exit code: a process may fail after them, or end without them
        if is_done(self.run.directory(self.study_dir)):
            outcome, code = Outcome.DONE, 0
        else:
            outcome, code = Outcome.STOPPED if stopping else Outcome.FAILED, code or 1
        attempt = self.attempts[-1]
        attempt.outcome, attempt.exit_code = outcome, code
        attempt.seconds = round(time.time() - attempt.started, 3)
        write_attempts(self.run, self.study_dir, self.attempts)
        os.close(self.lock)  # last: whoever takes it finds how this ended
        self.exit_code = code
        return code

    def tell(self, number: int) -> None:
        """Send a signal to the process, whose children are its own to stop."""
        # SIGHUP is passed on as SIGTERM
        self.process.send_signal(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)


def execute(
    run: PlannedRun,
    study_dir: Path,
    *,
    environment: Mapping[str, str],
    program: Sequence[str] = FIT,
    working_directory: Path | None = None,
    launch: Launch | None = None,
) -> int:
    """Make one attempt at a run, or wait for the one that is at work.

    Args:
        run: of the study.
        study_dir: directory of the study.
        environment: variables for the process, besides this one's.
        program: the command that takes the arguments of ``fit``.
        working_directory: of the process; this one's if None.
        launch: starts the process; by default from nothing.

    Returns:
        0 if the run is done, the exit code of an attempt that failed, 128 and the number of the
        signal if this process was told to stop.

    Raises:
        StudyError: if the run whose weights it needs is not done, or files cannot be locked.
    """
    launch = launch or partial(start_fresh, working_directory=working_directory)
    with StopSignals() as stop:
        work: Work | State = State.RUNNING
        while work is State.RUNNING:
            if stop.number is not None:
                return _STOPPED + stop.number
            work = start(run, study_dir, environment, program, launch)
            if work is State.RUNNING:
                time.sleep(POLL)
        if not isinstance(work, Work):
            return 0
        try:
            # the signal may have reached the process as well, which has ended then
            while (code := work.poll(stopping=stop.number is not None)) is None:
                if stop.number is not None:
                    stop_all([work], stop)
                    return 0 if is_done(run.directory(study_dir)) else _STOPPED + stop.number
                time.sleep(POLL)
        except BaseException:
            stop_all([work], stop)
            raise
        return code


def check_places(*places: Path) -> None:
    """Refuse to make an attempt on a machine that lacks a folder of the one that sent it there.

    Raises:
        ExecutorError: names the folder and the machine.
    """
    for place in places:
        if not place.is_dir():
            raise ExecutorError(
                f"{place} is not on the node {platform.node()}; put the study on a file system "
                "that all nodes share, and start it from a folder there"
            )


def start(
    run: PlannedRun,
    study_dir: Path,
    environment: Mapping[str, str],
    program: Sequence[str] = FIT,
    launch: Launch = start_fresh,
) -> Work | State:
    """Start an attempt at a run, if nobody works at it and something is left to do.

    Args:
        run: of the study.
        study_dir: directory of the study.
        environment: variables for the process, besides this one's.
        program: the command that takes the arguments of ``fit``.
        launch: starts the process.

    Returns:
        The attempt; ``State.RUNNING`` if somebody works at the run, ``State.DONE`` if it is done.

    Raises:
        StudyError: if the run whose weights it needs is not done, or files cannot be locked.
    """
    lock = take_lock(lock_file(run, study_dir))
    if lock is None:
        return State.RUNNING
    try:
        # only now that the lock is ours: before, another runner may change what is found
        attempts = _settle(run, study_dir)
        if is_done(run.directory(study_dir)):
            os.close(lock)
            return State.DONE
        arguments = fit_arguments(run, study_dir)
        attempts.append(Attempt(round(time.time(), 3), resumed=is_resumable(run, study_dir)))
        if not attempts[-1].resumed and run.directory(study_dir).exists():
            _clear(run.directory(study_dir), study_dir)
        write_attempts(run, study_dir, attempts)  # OPEN, even if we are killed next
        command = [*(program if run.trains else EVALUATE), *arguments]
        named = {
            **environment,
            STUDY_ENVIRONMENT: study_dir.resolve().name,
            VARIANT_ENVIRONMENT: run.variant,
        }
        process = _start_process(run.log(study_dir), command, named, launch, lock)
    except LostParentError:
        os.close(lock)  # if there is a process, it holds the lock, and we wait for it
        return State.RUNNING
    except BaseException:
        os.close(lock)
        raise
    return Work(run, study_dir, process, lock, attempts)


def fit_arguments(run: PlannedRun, study_dir: Path) -> list[str]:
    """Return the arguments of ``fit`` that start a run, or go on with it.

    Raises:
        StudyError: if the run whose weights it needs is not done.
    """
    directory = str(run.directory(study_dir))
    resumes = is_resumable(run, study_dir)
    weights = ""
    if run.parent is not None:
        before = study_dir / "runs" / run.parent
        if not is_done(before) and not resumes:
            raise StudyError(
                f"{run.id}: needs the weights of {run.parent}, which is not done; finish that run "
                "first"
            )
        weights = str(before)
    # the study's config again, as a checkpoint may not bring callbacks or say where files go
    place = "--ckpt_path" if resumes else "--run_dir" if run.trains else "--output"
    return [*(each.replace(WEIGHTS, weights) for each in run.arguments), place, directory]


def _clear(directory: Path, study_dir: Path) -> None:
    """Remove what an attempt without a checkpoint left; nothing of the study or of other runs."""
    if directory != study_dir:
        shutil.rmtree(directory)
        return
    for path in directory.iterdir():
        if path.name in STATE_ENTRIES or (path / MANIFEST_FILE).is_file():  # another run
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def take_lock(path: Path) -> int | None:
    """Return a descriptor of the locked file; None if somebody has it locked.

    Raises:
        ExecutorError: if the file system has no locks.
    """
    make_folder(path.parent)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        # of the open file, not of the process as lockf() is: children that inherit it hold it too
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


def settle(run: PlannedRun, study_dir: Path) -> None:
    """Write down the end of an attempt that outlived its runner, unless it is still at work."""
    attempts = read_attempts(run, study_dir)
    if attempts and attempts[-1].outcome is Outcome.OPEN:
        lock = take_lock(lock_file(run, study_dir))
        if lock is not None:
            try:
                _settle(run, study_dir)
            finally:
                os.close(lock)


def _settle(run: PlannedRun, study_dir: Path) -> list[Attempt]:
    """Return the attempts at a run; one whose end nobody saw is over, as the lock is ours."""
    attempts = read_attempts(run, study_dir)
    if attempts and attempts[-1].outcome is Outcome.OPEN:
        last = attempts[-1]
        last.outcome = Outcome.DONE if is_done(run.directory(study_dir)) else Outcome.LOST
        last.seconds = round(seconds_until_last_sign(run, study_dir, last), 3)
        write_attempts(run, study_dir, attempts)
    return attempts


def _start_process(
    log: Path, command: Sequence[str], environment: Mapping[str, str], launch: Launch, lock: int
) -> RunProcess:
    """Start a process that appends to a log and holds the lock."""
    make_folder(log.parent)
    with open_to_append(log) as output:
        now = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        head = f"{LOG_HEAD}{now} on {platform.node()}: {shlex.join(command)}"
        output.write(utf8(visible(head) + "\n"))
        output.flush()  # before the process writes
        return launch(command, environment, output.fileno(), lock)
