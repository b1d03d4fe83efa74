"""How far each run of a study is, read from the study's directory alone.

``STUDY/attempts/<id>.json`` lists the attempts at a run, ``STUDY/locks/<id>.lock`` is locked by
whoever works at it, ``STUDY/runs/<id>`` is what ``bertlab fit`` leaves.
"""

import contextlib
import fcntl
import math
import os
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from bertlab.extend import (
    MANIFEST_FILE,
    RESULTS_FILE,
    STAGES_FILE,
    last_checkpoint,
    make_folder,
    read_object,
    write_json,
)
from bertlab_studies.errors import StudyError
from bertlab_studies.plan.plan import PlannedRun
from bertlab_studies.settings import PLAN

STATE_ENTRIES = ("attempts", "locks", "logs", PLAN)  # of a study's directory, besides its runs
REUSED_FROM = "reused_from"  # key of a run's manifest: the run of another study that it was
LOG_HEAD = "== "  # of the line with which an attempt begins in a run's log
_DIGITS = 10  # of the number of a version of a log
_TAIL = 8192  # bytes at the end of a log or CSV file in which its last line is looked for


class State(StrEnum):
    """How far a run is."""

    DONE = "done"  # its results are there
    RUNNING = "running"  # somebody holds its lock
    FAILED = "failed"  # its last attempt ended by itself, without results
    BLOCKED = "blocked"  # a run whose weights it needs failed
    WAITING = "waiting"  # a run whose weights it needs is not done
    RESUMABLE = "resumable"  # it has a checkpoint to go on from
    BEGUN = "begun"  # it has a directory, but no checkpoint: it starts anew
    READY = "ready"  # nothing of it is there, and nothing is missing


class Outcome(StrEnum):
    """How an attempt ended."""

    OPEN = "open"  # it is at work, or was killed together with its runner
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"  # because its runner was
    LOST = "lost"  # killed together with its runner


@dataclass
class Attempt:
    """One process that worked at a run.

    Attributes:
        started: seconds since 1970.
        resumed: whether it went on from a checkpoint.
        outcome: how it ended.
        seconds: of wall time.
        exit_code: of the process, negative for a signal; None if nobody saw it.
    """

    started: float
    resumed: bool
    outcome: Outcome = Outcome.OPEN
    seconds: float = 0.0
    exit_code: int | None = None


@dataclass(frozen=True)
class RunStatus:
    """How far a run is, and what it took.

    Attributes:
        state: of it.
        attempts: how often it was started.
        seconds: of wall time, all attempts together; of one at work, so far.
        exit_code: of the last attempt, if it ended and somebody saw it.
        last_line: of its log, if the state is ``failed``.
        step: the last one in its logs, which count from 0; None before the first.
    """

    state: State
    attempts: int
    seconds: float
    exit_code: int | None
    last_line: str
    step: int | None


def read_states(plan: Sequence[PlannedRun], study_dir: Path) -> dict[str, State]:
    """Return the state of each run, by id.

    Args:
        plan: the runs, parents before their children.
        study_dir: directory of the study.

    Raises:
        StudyError: if a list of attempts is damaged.
    """
    states: dict[str, State] = {}
    for run in plan:
        own = own_state(run, study_dir)
        before = State.DONE if run.parent is None else states[run.parent]
        if own in (State.DONE, State.RUNNING, State.FAILED) or before is State.DONE:
            states[run.id] = own
        elif before in (State.FAILED, State.BLOCKED):
            states[run.id] = State.BLOCKED
        else:
            states[run.id] = State.WAITING
    return states


def own_state(run: PlannedRun, study_dir: Path) -> State:
    """Return the state of a run, whatever that of the run before it is."""
    # before the lock, which a process still holds while it ends
    if is_done(run.directory(study_dir)):
        return State.DONE
    if is_locked(run, study_dir):
        return State.RUNNING
    attempts = read_attempts(run, study_dir)
    if attempts and attempts[-1].outcome is Outcome.FAILED:
        return State.FAILED
    if is_resumable(run, study_dir):
        return State.RESUMABLE
    return State.BEGUN if run.directory(study_dir).exists() else State.READY


def read_status(run: PlannedRun, study_dir: Path, state: State) -> RunStatus:
    """Return what the attempts at a run took, and where it is.

    Args:
        run: of the study.
        study_dir: directory of the study.
        state: of the run, from :func:`read_states`.
    """
    attempts = read_attempts(run, study_dir)
    seconds = 0.0
    for attempt in attempts:
        if attempt.outcome is not Outcome.OPEN:
            seconds += attempt.seconds
        elif state is State.RUNNING:
            seconds += time.time() - attempt.started
        else:
            seconds += seconds_until_last_sign(run, study_dir, attempt)
    return RunStatus(
        state,
        len(attempts),
        seconds,
        attempts[-1].exit_code if attempts else None,
        last_line(run.log(study_dir)) if state is State.FAILED else "",
        last_step(run.directory(study_dir)),
    )


def is_done(directory: Path) -> bool:
    """Whether a run's results are in its directory; they are written last, and atomically."""
    return (directory / RESULTS_FILE).is_file()


