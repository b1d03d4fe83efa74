"""A picture of the run: training and held-out loss against steps."""

import csv
from collections import defaultdict
from pathlib import Path

from lightning.pytorch import Callback, LightningModule, Trainer

from bertlab.files import replacing

Curve = tuple[list[int], list[float]]


class LossCurve(Callback):
    """Draws ``loss_curve.png`` from the run's CSV logs when training ends.

    Args:
        directory: of the run.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw what has been logged so far, earlier attempts at the same run included."""
        if trainer.is_global_zero:
            curves = read_curves(self.directory)
            if curves:
                draw(curves, self.directory / "loss_curve.png")


_SCORES = ("accuracy", "/f1", "exact_match", "matthews", "pearson", "spearman")


def read_curves(directory: Path) -> dict[str, Curve]:
    """Return steps and values of each metric in the CSV logs of a run directory, by name."""
    points: dict[str, dict[int, float]] = defaultdict(dict)
    for log in sorted(directory.glob("csv/version_*/metrics.csv"), key=_version):
        with log.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if not (row["step"] or "").isdigit():  # a line that a kill cut short
                    continue
                step = int(row["step"])
                for name, value in row.items():
                    if name not in ("step", "epoch") and value:
                        points[name][step] = float(value)
    return {
        name: ([step for step, _ in sorted(values.items())], [values[s] for s in sorted(values)])
        for name, values in points.items()
    }


def draw(curves: dict[str, Curve], output: Path) -> None:
    """Draw losses at the left, scores at the right, baselines dashed."""
    from matplotlib.figure import Figure  # noqa: PLC0415  slow to import

    figure = Figure(figsize=(11, 4), layout="constrained")
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
    with replacing(output) as file:
        figure.savefig(file, format="png", dpi=130)


def _version(log: Path) -> int:
    return int(log.parent.name.removeprefix("version_"))
