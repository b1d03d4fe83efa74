"""The loop that executes a study: which run is next, what failed, and what that blocks."""

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Protocol

from bertlab.extend import NumericalError
from bertlab_studies.execute.execution import settle
from bertlab_studies.execute.run_state import (
    Outcome,
    State,
    is_done,
    last_line,
    read_attempts,
    read_states,
)
from bertlab_studies.execute.stopping import StopSignals
from bertlab_studies.plan.plan import PlannedRun


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
        left: ids of runs that were not finished because the runner was told to stop, or not started
            because those before them failed by one mistake.
        stopped_by: number of the signal that told it to; None if there was none.
        jobs: numbers of SLURM's jobs that go on.
    """

    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    stopped_by: int | None = None
    jobs: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 if all is done, 128 and the number of the signal that stopped it, or else 1."""
        if self.stopped_by is not None:
            return 128 + self.stopped_by
        return 1 if self.failed or self.blocked else 0

    def lines(self, study_dir: Path, go_on: str | None = None) -> list[str]:
        """Return what to tell the user: counts, failures, and how to go on.

        Args:
            study_dir: directory of the study.
            go_on: what goes on with it; by default ``bertlab study run``.
        """
        counts = [f"{len(self.done)} done"]
        for name in ("failed", "blocked", "left"):
            found = getattr(self, name)
            counts += [f"{len(found)} {name}"] if found else []
        lines = [f"{study_dir}: {', '.join(counts)}"]
        alike: dict[str, list[str]] = {}  # runs by what they failed of, which is told once
        for run, text in self.failed.items():
            alike.setdefault(text, []).append(run)
        for first, *others in alike.values():
            log = f"(log: {study_dir / 'logs' / first}.log)"
            lines.append(f"failed: {', '.join([first, *others])}: {self.failed[first]} {log}")
        lines += [f"blocked: {run}: needs {failed}" for run, failed in self.blocked.items()]
        if self.left and self.stopped_by is None:
            lines.append(
                f"not started: {len(self.left)} runs, which would fail of the same mistake"
            )
        if self.jobs:
            lines.append(f"jobs go on; to cancel them: scancel {' '.join(self.jobs)}")
        if self.exit_code:
            how = "stopped; " if self.stopped_by is not None else "mend it and "
            again = go_on or shlex.join(["bertlab", "study", "run", str(study_dir)])
            lines.append(f"{how}continue with: {again}")
        return lines


class StudyStopped(KeyboardInterrupt):
    """A study was told to stop, by Ctrl-C for example; calling ``run`` again goes on with it.

    Attributes:
        summary: how far it is.
        study_dir: of the runs that were stopped: the study's own, or that of its trials.
    """

    def __init__(self, summary: Summary, study_dir: Path, go_on: str | None = None) -> None:
        super().__init__("\n".join(summary.lines(study_dir, go_on)))
        self.summary = summary
        self.study_dir = study_dir


_MISTAKE = 2  # the exit code of bertlab's commands for a mistake of the user's


