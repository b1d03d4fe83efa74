"""The tables of the fine-tuning comparison, in Markdown, from the lines of both sides."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from finetune_tasks import Task

Line = dict[str, Any]
SETTINGS = ("epochs", "learning_rate", "batch_size", "max_seq_length")
NONE = "–"


def tables(tasks: Mapping[str, Task], peer: Path, ours: Path, epoch: str) -> str:
    """Return how each task was trained, and what both sides reached.

    Args:
        tasks: by name, in the order of the tables; those that nobody has trained are left out.
        peer: the peer's lines; of several with a task and seed the last one counts.
        ours: bertlab's lines.
        epoch: ``last`` or ``best``.
    """
    sides = [read_lines(path) for path in (peer, ours)]
    settings = [
        ["task", "training rows", "dev rows", "epochs", "learning rate", "batch", "tokens", "seeds"]
    ]
    figures = [
        ["task", "metric", "Hugging Face", "bertlab", "difference", "within spread or above"]
    ]
    for name, task in tasks.items():
        runs = [side.get(name, []) for side in sides]
        if any(runs):
            settings.append([name, *settings_of(runs)])
            figures += [[name, metric, *compared(runs, epoch, metric)] for metric in task.metrics]
    notes = (
        "tokens: of the longest input. seeds: Hugging Face / bertlab.",
        f"Mean ± sample deviation over the seeds, in percent, after the {epoch} epoch. Within "
        "spread or above: bertlab's mean is not below Hugging Face's by more than its deviation; "
        "of two seeds or more a side.",
    )
    parts = [markdown(settings, 1), notes[0], markdown(figures, 2), notes[1]]
    return "\n\n".join(parts)


def read_lines(path: Path) -> dict[str, list[Line]]:
    """Return the lines by task, the last one of each seed."""
    found: dict[str, dict[int, Line]] = {}
    for text in path.read_text("utf-8").splitlines():
        line = json.loads(text)
        found.setdefault(line["task"], {})[line["seed"]] = line
    return {task: list(by_seed.values()) for task, by_seed in found.items()}


def settings_of(runs: Sequence[Sequence[Line]]) -> list[str]:
    """Return the cells of a task's settings; where runs differ, all that there are."""
    lines = [line for side in runs for line in side]
    columns = [[f"{line['rows'][split]:,}" for line in lines] for split in (0, 1)]
    columns += [[f"{line['settings'][key]:g}" for line in lines] for key in SETTINGS]
    return [
        *(" or ".join(dict.fromkeys(column)) for column in columns),
        " / ".join(str(len(side)) for side in runs),
    ]


def compared(runs: Sequence[Sequence[Line]], epoch: str, metric: str) -> list[str]:
    """Return the cells of a metric: both sides, their difference, and whether it is in order."""
    peer, ours = ([line[epoch][metric] for line in side] for side in runs)
    difference = f"{fmean(ours) - fmean(peer):+.2f}" if peer and ours else NONE
    verdict = NONE
    if len(peer) > 1 and len(ours) > 1:
        verdict = "yes" if fmean(ours) >= fmean(peer) - stdev(peer) else "no"
    return [shown(peer), shown(ours), difference, verdict]


def shown(values: Sequence[float]) -> str:
    """Return mean ± sample deviation; a single run has no deviation."""
    if not values:
        return NONE
    return f"{fmean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def markdown(rows: Sequence[Sequence[str]], texts: int) -> str:
    """Return a table; the first row is the header, columns after the first texts are numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        " | ".join(
            cell.ljust(width) if place < texts else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    rules = [
        "-" * width if place < texts else "-" * (width - 1) + ":"
        for place, width in enumerate(widths)
    ]
    lines.insert(1, " | ".join(rules))
    return "\n".join(f"| {line} |" for line in lines)
