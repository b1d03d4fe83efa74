"""What is done before a run is compiled for a GPU, the memory of a step, and strategy ``fsdp``."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from bertlab import FitKeys, hookimpl

if TYPE_CHECKING:
    from pathlib import Path

    from jsonargparse import Namespace
    from lightning.pytorch import Callback, Trainer
    from lightning.pytorch.cli import LightningArgumentParser
    from lightning.pytorch.strategies import Strategy

    from bertlab.api import TaskData
    from bertlab.extend import BertModule


@hookimpl
def bertlab_fit_arguments(parser: "LightningArgumentParser") -> FitKeys:
    """Add ``background_checkpoints`` and ``recompute``, which change nothing that is computed."""
    parser.add_argument(
        "--background_checkpoints",
        type=bool,
        default=False,
        help="write checkpoints while training continues; needs memory for two copies of weights "
        "and moments",
    )
    parser.add_argument(
        "--recompute",
        type=int | Literal["auto", "all"] | list[int],
        default="auto",
        help="layers whose activations the backward pass computes again, for less memory: so many "
        "from below, all, or a list from 0; auto: as few as are needed for a step to fit",
    )
    return FitKeys(
        not_recorded=("background_checkpoints",), stored=("recompute",), as_recorded=_as_recorded
    )


def _as_recorded(config: dict[str, Any]) -> dict[str, Any]:
    """Leave ``recompute`` out where it is not given: runs of before go on as they are."""
    return {key: each for key, each in config.items() if key != "recompute" or each != "auto"}


@hookimpl
def bertlab_callbacks(run_dir: "Path", config: "Namespace") -> "list[Callback]":
    """Return what saves and gives back memory, names kernels, and writes in the background."""
    from bertlab_gpu.path_taken import PathTaken  # noqa: PLC0415  torch, not for --help
    from bertlab_gpu.recomputation import Recomputation  # noqa: PLC0415
    from bertlab_gpu.returned_memory import ReturnMemory  # noqa: PLC0415

    recomputation = Recomputation(config.recompute, config.compile)
    found: list[Callback] = [ReturnMemory(), PathTaken(run_dir), recomputation]
    if config.background_checkpoints:
        from bertlab_gpu.background import BackgroundCheckpoints  # noqa: PLC0415

        found.append(BackgroundCheckpoints(run_dir))
    return found


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
def bertlab_step_parts(
    module: "BertModule", data: "TaskData", trainer: "Trainer", choose: bool
) -> int | None:
    """See that a step fits into memory, and choose its parts where the config says ``auto``."""
    from bertlab_gpu.step_memory import choose_parts, warn_of_slow_bf16  # noqa: PLC0415

    warn_of_slow_bf16(trainer)
    return choose_parts(module, data, trainer, choose)


@hookimpl
def bertlab_strategy(name: str) -> "Strategy | None":
    """Return what ``trainer.strategy: fsdp`` means."""
    if name != "fsdp":
        return None
    from bertlab_gpu.fully_sharded import FullyShardedStrategy  # noqa: PLC0415

    return FullyShardedStrategy()
