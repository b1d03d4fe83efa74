"""Both sides of the fine-tuning comparison, task after task, until all lines are there.

    python benchmarks/finetune_all.py --seeds 1 2 3 --data ../shared/data

Writes ``FOLDER/peer.jsonl`` and ``FOLDER/ours.jsonl`` and leaves out what they hold already, so
that it can be stopped and started again. Several may run at once in one folder, one on each core
(``OMP_NUM_THREADS=1 taskset -c 0 …``): a run that another one has begun is left to it.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

from filelock import FileLock, Timeout
from finetune_tasks import FEATURE_TASKS, TASKS

HERE = Path(__file__).parent
SCRIPTS = {"peer": "finetune_peer.py", "ours": "finetune_figures.py"}
ALONE = ("features-last", "features-second-to-last", "features-concat-last-four")


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = [*TASKS, *FEATURE_TASKS]
    parser.add_argument("--tasks", nargs="+", choices=every, default=[*TASKS, *ALONE])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--folder", type=Path, default=HERE / "figures")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for seed, task, side in itertools.product(given.seeds, given.tasks, SCRIPTS):
        if side == "ours" or task in TASKS:
            run(side, task, seed, given.folder, given.data)


def run(side: str, task: str, seed: int, folder: Path, data: Path) -> None:
    """Run a side of a task, unless its line is there or another process is at it."""
    output = folder / f"{side}.jsonl"
    lock = FileLock(folder / f".{side}-{task}-{seed}.lock")
    try:
        with lock.acquire(timeout=0):
            if (task, seed) in lines(output):
                return
            print(f"{side} {task} {seed}", flush=True)
            command = [sys.executable, str(HERE / SCRIPTS[side]), task, "--seed", str(seed)]
            command += ["--data", str(data), "--output", str(output)]
            failed = subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode
            print(f"{side} {task} {seed}: {'failed' if failed else 'done'}", flush=True)
    except Timeout:
        return


def lines(output: Path) -> set[tuple[str, int]]:
    """Return task and seed of the whole lines of a file."""
    if not output.exists():
        return set()
    read = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    return {(line["task"], line["seed"]) for line in read if line["settings"]["limit"] is None}


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
