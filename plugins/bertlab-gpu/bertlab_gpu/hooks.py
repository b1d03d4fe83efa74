"""What is done before a run is compiled that trains on a GPU, and the strategy ``fsdp``."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from bertlab import hookimpl

if TYPE_CHECKING:
    from lightning.pytorch import Trainer
    from lightning.pytorch.strategies import Strategy

    from bertlab.api import TaskData
    from bertlab.extend import BertModule


@hookimpl
def bertlab_accelerate(module: "BertModule", data: "TaskData", trainer: "Trainer") -> None:
    """Compute attention in the kernel for short sequences, and replay steps where that can be."""
    if trainer.strategy.root_device.type != "cuda":
        return
    from bertlab.extend import add_attention_kernel  # noqa: PLC0415  torch, not for --help
    from bertlab_gpu.filling import Filling  # noqa: PLC0415
    from bertlab_gpu.step_graphs import StepGraphs, can_replay, use_own_stream  # noqa: PLC0415

    if find_spec("triton") is not None:
        from bertlab_gpu.attention_kernel import attend_short  # noqa: PLC0415

        add_attention_kernel(attend_short)
    if can_replay(trainer):
        use_own_stream()
        data.finish_batch = Filling(module.named_tasks(), data.max_seq_length)
        module.passes = StepGraphs()


@hookimpl
def bertlab_strategy(name: str) -> "Strategy | None":
    """Return what ``trainer.strategy: fsdp`` means."""
    if name != "fsdp":
        return None
    from bertlab_gpu.fully_sharded import FullyShardedStrategy  # noqa: PLC0415

    return FullyShardedStrategy()
