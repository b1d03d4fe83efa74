"""Executes the runs of a study on Ray: on this machine, or a cluster with a shared file system."""

import importlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from bertlab.api import ConfigError
from bertlab_studies.errors import ExecutorError
from bertlab_studies.execute.execution import FIT, check_places, execute
from bertlab_studies.execute.local import THREADS
from bertlab_studies.execute.run_state import State, is_done
from bertlab_studies.execute.schedule import Change, OnChange, Schedule, Summary, run_all
from bertlab_studies.execute.stopping import GRACE, StopSignals
from bertlab_studies.plan.plan import PlannedRun

LOST_NODES = 10  # times that Ray starts a task again because the machine under it went away
OBJECT_STORE = 100 * 2**20  # bytes; Ray's default is a third of the memory, and we pass no data
_WAIT = 0.5  # seconds between looks at signals
_CONNECT = 5.0  # seconds to reach a port
_CHECK = 60.0  # seconds to hear whether it is Ray's


def run_on_ray(
    plan: Sequence[PlannedRun],
    study_dir: Path,
    *,
    address: str | None = None,
    cpus: float = 1,
    gpus: float = 0,
    retries: int = 1,
    on_change: OnChange,
    program: Sequence[str] = FIT,
) -> Summary:
    """Execute the runs that are not done, each as a Ray task of its own.

    The study, and the data that its configs name, have to be on a file system that all nodes
    share, and bertlab installed on each. A run whose node goes away goes on from its last
    checkpoint on another one. Ctrl-C or SIGTERM stops the runs; all can be gone on with.

    Args:
        plan: the runs, parents before their children.
        study_dir: directory of the study.
        address: of a cluster, ``HOST:PORT`` or ``auto``; None starts Ray on this machine.
        cpus: of each run; also its threads.
        gpus: of each run; a part of one is possible.
        retries: how often a run that fails is tried again, from its last checkpoint.
        on_change: told of each change.
        program: the command that takes the arguments of ``fit``.

    Raises:
        ExecutorError: if Ray is not installed, the cluster cannot be reached, none of its nodes has
            what a run needs, or a node does not see the study.
    """
    study_dir = study_dir.resolve()
    with connection(address) as ray:
        check_resources(ray.nodes(), cpus, gpus)
        # Ray starts again what a lost node had; what fails is Schedule's to try again
        task = ray.remote(_attempt).options(
            num_cpus=cpus, num_gpus=gpus, max_retries=LOST_NODES, retry_exceptions=False
        )
        environment = dict.fromkeys(THREADS, str(max(1, int(cpus))))

        def submit(run: PlannedRun) -> object:
            return task.remote(run, study_dir, environment, program, Path.cwd())

        workers = RayWorkers(ray, submit, study_dir, on_change)
        return run_all(Schedule(plan, study_dir, retries, on_change), workers)


class RayWorkers:
    """Tasks of Ray, which decides itself how many there are at a time.

    Args:
        ray: the module, connected.
        submit: hands a run to Ray; returns the reference of its task.
        study_dir: directory of the study.
        on_change: told of runs that were handed over.
    """

    def __init__(
        self,
        ray: ModuleType,
        submit: Callable[[PlannedRun], Any],
        study_dir: Path,
        on_change: OnChange,
    ) -> None:
        self.ray = ray
        self.submit = submit
        self.study_dir = study_dir
        self.on_change = on_change
        self._tasks: dict[Any, PlannedRun] = {}

    def has_room(self) -> bool:
        """Return True: Ray keeps the tasks that have to wait."""
        return True

    def start(self, run: PlannedRun) -> None:
        """Hand a run to Ray."""
        self._tasks[self.submit(run)] = run
        self.on_change(Change(run, State.RUNNING, "handed to Ray"))

    def ended(self) -> list[tuple[PlannedRun, str]]:
        """Return the runs whose tasks have ended, and why if nothing of them was executed.

        Raises:
            ConfigError: what a task raised.
        """
        finished, _ = self.ray.wait(list(self._tasks), timeout=_WAIT)
        runs = {each: self._tasks.pop(each) for each in finished}
        return [(run, self._problem(each, run)) for each, run in runs.items()]

    def stop(self, stop: StopSignals) -> list[PlannedRun]:
        """Cancel the tasks; each stops its process, as by Ctrl-C, and writes down how it ended."""
        del stop
        for reference in self._tasks:
            self.ray.cancel(reference)
        if self._tasks:
            self.ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=2 * GRACE)
        return []

    def _problem(self, reference: Any, run: PlannedRun) -> str:  # noqa: ANN401  Ray's
        """Return why a task ended without an attempt; empty if it made one."""
        try:
            if self.ray.get(reference) == 0 and not is_done(run.directory(self.study_dir)):
                return (
                    f"it ended on a node that does not share {self.study_dir}; put the study on a "
                    "file system that all nodes share"
                )
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, ConfigError):
                raise error.cause from None
            raise
        except self.ray.exceptions.RayError as error:
            return " ".join(str(error).split())
        return ""