def reused_from(directory: Path) -> str:
    """Return the directory of the study that a finished run was taken over from; or nothing."""
    try:
        source = read_object(directory / MANIFEST_FILE).get(REUSED_FROM)
    except (OSError, ValueError):
        return ""
    return str(Path(source).parent.parent) if isinstance(source, str) else ""  # STUDY/runs/ID


def is_resumable(run: PlannedRun, study_dir: Path) -> bool:
    """Whether a run has a checkpoint to go on from.

    One that was cut short is none. A run in stages goes on wherever it was.
    """
    directory = run.directory(study_dir)
    if (directory / STAGES_FILE).is_file():
        return True
    last = last_checkpoint(directory)
    # a checkpoint is a zip file, whose index is at its end: half of one is none
    return (directory / MANIFEST_FILE).is_file() and last is not None and zipfile.is_zipfile(last)


def lock_file(run: PlannedRun, study_dir: Path) -> Path:
    """Return the file that whoever works at a run holds locked."""
    return study_dir / "locks" / f"{run.id}.lock"


def is_locked(run: PlannedRun, study_dir: Path) -> bool:
    """Whether somebody works at a run; asking does not keep others from starting it for long."""
    try:
        descriptor = os.open(lock_file(run, study_dir), os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        # shared: two that ask at once do not take each other for a worker
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def attempts_file(run: PlannedRun, study_dir: Path) -> Path:
    """Return where the attempts at a run are listed."""
    return study_dir / "attempts" / f"{run.id}.json"


def read_attempts(run: PlannedRun, study_dir: Path) -> list[Attempt]:
    """Return the attempts at a run, the first one first.

    Raises:
        StudyError: if the file is damaged.
    """
    path = attempts_file(run, study_dir)
    try:
        content = read_object(path, {"attempts": list})["attempts"]
        found = [Attempt(**{**each, "outcome": Outcome(each["outcome"])}) for each in content]
        if not all(math.isfinite(each.started + each.seconds) for each in found):
            raise ValueError("started, seconds: expected finite numbers")
        return found
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise StudyError(
            f"{path}: damaged: {error}; expected the attempts at the run; remove the file, and "
            "they are counted from none"
        ) from None


def write_attempts(run: PlannedRun, study_dir: Path, attempts: Sequence[Attempt]) -> None:
    """Write the list of attempts, whole or not at all; for whoever holds the lock."""
    path = attempts_file(run, study_dir)
    make_folder(path.parent)
    write_json(path, {"attempts": [asdict(attempt) for attempt in attempts]})


def seconds_until_last_sign(run: PlannedRun, study_dir: Path, attempt: Attempt) -> float:
    """Return how long an attempt, whose end nobody saw, wrote to its directory and log."""
    directory = run.directory(study_dir)
    files = [run.log(study_dir), directory / RESULTS_FILE, directory / "checkpoints" / "last.ckpt"]
    last = max([_modified(path) for path in (*files, *_logs(directory))])
    return max(0.0, last - attempt.started)


def last_line(path: Path) -> str:
    """Return the last line that an attempt printed, blank ones aside; nothing if it did not."""
    lines = [line.strip() for line in _tail(path).splitlines()]
    found = next((line for line in reversed(lines) if line), "")
    return "" if found.startswith(LOG_HEAD) else found


def last_step(directory: Path) -> int | None:
    """Return the last optimiser step in the CSV logs of a run, from 0; None before the first.

    The steps of a run's stages are counted on.
    """
    found = [_last_step(place) for place in (*directory.glob("stages/*"), directory)]
    # steps 0 to 5 of one stage and 0 to 2 of the next -> 8
    done = sum(step + 1 for step in found if step is not None)
    return done - 1 if done else None


def _last_step(directory: Path) -> int | None:
    logs = [log for log in directory.glob("csv/version_*/metrics.csv") if log.is_file()]
    versions = [(log.parent.name.removeprefix("version_"), log) for log in logs]
    # by number: version_10 comes after version_9
    numbered = [(int(n), log) for n, log in versions if n.isdecimal() and len(n) < _DIGITS]
    for _, log in sorted(numbered, reverse=True):
        with contextlib.suppress(OSError, ValueError, IndexError):
            with log.open(encoding="utf-8") as file:
                column = file.readline(_TAIL).strip().split(",").index("step")
            whole = _tail(log).rpartition("\n")[0]  # what follows is being written
            return int(whole.rpartition("\n")[2].split(",")[column])
    return None


def _logs(directory: Path) -> list[Path]:
    return [
        log
        for place in ("", "stages/*/")
        for log in directory.glob(f"{place}csv/version_*/metrics.csv")
    ]


def _tail(path: Path) -> str:
    if not path.is_file():  # a pipe might be waited for
        return ""
    try:
        with path.open("rb") as file:
            # seek() returns where it is: the size
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            return file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def holders(lock: Path) -> Iterator[int]:
    """Yield the processes of this machine and user that have a lock file open (Linux)."""
    name = str(lock.resolve())
    for process in Path("/proc").glob("[0-9]*"):
        opened = []
        with contextlib.suppress(OSError):  # another user's, or gone since
            opened = list((process / "fd").iterdir())
        for each in opened:
            with contextlib.suppress(OSError):  # closed since, while it holds the lock all the same
                if str(each.readlink()) == name:
                    yield int(process.name)
                    break
