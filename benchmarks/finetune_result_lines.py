"""Lines of results, as both sides of the fine-tuning comparison write them: JSON, one a run."""

import argparse
import importlib.metadata
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from finetune_tasks import Task

SECONDS = "training_seconds"


@dataclass(frozen=True)
class Trained:
    """What a run gave.

    Attributes:
        epochs: the task's measures, in percent, after each epoch.
        seconds: of training, without evaluation.
        rows: training and development rows.
        more: what only this side has to tell.
    """

    epochs: Sequence[Mapping[str, float]]
    seconds: float
    rows: tuple[int, int]
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Side:
    """A side of the comparison.

    Attributes:
        trainer: its name.
        packages: whose versions are recorded.
        tasks: those that it can train, by name.
        train: trains a task of a name with a seed on the data of a folder, and on the first rows
            of each split only if the last argument says how many.
    """

    trainer: str
    packages: tuple[str, ...]
    tasks: Mapping[str, Task]
    train: Callable[[str, int, Path, int | None], Trained]


def add_arguments(parser: argparse.ArgumentParser, side: Side) -> None:
    """Add what :func:`append_line` reads."""
    parser.add_argument("task", choices=side.tasks, nargs="?")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--output", type=Path)
    parser.add_argument("--limit", type=int, help="rows of each split, to try the command")


def append_line(side: Side, parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Train one task with one seed, append its line to the output, and print the last measures."""
    if arguments.task is None or arguments.output is None:
        parser.error("expected TASK and --output")
    name, seed, limit = arguments.task, arguments.seed, arguments.limit
    line = result_line(side, name, seed, limit, side.train(name, seed, arguments.data, limit))
    with arguments.output.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line["last"]))


def result_line(
    side: Side, name: str, seed: int, limit: int | None, trained: Trained
) -> dict[str, Any]:
    """Return what a run's line holds."""
    task = side.tasks[name]
    return {
        "task": name,
        "seed": seed,
        "trainer": side.trainer,
        "last": trained.epochs[-1],
        "best": max(trained.epochs, key=lambda epoch: epoch[task.metrics[0]]),
        "epochs": trained.epochs,
        SECONDS: round(trained.seconds, 1),
        "rows": trained.rows,
        **trained.more,
        "settings": {
            "epochs": task.epochs,
            "learning_rate": task.learning_rate,
            "batch_size": task.batch_size,
            "max_seq_length": task.max_seq_length,
            "limit": limit,
        },
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "versions": {
            "python": platform.python_version(),
            **{package: importlib.metadata.version(package) for package in side.packages},
        },
    }
