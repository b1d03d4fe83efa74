"""``loss_curve.png``: losses and scores of a run against its steps."""

import io
from pathlib import Path

from lightning.pytorch import Callback, LightningModule, Trainer
from matplotlib.figure import Figure

from bertlab import Run
from bertlab.extend import read_curves, replacing
from bertlab_pages.word_curves import Curve

_SCORES = ("accuracy", "/f1", "exact_match", "matthews", "pearson", "spearman")


class LossCurve(Callback):
    """Draws ``loss_curve.png`` from the run's CSV logs when training ends."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw what has been logged so far, earlier attempts at the same run included."""
        if trainer.is_global_zero and (curves := read_curves(self.directory)):
            with replacing(self.directory / "loss_curve.png") as file:
                draw_curves(curves).savefig(file, format="png", dpi=130)


class ShownFigure(Figure):
    """A figure that shows itself without pyplot."""

    def _repr_png_(self) -> bytes:
        image = io.BytesIO()
        self.savefig(image, format="png", dpi=100)
        return image.getvalue()


def plot(run: Run) -> Figure:
    """Return the picture of losses and scores of a run against steps: ``run.plot()``."""
    return draw_curves(read_curves(run.directory))


def draw_curves(curves: dict[str, Curve]) -> Figure:
    """Draw losses at the left, scores at the right, baselines dashed; notebooks show the figure."""
    figure = ShownFigure(figsize=(11, 4), layout="constrained")
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
            axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)
    return figure
