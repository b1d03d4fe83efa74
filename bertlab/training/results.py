"""What a run has found: held-out metrics, curves, and tables of them on the screen."""

import contextlib
import csv
import io
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertlab.api.measures import Shares, is_share
from bertlab.checkpoints.run_directory import BEST_CHECKPOINT, MANIFEST_FILE, RESULTS_FILE
from bertlab.errors import add_to_json, print_table
from bertlab.files import LARGEST_FILE, check_memory, explain_damage, open_to_read, read_object

if TYPE_CHECKING:  # tables are printed by commands that import no torch
    from lightning.pytorch import Trainer

Results = dict[str, float]
_BASELINES = ("unigram", "majority")
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


def read_shares(run: Path) -> Shares:
    """Return which metrics of each task are shares, as the manifest of a run says; {} without."""
    path = run / MANIFEST_FILE
    found = read_object(path).get("shares") if path.is_file() else None
    tasks = found.items() if isinstance(found, dict) else ()
    return {task: list(map(str, names)) for task, names in tasks if isinstance(names, list)}


def print_results(results: Results, title: str, shares: Shares, of: str = "held-out") -> None:
    """Print one row per task and metric, a baseline in the same row where there is one."""
    rows = result_rows(results, shares)
    add_to_json(results=results)
    print_table(title, rows, ("task", "metric", of, "baseline"), figures=2)


def result_rows(results: Results, shares: Shares) -> list[tuple[str, str, str, str]]:
    """Return task, metric, value and baseline of each metric, as people read them."""
    rows = []
    for name, value in results.items():
        # "mlm/accuracy" -> "mlm", "accuracy"; the summed "loss" has no task
        task, _, metric = name.rpartition("/")
        if not task or metric.startswith(_BASELINES):
            continue
        share, baseline = is_share(name, shares), ""
        for kind in _BASELINES:
            if (chance := results.get(f"{task}/{kind}_{metric}")) is not None:
                baseline = f"{shown_figure(metric, chance, share)} ({kind})"
        rows.append((task, metric, shown_figure(metric, value, share), baseline))
    return rows


def shown_figure(metric: str, value: float, share: bool) -> str:
    """Return a value as people read it: a share in percent, a count as it is."""
    if metric.endswith(_COUNTS):
        return f"{value:g}"
    return f"{value:.1%}" if share else f"{value:,.3f}"


Curve = tuple[list[int], list[float]]


def read_curves(directory: Path) -> dict[str, Curve]:
    """Return steps and values of each metric in the CSV logs of a run directory, by name.

    Of a log, 64 MiB are read: a million rows.
    """
    points: dict[str, dict[int, float]] = defaultdict(dict)
    logs = [*directory.glob("csv/version_*/metrics.csv")]
    numbers = {log: log.parent.name.removeprefix("version_") for log in logs}
    logs = [log for log in logs if numbers[log].isdecimal()]  # version_0_old is a user's own copy
    for log in sorted(logs, key=lambda log: int(numbers[log])):  # version_10 after version_9
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
                if name not in ("step", "epoch", None) and value:
                    with contextlib.suppress(ValueError):  # 1e, where a kill cut a number
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
