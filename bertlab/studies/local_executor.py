"""The runs of a study on this machine: which is next, what failed, which wait for it in vain."""

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bertlab.errors import ConfigError
from bertlab.studies.execution import (
    FIT,
    POLL,
    StopSignals,
    Work,
    settle,
    start,
    stop_all,
    stop_orphan,
)
from bertlab.studies.plan import PlannedRun
from bertlab.studies.run_state import (
    Outcome,
    State,
    is_done,
    last_line,
    read_attempts,
    read_states,
)

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
DEVICES = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Change:
    """Something that happened to a run.

    Attributes:
        run: of the study.
        state: it is in now.
        text: what happened, in a line without the run's id.
    """

    run: PlannedRun
    state: State
    text: str


OnChange = Callable[[Change], None]


@dataclass
class Summary:
    """How far a study is after its runs were executed.

    Attributes:
        done: ids of runs, those that were done before included.
        failed: ids of runs whose attempts are used up, and the last line of each one's log.
        blocked: ids of runs, and the failed one that each needs.
        left: ids of runs that were not finished because the runner was told to stop.
        stopped_by: number of the signal that told it to; None if there was none.
    """

    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    stopped_by: int | None = None

    @property
    def exit_code(self) -> int:
        """0 if all is done, 128 and the number of the signal that stopped it, or else 1."""
        if self.stopped_by is not None:
            return 128 + self.stopped_by
        return 1 if self.failed or self.blocked else 0

    def lines(self, study: Path) -> list[str]:
        """Return what to tell the user: counts, failures, and how to go on."""
        counts = [f"{len(self.done)} done"]
        for name in ("failed", "blocked", "left"):
            found = getattr(self, name)
            counts += [f"{len(found)} {name}"] if found else []
        lines = [f"{study}: {', '.join(counts)}"]
        for run, text in self.failed.items():
            lines.append(f"failed: {run}: {text} (log: {study / 'logs' / run}.log)")
        lines += [f"blocked: {run}: needs {failed}" for run, failed in self.blocked.items()]
        if self.exit_code:
            how = "stopped; go" if self.stopped_by is not None else "mend it and go"
            lines.append(f"{how} on with: bertlab study run {study}")
        return lines


class Schedule:
    """Which run is next: parents before children, those with the longest chain after them first.

    Args:
        plan: the runs, parents before their children.
        study: its directory.
        retries: how often a run that fails is tried again; earlier calls do not count.
        on_change: told of what :meth:`ended` finds.
    """

    def __init__(
        self, plan: Sequence[PlannedRun], study: Path, retries: int, on_change: OnChange
    ) -> None:
        self.study = study
        self.retries = retries
        self.on_change = on_change
        self.summary = Summary()
        self.failures: Counter[str] = Counter()
        self._children: dict[str | None, list[PlannedRun]] = {}
        for run in plan:
            self._children.setdefault(run.parent, []).append(run)
        states = read_states(plan, study)
        for run in plan:
            if states[run.id] is State.DONE:
                settle(run, study)
                self.summary.done.append(run.id)
        self._open = [run for run in plan if states[run.id] is not State.DONE]
        # what works already takes part of the machine: it comes first
        self._open.sort(key=lambda run: (states[run.id] is not State.RUNNING, -self._chain(run)))
        self._taken: set[str] = set()

    @property
    def is_over(self) -> bool:
        """Whether no run is left."""
        return not self._open

    def take(self) -> PlannedRun | None:
        """Return the next run, which the caller starts; None if all that are left have to wait."""
        for run in self._open:
            ready = run.parent is None or run.parent in self.summary.done
            if ready and run.id not in self._taken:
                self._taken.add(run.id)
                return run
        return None

    def ended(self, run: PlannedRun, problem: str = "") -> None:
        """Note the end of an attempt: the run's directory says which.

        Args:
            run: that was taken.
            problem: why there may be no attempt at all, if the caller knows.
        """
        self._taken.discard(run.id)
        attempts = read_attempts(run, self.study)
        if is_done(run.directory(self.study)):
            self._open.remove(run)
            self.summary.done.append(run.id)
            self.on_change(Change(run, State.DONE, "done"))
            return
        if attempts and attempts[-1].outcome is Outcome.STOPPED and not problem:
            self.on_change(Change(run, State.RESUMABLE, "stopped"))
            return
        self.failures[run.id] += 1
        text = problem
        if attempts and not problem:
            told = last_line(run.log(self.study))
            text = f"exit code {attempts[-1].exit_code}" + (f": {told}" if told else "")
        if self.failures[run.id] <= self.retries:
            again = f"failed, {text}; retry {self.failures[run.id]} of {self.retries}"
            self.on_change(Change(run, State.RESUMABLE, again))
            return
        self._open.remove(run)
        self.summary.failed[run.id] = text
        self.on_change(Change(run, State.FAILED, f"failed, {text}"))
        self._block(run, run)

    def _block(self, run: PlannedRun, failed: PlannedRun) -> None:
        for child in self._children.get(run.id, []):
            if child in self._open:
                self._open.remove(child)
                self.summary.blocked[child.id] = failed.id
                self.on_change(Change(child, State.BLOCKED, f"blocked: needs {failed.id}"))
            self._block(child, failed)

    def finish(self, stopped_by: int | None) -> Summary:
        """Return the summary."""
        for run in self._open:  # told to stop, some were faster
            ended = self.summary.done if is_done(run.directory(self.study)) else self.summary.left
            ended.append(run.id)
        self.summary.stopped_by = stopped_by if self.summary.left else None
        return self.summary

    def _chain(self, run: PlannedRun) -> int:
        """Return the optimiser steps of a run and the longest chain of runs that need it."""
        after = [self._chain(child) for child in self._children.get(run.id, [])]
        return (run.steps or 1) + max(after, default=0)


