"""A scheduler of one machine: ``sbatch``, ``srun``, ``sacct``, ``squeue``, ``scancel`` and more.

Each is this file under another name. A job is a folder ``$FAKE_SLURM/<number>`` with its state,
its script and a log of what was asked of it; a process of its own runs the script. Where there are
commands ``$FAKE_SLURM/node-0``, ``node-1`` and so on, jobs take turns at being run by them.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

COMMANDS = ("sbatch", "srun", "sacct", "squeue", "scancel", "scontrol")
WAITING = ("PENDING", "RUNNING")
_started: list["subprocess.Popen[bytes]"] = []  # they are left alone
KILL_WAIT = 2.0  # seconds from SIGTERM to SIGKILL


def install(folder: Path) -> Path:
    """Put the commands into a folder, which goes onto PATH; returns it."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(parents=True)
    for name in COMMANDS:
        script = bin_folder / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {name} "$@"\n')
        script.chmod(0o755)
    return bin_folder


def put(file: Path, text: str) -> None:
    partial = file.with_suffix(f".{os.getpid()}")
    partial.write_text(text)
    partial.replace(file)


def main(name: str, arguments: list[str], root: Path) -> int:
    with (root / "calls").open("a") as calls:
        calls.write(f"{name} {' '.join(arguments)}\n")
    return globals()[name](arguments, root)


def sbatch(arguments: list[str], root: Path) -> int:
    limit = root / "limit"  # of jobs at a time
    running = [each for each in root.glob("[0-9]*/state") if each.read_text() in WAITING]
    if limit.exists() and len(running) >= int(limit.read_text()):
        sys.stderr.write("sbatch: error: QOSMaxSubmitJobPerUserLimit\n")
        return 1
    number = 4711 + len(list(root.glob("[0-9]*")))
    job = root / str(number)
    job.mkdir()
    (job / "script").write_text(Path(arguments[-1]).read_text())
    put(job / "state", "PENDING")
    if not (root / "hold").exists():  # a busy cluster
        begin(job)
    print(f"Submitted batch job {number}")
    return 0


def begin(job: Path) -> None:
    """Start the process that runs a job, and leave it alone."""
    command = [sys.executable, __file__, "work", str(job)]
    quiet = subprocess.DEVNULL
    _started.append(
        subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    )


def work(arguments: list[str], root: Path) -> int:
    """Run a job; again if it was queued again meanwhile."""
    job = Path(arguments[0])
    number = job.name
    environment = {**os.environ, "SLURM_JOB_ID": number, "SLURM_NTASKS": "1"}
    nodes = sorted(root.glob("node-*"))
    on_node = [str(nodes[int(number) % len(nodes)])] if nodes else []
    while True:
        put(job / "state", "RUNNING")
        code = subprocess.run(
            [*on_node, "bash", str(job / "script")], env=environment, check=False
        ).returncode
        tell(job, signal.SIGKILL)
        if (job / "requeue").exists():
            (job / "requeue").unlink()
            continue
        if (job / "state").read_text() == "RUNNING":
            put(job / "state", "COMPLETED" if code == 0 else "FAILED")
        return 0


def srun(arguments: list[str], root: Path) -> int:
    """Run a command with its output in files, as a step of a job does."""
    files, rest = {}, list(arguments)
    while rest and rest[0].startswith("--"):
        option = rest.pop(0)
        if option in ("--output", "--error"):
            path = rest.pop(0).replace("%j", os.environ["SLURM_JOB_ID"]).replace("%t", "0")
            files[option] = Path(path)
    with files["--output"].open("ab") as out, files["--error"].open("ab") as err:
        return subprocess.run(rest, stdout=out, stderr=err, check=False).returncode


def sacct(arguments: list[str], root: Path) -> int:
    if (root / "no-accounting").exists():
        sys.stderr.write("Slurm accounting storage is disabled\n")
        return 1
    print("JobID|State|NodeList")
    for flag, number in pairwise(arguments):
        if flag == "-j" and (root / number / "state").exists():
            print(f"{number}|{(root / number / 'state').read_text()}|node1")
            print(f"{number}.batch|RUNNING|node1")
    return 0


def squeue(arguments: list[str], root: Path) -> int:
    state = root / arguments[-1] / "state"
    if not state.exists():
        sys.stderr.write("slurm_load_jobs error: Invalid job id specified\n")
        return 1
    if state.read_text() in WAITING:
        print(f"{arguments[-1]} debug {state.read_text()}")
    return 0


def scancel(arguments: list[str], root: Path) -> int:
    job = root / arguments[0]
    before = (job / "state").read_text()
    if before in WAITING:
        put(job / "state", "CANCELLED by 1000")
        if before == "RUNNING":
            end(job)
    return 0


def scontrol(arguments: list[str], root: Path) -> int:
    verb, number = arguments
    assert verb == "requeue"
    job = root / number
    (job / "requeue").touch()
    put(job / "state", "PENDING")
    # the caller is one of its processes, and returns before they are told
    command = [sys.executable, __file__, "end", str(job)]
    _started.append(subprocess.Popen(command, start_new_session=True))
    return 0


def end(job: Path | list[str], root: Path | None = None) -> int:
    """Tell all processes of a job to end; kill them a little later."""
    told = tell(Path(job[0]) if isinstance(job, list) else job, signal.SIGTERM)
    deadline = time.monotonic() + KILL_WAIT
    while time.monotonic() < deadline:
        time.sleep(0.1)
    for process in told:  # not those of the job when it has begun again
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return 0


def tell(job: Path, number: int) -> list[int]:
    """Signal the processes of a job, as SLURM does by its control group: those in any session."""
    marks = {f"SLURM_JOB_ID={job.name}".encode(), f"FAKE_SLURM={job.parent}".encode()}
    told = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # another user's, or gone since
            variables = (process / "environ").read_bytes().split(b"\0")
            if marks.issubset(variables) and is_step(process):
                os.kill(int(process.name), number)
                told.append(int(process.name))
    return told


def release(root: Path) -> None:
    """Begin the jobs that wait."""
    (root / "hold").unlink()
    for job in sorted(root.glob("[0-9]*")):
        if (job / "state").read_text() == "PENDING":
            begin(job)


def preempt(job: Path) -> None:
    """Give the node of a job to another one, and queue it again."""
    scontrol(["requeue", job.name], job.parent)


def is_step(process: Path) -> bool:
    """Whether a process is of the job's step, not its script, the scheduler, or what this calls."""
    words = (process / "cmdline").read_bytes().decode().split("\0")
    return not any(re.search(r"fake_slurm|^bash$|^/bin/sh$", word) for word in words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:], Path(os.environ["FAKE_SLURM"])))
