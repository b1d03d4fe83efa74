"""``Pretrained``: an earlier model as data, whether of a run, a Hugging Face folder or the hub."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertlab.api.examples import Labels
from bertlab.api.tokenizer import Tokenizer
from bertlab.checkpoints.huggingface_head import HuggingFaceHead
from bertlab.model.optimizer import OptimizerState


@dataclass
class Pretrained:
    """What a checkpoint holds, as plain data and tensors; reading it executes nothing.

    Attributes:
        source: where it comes from, for messages: a file, a folder or a hub name.
        encoder_config: entry-point ``name`` of the encoder and its arguments, without
            ``vocab_size``.
        vocab_size: rows of its token embedding.
        state: tensors by the module's names: ``encoder.…`` and ``tasks.NAME.…``, in the file's
            dtypes. A Hugging Face model may lack ``encoder.pooler.…``.
        tokenizer: the one it was trained with; None if there is none beside it.
        labels: classes of a fine-tuned model; None if it has none, or they have no names.
        head_labels: those of each of several heads of a run, by name.
        head: of a fine-tuned Hugging Face model that bertlab knows; a run's head is in ``state``.
        unused: names of tensors in a Hugging Face file that stand for nothing here.
        model_max_length: of a Hugging Face model's tokenizer, in tokens; None if it says none.
        trained_max_length: tokens of the longest sequence in training; None if that is not known.
        path: the file of a run's checkpoint; None of a Hugging Face model. So are all below.
        config: resolved config of the run, as far as a checkpoint may bring one, see
            :mod:`bertlab.config.checkpoint_config`.
        left_out: keys that the run's config had besides, such as ``trainer.callbacks``.
        global_step: optimiser steps done.
        token_counts: ``(vocab_size,)`` int64 of the training text, for the baselines; None of a
            fine-tuning run.
        optimizer: state of AdamW and its schedule, if it was asked for.
        data: fingerprints of what the run was trained on; empty where it does not tell.
        version: of bertlab that wrote it; None before 0.2.
    """

    source: str
    encoder_config: dict[str, Any]
    vocab_size: int
    state: dict[str, Tensor]
    tokenizer: Tokenizer | None
    labels: Labels | None = None
    head_labels: dict[str, Labels] = field(default_factory=dict)
    head: HuggingFaceHead | None = None
    unused: list[str] = field(default_factory=list)
    model_max_length: int | None = None
    trained_max_length: int | None = None
    path: Path | None = None
    config: dict[str, Any] | None = None
    left_out: list[str] = field(default_factory=list)
    global_step: int = 0
    token_counts: Tensor | None = None
    optimizer: OptimizerState | None = None
    data: dict[str, str] = field(default_factory=dict)
    version: str | None = None

    @property
    def encoder_state(self) -> dict[str, Tensor]:
        """Tensors of the encoder, by name inside it."""
        return _below(self.state, "encoder.")

    @property
    def task_states(self) -> dict[str, dict[str, Tensor]]:
        """Tensors of each task, by the task's name and the name inside it."""
        # tasks.mlm.dense.weight -> mlm
        names = {key.split(".")[1] for key in self.state if key.startswith("tasks.")}
        return {name: _below(self.state, f"tasks.{name}.") for name in sorted(names)}

    @property
    def head_config(self) -> dict[str, Any] | None:
        """``name`` and arguments of the head of a fine-tuned run; None if there is none."""
        head: dict[str, Any] | None = None
        if self.config is not None:
            head = self.config["model"].get("head")
        return head

    def weights_digest(self) -> str:
        """Return 12 hexadecimal digits of the SHA-256 of all tensors and their names."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.state.items()):
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
            content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            digest.update(content.numpy().data)
        return digest.hexdigest()[:12]

    def release_weights(self) -> None:
        """Drop the tensors, once a module has them; names, sizes and tokenizer stay."""
        self.state = {}
        self.head = None


def _below(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)
    }
