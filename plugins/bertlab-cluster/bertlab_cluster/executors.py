"""The executors of this package; what they do is imported when they do it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertlab import OrderedMap
from bertlab_studies.execute.executor import StudyExecutor, check_number

if TYPE_CHECKING:
    from bertlab_studies.execute.schedule import OnChange, Summary
    from bertlab_studies.plan.plan import PlannedRun


class Ray(StudyExecutor):
    """Spreads the runs of a study, or the tokenising of a corpus, over a Ray cluster.

    Args:
        address: of the cluster, ``HOST:PORT`` or ``auto``; one is started on this machine if not
            given.
        cpus: of each run; also its threads.
        gpus: of each run; a part of one is possible.
        retries: how often a run that fails is tried again, from its last checkpoint.
    """

    only_for_studies = ("cpus", "gpus", "retries")

    def __init__(
        self, address: str | None = None, cpus: float = 1, gpus: float = 0, retries: int = 1
    ) -> None:
        self.address = address
        self.cpus = check_number("cpus", cpus, 0, shared=True)
        self.gpus = check_number("gpus", gpus, 0, shared=True)
        self.retries = check_number("retries", retries, 0, float("inf"))

    @contextmanager
    def mapping(self, workers: int | None) -> Iterator[OrderedMap]:  # noqa: D102  the contract's
        from bertlab_cluster.prepare_ray import OBJECT_STORE, map_on_ray  # noqa: PLC0415
        from bertlab_cluster.ray import connection  # noqa: PLC0415

        with connection(self.address, OBJECT_STORE) as ray:
            yield partial(map_on_ray, ray, workers)

    def execute(  # noqa: D102  the contract's
        self,
        plan: "Sequence[PlannedRun]",
        study_dir: Path,
        *,
        kept_in: Path,
        on_change: "OnChange",
    ) -> "Summary":
        del kept_in
        from bertlab_cluster.ray import run_on_ray  # noqa: PLC0415

        return run_on_ray(
            plan,
            study_dir,
            address=self.address,
            cpus=self.cpus,
            gpus=self.gpus,
            retries=self.retries,
            on_change=on_change,
        )


class Slurm(StudyExecutor):
    """Makes each run of a study a job of SLURM.

    Args:
        slurm: what a job asks for, such as '{partition: gpu, time: 240, gpus_per_node: 1}'; kept in
            slurm/options.yaml of the study's directory, whose content counts if this is not given.
        threads: CPU threads of each run; as many as its job has CPUs if not given.
        retries: how often a run that fails is tried again, from its last checkpoint.
    """

    def __init__(
        self, slurm: dict[str, Any] | None = None, threads: int | None = None, retries: int = 1
    ) -> None:
        self.slurm: Mapping[str, Any] | None = slurm
        self.threads = check_number("threads", threads, 1)
        self.retries = check_number("retries", retries, 0, float("inf"))

    def execute(  # noqa: D102  the contract's
        self,
        plan: "Sequence[PlannedRun]",
        study_dir: Path,
        *,
        kept_in: Path,
        on_change: "OnChange",
    ) -> "Summary":
        from bertlab_cluster.slurm import FOLDER, OPTIONS, run_on_slurm  # noqa: PLC0415

        return run_on_slurm(
            plan,
            study_dir,
            options=self.slurm,
            kept_in=kept_in / FOLDER / OPTIONS,
            threads=self.threads,
            retries=self.retries,
            on_change=on_change,
        )
