"""The callbacks that bertlab itself adds to every run.

Loaded for ``bertlab --help`` as all hooks are: Lightning is imported when a run asks for them.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from bertlab.plugins.hooks import hookimpl, inspects_batches

if TYPE_CHECKING:
    from lightning.pytorch import Callback


@hookimpl
def bertlab_callbacks(run_dir: Path) -> "list[Callback]":
    """Return the callbacks for throughput, lines, curves, warnings and memory."""
    from bertlab.training.allocator import ReturnMemory  # noqa: PLC0415
    from bertlab.training.callbacks import (  # noqa: PLC0415
        BatchInspection,
        EvaluationLines,
        FoundLearningRate,
        LossCurve,
        LossWatch,
        TokenThroughput,
    )

    inspection = [BatchInspection()] if inspects_batches() else []
    reports = [TokenThroughput(), EvaluationLines(), LossCurve(run_dir)]
    return [*reports, FoundLearningRate(), LossWatch(), ReturnMemory(), *inspection]
