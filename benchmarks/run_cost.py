"""The cost that `fit` says beforehand against what training then takes, for five configs.

    OMP_NUM_THREADS=1 python benchmarks/run_cost.py             # CPU time, on a shared machine
    OMP_NUM_THREADS=1 python benchmarks/run_cost.py --wall      # seconds, on an idle one

Each run is trained for two numbers of steps, in processes of their own, so that what both take
alike (imports, data, the last evaluation) cancels out.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from bertlab.extend import read_request, resolve_request
from bertlab_pages.run_cost import measure_pretraining

QUICK = ("--config", "quickstart", "--trainer.val_check_interval", "100000")
CONFIGS = {
    "quickstart": (QUICK, 150),
    "quickstart, modern": ((*QUICK, "--config", "recipes/modern"), 150),
    "mini, 128 tokens": (
        (*QUICK, "--model.encoder.preset", "mini", "--data.max_seq_length", "128"), 40,
    ),
    "small, masked words alone": (
        (*QUICK, "--model.encoder.preset", "small", "--model.objectives", "[mlm]"), 30,
    ),
    "tiny, 256 sequences in 4 parts": (
        (*QUICK, "--data.batch_size", "256", "--trainer.accumulate_grad_batches", "4"), 20,
    ),
}  # fmt: skip
FEW = 5


def estimated(arguments: tuple[str, ...], clock: Callable[[], float]) -> float:
    """Return the seconds of a step as ``fit`` says them."""
    config = resolve_request(read_request([*arguments, "--trainer.max_steps", "1000"]))
    return measure_pretraining(config, clock).step.seconds


def taken(arguments: tuple[str, ...], steps: int, wall: bool) -> float:
    """Return the seconds of a whole run."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bertlab", "fit", *arguments]
        command += ["--trainer.max_steps", str(steps), "--run_dir", f"{folder}/run"]
        command += ["--say_cost", "false"]
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(command, check=True, capture_output=True)
        after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return ended - begun if wall else used


def main() -> None:
    """Print a line for each config."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--wall", action="store_true")
    given = parser.parse_args()
    clock = time.perf_counter if given.wall else time.process_time
    kind = "seconds" if given.wall else "CPU time"
    print(f"{kind}, {os.environ.get('OMP_NUM_THREADS', 'all')} threads")
    print(f"{'config':<34}{'estimated':>12}{'true':>12}{'difference':>12}")
    for name, (arguments, steps) in CONFIGS.items():
        guess = estimated(arguments, clock)
        first, last = (taken(arguments, each, given.wall) for each in (FEW, steps))
        true = (last - first) / (steps - FEW)
        print(f"{name:<34}{1000 * guess:>9.1f} ms{1000 * true:>9.1f} ms{guess / true - 1:>+12.1%}")


if __name__ == "__main__":
    main()
