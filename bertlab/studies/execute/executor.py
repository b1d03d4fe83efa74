"""Which executor a study is run by: this machine, Ray or SLURM."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from bertlab.errors import CommandError
from bertlab.studies.execute.local import run_local
from bertlab.studies.execute.ray import run_on_ray
from bertlab.studies.execute.schedule import OnChange, Summary
from bertlab.studies.execute.slurm import run_on_slurm
from bertlab.studies.plan.plan import PlannedRun

Executor = Literal["local", "ray", "slurm"]


def run_on(
    executor: Executor,
    plan: Sequence[PlannedRun],
    study_dir: Path,
    *,
    workers: int = 1,
    threads: int | None = None,
    devices: int | None = None,
    address: str | None = None,
    cpus: float = 1,
    gpus: float = 0,
    slurm: Mapping[str, Any] | None = None,
    retries: int = 1,
    on_change: OnChange,
) -> Summary:
    """Execute the runs that are not done.

    Args:
        executor: that does it.
        plan: the runs, parents before their children.
        study_dir: directory of the study.
        workers: runs at a time on this machine.
        threads: CPU threads of each; by default all cores shared among the workers, or the CPUs of
            its job of SLURM.
        devices: CUDA devices of each on this machine.
        address: of a Ray cluster; one is started on this machine if None.
        cpus: of each run, for Ray.
        gpus: of each run, for Ray.
        slurm: what a job asks for; what the study's ``slurm/options.yaml`` has if None.
        retries: how often a run that fails is tried again, from its last checkpoint.
        on_change: told of each change.

    Raises:
        ExecutorError: if the workers cannot be had.
    """
    run = {
        "local": partial(run_local, workers=workers, threads=threads, devices=devices),
        "ray": partial(run_on_ray, address=address, cpus=cpus, gpus=gpus),
        "slurm": partial(run_on_slurm, options=slurm, threads=threads),
    }[executor]
    return run(plan, study_dir, retries=retries, on_change=on_change)


def check_numbers(given: Mapping[str, float | None]) -> None:
    """Refuse a number that is out of range.

    Args:
        given: numbers by their options; None is fine.

    Raises:
        CommandError: names the option.
    """
    for name, value in given.items():
        least = 1 if name in ("workers", "threads") else 0
        if value is not None and not value >= least:  # NaN is not either
            raise CommandError(f"{name}: found {value}, expected {least} or more")
