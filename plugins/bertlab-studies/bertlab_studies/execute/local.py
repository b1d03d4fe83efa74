"""Executes the runs of a study on this machine, each in a process of its own."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from bertlab_studies.errors import ExecutorError
from bertlab_studies.execute.execution import FIT, Work, start
from bertlab_studies.execute.run_state import State
from bertlab_studies.execute.schedule import Change, OnChange, Schedule, Summary, run_all
from bertlab_studies.execute.stopping import POLL, StopSignals, stop_all, stop_orphan
from bertlab_studies.execute.warm_parent import WarmParent
from bertlab_studies.plan.plan import PlannedRun

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
DEVICES = "CUDA_VISIBLE_DEVICES"


def run_local(
    plan: Sequence[PlannedRun],
    study_dir: Path,
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
        study_dir: directory of the study.
        workers: runs at a time.
        threads: of each; by default the machine's cores shared among the workers. Their number
            decides the order of sums on a CPU, and so the last digits of results.
        devices: CUDA devices of each; by default those that are visible shared among the workers,
            several workers on one device if there are fewer.
        retries: how often a run that fails is tried again, from its last checkpoint.
        on_change: told of each change.
        program: the command that takes the arguments of ``fit``.

    Raises:
        ExecutorError: if there are fewer devices than asked for, or files cannot be locked.
    """
    environments = worker_environments(workers, threads, devices)
    with WarmParent(program, environments) as parent:
        local = LocalWorkers(study_dir, environments, on_change, program, parent)
        return run_all(Schedule(plan, study_dir, retries, on_change), local)


class LocalWorkers:
    """Processes of this machine, as many at a time as there are environments.

    Args:
        study_dir: directory of the study.
        environments: variables for the process of each worker.
        on_change: told of attempts that begin.
        program: the command that takes the arguments of ``fit``.
        parent: starts the processes.
    """

    def __init__(
        self,
        study_dir: Path,
        environments: Sequence[dict[str, str]],
        on_change: OnChange,
        program: Sequence[str],
        parent: WarmParent,
    ) -> None:
        self.study_dir = study_dir
        self.environments = environments
        self.on_change = on_change
        self.program = program
        self.parent = parent
        self._slots: dict[int, Work | PlannedRun] = {}  # a run alone: somebody else works at it
        self._done: list[PlannedRun] = []  # found done when they were to be started

    def has_room(self) -> bool:
        """Whether a worker has nothing to do, and what it starts runs from is ready."""
        # signals and other runs are looked after meanwhile
        return len(self._slots) < len(self.environments) and self.parent.is_ready()

    def start(self, run: PlannedRun) -> None:
        """Start a process, or wait for the one that another runner left at work."""
        free = next(slot for slot in range(len(self.environments)) if slot not in self._slots)
        if not self._begin(free, run):
            self._slots[free] = run
            text = "is at work since before; waiting for it"
            self.on_change(Change(run, State.RUNNING, text))

    def ended(self) -> list[tuple[PlannedRun, str]]:
        """Return the runs whose processes have ended; wait a moment if there are none."""
        for slot, present in list(self._slots.items()):  # a copy: it changes
            if isinstance(present, PlannedRun):
                self._begin(slot, present)
            elif present.poll() is not None:
                del self._slots[slot]
                self._done.append(present.run)
        ended, self._done = self._done, []
        if not ended:
            time.sleep(POLL)
        return [(run, "") for run in ended]

    def stop(self, stop: StopSignals) -> list[PlannedRun]:
        """Stop the processes, and those that a killed runner left behind."""
        if stop.number is not None:
            for run in self._slots.values():
                if isinstance(run, PlannedRun) and stop_orphan(run, self.study_dir, stop.number):
                    self.on_change(Change(run, State.RUNNING, "told to stop"))
        works = [each for each in self._slots.values() if isinstance(each, Work)]
        stop_all(works, stop)
        return [work.run for work in works]

    def _begin(self, slot: int, run: PlannedRun) -> bool:
        """Begin an attempt; return False if somebody else is at work at the run."""
        environment = self.environments[slot]
        found = start(run, self.study_dir, environment, self.program, self.parent.launch)
        if isinstance(found, Work):
            self._slots[slot] = found
            last = found.attempts[-1]
            text = f"continues, attempt {len(found.attempts)}" if last.resumed else "started"
            self.on_change(Change(run, State.RUNNING, text))
        elif found is State.DONE:
            self._slots.pop(slot, None)
            self._done.append(run)
        return found is not State.RUNNING


def worker_environments(
    workers: int, threads: int | None, devices: int | None
) -> list[dict[str, str]]:
    """Return the environment variables that give each worker its share of the machine.

    Args:
        workers: at least 1.
        threads: of each; by default the cores that this process may use, shared.
        devices: CUDA devices of each; by default those that are visible, shared.

    Raises:
        ExecutorError: if there are fewer devices than asked for, or a number is below 1.
    """
    for name, value in (("workers", workers), ("threads", threads), ("devices", devices)):
        if value is not None and value < 1:
            raise ExecutorError(f"--{name}: found {value}, expected 1 or more")
    each = threads or max(1, _cores() // workers)
    environments = [dict.fromkeys(THREADS, str(each)) for _ in range(workers)]
    if workers == 1 and devices is None:
        return environments
    visible = _visible_devices()
    if devices is not None and workers * devices > len(visible):
        raise ExecutorError(
            f"--devices: {workers} workers with {devices} each need {workers * devices}, but there "
            f"are {len(visible)} CUDA devices; give fewer --workers or --devices, or leave "
            "--devices out"
        )
    share = devices or max(1, len(visible) // workers)
    for number, environment in enumerate(environments):
        if visible:
            first = number * share % len(visible)  # 3 workers on 2 devices -> 0, 1, 0
            environment[DEVICES] = ",".join(visible[first : first + share])
    return environments


def _cores() -> int:
    # SLURM and taskset give fewer cores than cpu_count() says
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _visible_devices() -> list[str]:
    given = os.environ.get(DEVICES)
    if given is not None:
        return [device.strip() for device in given.split(",") if device.strip()]
    import torch  # noqa: PLC0415  slow to import

    return [str(number) for number in range(torch.cuda.device_count())]
