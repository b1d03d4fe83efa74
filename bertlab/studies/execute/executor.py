"""What executes the runs of a study, by the options of ``bertlab study run``."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from bertlab.errors import CommandError
from bertlab.studies.execute.local import run_local
from bertlab.studies.execute.ray import run_on_ray
from bertlab.studies.execute.schedule import OnChange, Summary
from bertlab.studies.plan.plan import PlannedRun


class ExecuteAll(Protocol):
    """Executes the runs that are not done."""

    def __call__(
        self, plan: Sequence[PlannedRun], study_dir: Path, *, on_change: OnChange
    ) -> Summary:
        """Return how far they are, once each is done, has failed or was stopped."""


def executor_of(
    workers: int,
    threads: int | None,
    devices: int | None,
    retries: int,
    executor: Literal["local", "ray"],
    address: str | None,
    cpus: float,
    gpus: float,
) -> ExecuteAll:
    """Return what executes runs.

    Args:
        workers: runs at a time on this machine.
        threads: CPU threads of each; by default all cores shared among the workers.
        devices: CUDA devices of each; by default those that are there shared among the workers.
        retries: how often a run that fails is tried again, from its last checkpoint.
        executor: ``ray`` spreads the runs over a Ray cluster.
        address: of the cluster; one is started on this machine if None.
        cpus: of each run, for Ray.
        gpus: of each run, for Ray.

    Raises:
        CommandError: if a number is out of range.
    """
    for name, given, least in (
        ("workers", workers, 1),
        ("threads", threads, 1),
        ("devices", devices, 0),
        ("retries", retries, 0),
        ("cpus", cpus, 0),
        ("gpus", gpus, 0),
    ):
        if given is not None and not given >= least:  # NaN is not either
            raise CommandError(f"{name}: found {given}, expected {least} or more")
    if executor == "local":
        return partial(
            run_local, workers=workers, threads=threads, devices=devices, retries=retries
        )
    return partial(run_on_ray, address=address, cpus=cpus, gpus=gpus, retries=retries)
