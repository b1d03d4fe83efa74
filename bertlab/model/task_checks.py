"""Which tasks go together, with an encoder, and with a divided step."""

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

from torch import nn

from bertlab.api.encoder import Encoder
from bertlab.api.task import Objective, Task
from bertlab.errors import ConfigError, PluginError


def check_whole_steps(tasks: Mapping[str, Task], accumulate: int, devices: int) -> None:
    """Raise ConfigError if a step is divided, but a loss compares its sequences."""
    for name, task in tasks.items():
        if task.compares_sequences and accumulate * devices > 1:
            key = "accumulate_grad_batches" if accumulate > 1 else "devices"
            raise ConfigError(
                f"trainer.{key}: found {max(accumulate, devices)}, expected 1: {name} compares the "
                "sequences of a step with each other, and would see a part of them only"
            )


def check_tasks(tasks: Mapping[str, Task], encoder: Encoder) -> None:
    """Raise ConfigError if the tasks do not go together or with the encoder."""
    if not tasks:
        raise ConfigError("model.objectives: found none, expected at least one, e.g. [mlm, nsp]")
    for name in tasks:
        if hasattr(nn.ModuleDict, name) or "." in name:
            raise ConfigError(
                f"{name} cannot be the name of a task: torch uses it; rename the plugin"
            )
    objectives = {name: task for name, task in tasks.items() if isinstance(task, Objective)}
    _check_required(objectives)
    for does, words in (
        ("corrupts_input", "overwrite the input"),
        ("rearranges_input", "move the text of the input"),
    ):
        writers = [name for name, objective in objectives.items() if getattr(objective, does)]
        if len(writers) > 1:
            raise ConfigError(
                f"model.objectives: {' and '.join(writers)} both {words}; keep one of them"
            )
    for name, objective in objectives.items():
        needed = objective.requires_causal
        if needed is not None and needed != encoder.causal:
            direction = "left-to-right" if needed else "bidirectional"
            raise ConfigError(
                f"model.objectives.{name} needs a {direction} encoder, but model.encoder.causal is "
                f"{str(encoder.causal).lower()}" + (" (or undone by bilstm_layers)" * needed)
            )


def _check_required(objectives: Mapping[str, Objective]) -> None:
    for name, objective in objectives.items():
        for wanted in objective.requires:
            if wanted not in objectives:
                together = ", ".join([*objectives, wanted])
                raise ConfigError(
                    f"model.objectives.{name} builds on {wanted}, but found "
                    f"[{', '.join(objectives)}]; expected [{together}]"
                )
    try:
        TopologicalSorter({name: each.requires for name, each in objectives.items()}).prepare()
    except CycleError as error:
        circle = " requires ".join(reversed(error.args[1]))
        raise PluginError(f"model.objectives: {circle}: none of them can be the first") from None
