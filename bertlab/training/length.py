"""How long a run is: in steps, and in tokens."""

import math
from typing import Any

from lightning.pytorch import Trainer

from bertlab.data.module import TaskData
from bertlab.errors import ConfigError


def is_endless(max_steps: int, max_epochs: int | None) -> bool:
    """Whether neither steps nor epochs end a run."""
    return max_steps == -1 and max_epochs in (None, -1)


def check_only_end(endless: bool) -> None:
    """Raise ConfigError if a run that ``max_tokens`` ends has another end as well."""
    if not endless:
        raise ConfigError(
            "max_tokens: found trainer.max_steps or trainer.max_epochs beside it; give one of them"
        )


def steps_for_tokens(max_tokens: float, trainer: Trainer, data: TaskData) -> int:
    """Return the optimiser steps that read about ``max_tokens``.

    Raises:
        ConfigError: if it is less than a step's, or the run has another end as well.
    """
    check_only_end(is_endless(trainer.max_steps, trainer.max_epochs))
    _, a_step = data.mean_lengths()
    if not max_tokens >= a_step:  # NaN is not either
        raise ConfigError(
            f"max_tokens: found {max_tokens:g}, expected at least a step's, about {a_step:,.0f}"
        )
    return round(max_tokens / a_step)


def training_size(trainer: Trainer, data: TaskData) -> dict[str, Any]:
    """Return what the manifest says of it; of a run that a time ends only the mean length."""
    length, a_step = data.mean_lengths()
    steps = math.inf if trainer.max_steps == -1 else trainer.max_steps
    if trainer.max_epochs not in (None, -1):
        steps = min(steps, trainer.max_epochs * data.steps_per_epoch())
    size = {"mean_sequence_length": length}
    return size if steps == math.inf else {**size, "training_tokens": steps * a_step}
