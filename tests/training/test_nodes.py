"""The scripts of docs/cluster.md: two processes as two machines are one run."""

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.training.gate import FOLDER
from tests.training.test_devices import assert_same_end

SCRIPTS = Path(__file__).parents[2] / "docs" / "cluster"
STARTED: list[subprocess.Popen[str]] = []
LONGER = ("--trainer.max_steps=60", "--trainer.val_check_interval=5")

# starts a process for each task, as srun does, and gives them the signals that SLURM sends
SRUN = """#!/usr/bin/env bash
for task in 0 1; do
  SLURM_PROCID=$task SLURM_NODEID=$task SLURM_LOCALID=0 BERTLAB_CACHE=$CACHES/$task "$@" &
  echo $! >> "$CACHES/processes"
done
wait -n; code=$?
wait -n; exit $((code | $?))
"""
SCONTROL = """#!/usr/bin/env bash
echo "$@" >> "$CACHES/scontrol"
"""

# "bucket://" is this disk, which all processes see and none takes for its own
SITECUSTOMIZE = """
import fsspec
from fsspec.implementations.local import LocalFileSystem


class Bucket(LocalFileSystem):
    protocol = "bucket"

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("bucket://"))


fsspec.register_implementation("bucket", Bucket)
"""


@pytest.fixture
def one(tiny_config: Path, tmp_path: Path, bertlab: Command) -> Path:
    run = tmp_path / "one"
    given = ("--config", tiny_config, "--run_dir", run, "--seed_everything", "1")
    code, _, error = bertlab("fit", *given, *LONGER)
    assert code == 0, error
    return run


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What a job of SLURM finds, with this environment's commands on its path."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (commands / name).write_text(text)
        (commands / name).chmod(stat.S_IRWXU)
    path = os.pathsep.join([str(commands), str(Path(sys.executable).parent), os.environ["PATH"]])
    return os.environ | {"PATH": path, "CACHES": str(tmp_path), "OMP_NUM_THREADS": "1"}


