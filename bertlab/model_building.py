"""From names and arguments to a BertModule, for a command line or a checkpoint's config."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bertlab.checkpoints.loading import load_matching
from bertlab.checkpoints.run_checkpoint import RunCheckpoint
from bertlab.data.tokenizer import WordPieceTokenizer
from bertlab.encoders.base import Encoder
from bertlab.errors import ConfigError
from bertlab.module import BertModule
from bertlab.optimization import AdamWConfig
from bertlab.plugins import load_class
from bertlab.tasks import Objective, TaskContext

Arguments = Mapping[str, Any]


def build_objectives(arguments: Mapping[str, Arguments | None]) -> dict[str, Objective]:
    """Make each named objective with its arguments; layers come later, when sizes are known."""
    return {
        name: load_class("objective", name, Objective)(**(given or {}))
        for name, given in arguments.items()
    }


def build_encoder(name: str, arguments: Arguments, vocab_size: int) -> Encoder:
    """Make the named encoder for a vocabulary, with new weights."""
    encoder = load_class("encoder", name, Encoder)(vocab_size=vocab_size, **arguments)
    assert isinstance(encoder, Encoder)
    return encoder


def build_module(
    model: Arguments,
    objectives: Mapping[str, Objective],
    tokenizer: WordPieceTokenizer,
    token_counts: npt.NDArray[np.int64] | None = None,
) -> BertModule:
    """Make the module that a config's ``model`` section describes, with new weights.

    Args:
        model: the section: ``encoder`` with its name and arguments, ``optimizer``.
        objectives: as :func:`build_objectives` made them.
        tokenizer: decides ``vocab_size``.
        token_counts: ``(vocab_size,)`` of the training text, for the baselines.
    """
    arguments = dict(model["encoder"])
    encoder = build_encoder(arguments.pop("name"), arguments, tokenizer.vocab_size)
    context = TaskContext(encoder, tokenizer, token_counts)
    optimizer = AdamWConfig(**model["optimizer"])
    return BertModule(encoder, objectives, context, optimizer)


def restore_module(checkpoint: RunCheckpoint) -> BertModule:
    """Make the module of a checkpoint, with its weights."""
    model = checkpoint.config["model"]
    module = build_module(model, build_objectives(model["objectives"]), checkpoint.tokenizer)
    load_matching(module, checkpoint.state, str(checkpoint.path))
    return module


def check_lengths(max_seq_length: int, encoder: Encoder) -> None:
    """Raise ConfigError if sequences can be longer than the encoder's position table."""
    if max_seq_length > encoder.max_position_embeddings:
        raise ConfigError(
            f"data.max_seq_length: found {max_seq_length}, expected at most "
            f"model.encoder.max_position_embeddings, which is {encoder.max_position_embeddings}"
        )
