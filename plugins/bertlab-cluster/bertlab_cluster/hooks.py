"""What bertlab-cluster adds to ``bertlab fit``: a job of SLURM queues itself again."""

from typing import TYPE_CHECKING

from bertlab import hookimpl

if TYPE_CHECKING:
    from lightning.pytorch import Callback


@hookimpl
def bertlab_callbacks() -> "list[Callback]":
    """Return what queues a job again."""
    from bertlab_cluster.requeue import QueueAgain  # noqa: PLC0415  torch, not for --help

    return [QueueAgain()]