def _attempt(
    run: PlannedRun,
    study_dir: Path,
    environment: dict[str, str],
    program: Sequence[str],
    working_directory: Path,
) -> int:
    """Make one attempt at a run, on whatever node this is."""
    check_places(study_dir, working_directory)
    return execute(
        run,
        study_dir,
        environment=environment,
        program=program,
        working_directory=working_directory,
    )


@contextmanager
def connection(address: str | None, object_store: int = OBJECT_STORE) -> Iterator[ModuleType]:
    """Start Ray on this machine, or join a cluster; leave it at the end.

    Args:
        address: of the cluster; None starts Ray here.
        object_store: bytes of memory for data, where it is started.

    Raises:
        ExecutorError: if Ray is not installed or the cluster cannot be reached.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    # a run without GPUs sees those that the machine shows it, as Ray will have it in future
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        raise ExecutorError(
            "--executor ray: Ray is not installed; install it: pip install 'bertlab-lightning[ray]'"
        ) from None
    if address is not None:
        _check_address(address)
    local = {"include_dashboard": False, "object_store_memory": object_store}
    try:
        ray.init(
            address=address or "local",
            log_to_driver=False,
            logging_level="ERROR",
            **(local if address is None else {}),
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ExecutorError(_unreachable(address, " ".join(str(error).split()))) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def check_resources(nodes: Sequence[dict[str, Any]], cpus: float, gpus: float) -> None:
    """Refuse what no node has, as Ray would wait for such a node for ever.

    Raises:
        ExecutorError: if a run fits no node.
    """
    found = [
        (each["Resources"].get("CPU", 0.0), each["Resources"].get("GPU", 0.0))
        for each in nodes
        if each["Alive"]
    ]
    if not any(cpus <= here and gpus <= there for here, there in found):
        have = ", ".join(sorted({f"{here:g} CPUs and {there:g} GPUs" for here, there in found}))
        raise ExecutorError(
            f"--executor ray: no node has the {cpus:g} CPUs and {gpus:g} GPUs of a run; there are "
            f"nodes of {have}; give fewer --cpus or --gpus"
        )


def _check_address(address: str) -> None:
    """Find out whether Ray answers, as its own client tries for minutes and then exits."""
    if address in ("auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ExecutorError(
            f"--address: found {address!r}, expected HOST:PORT of a Ray cluster, or auto"
        )
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT).close()
    except (OSError, OverflowError) as error:
        raise ExecutorError(_unreachable(address, str(error))) from None
    if address.startswith("ray://"):
        return
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        code = subprocess.run(  # noqa: S603
            command, timeout=_CHECK, capture_output=True, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        code = 1
    if code:
        raise ExecutorError(_unreachable(address, "what answers there is not Ray, or another one"))


def _unreachable(address: str | None, reason: str) -> str:
    if address is None:
        return f"--executor ray: Ray cannot be started on this machine: {reason}"
    return (
        f"--address: no Ray cluster at {address}: {reason}; start one with `ray start --head`, or "
        "leave --address out to use this machine"
    )
