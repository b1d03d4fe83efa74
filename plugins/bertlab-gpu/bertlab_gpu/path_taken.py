"""By which kernels a run computes, in its manifest: what a device lacks is replaced in silence."""

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from bertlab.api import Encoder, PackedBatch
from bertlab.extend import (
    MANIFEST_FILE,
    BertModule,
    SelfAttention,
    dtype_of_products,
    explain_failed_write,
    layers_of,
    read_manifest,
    takes_flash,
    write_json,
)
from bertlab_gpu.step_graphs import StepGraphs

KERNELS = "kernels"  # of a session in the manifest


class PathTaken(Callback):
    """Writes the path that was taken to the last session of the run's manifest.

    After the first batch, and again when training ends: steps may have ceased to be replayed.

    Args:
        directory: of the run.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._is_first = True

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: object,
        batch: object,
        batch_idx: int,
    ) -> None:
        """Write the path as it begins."""
        if self._is_first:
            self._is_first = False
            self.on_train_end(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the path as it was to the end."""
        if trainer.is_global_zero and isinstance(pl_module, BertModule):
            with trainer.precision_plugin.train_step_context():
                longest = getattr(trainer, "datamodule").max_seq_length  # noqa: B009  untyped
                self._write(path_taken(pl_module, longest))

    def _write(self, path: dict[str, str]) -> None:
        record = read_manifest(self.directory)
        sessions = record.get("sessions")
        if not isinstance(sessions, list) or not sessions or sessions[-1].get(KERNELS) == path:
            return  # a manifest that cannot be read stays as it is
        content = {**record, "sessions": [*sessions[:-1], {**sessions[-1], KERNELS: path}]}
        with explain_failed_write(f"{self.directory / MANIFEST_FILE} cannot be written"):
            write_json(self.directory / MANIFEST_FILE, content)


def path_taken(module: BertModule, longest: int) -> dict[str, str]:
    """Return by which kernels a module trains here: of attention, loss, layers and steps.

    Args:
        module: on its device; called in the precision of a step.
        longest: tokens of the longest sequence.
    """
    encoder = module.encoder
    on_cpu = encoder.token_embedding.weight.device.type == "cpu"
    layers = layers_of(encoder)
    compiled = bool(layers) and all(each._compiled_call_impl is not None for each in layers)
    loss = "by rows, with its gradient" if on_cpu else "torch's"
    return {
        "attention": _attention(encoder, compiled, longest),
        "loss": "compiled" if compiled and not on_cpu else loss,
        "layers": "compiled" if compiled else "as they are",
        "steps": _steps(module),
    }


def _steps(module: BertModule) -> str:
    if not isinstance(module.passes, StepGraphs):
        return "launched kernel by kernel"
    return "replayed CUDA graphs" if module.passes.is_replaying else "CUDA graphs given up"


def _attention(encoder: Encoder, compiled: bool, longest: int) -> str:
    """Return how the encoder attends in training, each way once."""
    found = [each for each in encoder.modules() if isinstance(each, SelfAttention)]
    ways = dict.fromkeys(_way(each, longest, compiled) for each in found)
    return ", ".join(ways) or f"{type(encoder).__name__}'s own"


def _way(layer: SelfAttention, longest: int, compiled: bool) -> str:
    weight = layer.qkv.weight
    products = dtype_of_products(weight)
    heads = layer.num_attention_heads
    # no tokens: dtype, device and sizes decide
    qkv = weight.new_empty((0, weight.shape[0]), dtype=products)
    if takes_flash(qkv, cast("PackedBatch", SimpleNamespace(input_ids=())), heads):
        short = compiled and not layer.causal and _is_short(weight.shape[1] // heads, longest)
        return "packed, kernels for short sequences" if short else "packed, flash"
    if weight.device.type == "cpu" and (layer.dropout > 0 or products != torch.float32):
        return "padded, matrix products"
    return "padded, torch's scaled dot products"


def _is_short(head_size: int, longest: int) -> bool:
    """Whether the kernels of this package take sequences of this length, if there is Triton."""
    if find_spec("triton") is None:
        return False
    from bertlab_gpu.attention_kernel import HEAD_SIZES, LONGEST  # noqa: PLC0415  Triton

    return longest <= LONGEST and head_size in HEAD_SIZES