def run_local(
    plan: Sequence[PlannedRun],
    study: Path,
    *,
    workers: int = 1,
    threads: int | None = None,
    devices: int | None = None,
    retries: int = 1,
    on_change: OnChange,
    program: Sequence[str] = FIT,
) -> Summary:
    """Execute the runs that are not done, several at a time, each in a process of its own.

    Ctrl-C or SIGTERM stops them; a second one kills them. All can be gone on with.

    Args:
        plan: the runs, parents before their children.
        study: its directory.
        workers: runs at a time.
        threads: of each; by default the machine's cores shared among the workers. Their number
            decides the order of sums on a CPU, and so the last digits of results.
        devices: CUDA devices of each; by default those that are visible shared among the workers,
            several workers on one device if there are fewer.
        retries: how often a run that fails is tried again, from its last checkpoint.
        on_change: told of each change.
        program: the command that takes the arguments of ``fit``.

    Raises:
        ConfigError: if there are fewer devices than asked for, or files cannot be locked.
    """
    environments = worker_environments(workers, threads, devices)
    schedule = Schedule(plan, study, retries, on_change)
    slots: dict[int, PlannedRun | Work] = {}  # a run alone: somebody else works at it
    with StopSignals() as stop:
        try:
            while not schedule.is_over and stop.number is None:
                for slot, environment in enumerate(environments):
                    _advance(slots, slot, schedule, environment, program)
                time.sleep(POLL)
        finally:
            _stop(slots, stop, schedule)
    return schedule.finish(stop.number)


def _advance(
    slots: dict[int, PlannedRun | Work],
    slot: int,
    schedule: Schedule,
    environment: dict[str, str],
    program: Sequence[str],
) -> None:
    """Look at what a worker does, and give it the next run if it has none."""
    present = slots.get(slot)
    if isinstance(present, Work):
        if present.poll() is None:
            return
        del slots[slot]
        schedule.ended(present.run)
        present = None
    run = present or schedule.take()
    if run is None:
        return
    found = start(run, schedule.study, environment, program)
    if found is State.DONE:
        slots.pop(slot, None)
        schedule.ended(run)
    elif isinstance(found, Work):
        slots[slot] = found
        last = found.attempts[-1]
        text = f"goes on, attempt {len(found.attempts)}" if last.resumed else "started"
        schedule.on_change(Change(run, State.RUNNING, text))
    elif present is None:
        slots[slot] = run
        schedule.on_change(Change(run, State.RUNNING, "is at work since before; waiting for it"))


def _stop(slots: dict[int, PlannedRun | Work], stop: StopSignals, schedule: Schedule) -> None:
    works = [each for each in slots.values() if isinstance(each, Work)]
    number = stop.number
    if number is not None:
        for run in slots.values():
            if isinstance(run, PlannedRun) and stop_orphan(run, schedule.study, number):
                schedule.on_change(Change(run, State.RUNNING, "told to stop"))
    stop_all(works, stop)
    for work in works:
        schedule.ended(work.run)


def worker_environments(
    workers: int, threads: int | None, devices: int | None
) -> list[dict[str, str]]:
    """Return the environment variables that give each worker its share of the machine.

    Args:
        workers: at least 1.
        threads: of each; by default the cores that this process may use, shared.
        devices: CUDA devices of each; by default those that are visible, shared.

    Raises:
        ConfigError: if there are fewer devices than asked for, or a number is below 1.
    """
    for name, value in (("workers", workers), ("threads", threads), ("devices", devices)):
        if value is not None and value < 1:
            raise ConfigError(f"--{name}: found {value}, expected 1 or more")
    each = threads or max(1, _cores() // workers)
    environments = [dict.fromkeys(THREADS, str(each)) for _ in range(workers)]
    if workers == 1 and devices is None:
        return environments
    visible = _visible_devices()
    if devices is not None and workers * devices > len(visible):
        raise ConfigError(
            f"--devices: {workers} workers with {devices} each need {workers * devices}, but there "
            f"are {len(visible)} CUDA devices; give fewer --workers or --devices, or leave "
            "--devices out"
        )
    share = devices or max(1, len(visible) // workers)
    for number, environment in enumerate(environments):
        if visible:
            first = number * share % len(visible)
            environment[DEVICES] = ",".join(visible[first : first + share])
    return environments


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _visible_devices() -> list[str]:
    given = os.environ.get(DEVICES)
    if given is not None:
        return [device.strip() for device in given.split(",") if device.strip()]
    import torch  # noqa: PLC0415  slow to import

    return [str(number) for number in range(torch.cuda.device_count())]
