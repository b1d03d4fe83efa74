"""A job of SLURM: what it does, how it ends, and whether it has ended."""

import importlib
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from bertlab_studies.errors import ExecutorError
from bertlab_studies.execute.execution import check_places, execute
from bertlab_studies.execute.local import THREADS
from bertlab_studies.execute.processes import RunProcess, start_fresh
from bertlab_studies.execute.stopping import GRACE, POLL
from bertlab_studies.plan.plan import PlannedRun

_KILL = 600.0  # seconds that SLURM has after SIGTERM to kill a job


class SlurmAttempt:
    """What a job does: one attempt at a run; pickled by submitit.

    Args:
        run: of the study.
        study_dir: directory of the study.
        program: the command that takes the arguments of ``fit``.
        threads: of the run.
        working_directory: of the run.
    """

    def __init__(
        self,
        run: PlannedRun,
        study_dir: Path,
        program: Sequence[str],
        threads: int,
        working_directory: Path,
    ) -> None:
        self.run = run
        self.study_dir = study_dir
        self.program = program
        self.threads = threads
        self.working_directory = working_directory
        self._process: RunProcess | None = None

    def __call__(self) -> int:
        """Make the attempt; see :func:`execute`.

        Raises:
            ExecutorError: if this node does not have the working directory.
        """
        check_places(self.working_directory)
        code = execute(
            self.run,
            self.study_dir,
            environment=dict.fromkeys(THREADS, str(self.threads)),
            program=self.program,
            launch=self._launch,
        )
        if code == 128 + signal.SIGTERM:
            # SLURM's: it kills this process next, and then knows whether the job was cancelled, or
            # is queued again as another job needed the node. One that ends by itself is completed
            time.sleep(_KILL)
        return code

    def checkpoint(self) -> Any:  # noqa: ANN401  submitit's
        """Stop the run, which saves itself; submitit calls this shortly before the time limit.

        Returns:
            What submitit is to call when it has queued the job again.
        """
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + GRACE
            while self._process.poll() is None and time.monotonic() < deadline:
                time.sleep(POLL)
        again = SlurmAttempt(
            self.run, self.study_dir, self.program, self.threads, self.working_directory
        )
        return import_submitit().helpers.DelayedSubmission(again)

    def _launch(
        self, command: Sequence[str], environment: Mapping[str, str], log: int, lock: int
    ) -> RunProcess:
        # SLURM sends the signal to all processes of a job; it would kill a run that does not know
        # it. A process inherits what is blocked
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2})
        try:
            self._process = start_fresh(command, environment, log, lock, self.working_directory)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self._process


def is_over(job: Any, asks_queue: bool) -> bool:  # noqa: ANN401  submitit's
    """Whether a job has ended and is not queued again.

    Args:
        job: of submitit, which knows it from the result, or from ``sacct``.
        asks_queue: also ask ``squeue``, where those leave it open.
    """
    if job.done():
        return True
    # submitit waits for jobs that gave way to another one, also where SLURM cancels them; UNKNOWN
    # are those of a cluster without accounting
    return asks_queue and job.state in ("PREEMPTED", "UNKNOWN") and not in_queue(job.job_id)


def in_queue(job: str) -> bool:
    """Whether a job waits or is at work; also if it cannot be found out."""
    try:
        found = subprocess.run(  # noqa: S603  SLURM's own number
            ["squeue", "--noheader", "--jobs", job],  # noqa: S607  where the cluster has it
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return True
    if found.returncode:  # a job that is gone, or a scheduler that does not answer now
        return "Invalid job id" not in found.stderr
    return bool(found.stdout.strip())


def raised_by(job: Any) -> str:  # noqa: ANN401  submitit's
    """Return in a line what the call of a job raised; nothing if it did not raise or is not over.

    An ExecutorError is returned without its name, which says nothing to the user.
    """
    if not job.paths.result_pickle.is_file():  # submitit would wait for it
        return ""
    outcome, trace = import_submitit().core.utils.pickle_load(job.paths.result_pickle)
    if outcome != "error":
        return ""
    last = str(trace).strip().rpartition("\n")[2]
    return last.removeprefix(f"{ExecutorError.__module__}.{ExecutorError.__qualname__}: ")


def import_submitit() -> ModuleType:
    """Import submitit.

    Raises:
        ExecutorError: if it is not installed.
    """
    try:
        return importlib.import_module("submitit")
    except ImportError:
        raise ExecutorError(
            "--executor slurm: submitit is not installed; install it: pip install "
            "'bertlab-lightning[slurm]'"
        ) from None
