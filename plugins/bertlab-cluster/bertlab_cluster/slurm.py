"""Executes the runs of a study as jobs of SLURM, which submitit submits and queues again.

``STUDY/slurm/options.yaml`` holds what a job asks for, ``STUDY/slurm/<id>`` what submitit keeps of
the jobs of a run: script, pickled call, logs and result. The number of the last job is read from
there, so that a runner that comes later finds a job that is still queued, and does not submit it
again.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from filelock import FileLock

from bertlab import nearest
from bertlab.extend import make_folder, read_config, write_text
from bertlab_cluster.slurm_job import (
    SlurmAttempt,
    import_submitit,
    in_queue,
    is_over,
    raised_by,
)
from bertlab_studies.errors import ExecutorError
from bertlab_studies.execute.execution import FIT, settle
from bertlab_studies.execute.run_state import Outcome, State, is_done, read_attempts
from bertlab_studies.execute.schedule import Change, OnChange, Schedule, Summary, run_all
from bertlab_studies.execute.stopping import StopSignals
from bertlab_studies.plan.plan import PlannedRun

FOLDER = "slurm"  # in the directory of a study
OPTIONS = "options.yaml"
DEFAULTS = {"time": 24 * 60, "cpus_per_task": 4}  # minutes; submitit's own are 5, and none
REQUEUES = 100  # times that a job is queued again after its time limit; submitit's own is 3
# what a job is called and how many tasks it has is ours; the others are of no use here
_OURS = ("job_name", "nodes", "ntasks_per_node", "array_parallelism", "num_gpus", "dependency")
_WAIT = 1.0  # seconds between looks at the jobs
_AGAIN = 60.0  # seconds until SLURM is asked again, so that it is not kept busy


def run_on_slurm(
    plan: Sequence[PlannedRun],
    study_dir: Path,
    *,
    options: Mapping[str, Any] | None = None,
    kept_in: Path | None = None,
    threads: int | None = None,
    retries: int = 1,
    on_change: OnChange,
    program: Sequence[str] = FIT,
) -> Summary:
    """Execute the runs that are not done, each as a job of its own.

    A job is submitted once the run whose weights it needs is done. One that reaches its time limit
    saves itself, is queued again and goes on. The study, and the data that its configs name, have
    to be on a file system that all nodes share, and bertlab installed on each. Ctrl-C and SIGTERM
    end the waiting; jobs go on, and the next call waits for them.

    Args:
        plan: the runs, parents before their children.
        study_dir: directory of the study.
        options: what a job asks for, by submitit's names; those that are kept if None.
        kept_in: file of the options; the ``options.yaml`` of ``study_dir`` if None. The trials of a
            study have that of the study.
        threads: of each run; as many as its job has CPUs if None.
        retries: how often a run that fails is tried again, from its last checkpoint.
        on_change: told of each change.
        program: the command that takes the arguments of ``fit``.

    Raises:
        ExecutorError: if submitit or SLURM is not there, an option is wrong, or SLURM takes no job.
    """
    submitit = import_submitit()
    study_dir = study_dir.resolve()
    if not str(study_dir).isprintable():  # a line break would end the option of a job's script
        raise ExecutorError(
            f"--study_dir: found {str(study_dir)!r}, expected a path without control characters"
        )
    if "%" in str(study_dir):
        raise ExecutorError(
            f"--study_dir: found {study_dir}; SLURM takes % in a path for one of its patterns "
            "(%j is a job's number); choose another directory"
        )
    kept_in = (kept_in or study_dir / FOLDER / OPTIONS).resolve()
    asked = job_options(submitit, kept_in, options)

    def attempt(run: PlannedRun) -> SlurmAttempt:
        return SlurmAttempt(run, study_dir, program, threads or asked["cpus_per_task"], Path.cwd())

    jobs = SlurmJobs(submitit, study_dir, asked, kept_in, attempt, on_change)
    summary = run_all(Schedule(plan, study_dir, retries, on_change), jobs)
    summary.jobs = jobs.left_queued
    return summary


def job_options(
    submitit: ModuleType, path: Path, given: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return what a job asks for; keep it in the study's ``options.yaml``.

    Args:
        submitit: the module.
        path: of that file.
        given: replaces what the file has; None takes the file as it is, edits of the user included.

    Raises:
        ExecutorError: if an option is unknown or has a value that submitit does not take.
    """
    if given is not None:
        where, options = "--slurm", {**DEFAULTS, **given}
    elif path.is_file():
        where, options = str(path), {**DEFAULTS, **read_config(path)}
    else:
        where, options = "--slurm", dict(DEFAULTS)
    names = sorted(submitit.SlurmExecutor._valid_parameters() - set(_OURS))
    for name in options:
        if name not in names:
            raise ExecutorError(
                f"{where}: found {name!r}{nearest(name, names)} (there are: {', '.join(names)}; "
                "others go into additional_parameters)"
            )
    for key, expected in (("time", "minutes"), ("cpus_per_task", "a number of CPUs")):
        if type(options[key]) is not int or options[key] < 1:  # to isinstance(), True is an int
            raise ExecutorError(f"{where}: {key}: found {options[key]!r}, expected {expected}")
    if given is not None or not path.is_file():
        make_folder(path.parent)
        write_text(path, yaml.safe_dump(options, sort_keys=False, allow_unicode=True))
    return options


