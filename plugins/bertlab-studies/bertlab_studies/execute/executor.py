"""What executes the runs of a study, by the options of ``bertlab study run``."""

import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from bertlab.errors import CommandError, check_processes
from bertlab_cluster.ray import run_on_ray
from bertlab_cluster.slurm import FOLDER, OPTIONS, run_on_slurm
from bertlab_studies.execute.local import run_local
from bertlab_studies.execute.schedule import OnChange, Summary
from bertlab_studies.plan.plan import PlannedRun

_MOST_OF_A_NODE = 4096
Executor = Literal["local", "ray", "slurm"]


class ExecuteAll(Protocol):
    """Executes the runs that are not done."""

    def __call__(
        self, plan: Sequence[PlannedRun], study_dir: Path, *, on_change: OnChange
    ) -> Summary:
        """Return how far they are, once each is done, has failed or was stopped."""


def executor_of(
    study_dir: Path,
    *,
    workers: int,
    threads: int | None,
    devices: int | None,
    retries: int,
    executor: Executor,
    address: str | None,
    cpus: float,
    gpus: float,
    slurm: Mapping[str, Any] | None,
) -> ExecuteAll:
    """Return what executes the runs of a study, and of its trials.

    Args:
        study_dir: directory of the study, which keeps what jobs ask for.
        workers: runs at a time on this machine.
        threads: CPU threads of each; by default all cores shared among the workers, or the CPUs of
            its job of SLURM.
        devices: CUDA devices of each; by default those that are there shared among the workers.
        retries: how often a run that fails is tried again, from its last checkpoint.
        executor: ``ray`` spreads the runs over a Ray cluster, ``slurm`` makes each a job.
        address: of the cluster; one is started on this machine if None.
        cpus: of each run, for Ray.
        gpus: of each run, for Ray.
        slurm: what a job asks for; what the study's ``slurm/options.yaml`` has if None.

    Raises:
        CommandError: if a number is out of range.
        ConfigError: if there are more workers or threads than a machine can have.
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
    # of another machine nobody knows how many it has; Ray waits for what none has
    for name, count in (("threads", threads or 0), ("cpus", cpus), ("gpus", gpus)):
        if not count <= _MOST_OF_A_NODE:
            raise CommandError(f"{name}: found {count}, expected at most {_MOST_OF_A_NODE:,}")
    if executor == "local":
        check_processes("--workers", workers, 1)
        check_processes("--threads", threads, 1)
    if executor == "ray":
        return partial(run_on_ray, address=address, cpus=cpus, gpus=gpus, retries=retries)
    if executor == "slurm":
        kept_in = study_dir / FOLDER / OPTIONS
        return partial(
            run_on_slurm, options=slurm, kept_in=kept_in, threads=threads, retries=retries
        )
    return partial(run_local, workers=workers, threads=threads, devices=devices, retries=retries)


def go_on_with(study_dir: Path, executor: Executor) -> str:
    """Return the command that goes on with a study by the same executor, for messages."""
    option = [] if executor == "local" else ["--executor", executor]
    return shlex.join(["bertlab", "study", "run", str(study_dir), *option])
