"""The callbacks that bertlab itself adds to every run.

Loaded for ``bertlab --help`` as all hooks are: Lightning is imported when a run asks for them.
"""

from typing import TYPE_CHECKING

from bertlab.plugins.hooks import hookimpl, is_hooked

if TYPE_CHECKING:
    from lightning.pytorch import Callback


@hookimpl
def bertlab_callbacks() -> "list[Callback]":
    """Return the callbacks for throughput, lines, a found learning rate and memory."""
    from bertlab.training.allocator import ReturnMemory  # noqa: PLC0415
    from bertlab.training.callbacks import (  # noqa: PLC0415
        BatchInspection,
        EvaluationLines,
        FoundLearningRate,
        TokenThroughput,
    )

    inspection = [BatchInspection()] if is_hooked("bertlab_inspect_batch") else []
    reports = [TokenThroughput(), EvaluationLines(), FoundLearningRate()]
    return [*reports, ReturnMemory(), *inspection]
