"""``bertlab prepare`` on Ray beside the processes of this machine: time, memory, and kills.

    python benchmarks/prepare_on_ray.py --corpus PATH… --tokenizer FOLDER --rounds 3
    python benchmarks/prepare_on_ray.py --corpus PATH… --tokenizer FOLDER --kills 20

Ray's nodes are processes of this machine. They have started before the time is taken, but for the
arm in which the command starts Ray itself. Every store is compared with that of one process, byte
for byte. With ``--kills``, a worker of Ray or a node of two is killed at random moments, and a lost
node is followed by a new one. Exit code 0 if all stores are equal.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from bertlab.errors import print_table

OBJECT_STORE = 500 * 2**20  # bytes of a node, as where the command starts Ray
KILLS_A_JOB = 4
# name, nodes of Ray (None: no cluster) with so many CPUs each, options of the command
ARMS: tuple[tuple[str, tuple[int, int] | None, tuple[str, ...]], ...] = (
    ("this machine, 1 process", None, ("--workers", "1")),
    ("this machine, 2 processes", None, ("--workers", "2")),
    ("Ray, started by the command", None, ("--executor", "ray")),
    ("Ray, 1 worker", (1, 1), ("--workers", "1")),
    ("Ray, 2 workers", (1, 2), ("--workers", "2")),
    ("Ray, 4 workers", (1, 4), ("--workers", "4")),
    ("Ray, 2 nodes of 1 worker", (2, 1), ("--workers", "2")),
)


class Memory(threading.Thread):
    """Watches the memory of all children of this process; what they share is counted once.

    Attributes:
        peak: the most so far, in bytes.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self.done = threading.Event()

    def run(self) -> None:
        """Look every second until ``done`` is set."""
        while not self.done.wait(1.0):
            total = 0
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    total += process.memory_full_info().pss
            self.peak = max(self.peak, total)


def main() -> int:
    """Measure, or kill; tell; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--corpus", nargs="+", required=True, help="what bertlab prepare reads")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    with tempfile.TemporaryDirectory(prefix="prepare-on-ray-") as name:
        return (kill if given.kills else measure)(given, Path(name))


def measure(given: argparse.Namespace, folder: Path) -> int:
    """Run all arms in turn and print a table."""
    print(f"load average {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores, {given.rounds} rounds")
    found: dict[str, list[tuple[float, int]]] = {name: [] for name, *_ in ARMS}
    wanted, megabytes = "", 0.0
    for number in range(given.rounds):
        for name, nodes, options in ARMS:
            with cluster(nodes) as ray:
                memory = Memory()
                memory.start()
                before = time.perf_counter()
                process = started(given, folder / "store", options, ray)
                code = process.wait()
                wall = time.perf_counter() - before
                memory.done.set()
            if code:
                print(f"{name}: exit code {code}", file=sys.stderr)
                return 1
            report = json.loads((folder / "store" / "report.json").read_text("utf-8"))
            megabytes = report["bytes_of_text"] / 1e6
            wanted = wanted or digest(folder / "store")
            if digest(folder / "store") != wanted:
                print(f"{name}: another store", file=sys.stderr)
                return 1
            shutil.rmtree(folder / "store")
            found[name].append((wall, memory.peak))
            print(f"round {number + 1}: {name}: {wall:.1f} s", flush=True)
    rows = []
    for name, runs in found.items():
        walls = sorted(wall for wall, _ in runs)
        middle = statistics.median(walls)
        spread = f"{middle:.1f} ({walls[0]:.1f} … {walls[-1]:.1f})"
        rows.append(
            (name, spread, f"{megabytes / middle:.1f}", f"{max(m for _, m in runs) / 1e6:,.0f}")
        )
    print_table(f"{megabytes:.1f} MB of text", rows, ("", "wall s", "MB/s", "peak MB in all"))
    return 0


def kill(given: argparse.Namespace, folder: Path) -> int:
    """Kill workers and nodes at random moments and compare the stores."""
    process = started(given, folder / "undisturbed", ("--workers", "1"), None)
    if process.wait():
        return 1
    wanted, draw, left = digest(folder / "undisturbed"), random.Random(given.seed), given.kills  # noqa: S311
    tally: Counter[str] = Counter()
    with cluster((1, 1)) as ray:
        node = ray.add_node(num_cpus=1, object_store_memory=OBJECT_STORE)
        while left:
            store = folder / f"disturbed-{left}"
            process = started(given, store, ("--workers", "2"), ray)
            for _ in range(min(KILLS_A_JOB, left)):
                time.sleep(draw.uniform(3, 8))
                if process.poll() is not None:
                    break
                if draw.random() < 0.3:
                    ray.remove_node(node, allow_graceful=False)
                    node = ray.add_node(num_cpus=1, object_store_memory=OBJECT_STORE)
                    tally["node"] += 1
                elif workers := working():
                    draw.choice(workers).kill()
                    tally["worker"] += 1
                else:
                    continue
                left -= 1
            code = process.wait()
            same = code == 0 and digest(store) == wanted
            tally["jobs"] += 1
            tally["jobs that differ"] += not same
            print(f"{dict(tally)}; exit code {code}", flush=True)
            if code:
                print(store.with_name(f"{store.name}.log").read_text("utf-8")[-2000:])
            shutil.rmtree(store, ignore_errors=True)
    return 1 if tally["jobs that differ"] else 0


@contextmanager
def cluster(nodes: tuple[int, int] | None) -> Iterator[Any]:
    """Yield a cluster of so many nodes with so many CPUs each; None for none."""
    if nodes is None:
        yield None
        return
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    number, cpus = nodes
    settings = {"num_cpus": cpus, "object_store_memory": OBJECT_STORE}
    made = Cluster(initialize_head=True, head_node_args=settings | {"include_dashboard": False})
    try:
        for _ in range(number - 1):
            made.add_node(**settings)
        yield made
    finally:
        made.shutdown()


def started(
    given: argparse.Namespace,
    store: Path,
    options: tuple[str, ...],
    ray: Any,  # noqa: ANN401
) -> "subprocess.Popen[bytes]":
    """Start ``bertlab prepare``."""
    command = [sys.executable, "-m", "bertlab", "prepare", "--tokenizer", given.tokenizer]
    command += [*(f"--corpus+={each}" for each in given.corpus), f"--output={store}", *options]
    if ray is not None:
        command += ["--executor", "ray", "--address", ray.address]
    with store.with_name(f"{store.name}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def working() -> list[psutil.Process]:
    """Return the processes of Ray in which a task is at work."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            line = " ".join(process.cmdline())
            if line.startswith(("ray::Map", "ray::FlatMap")):  # others are Ray's own
                found.append(process)
    return found


def digest(store: Path) -> str:
    """Return a hash over names and bytes of all files of a store."""
    found = hashlib.sha256()
    for path in sorted(path for path in store.rglob("*") if path.is_file()):
        found.update(f"{path.relative_to(store)}\0".encode() + path.read_bytes())
    return found.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
