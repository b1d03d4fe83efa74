"""What a run has found: held-out metrics, curves, and tables of them on the screen."""

import csv
import io
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertlab.checkpoints.run_directory import BEST_CHECKPOINT, RESULTS_FILE
from bertlab.errors import add_to_json, print_table
from bertlab.files import LARGEST_FILE, check_memory, explain_damage, open_to_read, read_object

if TYPE_CHECKING:  # tables are printed by commands that import no torch
    from lightning.pytorch import Trainer

Results = dict[str, float]
_SHARES = ("accuracy", "f1", "exact_match", "precision", "recall")
_COUNTS = ("predicted_classes", "predicted_sets")
_LARGEST_RESULTS = 2**20  # bytes; a thousand metrics have 40,000


def held_out_results(trainer: "Trainer", stage: str) -> Results:
    """Return the last metrics of ``stage``, ``val`` or ``test``, by name without that."""
    return {
        name.removeprefix(f"{stage}/"): float(value)
        for name, value in trainer.callback_metrics.items()
        if name.startswith(f"{stage}/")
    }


def read_results(run: Path, best: bool = False) -> Results:
    """Return the metrics that a run wrote for its last or best step; empty if it wrote none."""
    path = run / (BEST_CHECKPOINT if best else RESULTS_FILE)
    if not path.is_file():
        return {}
    content = read_object(path, {"results": dict} if best else None, _LARGEST_RESULTS)
    results: Results = content["results"] if best else content
    with explain_damage(path):
        return {name: float(value) for name, value in results.items()}


def print_results(results: Results, title: str) -> None:
    """Print one row per task and metric, a baseline in the same row where there is one."""
    rows = result_rows(results)
    add_to_json(results=results)
    print_table(title, rows, ("task", "metric", "held-out", "baseline"), figures=2)


def result_rows(results: Results) -> list[tuple[str, str, str, str]]:
    """Return task, metric, value and baseline of each metric, as people read them."""
    rows = []
    for name, value in results.items():
        # "mlm/accuracy" -> "mlm", "accuracy"; the summed "loss" has no task
        task, _, metric = name.rpartition("/")
        if not task or metric.startswith(("unigram", "majority")):
            continue
        rows.append((task, metric, shown_figure(metric, value), _baseline(results, task, metric)))
    return rows


def _baseline(results: Results, task: str, metric: str) -> str:
    for kind in ("unigram", "majority"):
        value = results.get(f"{task}/{kind}_{metric}")
        if value is not None:
            return f"{shown_figure(metric, value)} ({kind})"
    return ""


def shown_figure(metric: str, value: float, share: bool | None = None) -> str:
    """Return a value as people read it: shares in percent; its name says which, if nothing else."""
    if metric.endswith(_COUNTS):
        return f"{value:g}"
    share = is_share(metric) if share is None else share
    return f"{value:.1%}" if share else f"{value:,.3f}"


def is_share(metric: str) -> bool:
    """Whether a metric's values are in 0 … 1 and are read in percent; ``f1/TYPE`` too."""
    # in percent: accuracy, span/f1, f1/PER
    return metric.endswith(_SHARES) or "/f1/" in f"/{metric}"


Curve = tuple[list[int], list[float]]


def read_curves(directory: Path) -> dict[str, Curve]:
    """Return steps and values of each metric in the CSV logs of a run directory, by name.

    Of a log, 64 MiB are read: a million rows.
    """
    points: dict[str, dict[int, float]] = defaultdict(dict)
    for log in sorted(directory.glob("csv/version_*/metrics.csv"), key=_version):
        with open_to_read(log) as file:
            content = file.read(LARGEST_FILE)
        check_memory(log, "what it has logged", 150 * content.count(b","), len(content))
        text = io.TextIOWrapper(io.BytesIO(content), "utf-8", errors="replace", newline="")
        rows = csv.DictReader(text)
        if "step" not in (rows.fieldnames or ()):  # not a log of ours
            continue
        for row in rows:
            if not (row["step"] or "").isdigit():  # a line that a kill cut short
                continue
            # a resumed run logs some steps again, in the next version_N: the later value counts
            step = int(row["step"])
            for name, value in row.items():
                if name not in ("step", "epoch") and value:
                    points[name][step] = float(value)
    return {
        name: ([step for step, _ in sorted(values.items())], [values[s] for s in sorted(values)])
        for name, values in points.items()
    }


def history_rows(curves: dict[str, Curve]) -> list[dict[str, Any]]:
    """Return a row for each logged step: ``step``, and what was logged there, by metric."""
    rows: dict[int, dict[str, Any]] = defaultdict(dict)
    for name, (steps, values) in curves.items():
        for step, value in zip(steps, values, strict=True):
            rows[step][name] = value
    return [{"step": step, **rows[step]} for step in sorted(rows)]


def _version(log: Path) -> int:
    # as numbers: version_10 comes after version_9
    return int(log.parent.name.removeprefix("version_"))
