"""Peers and bertlab in turn, each run a process of its own; medians, spreads and ratios."""

import itertools
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from step_clock import VARIABLE

from bertlab.errors import print_table

HERE = Path(__file__).parent
# glibc keeps what is freed instead of giving it back to the system and asking again
KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    "MALLOC_TOP_PAD_": str(2**26),
}


@dataclass(frozen=True)
class Arm:
    """One side of a comparison.

    Attributes:
        name: in the table.
        command: what is run; ``{run}`` stands for a new folder.
        environment: added to that of this process.
    """

    name: str
    command: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """One run.

    Attributes:
        step: median seconds of a step, after those that warm up.
        steady: seconds a step, from the end of the warm-up to the end of the last step.
        first_step: seconds from the start of the process to the end of the first step.
        wall: seconds of the whole process.
        cpu: user and system seconds of the whole process.
        peak_mb: largest resident memory of the process itself; on a GPU, largest of its own.
        gemm: the GEMM peak of the same round, in FLOP/s.
    """

    step: float
    steady: float
    first_step: float
    wall: float
    cpu: float
    peak_mb: float
    gemm: float


def alternate(
    arms: Sequence[Arm], rounds: int, warm_up: int, peak_arguments: Sequence[str] = ()
) -> dict[str, list[Measured]]:
    """Run all arms in turn, ``rounds`` times; the GEMM peak is measured before each round."""
    print(f"load average {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores, {rounds} rounds")
    found: dict[str, list[Measured]] = {arm.name: [] for arm in arms}
    for number in range(rounds):
        gemm = measured_gemm_peak(peak_arguments)
        for arm in arms:
            run = run_once(arm, warm_up, gemm)
            found[arm.name].append(run)
            print(f"round {number + 1}: {arm.name}: {run.steady:.3f} s", flush=True)
    return found


def measured_gemm_peak(arguments: Sequence[str]) -> float:
    """Return the FLOP/s of matrix products in a fresh process."""
    command = [sys.executable, HERE / "gemm_peak.py", *arguments]
    return 1e9 * float(subprocess.run(command, check=True, capture_output=True).stdout)


def run_once(arm: Arm, warm_up: int, gemm: float) -> Measured:
    """Run one arm; raise SystemExit with what it printed if it fails."""
    with tempfile.TemporaryDirectory(prefix="speed-") as folder:
        ticks, log = Path(folder, "ticks"), Path(folder, "log")
        ticks.touch()
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        extra = {VARIABLE: str(ticks), "PYTHONPATH": path, **arm.environment}
        command = [part.replace("{run}", f"{folder}/run") for part in arm.command]
        began = time.monotonic()
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, env=os.environ | extra, stdout=file, stderr=subprocess.STDOUT
            )
            peak_kb, status, usage = watch(process.pid)
        wall = time.monotonic() - began
        if status:
            raise SystemExit(f"{arm.name} failed:\n{log.read_text()[-3000:]}")
        lines = [line.split() for line in ticks.read_text().splitlines()]
    times = [float(seconds) for seconds, _ in lines]
    gpu_peak = max((int(memory) for _, memory in lines), default=0)
    steady = times[warm_up - 1 :] if times else []
    steps = [after - before for before, after in itertools.pairwise(steady)]
    nothing = float("nan")
    return Measured(
        step=statistics.median(steps) if steps else nothing,
        steady=statistics.fmean(steps) if steps else nothing,
        first_step=times[0] - began if times else nothing,
        wall=wall,
        cpu=usage.ru_utime + usage.ru_stime,
        peak_mb=gpu_peak / 2**20 if gpu_peak else peak_kb / 1024,
        gemm=gemm,
    )


def watch(process: int) -> tuple[int, int, resource.struct_rusage]:
    """Wait for the end of a process; return its largest resident memory in KB, status and usage.

    The kernel's ``ru_maxrss`` begins with what this process has, so it cannot be used.
    """
    peak = 0
    while True:
        ended, status, usage = os.wait4(process, os.WNOHANG)
        if ended:
            return peak, status, usage
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
        peak = int(found[1]) if found else peak
        time.sleep(0.1)


def print_comparison(
    title: str,
    found: dict[str, list[Measured]],
    value: Callable[[Measured], float],
    unit: str,
    flops: float | None = None,
) -> None:
    """Print each arm's median and spread, its use of the GEMM peak, memory, and ratios.

    Args:
        title: of the table.
        found: the runs of each arm, the last of which is bertlab.
        value: seconds of a run that are compared.
        unit: what these are seconds of.
        flops: that one unit needs; None where the use of the peak says nothing.
    """
    ours = list(found.values())[-1]
    rows = []
    for name, runs in found.items():
        times = [value(run) for run in runs]
        middle = statistics.median(times)
        pairs = [value(peer) / value(own) for peer, own in zip(runs, ours, strict=True)]
        used = [] if flops is None else [flops / value(run) / run.gemm for run in runs]
        rows.append(
            (
                name,
                f"{1000 * middle:,.0f} ({1000 * min(times):,.0f} … {1000 * max(times):,.0f})",
                f"{100 * statistics.median(used):.0f} %" if used else "",
                f"{statistics.median(run.peak_mb for run in runs):,.0f}",
                f"{statistics.median(pairs):.2f} ({min(pairs):.2f} … {max(pairs):.2f})",
            )
        )
    columns = ("", f"ms a {unit}", "of the GEMM peak", "peak MB", "bertlab is faster by")
    print_table(title, rows, columns)
    peak = statistics.median(run.gemm for run in ours)
    print(f"GEMM peak {peak / 1e9:.0f} GFLOP/s; load average {os.getloadavg()[0]:.2f}")
    print(f"{psutil.virtual_memory().total / 2**30:.0f} GB of memory; medians (smallest … largest)")