class Schedule:
    """Which run is next: parents before children, those with the longest chain after them first.

    `graphlib` says which runs are ready. Their order, retries and what a failure blocks are here:
    it knows none of them.

    Args:
        plan: the runs, parents before their children.
        study_dir: directory of the study.
        retries: how often a run that fails is tried again; earlier calls do not count. A mistake
            of the user's (exit code 2) is not tried again, as that would not mend it; if the first
            runs of two variants fail by the same, no other run of their stage is started.
        on_change: told of what :meth:`ended` finds.
    """

    def __init__(
        self, plan: Sequence[PlannedRun], study_dir: Path, retries: int, on_change: OnChange
    ) -> None:
        self.study_dir = study_dir
        self.retries = retries
        self.on_change = on_change
        self.summary = Summary()
        self._failures: Counter[str] = Counter()
        self._mistakes: dict[str, list[PlannedRun]] = {}  # by what they printed
        self._taken: set[str] = set()
        self._stages_done: set[str] = set()  # with a run that was done just now
        self._children: dict[str | None, list[PlannedRun]] = {}
        for run in plan:
            self._children.setdefault(run.parent, []).append(run)
        states = read_states(plan, study_dir)
        for run in plan:
            if states[run.id] is State.DONE:
                settle(run, study_dir)
                self.summary.done.append(run.id)
        # a run that is at work already takes part of the machine: it comes first
        left = [run for run in plan if states[run.id] is not State.DONE]
        # False comes first
        left.sort(key=lambda run: (states[run.id] is not State.RUNNING, -self._chain(run)))
        self._open = {run.id: run for run in left}
        self._rank = {run.id: rank for rank, run in enumerate(left)}
        self._ready: list[str] = []
        self._graph = TopologicalSorter(
            # a parent that is done is waited for no more
            {run.id: [run.parent] if run.parent in self._open else [] for run in left}
        )
        self._graph.prepare()

    @property
    def is_over(self) -> bool:
        """Whether no run is left."""
        return not self._open

    def take(self) -> PlannedRun | None:
        """Return the next run, which the caller starts; None if all that are left have to wait."""
        self._ready += self._graph.get_ready()
        if not self._ready:
            return None
        # after a mistake another variant comes first: does it share it?
        mistaken = {(run.stage, run.variant) for runs in self._mistakes.values() for run in runs}

        def order(run: str) -> tuple[bool, int]:
            found = self._open[run]
            return (found.stage, found.variant) in mistaken, self._rank[run]

        first = min(self._ready, key=order)
        self._ready.remove(first)
        self._taken.add(first)
        return self._open[first]

    def ended(self, run: PlannedRun, problem: str = "") -> None:
        """Note the end of an attempt: the run's directory says which.

        Args:
            run: that was taken.
            problem: why there may be no attempt at all, if the caller knows.
        """
        attempts = read_attempts(run, self.study_dir)
        self._taken.discard(run.id)
        if is_done(run.directory(self.study_dir)):
            self._stages_done.add(run.stage)
            del self._open[run.id]
            self._graph.done(run.id)
            self.summary.done.append(run.id)
            self.on_change(Change(run, State.DONE, "done"))
            return
        if attempts and attempts[-1].outcome is Outcome.STOPPED and not problem:
            self._ready.append(run.id)
            self.on_change(Change(run, State.RESUMABLE, "stopped"))
            return
        self._failures[run.id] += 1
        text = problem
        if attempts and not problem:
            told = last_line(run.log(self.study_dir))
            text = f"exit code {attempts[-1].exit_code}" + (f": {told}" if told else "")
        mistaken = bool(attempts) and attempts[-1].exit_code == _MISTAKE and not problem
        if self._failures[run.id] <= self.retries and not mistaken:
            self._ready.append(run.id)
            again = f"failed, {text}; retry {self._failures[run.id]} of {self.retries}"
            self.on_change(Change(run, State.RESUMABLE, again))
            return
        del self._open[run.id]
        self.summary.failed[run.id] = text
        alike = self._mistakes.setdefault(text, []) if mistaken else []
        told = f"failed as {alike[0].id} did" if alike else f"failed, {text}"
        self.on_change(Change(run, State.FAILED, told))
        self._block(run, run)
        alike.append(run)
        if mistaken and NumericalError.code not in text and run.stage not in self._stages_done:
            self._leave_if_shared([each for each in alike if each.stage == run.stage])

    def _leave_if_shared(self, alike: list[PlannedRun]) -> None:
        """Start no other run of a stage if those of two variants, or of all, failed alike."""
        waiting = [
            run
            for run in self._open.values()
            if run.stage == alike[0].stage and run.id not in self._taken
        ]
        variants = {run.variant for run in alike}
        one_only = len(variants) < 2 and any(run.variant not in variants for run in waiting)
        if len(alike) > 1 and not one_only:
            for run in waiting:
                self._leave(run)

    def _leave(self, run: PlannedRun) -> None:
        """Do not start a run, nor what needs it."""
        if self._open.pop(run.id, None) is not None:
            self.summary.left.append(run.id)
        if run.id in self._ready:
            self._ready.remove(run.id)
        for child in self._children.get(run.id, []):
            self._leave(child)

    def _block(self, run: PlannedRun, failed: PlannedRun) -> None:
        for child in self._children.get(run.id, []):
            if self._open.pop(child.id, None) is not None:
                # the run that failed, not the parent
                self.summary.blocked[child.id] = failed.id
                self.on_change(Change(child, State.BLOCKED, f"blocked: needs {failed.id}"))
            self._block(child, failed)

    def finish(self, stopped_by: int | None) -> Summary:
        """Return the summary."""
        for run in self._open.values():  # some were done before they heard that they should stop
            ended = (
                self.summary.done if is_done(run.directory(self.study_dir)) else self.summary.left
            )
            ended.append(run.id)
        self.summary.stopped_by = stopped_by if self.summary.left else None
        return self.summary

    def _chain(self, run: PlannedRun) -> int:
        """Return the optimiser steps of a run and the longest chain of runs that need it."""
        after = [self._chain(child) for child in self._children.get(run.id, [])]
        return (run.steps or 1) + max(after, default=0)  # unknown steps count as 1


class Workers(Protocol):
    """Where runs are executed: processes of this machine, tasks of Ray, or jobs of SLURM."""

    def has_room(self) -> bool:
        """Whether another run can be started now."""

    def start(self, run: PlannedRun) -> None:
        """Begin an attempt at a run."""

    def ended(self) -> list[tuple[PlannedRun, str]]:
        """Wait a moment; return the runs whose attempts have ended.

        With each comes why there may have been no attempt at all, if that is known.
        """

    def stop(self, stop: StopSignals) -> list[PlannedRun]:
        """Stop all attempts, as told by a signal or after an error; return their runs."""


def run_all(schedule: Schedule, workers: Workers) -> Summary:
    """Execute the runs of a schedule until none is left, or a signal stops them."""
    with StopSignals() as stop:
        try:
            while not schedule.is_over and stop.number is None:
                while workers.has_room() and (run := schedule.take()) is not None:
                    workers.start(run)
                for run, problem in workers.ended():
                    schedule.ended(run, problem)
        finally:
            for run in workers.stop(stop):
                schedule.ended(run)
    return schedule.finish(stop.number)
