"""Builds encoder, tasks and metrics from a config, checks that they go together, compiles them."""

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

import torch
import torch._dynamo
from torch import nn
from torchmetrics import Metric

from bertlab.api.encoder import Adapter, Encoder, layers_of
from bertlab.api.task import Head, Objective, Task, TaskContext
from bertlab.data.loader import after_required
from bertlab.errors import ConfigError, PluginError, naming_head
from bertlab.objectives.cross_entropy import SummedCrossEntropy
from bertlab.plugins.index import load_class, make_plugin

_VOCABULARY = 30_522  # BERT's, where another is not known yet


def check_tasks(tasks: Mapping[str, Task], encoder: Encoder) -> None:
    """Raise ConfigError if the tasks do not go together or with the encoder."""
    if not tasks:
        raise ConfigError("model.objectives: found none, expected at least one, e.g. [mlm, nsp]")
    for name in tasks:
        if hasattr(nn.ModuleDict, name) or "." in name:
            raise ConfigError(f"{name} cannot name a task: torch uses it; rename the plugin")
    objectives = {name: task for name, task in tasks.items() if isinstance(task, Objective)}
    _check_required(objectives)
    for does, words in (
        ("corrupts_input", "overwrite the input"),
        ("rearranges_input", "move the text of the input"),
    ):
        writers = [name for name, objective in objectives.items() if getattr(objective, does)]
        if len(writers) > 1:
            raise ConfigError(f"model.objectives: {' and '.join(writers)} both {words}; keep one")
    for name, task in tasks.items():
        direction = getattr(task, "requires_causal", None)
        needs = {} if direction is None else {"causal": direction}
        for key, wanted in {**needs, **task.requires_encoder}.items():
            found = getattr(encoder, key, None)
            if found != wanted:
                where = f"model.objectives.{name}" if name in objectives else f"the head {name}"
                kind = f"n encoder whose {key} is {wanted}"
                if key == "causal":
                    kind = f" {'left-to-right' if wanted else 'bidirectional'} encoder"
                raise ConfigError(
                    f"{where} needs a{kind}, but model.encoder.{key} is {str(found).lower()} with "
                    "these settings"
                )


def check_encoder(tasks: Mapping[str, Task], section: Mapping[str, Any]) -> None:
    """As :func:`check_tasks`, for the encoder of a config and before its vocabulary is known."""
    # what cannot be made without memory for its weights is checked once it is made with them
    with suppress(NotImplementedError, RuntimeError), torch.device("meta"):
        check_tasks(tasks, build_encoder(section, _VOCABULARY))


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


Arguments = Mapping[str, Any]


def build_tasks(model: Arguments) -> dict[str, Task]:
    """Make the objectives or the heads of a config's ``model`` section, by name.

    Their layers come later, when sizes and labels are known.
    """
    tasks: dict[str, Task] = {
        name: load_class("objective", name, Objective)(**(given or {}))
        for name, given in (model.get("objectives") or {}).items()
    }
    if head := model.get("head"):
        tasks[head["name"]] = make_plugin("head", head, Head)
    for name, given in (model.get("heads") or {}).items():
        with naming_head(name):
            tasks[name] = make_plugin("head", given, Head)
    return tasks


def build_layers(tasks: Mapping[str, Task], context: TaskContext) -> None:
    """Create the layers of all tasks, each after those that it requires.

    Of several tasks, errors name the head that they are of.
    """
    objectives = {name: task for name, task in tasks.items() if isinstance(task, Objective)}
    for name in after_required(tasks, objectives):
        task, labels = tasks[name], context.head_labels.get(name, context.labels)
        if isinstance(task, Objective):
            task.required = {each: objectives[each] for each in task.requires}
        named = isinstance(task, Head) and len(tasks) > 1
        with naming_head(name) if named else nullcontext():
            task.build(replace(context, labels=labels))


def keeps_encoder_fixed(heads: Mapping[str, Head]) -> bool:
    """Whether the heads take the encoder's states as they are."""
    fixed = [name for name, head in heads.items() if not head.trains_encoder]
    if fixed and len(fixed) < len(heads):
        others = ", ".join(name for name in heads if name not in fixed)
        told = f"model.heads.{fixed[0]}: keeps the encoder fixed, and {others} trains it"
        raise ConfigError(f"{told}; expected heads that all do the one or the other")
    return bool(fixed)


def build_metrics(model: Arguments) -> dict[str, Metric]:
    """Make the further metrics of a config's ``model`` section, by name."""
    return {
        name: load_class("metric", name, Metric)(**(given or {}))
        for name, given in (model.get("metrics") or {}).items()
    }


def build_encoder(section: Arguments, vocab_size: int) -> Encoder:
    """Make the encoder that a config's ``model.encoder`` section describes, with new weights."""
    return make_plugin("encoder", section, Encoder, vocab_size=vocab_size)


def adapt(encoder: Encoder, model: Arguments, heads: Mapping[str, Head]) -> None:
    """Let the adapter of a config's ``model.adapter`` section, if any, change what is trained."""
    if (adapter := model.get("adapter")) is not None:
        if keeps_encoder_fixed(heads):
            told = f"model.adapter: found {adapter['name']}"
            raise ConfigError(f"{told}, expected none: {', '.join(heads)} keeps the encoder fixed")
        make_plugin("adapter", adapter, Adapter).adapt(encoder)


def check_lengths(max_seq_length: int, encoder: Encoder) -> None:
    """Raise ConfigError if sequences can be longer than the encoder's position table."""
    if max_seq_length > encoder.max_position_embeddings:
        raise ConfigError(
            f"data.max_seq_length: found {max_seq_length}, expected at most "
            f"model.encoder.max_position_embeddings, which is {encoder.max_position_embeddings}"
        )


def compile_layers(encoder: nn.Module) -> None:
    """Compile each layer when it is called first; names of weights stay as they are.

    All layers of a kind share what was compiled. The number of tokens is left open, as packed
    batches differ in it. Attention is called between what is compiled before and after it, but for
    a GPU's flash kernel, which is a part of it.
    """
    torch._dynamo.config.specialize_float = True  # dropout and epsilon stay as they are
    # in place: torch.compile(layer) would put _orig_mod. into the names of checkpoints
    for layer in layers_of(encoder):
        layer.compile(dynamic=True)


def compile_losses(tasks: nn.Module) -> None:
    """Compile the cross-entropy of the tasks that keep one as a module."""
    for part in tasks.modules():
        if isinstance(part, SummedCrossEntropy):
            part.compile(dynamic=True)
