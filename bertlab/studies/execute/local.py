"""The runs of a study on this machine: which is next, what failed, which wait for it in vain."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from bertlab.errors import ExecutorError
from bertlab.studies.execute.execution import (
    FIT,
    POLL,
    StopSignals,
    Work,
    start,
    stop_all,
    stop_orphan,
)
from bertlab.studies.execute.run_state import (
    State,
)
from bertlab.studies.execute.schedule import Change, OnChange, Schedule, Summary
from bertlab.studies.plan.plan import PlannedRun

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
DEVICES = "CUDA_VISIBLE_DEVICES"


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
        ExecutorError: if there are fewer devices than asked for, or files cannot be locked.
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
