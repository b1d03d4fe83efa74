"""Kill pre-training, fine-tuning and preparing at random moments; compare with no kill at all.

    python benchmarks/fit_kills.py --kills 40 pretrain
    python benchmarks/fit_kills.py --kills 30 finetune
    python benchmarks/fit_kills.py --kills 30 prepare

The command is run once to its end. Then it is started and killed after a random time, by SIGKILL or
SIGTERM, alone or with its data workers, and the same line is started again and killed again, until
the kills of one job (``--kills_a_job``) are spent and it comes to its end; then the next job. What
is compared with the undisturbed job: weights, the optimiser's state, ``results.json``, and every
line of the log, also those that were logged twice; of ``prepare`` every byte of the store, and that
there is none before it is whole. Data workers are 0, 1 and 2 in turn. Exit code 0 if all is equal.

Each job is a process forked from this one, which has imported torch already: what is killed is
training, not the start of Python.
"""

import argparse
import csv
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from bertlab.cli import main as bertlab
from bertlab.training_cli import TrainingCLI  # noqa: F401  imported once, before the forks

PRETRAIN = """
seed_everything: 7
model:
  encoder: {name: bert, preset: tiny, hidden_size: 64, max_position_embeddings: 64}
  objectives: [mlm, nsp]
  optimizer: {learning_rate: 1.0e-3}
data: {corpus: python-english, vocab_size: 2000, max_seq_length: 64, batch_size: 16,
       validation_sequences: 50}
trainer: {max_steps: 60, val_check_interval: 10, log_every_n_steps: 1, accelerator: cpu}
"""
FINETUNE = """
seed_everything: 7
model: {head: single_sentence, init_from: WEIGHTS, optimizer: {learning_rate: 1.0e-3}}
data: {source: "python-english:packages", max_seq_length: 64, batch_size: 32}
trainer: {max_steps: 60, val_check_interval: 10, log_every_n_steps: 1, accelerator: cpu,
          limit_val_batches: 4}
"""


@dataclass
class Tally:
    """What was killed, and what was wrong afterwards."""

    left: int
    kills: dict[str, int] = field(default_factory=dict)
    jobs: int = 0
    faults: list[str] = field(default_factory=list)


