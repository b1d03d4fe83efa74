"""What executes the runs of a study: the contract of such executors, and that of this machine."""

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from bertlab import CommandError, nearest
from bertlab.extend import check_processes
from bertlab_studies.execute.contract import LOCAL_EXECUTOR, Executor, load_executor

if TYPE_CHECKING:
    from bertlab_studies.execute.schedule import OnChange, Summary
    from bertlab_studies.plan.plan import PlannedRun

MOST_OF_A_NODE = 4096
Number = TypeVar("Number", int, float, int | None)
ExecuteAll = Callable[..., "Summary"]
"""``execute`` of an executor, which knows where to keep what outlasts it."""


class StudyExecutor(Executor, ABC):
    """Executes the runs of studies: ``bertlab study run STUDY --executor NAME``.

    ``Schedule`` and ``run_all`` of ``bertlab_studies.execute.schedule`` say which run is next, try
    those that fail again, and stop all upon a signal; ``execute`` of
    ``bertlab_studies.execute.execution`` makes one attempt at a run, on any machine that sees the
    directory of the study. An executor brings the ``Workers`` between them.

    Attributes:
        elsewhere: runs are executed on other machines, which may have text that this one lacks.
    """

    elsewhere: ClassVar[bool] = True

    @abstractmethod
    def execute(
        self,
        plan: "Sequence[PlannedRun]",
        study_dir: Path,
        *,
        kept_in: Path,
        on_change: "OnChange",
    ) -> "Summary":
        """Execute the runs that are not done; those of the trials of a study come first.

        Args:
            plan: the runs, parents before their children.
            study_dir: directory of their study, which is there.
            kept_in: directory of the study that the user has named, for what should outlast the
                call, such as options; the trials of a study have a ``study_dir`` of their own in
                it.
            on_change: to be called for each change.

        Returns:
            How far the runs are, once each is done, has failed or was stopped.

        Raises:
            ExecutorError: what is needed is not installed, or cannot be reached.
        """


class Local(StudyExecutor):
    """Executes the runs of a study on this machine, several at a time.

    Args:
        workers: runs at a time.
        threads: CPU threads of each; by default all cores shared among the workers.
        devices: CUDA devices of each; by default those that are there shared among the workers.
        retries: how often a run that fails is tried again, from its last checkpoint.
    """

    elsewhere = False

    def __init__(
        self,
        workers: int = 1,
        threads: int | None = None,
        devices: int | None = None,
        retries: int = 1,
    ) -> None:
        self.workers = check_number("workers", workers, 1, float("inf"))
        self.threads = check_number("threads", threads, 1)
        self.devices = check_number("devices", devices, 0, float("inf"))
        self.retries = check_number("retries", retries, 0, float("inf"))
        check_processes("--workers", workers, 1)
        check_processes("--threads", threads, 1)

    def execute(  # noqa: D102  the contract's
        self,
        plan: "Sequence[PlannedRun]",
        study_dir: Path,
        *,
        kept_in: Path,
        on_change: "OnChange",
    ) -> "Summary":
        del kept_in
        from bertlab_studies.execute.local import run_local  # noqa: PLC0415  torch

        return run_local(
            plan,
            study_dir,
            workers=self.workers,
            threads=self.threads,
            devices=self.devices,
            retries=self.retries,
            on_change=on_change,
        )


def check_number(
    name: str, found: Number, least: int, most: float = MOST_OF_A_NODE, shared: bool = False
) -> Number:
    """Return the number of an option, if it is given and in range.

    Args:
        name: of the option.
        found: the number; None if it was not given.
        least: that it may be.
        most: that it may be; of another machine nobody knows how many it has.
        shared: runs may have a part of one, such as half of a GPU.

    Raises:
        CommandError: it is no number, or out of range.
    """
    whole = isinstance(found, Integral) and not isinstance(found, bool)  # NumPy's too
    if found is not None and not whole and not (shared and isinstance(found, float)):
        expected = "a number" if shared else "a whole number"
        raise CommandError(f"{name}: found {found!r}, expected {expected}")
    if found is not None and not found >= least:  # NaN is not either
        raise CommandError(f"{name}: found {found}, expected {least} or more")
    if found is not None and not found <= most:
        raise CommandError(f"{name}: found {found}, expected at most {most:,}")
    return found


def make_executor(name: str, options: Mapping[str, Any]) -> StudyExecutor:
    """Make the executor of a study.

    Raises:
        PluginError: there is none of that name, or it cannot be used.
        CommandError: it has no such option, a value is wrong, or it executes no studies.
    """
    chosen = load_executor(name, StudyExecutor)
    known = signature(chosen).parameters
    for option in options:
        if option not in known:
            raise CommandError(
                f"{option}: the executor {name} has no such option{nearest(option, known)} "
                f"(there are: {', '.join(known)})"
            )
    made = chosen(**options)
    assert isinstance(made, StudyExecutor)
    return made


def go_on_with(study_dir: Path, executor: str) -> str:
    """Return the command that goes on with a study by the same executor, for messages."""
    option = [] if executor == LOCAL_EXECUTOR else ["--executor", executor]
    return shlex.join(["bertlab", "study", "run", str(study_dir), *option])
