"""The same training with 0 to 4 data workers and in two processes: how far apart it ends.

    python benchmarks/agreement.py [pretrain|finetune …] [--steps 60]

Each job is run once in one process without data workers, and then with each other number of
workers and strategy (gloo, on the CPU), with the same seed and the same global batch, without
dropout. With dropout, two processes are compared with one that accumulates two batches. Printed are
the largest absolute differences of the losses that are logged at each step, of the weights and the
optimiser's moments at the end, and of the held-out figures (but for perplexity, which is some
hundred times as large as its loss).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from compared_outputs import log_lines
from fault_jobs import FINETUNE, PRETRAIN

from bertlab.errors import print_table

CONFIGS = {"pretrain": PRETRAIN, "finetune": FINETUNE}
DROPOUT = ("hidden_dropout_prob", "attention_probs_dropout_prob")
TWO = ["--trainer.devices=2", "--trainer.strategy"]
SHAPES = {
    "1 process, 0 workers": [],
    "1 process, 1 worker": ["--data.num_workers=1"],
    "1 process, 2 workers": ["--data.num_workers=2"],
    "1 process, 4 workers": ["--data.num_workers=4"],
    "2 processes, ddp": [*TWO, "ddp"],
    "2 processes, ddp, 2 workers each": [*TWO, "ddp", "--data.num_workers=2"],
    "2 processes, fsdp": [*TWO, "fsdp"],
}
ACCUMULATED = ["--trainer.accumulate_grad_batches=2", "--trainer.val_check_interval=20"]  # batches
WITH_DROPOUT = {
    "1 process, 2 batches accumulated": ACCUMULATED,
    "2 processes, ddp": SHAPES["2 processes, ddp"],
    "2 processes, fsdp": SHAPES["2 processes, fsdp"],
}


def main() -> None:
    """Run each job in each shape, print a table for each job."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", default=["pretrain", "finetune"])
    parser.add_argument("--steps", type=int, default=60)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="agreement-"))
    os.environ |= {"BERTLAB_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    for kind in given.kinds:
        config, weights = folder / f"{kind}.yaml", folder / "weights"
        if kind == "finetune":
            (folder / "first.yaml").write_text(PRETRAIN)
            fit(folder / "first.yaml", weights, ["--trainer.max_steps=10"])
        config.write_text(CONFIGS[kind].replace("WEIGHTS", str(weights)))
        for rate, shapes in ((0.0, SHAPES), (0.1, WITH_DROPOUT)):
            runs = []
            for name, arguments in shapes.items():
                run = folder / f"{kind} {rate} {name}"
                # all rows, of which batches hold other numbers
                more = [f"--model.encoder.{each}={rate}" for each in DROPOUT]
                more += ["--trainer.limit_val_batches=1.0"] if rate else []
                fit(config, run, [*more, *arguments, f"--trainer.max_steps={given.steps}"])
                runs.append(run)
            rows = [
                (name, *(f"{each:.1e}" if each else "0" for each in differences(runs[0], run)))
                for name, run in zip(shapes, runs, strict=True)
            ]
            columns = ("", "losses", "weights", "moments", "held-out figures")
            title = f"{kind}, {given.steps} steps, dropout {rate}: differences to the first"
            print_table(title, rows, columns)


def fit(config: Path, run: Path, arguments: list[str]) -> None:
    """Train; raise if it fails."""
    log = run.with_suffix(".log")
    command = [sys.executable, "-m", "bertlab", "fit", "--config", str(config)]
    command += ["--run_dir", str(run), *arguments]
    with log.open("wb") as file:
        done = subprocess.run(command, stdout=file, stderr=file, check=False)
    if done.returncode:
        raise SystemExit(f"{run.name} failed; see {log}")


def differences(one: Path, two: Path) -> tuple[float, float, float, float]:
    """Return the largest differences of losses, weights, moments and held-out figures."""
    ends = [torch.load(each / "checkpoints/last.ckpt", weights_only=True) for each in (one, two)]
    weights = [end["state_dict"] for end in ends]
    moments = [flat(end["optimizer_states"][0]["state"]) for end in ends]
    figures = [json.loads((each / "results.json").read_text()) for each in (one, two)]
    return (
        largest(*(dict(losses(each)) for each in (one, two))),
        largest(*weights),
        largest(*moments),
        largest(*(dict(numbers(each)) for each in figures)),
    )


def largest(one: dict[object, object], two: dict[object, object]) -> float:
    """Return the largest difference of numbers or tensors by the same names."""
    if one.keys() != two.keys():
        raise SystemExit(f"other names: {sorted(map(str, one.keys() ^ two.keys()))[:5]}")
    return max(
        float((torch.as_tensor(one[key]).double() - torch.as_tensor(two[key]).double()).abs().max())
        for key in one
    )


def flat(state: dict[int, dict[str, torch.Tensor]]) -> dict[object, object]:
    """Return the moments of all parameters, by number and name."""
    return {(number, name): value for number, each in state.items() for name, value in each.items()}


def losses(run: Path) -> Iterator[tuple[object, object]]:
    """Yield the training losses of each step."""
    for (step, kind), lines in log_lines(run).items():
        for key, value in lines[0]:
            if kind == "train" and key.startswith("train/"):
                yield (step, key), float(value)


def numbers(results: dict[str, object]) -> Iterator[tuple[object, object]]:
    """Yield the figures of a run's results."""
    for key, value in results.items():
        if isinstance(value, dict):
            yield from ((f"{key}/{name}", number) for name, number in numbers(value))
        elif isinstance(value, float) and not key.endswith("perplexity"):
            yield key, value


if __name__ == "__main__":
    main()
