"""Disks that are full, turn read-only or vanish while bertlab writes to them.

    python benchmarks/faulty_disks.py full pretrain --times 40
    python benchmarks/faulty_disks.py read-only finetune --times 10
    python benchmarks/faulty_disks.py vanished pretrain --times 10

A job is run once on a disk (a tmpfs; mounting it needs root, or ``unshare -rm``) with enough room.
Then, so many times:

- ``full``: it is run on a disk too small for it, from almost nothing to almost enough in equal
  parts, so that every write meets the end of the disk;
- ``read-only``: the disk is mounted read-only at a random moment;
- ``vanished``: it is unmounted at a random moment.

Each time bertlab has to end with exit code 2 and one message with a code, without a traceback, and
leave nothing half-written: what there is of checkpoints is whole, other output is whole or absent.
Then the disk is mended and the same line started again; it must come to its end with results equal,
to the bit, to those of the first job. Exit code 0 if all of this was so.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch
from compared_outputs import files_of
from fault_jobs import KINDS, Arguments, Compare
from forked_commands import start, wait

_ROOM = 2**30
_PAGE = 4096
OUTPUTS = ("output", "output.safetensors")
REPORT = "sampling.json"  # of a store that is whole already; it is written when it is printed


@dataclass
class Disk:
    """A tmpfs, seen through a bind mount that can be taken away and put back.

    Attributes:
        seen: where commands write.
        store: where the files are.
    """

    seen: Path
    store: Path

    def attach(self, size: int = _ROOM) -> None:
        """Mount it, empty."""
        for place in (self.seen, self.store):
            place.mkdir(exist_ok=True)
        mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.store)
        mount("--bind", self.store, self.seen)

    def detach(self) -> None:
        """Unmount it; what is on it is gone."""
        for place in (self.seen, self.store):
            while place.is_mount():
                subprocess.run(["umount", "-l", place], check=True)
            shutil.rmtree(place)

    def fail(self, fault: str) -> bool:
        """Turn read-only, or vanish; return False if that is not possible now."""
        turn = ["umount", "-l"] if fault == "vanished" else ["mount", "-o", "remount,bind,ro"]
        done = subprocess.run([*turn, self.seen], capture_output=True, check=False)
        return done.returncode == 0

    def mend(self) -> None:
        """Be there again, writable, with room."""
        mount("-o", f"remount,rw,size={_ROOM}", self.store)
        if self.seen.is_mount():
            subprocess.run(["umount", "-l", self.seen], check=True)
        mount("--bind", self.store, self.seen)

    def used(self) -> int:
        """Return the bytes that are taken."""
        return shutil.disk_usage(self.store).used


def mount(*arguments: object) -> None:
    """Call mount; raise if it fails."""
    subprocess.run(["mount", *map(str, arguments)], check=True)


@dataclass
class Job:
    """A command that writes to a disk, and what it wrote when nothing happened.

    Attributes:
        command: for a place and a number of data workers.
        compare: what differs between two places.
        disk: where it writes.
        undisturbed: a copy of its output.
        is_run: it trains; output of other commands is whole or absent.
        used: bytes it took.
        seconds: time from the first file it wrote to its end.
        log: what it printed last.
    """

    command: Arguments
    compare: Compare
    disk: Disk
    undisturbed: Path
    is_run: bool
    used: int
    seconds: float
    log: Path
    faults: list[str] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)

    @property
    def place(self) -> Path:
        """Where it writes its output."""
        return self.disk.seen / "output"


def main() -> int:
    """Run undisturbed, run on faulty disks, compare, tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fault", choices=["full", "read-only", "vanished"])
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix=f"{given.fault}-{given.kind}-"))
    job = first_job(given.kind, folder)
    rng = random.Random(given.seed)  # noqa: S311
    for number in range(given.times):
        share = (number + rng.random()) / given.times
        name = f"{given.fault} {share:.3f}"
        if given.fault == "full":
            job.disk.attach(max(_PAGE, int(share * job.used) // _PAGE * _PAGE))
            code = wait(start(job.command(job.place, 0), job.log))
        else:
            job.disk.attach()
            code = hurt(job, given.fault, share * job.seconds)
        job.faults += [f"{name}: {fault}" for fault in judge(job, given.fault, code)]
        job.disk.mend()
        is_done = code == 0 and any(job.disk.seen.glob("output*"))  # else it wrote below the disk
        job.faults += [f"{name}, mended: {fault}" for fault in go_on(job, is_done)]
        job.disk.detach()
        shutil.copy(job.log, folder / f"{name.replace(' ', '-')}.log")
        job.log.unlink()
    codes = ", ".join(f"{count} × {what}" for what, count in sorted(job.codes.items()))
    print(f"{given.kind}, disk {given.fault}: {given.times} times; {job.used / 1e6:.1f} MB")
    print(f"  {codes}; logs are in {folder}")
    print("\n".join(job.faults) or "  mended, all came to their end, equal to the first job")
    return 1 if job.faults else 0


def first_job(kind: str, folder: Path) -> Job:
    """Run a job to its end, with nothing in its way."""
    disk = Disk(folder / "disk", folder / "store")
    os.environ["BERTLAB_CACHE"] = str(disk.seen / "cache")
    disk.attach()
    command, compare = KINDS[kind](folder)
    disk.detach()
    disk.attach()
    log = folder / "log"
    is_run = kind in ("pretrain", "finetune")
    job = Job(command, compare, disk, folder / "output", is_run, 0, 0.0, log)
    process = start(command(job.place, 0), log)
    code = wait_for_output(job, process)
    began = time.monotonic()
    if (wait(process) if code is None else code) != 0:
        raise SystemExit(f"the undisturbed job failed; see {log}")
    job.seconds, job.used = time.monotonic() - began, disk.used()
    for path in disk.seen.glob("output*"):
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, folder / path.name)
    disk.detach()
    log.unlink()
    return job


def hurt(job: Job, fault: str, seconds: float) -> int | None:
    """Start a job; let its disk fail so long after it began to write; return the exit code."""
    process = start(job.command(job.place, 0), job.log)
    code = wait_for_output(job, process)
    code = wait(process, seconds) if code is None else code
    while code is None and not job.disk.fail(fault):  # busy: a file is open
        code = wait(process, 0.01)
    return wait(process) if code is None else code


def wait_for_output(job: Job, process: int) -> int | None:
    """Wait until a job has written something; return its exit code if it ends before."""
    code = None
    while code is None and not any(job.disk.seen.iterdir()):
        code = wait(process, 0.01)
    return code


def judge(job: Job, fault: str, code: int | None) -> list[str]:
    """Return what is wrong with how a job on a faulty disk ended, a line each."""
    text = job.log.read_text()
    errors = re.findall(r"bertlab: error (E\d+)", text)
    job.codes[errors[0] if errors else f"exit code {code}"] += 1
    if code == 0:
        return []  # judged by what it wrote
    faults = [] if code == 2 else [f"exit code {code}"]
    if len(errors) != 1:
        faults.append(f"{len(errors)} messages with a code")
    faults += [f"says {word!r}" for word in ("Traceback", "internal error") if word in text]
    place = job.disk.store / "output"  # where it is after it has vanished, too
    for path in place.glob("checkpoints/*.ckpt"):
        try:
            torch.load(path, weights_only=True)
        except (RuntimeError, EOFError, OSError) as error:
            faults.append(f"{path.name} is damaged: {error}")
    if not job.is_run and any(path.name in OUTPUTS for path in job.disk.store.iterdir()):
        missing = files_of(job.undisturbed).keys() - files_of(place).keys()
        faults += [] if missing == {REPORT} else job.compare(job.undisturbed, place)
    if fault == "full":  # of a disk that is gone nothing can be removed
        left = [path.name for path in job.disk.store.rglob("*.partial")]
        faults += [f"left behind: {left}"] if left else []
    return faults


def go_on(job: Job, is_done: bool) -> list[str]:
    """Start the same line again on the mended disk; return what is wrong with how it ended."""
    code = 0 if is_done else wait(start(job.command(job.place, 0), job.log))
    if code != 0:
        return [f"exit code {code}: {job.log.read_text().splitlines()[-1]}"]
    return job.compare(job.undisturbed, job.place)


if __name__ == "__main__":
    sys.exit(main())
