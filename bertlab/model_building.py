"""From names and arguments to a BertModule, for a command line or a checkpoint's config."""

from collections.abc import Mapping, Sequence
from typing import Any

from torchmetrics import Metric

from bertlab.checkpoints.loading import load_matching
from bertlab.checkpoints.run_checkpoint import RunCheckpoint
from bertlab.encoders.base import Encoder
from bertlab.errors import ConfigError
from bertlab.heads.base import Head
from bertlab.labelled_rows import Row
from bertlab.module import BertModule
from bertlab.optimization import AdamWConfig
from bertlab.plugins import load_class
from bertlab.tasks import Objective, Task, TaskContext

Arguments = Mapping[str, Any]


def build_tasks(model: Arguments) -> dict[str, Task]:
    """Make the objectives or the head of a config's ``model`` section, by name.

    Their layers come later, when sizes and labels are known.
    """
    tasks: dict[str, Task] = {
        name: load_class("objective", name, Objective)(**(given or {}))
        for name, given in (model.get("objectives") or {}).items()
    }
    if model.get("head"):
        arguments = dict(model["head"])
        name = arguments.pop("name")
        tasks[name] = load_class("head", name, Head)(**arguments)
    return tasks


def build_metrics(model: Arguments) -> dict[str, Metric]:
    """Make the further metrics of a config's ``model`` section, by name."""
    return {
        name: load_class("metric", name, Metric)(**(given or {}))
        for name, given in (model.get("metrics") or {}).items()
    }


def build_encoder(section: Arguments, vocab_size: int) -> Encoder:
    """Make the encoder that a config's ``model.encoder`` section describes, with new weights.

    Args:
        section: its entry-point ``name`` and its arguments.
        vocab_size: of the tokenizer.
    """
    arguments = dict(section)
    encoder = load_class("encoder", arguments.pop("name"), Encoder)(
        vocab_size=vocab_size, **arguments
    )
    assert isinstance(encoder, Encoder)
    return encoder


def restore_module(
    checkpoint: RunCheckpoint,
    tasks: Mapping[str, Task],
    evaluation_rows: Mapping[str, Sequence[Row]] | None = None,
    metrics: Mapping[str, Metric] | None = None,
) -> BertModule:
    """Make the module of a checkpoint, with its weights.

    Args:
        checkpoint: gives encoder, optimiser settings, tokenizer, labels and weights.
        tasks: of the same names as the checkpoint's, not built yet.
        evaluation_rows: as for :class:`bertlab.module.BertModule`.
        metrics: likewise.
    """
    model = checkpoint.config["model"]
    encoder = build_encoder(model["encoder"], checkpoint.tokenizer.vocab_size)
    counts = None if checkpoint.token_counts is None else checkpoint.token_counts.numpy()
    context = TaskContext(encoder, checkpoint.tokenizer, counts, checkpoint.labels)
    optimizer = AdamWConfig(**model["optimizer"])
    module = BertModule(encoder, tasks, context, optimizer, evaluation_rows, metrics)
    load_matching(module, checkpoint.state, str(checkpoint.path))
    return module


def check_lengths(max_seq_length: int, encoder: Encoder) -> None:
    """Raise ConfigError if sequences can be longer than the encoder's position table."""
    if max_seq_length > encoder.max_position_embeddings:
        raise ConfigError(
            f"data.max_seq_length: found {max_seq_length}, expected at most "
            f"model.encoder.max_position_embeddings, which is {encoder.max_position_embeddings}"
        )