def start(script: str, environment: dict[str, str], *arguments: object) -> subprocess.Popen[str]:
    machine = subprocess.Popen(
        [str(SCRIPTS / script), *map(str, arguments), *LONGER, "--trainer.accelerator=cpu"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    STARTED.append(machine)
    return machine


@pytest.fixture(autouse=True)
def _none_is_left() -> Iterator[None]:
    """Kill what a failed test leaves: other tests would wait beside it, and be blamed for it."""
    yield
    while STARTED:
        with STARTED.pop() as machine:
            for process in list(processes_of(machine.pid)) if machine.poll() is None else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)


def wait_for(there: Callable[[], bool], machine: subprocess.Popen[str]) -> None:
    """Wait until something is there; fail if the machine ends before."""
    while not there():
        assert machine.poll() is None, machine.communicate()
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def processes_of(process: int) -> Iterator[int]:
    """Yield a process and all that it and those have started."""
    yield process
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        for child in children.read_text("ascii").split():
            yield from processes_of(int(child))


def is_open(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.nightly
def test_torchrun_on_two_machines(
    one: Path, tiny_config: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    shared = {"NODES": "2", "MASTER": "127.0.0.1", "PORT": str(free_port())}
    machines = [
        start(
            "fit-torchrun.sh",
            environment | shared | {"BERTLAB_CACHE": str(tmp_path / str(n))},
            tiny_config,
            tmp_path / "two",
        )
        for n in range(2)
    ]
    for machine in machines:
        printed, _ = machine.communicate(timeout=200)
        assert machine.returncode == 0, printed
    assert_same_end(one, tmp_path / "two")


@pytest.mark.nightly
def test_machines_with_caches_of_their_own_read_one_store_behind_a_url(
    tiny_config: Path, corpus_file: Path, tmp_path: Path, environment: dict[str, str],
    bertlab: Command,
) -> None:  # fmt: skip
    folder, words = tmp_path / "bucket", tmp_path / "vocabulary"
    text = ("--corpus", corpus_file, "--corpus_format", "sentences")
    for command in (
        ("tokenizer", *text, "--vocab_size", 300, "--output", words),
        ("prepare", *text, "--tokenizer", words, "--output", folder / "store", "--shard_tokens=50"),
    ):
        code, _, error = bertlab(*command)
        assert code == 0, error
    one, two = tmp_path / "one", tmp_path / "two"
    given = ("--config", tiny_config, "--seed_everything", 1, *LONGER)
    code, _, error = bertlab("fit", *given, "--run_dir", one, "--data.corpus", folder / "store")
    assert code == 0, error
    stored = sum(file.stat().st_size for file in folder.glob("store/shards/*"))
    caches = [tmp_path / f"cache-{number}" for number in range(2)]
    shared = {"NODES": "2", "MASTER": "127.0.0.1", "PORT": str(free_port())}
    shared["BERTLAB_CACHE_GB"] = f"{stored / 2e9:.9f}"

    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE)
    shared["PYTHONPATH"] = str(tmp_path)
    store = (f"--data.corpus=bucket://{folder / 'store'}", "--data.cache_dir=null")

    def machines() -> list[subprocess.Popen[str]]:
        environments = (environment | shared | {"BERTLAB_CACHE": str(cache)} for cache in caches)
        return [start("fit-torchrun.sh", each, tiny_config, two, *store) for each in environments]

    lost = machines()
    wait_for((two / "checkpoints" / "last.ckpt").exists, lost[0])
    for process in [each for machine in lost for each in list(processes_of(machine.pid))]:
        os.kill(process, signal.SIGKILL)
    assert [machine.communicate() and machine.returncode for machine in lost] == [
        -signal.SIGKILL
    ] * 2
    for machine in machines():
        printed, _ = machine.communicate(timeout=200)
        assert machine.returncode == 0, printed
    assert_same_end(one, two)
    for cache in caches:  # neither had room for all of it
        assert 0 < sum(file.stat().st_size for file in cache.rglob("*.npy")) <= stored


@pytest.mark.nightly
def test_a_lost_machine_is_gone_without_and_another_is_taken_in(
    one: Path, tiny_config: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    two = tmp_path / "two"
    gate = tmp_path / "gate.yaml"
    gate.write_text("trainer: {callbacks: [{class_path: tests.training.gate.Gate}]}")
    given = (tiny_config, two, "--config", gate)
    shared = {"NODES": "1:2", "MASTER": "127.0.0.1", "PORT": str(free_port())}
    here = environment | shared | {FOLDER: str(tmp_path)}
    stays = start("fit-torchrun.sh", here, *given)
    wait_for(lambda: is_open(int(shared["PORT"])), stays)
    lost = start("fit-torchrun.sh", here, *given)
    wait_for(lambda: all((tmp_path / f"waits-{n}").exists() for n in range(2)), stays)
    for process in list(processes_of(lost.pid)):  # before step 21
        os.kill(process, signal.SIGKILL)
    lost.communicate()
    (tmp_path / "open").touch()
    wait_for((tmp_path / "alone").exists, stays)  # before step 41
    new = start("fit-torchrun.sh", here, *given)
    for machine in (stays, new):
        printed, _ = machine.communicate(timeout=200)
        assert machine.returncode == 0, printed
    assert_same_end(one, two)
    sessions = json.loads((two / "manifest.json").read_text())["sessions"]
    assert [(each["processes"], each["device"]) for each in sessions] == [
        (2, "2 × cpu"),
        (1, "cpu"),
        (2, "2 × cpu"),
    ]
    assert [each["step"] for each in sessions] == [0, 20, 41]


@pytest.mark.nightly
def test_processes_that_see_different_checkpoints_are_refused(
    one: Path, environment: dict[str, str]
) -> None:
    fit = f"bertlab fit --run_dir {one} --ckpt_path {one}/checkpoints/step-$((5 + 5 * RANK)).ckpt"
    torchrun = ["torchrun", "--standalone", "--nproc_per_node", "2", "--no_python", "bash", "-c"]
    done = subprocess.run(
        [*torchrun, f"{fit} --trainer.strategy ddp"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode != 0
    assert "process 0 continues from step 5, this process from step 10" in done.stderr
    assert "process 0 continues from step 5:" in done.stderr


def test_another_number_of_processes_than_torchrun_starts_is_refused(
    tiny_config: Path, tmp_path: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = {"TORCHELASTIC_RUN_ID": "run", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "4"}
    for name, value in {**started, "RANK": "0", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    given = ("fit", "--config", tiny_config, "--run_dir", tmp_path / "run")
    code, _, error = bertlab(*given, "--trainer.devices", 3)
    assert code == 2
    assert "trainer.devices: found 3, but torchrun starts 2 here (--nproc_per_node)" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.nightly
def test_a_job_of_two_nodes_is_queued_again_and_goes_on(
    one: Path, tiny_config: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    slurm = {
        **{"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "bertlab", "SLURM_NODELIST": "localhost,b"},
        **{"SLURM_NNODES": "2", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "1"},
    }
    two = tmp_path / "two"
    job = start("fit.sbatch", environment | slurm, tiny_config, two)
    while not (two / "checkpoints" / "last.ckpt").exists():
        assert job.poll() is None, job.communicate()
        time.sleep(0.01)
    for process in (tmp_path / "processes").read_text().split():
        os.kill(int(process), signal.SIGUSR1)
    printed, _ = job.communicate(timeout=200)
    assert job.returncode == 128 + signal.SIGUSR1, printed
    assert (tmp_path / "scontrol").read_text() == "requeue 4711\n"
    again = start("fit.sbatch", environment | slurm, tiny_config, two)
    printed, _ = again.communicate(timeout=200)
    assert again.returncode == 0, printed
    assert_same_end(one, two)
