"""The callbacks that bertlab itself adds to every run."""

from pathlib import Path

from lightning.pytorch import Callback

from bertlab.callbacks.loss_curve import LossCurve
from bertlab.callbacks.progress import EvaluationLines, TokenThroughput
from bertlab.hooks import hookimpl


@hookimpl
def bertlab_callbacks(run_dir: Path) -> list[Callback]:
    """Return throughput, a line for each evaluation, and the loss curve."""
    return [TokenThroughput(), EvaluationLines(), LossCurve(run_dir)]