class SlurmJobs:
    """Jobs of SLURM, which decides itself how many there are at a time.

    Args:
        submitit: the module.
        study_dir: directory of the study, absolute.
        options: what a job asks for.
        kept_in: file of the options, for messages.
        attempt: what the job of a run does.
        on_change: told of jobs that were submitted or found.

    Attributes:
        left_queued: numbers of the jobs that go on when the waiting was ended by a signal.
    """

    def __init__(
        self,
        submitit: ModuleType,
        study_dir: Path,
        options: Mapping[str, Any],
        kept_in: Path,
        attempt: Callable[[PlannedRun], SlurmAttempt],
        on_change: OnChange,
    ) -> None:
        self.submitit = submitit
        self.study_dir = study_dir
        self.options = options
        self.kept_in = kept_in
        self.attempt = attempt
        self.on_change = on_change
        self.left_queued: list[str] = []
        self._jobs: dict[str, tuple[PlannedRun, Any, int]] = {}  # and attempts before it, by id
        self._took_one = False
        self._refused: PlannedRun | None = None
        self._again = 0.0  # when it is submitted again
        self._asked = time.monotonic()  # the queue for jobs of which sacct does not tell

    def has_room(self) -> bool:
        """Whether SLURM took the last job; it keeps those that have to wait."""
        return self._refused is None

    def start(self, run: PlannedRun) -> None:
        """Submit a job, or wait for the one that is in the queue since before.

        Raises:
            ExecutorError: if SLURM does not take the first job.
        """
        folder = self.study_dir / FOLDER / run.id
        make_folder(folder)
        attempts = len(read_attempts(run, self.study_dir))
        with FileLock(folder / "submit.lock"):  # of two runners, the second finds the first's job
            job = self._queued(folder)
            if job is not None:
                text = f"job {job.job_id} is in the queue since before; waiting for it"
            else:
                try:
                    job = self._submit(run, folder)
                except (RuntimeError, OSError) as error:  # those of submitit are RuntimeErrors
                    self._note_refusal(run, " ".join(str(error).split()))
                    return
                text = f"job {job.job_id}"
        self._took_one = True
        self._jobs[run.id] = run, job, attempts
        self.on_change(Change(run, State.RUNNING, text))

    def ended(self) -> list[tuple[PlannedRun, str]]:
        """Wait a moment; return the runs whose jobs have ended, and why if no attempt tells."""
        time.sleep(_WAIT)
        asks = time.monotonic() > self._asked + _AGAIN
        self._asked = time.monotonic() if asks else self._asked
        over = [each for each in self._jobs.values() if is_over(each[1], asks)]
        for run, _, _ in over:
            del self._jobs[run.id]
        if self._refused is not None and time.monotonic() > self._again:
            refused, self._refused = self._refused, None
            self.start(refused)
        return [(run, self._problem(run, job, attempts)) for run, job, attempts in over]

    def stop(self, stop: StopSignals) -> list[PlannedRun]:
        """Leave the jobs in the queue after a signal; cancel them after an error."""
        for _, job, _ in self._jobs.values():
            if stop.number is None:
                job.cancel(check=False)
            else:
                self.left_queued.append(job.job_id)
        return []

    def _note_refusal(self, run: PlannedRun, reason: str) -> None:
        """Try again later if SLURM took others: it may have as many as a user is allowed to have.

        Raises:
            ExecutorError: if it took none.
        """
        if not self._took_one:
            raise ExecutorError(
                f"--executor slurm: {reason}; the options of jobs are in {self.kept_in}"
            ) from None
        if not self._again:
            self.on_change(Change(run, State.READY, f"SLURM takes no job more for now: {reason}"))
        self._refused, self._again = run, time.monotonic() + _AGAIN

    def _submit(self, run: PlannedRun, folder: Path) -> Any:  # noqa: ANN401  submitit's
        executor = self.submitit.SlurmExecutor(folder, max_num_timeout=REQUEUES)
        asked = dict(self.options)
        asked["additional_parameters"] = {
            "requeue": True,
            **(asked.get("additional_parameters") or {}),
        }
        # since SLURM 22.05 srun does not take it over from sbatch
        asked["srun_args"] = [
            *(asked.get("srun_args") or ()),
            f"--cpus-per-task={asked['cpus_per_task']}",
        ]
        executor.update_parameters(**asked, job_name=run.id)
        return executor.submit(self.attempt(run))

    def _queued(self, folder: Path) -> Any:  # noqa: ANN401  submitit's
        """Return the last job of a run if it has not ended; else None.

        A runner that is killed between ``sbatch`` and the files below leaves a job that ends by
        itself after a minute, as it does not find the call that it is to make.
        """
        scripts = sorted(folder.glob("*_submission.sh"), key=lambda each: each.stat().st_mtime)
        if not scripts:
            return None
        # "4711_submission.sh" -> "4711"
        job = self.submitit.SlurmJob(folder, scripts[-1].name.partition("_")[0])
        return job if not job.done(force_check=True) and in_queue(job.job_id) else None

    def _problem(self, run: PlannedRun, job: Any, attempts_before: int) -> str:  # noqa: ANN401
        """Return why a job ended if the attempts at the run do not tell; else an empty string."""
        settle(run, self.study_dir)  # one that was killed with its job
        attempts = read_attempts(run, self.study_dir)
        state = job.get_info().get("State", "UNKNOWN")
        begun = len(attempts) > attempts_before
        tells = begun and attempts[-1].outcome is not Outcome.LOST and "CANCELLED" not in state
        if is_done(run.directory(self.study_dir)) or tells:
            return ""
        return f"job {job.job_id}: {raised_by(job) or state.lower()}; see {job.paths.stderr}"