def main() -> int:
    """Run undisturbed, run disturbed, compare, tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["pretrain", "finetune", "prepare"])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--kills_a_job", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix=f"{given.kind}-kills-"))
    os.environ["BERTLAB_CACHE"] = str(folder / "cache")
    command, compare = KINDS[given.kind](folder)
    first = folder / "undisturbed"
    began = time.monotonic()
    if wait(start(command(first, 0), first)) != 0:
        print(f"the undisturbed job failed; see {first}.log")
        return 1
    seconds = time.monotonic() - began
    rng = random.Random(given.seed)  # noqa: S311
    tally = Tally(given.kills)
    while tally.left > 0:
        place = folder / f"disturbed-{tally.jobs}"
        disturb(command, place, seconds, given.kills_a_job, tally, rng)
        tally.faults += compare(first, place)
        tally.jobs += 1
    told = ", ".join(f"{count} × {how}" for how, count in sorted(tally.kills.items()))
    print(
        f"{given.kind}: {sum(tally.kills.values())} kills in {tally.jobs} jobs of {seconds:.1f} s"
    )
    print(f"  {told}")
    print("\n".join(tally.faults) or "  every job came to its end, equal to the undisturbed one")
    return 1 if tally.faults else 0


Compare = Callable[[Path, Path], list[str]]
Arguments = Callable[[Path, int], list[str]]


def pretraining(folder: Path) -> tuple[Arguments, Compare]:
    """Return the command of a pre-training, and how its results are compared."""
    (folder / "fit.yaml").write_text(PRETRAIN)
    return fit(folder / "fit.yaml"), compare_runs


def finetuning(folder: Path) -> tuple[Arguments, Compare]:
    """Return the command of a fine-tuning; it is pre-trained first."""
    (folder / "first.yaml").write_text(PRETRAIN.replace("max_steps: 60", "max_steps: 10"))
    weights = folder / "weights"
    assert wait(start(fit(folder / "first.yaml")(weights, 0), weights)) == 0
    (folder / "fit.yaml").write_text(FINETUNE.replace("WEIGHTS", str(weights)))
    return fit(folder / "fit.yaml"), compare_runs


def fit(config: Path) -> Arguments:
    """Return the line that begins a run or goes on with it."""

    def arguments(place: Path, workers: int) -> list[str]:
        named = ["--config", str(config), "--run_dir", str(place), "--ckpt_path", "last"]
        return ["fit", *named, f"--data.num_workers={workers}"]

    return arguments


def preparing(folder: Path) -> tuple[Arguments, Compare]:
    """Return the command of preparing a corpus, and how stores are compared."""
    vocabulary = folder / "vocabulary"
    made = ["tokenizer", "--corpus", "python-english", "--vocab_size", "2000"]
    assert wait(start([*made, "--output", str(vocabulary)], vocabulary)) == 0

    def arguments(place: Path, workers: int) -> list[str]:
        named = ["--corpus", "python-english", "--tokenizer", str(vocabulary)]
        return ["prepare", *named, "--output", str(place), "--workers", str(max(1, workers))]

    return arguments, compare_stores


KINDS: dict[str, Callable[[Path], tuple[Arguments, Compare]]] = {
    "pretrain": pretraining,
    "finetune": finetuning,
    "prepare": preparing,
}


def start(arguments: list[str], place: Path) -> int:
    """Start a command in a process of its own, in a group of its own; return the process."""
    process = os.fork()
    if process:
        return process
    os.setpgid(0, 0)
    log = os.open(f"{place}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 1
    try:
        code = bertlab(arguments)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(process: int, seconds: float | None = None) -> int | None:
    """Return the exit code, negative for a signal; None if it goes on after so many seconds."""
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if end is not None and time.monotonic() >= end:
            return None
        time.sleep(0.005)


def disturb(
    command: Arguments, place: Path, seconds: float, kills: int, tally: Tally, rng: random.Random
) -> None:
    """Start and kill a job until it comes to its end."""
    done = 0
    for workers in itertools.cycle([0, 1, 2]):
        process = start(command(place, workers), place)
        kill = done < kills and tally.left > 0
        code = wait(process, rng.uniform(0, seconds) if kill else None)
        if code is not None:
            if code != 0:
                tally.faults.append(f"{place}: exit code {code}; see {place}.log")
            if code == 0 or not kill:
                return
            continue
        number = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
        group = rng.random() < 0.5
        (os.killpg if group else os.kill)(process, number)
        code = wait(process)
        done += 1
        tally.left -= 1
        how = f"{signal.Signals(number).name}{' with its workers' if group else ''}"
        tally.kills[how] = tally.kills.get(how, 0) + 1
        # finished in that very moment, killed, or saved and stopped
        if code not in (0, -number, 128 + signal.SIGTERM):
            tally.faults.append(f"{place}: exit code {code} after {how}; see {place}.log")
        if code == 0:
            return


def compare_runs(one: Path, two: Path) -> list[str]:
    """Return what differs between two runs, a line each."""
    if not (two / "results.json").is_file():
        return [f"{two}: has no results.json; see {two}.log"]
    faults = []
    if (one / "results.json").read_bytes() != (two / "results.json").read_bytes():
        faults.append(f"{two}: results.json differs")
    ours, theirs = (
        torch.load(each / "checkpoints" / "last.ckpt", weights_only=True) for each in (one, two)
    )
    for part in ("state_dict", "optimizer_states", "lr_schedulers", "global_step", "epoch"):
        if not equal(ours[part], theirs[part]):
            faults.append(f"{two}: {part} of last.ckpt differs")
    lines, others = log_lines(one), log_lines(two)
    if lines.keys() != others.keys():
        faults.append(f"{two}: lines of the log: {len(lines)} and {len(others)}")
    faults += [
        f"{two}: the log differs at {key}"
        for key in lines.keys() & others.keys()
        if set(others[key]) != set(lines[key])
    ]
    if left := [path.name for path in two.rglob("*.partial")]:
        faults.append(f"{two}: left behind: {left}")
    return faults


def equal(one: object, two: object) -> bool:
    """Return whether two parts of checkpoints are the same, to the bit."""
    if isinstance(one, torch.Tensor):
        return isinstance(two, torch.Tensor) and torch.equal(one, two)
    if isinstance(one, dict):
        return (
            isinstance(two, dict)
            and one.keys() == two.keys()
            and all(equal(one[key], two[key]) for key in one)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(equal, one, two))  # type: ignore[arg-type]
    return bool(one == two)


def log_lines(run: Path) -> dict[tuple[str, str], list[tuple[tuple[str, str], ...]]]:
    """Return the lines of all logs of a run, by step and by what they tell; without times."""
    found: dict[tuple[str, str], list[tuple[tuple[str, str], ...]]] = {}
    for path in sorted(run.glob("csv/*/metrics.csv")):
        for row in csv.DictReader(path.read_text("utf-8").splitlines()):
            told = {key: value for key, value in row.items() if value and key}
            if None in row or None in row.values():
                continue  # cut short by the kill
            told.pop("tokens_per_second", None)
            kind = "val" if any(key.startswith("val/") for key in told) else "train"
            found.setdefault((row["step"], kind), []).append(tuple(sorted(told.items())))
    return found


def compare_stores(one: Path, two: Path) -> list[str]:
    """Return what differs between two stores, or was left beside them."""
    names = sorted(str(path.relative_to(one)) for path in one.rglob("*") if path.is_file())
    others = sorted(str(path.relative_to(two)) for path in two.rglob("*") if path.is_file())
    if names != others:
        return [f"{two}: other files: {names}, {others}"]
    faults = [
        f"{two}: {name} differs"
        for name in names
        if (one / name).read_bytes() != (two / name).read_bytes()
    ]
    left = [path.name for path in two.parent.iterdir() if two.name in path.name and path != two]
    left.remove(f"{two.name}.log")
    return faults + ([f"{two}: left behind: {left}"] if left else [])


if __name__ == "__main__":
    sys.exit(main())
