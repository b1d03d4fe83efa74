"""The curves of a run, from its CSV files: as a table and as a picture."""

import csv
import io
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Curve = tuple[list[int], list[float]]
_SCORES = ("accuracy", "/f1", "exact_match", "matthews", "pearson", "spearman")


def read_curves(directory: Path) -> dict[str, Curve]:
    """Return steps and values of each metric in the CSV logs of a run directory, by name."""
    points: dict[str, dict[int, float]] = defaultdict(dict)
    for log in sorted(directory.glob("csv/version_*/metrics.csv"), key=_version):
        with log.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
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


def draw_curves(curves: dict[str, Curve]) -> "Figure":
    """Draw losses at the left, scores at the right, baselines dashed; notebooks show the figure."""
    from matplotlib.figure import Figure  # noqa: PLC0415  slow to import

    class Picture(Figure):
        """A figure that shows itself without pyplot."""

        def _repr_png_(self) -> bytes:
            image = io.BytesIO()
            self.savefig(image, format="png", dpi=100)
            return image.getvalue()

    figure = Picture(figsize=(11, 4), layout="constrained")
    loss, score = figure.subplots(1, 2)
    for name, (steps, values) in sorted(curves.items()):
        baseline = "unigram" in name or "majority" in name
        style = {"linestyle": "--", "linewidth": 1.0} if baseline else {"linewidth": 1.6}
        if name.endswith("loss"):
            loss.plot(steps, values, label=name, **style)
        elif name.endswith(_SCORES):
            score.plot(steps, values, label=name, marker="" if baseline else ".", **style)
    for axis, label in ((loss, "loss (nats per prediction)"), (score, "held-out score")):
        axis.set_xlabel("optimizer step")
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
        if axis.lines:
            axis.legend(fontsize=8)
    return figure


def _version(log: Path) -> int:
    # as numbers: version_10 comes after version_9
    return int(log.parent.name.removeprefix("version_"))
