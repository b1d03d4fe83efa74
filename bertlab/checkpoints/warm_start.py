"""Warm start (``model.init_from``): a new module takes the weights of an earlier model."""

from collections.abc import Mapping

from torch import Tensor

from bertlab.api.examples import Labels
from bertlab.api.task import Head
from bertlab.checkpoints.loading import LoadReport, load_matching
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.model.module import BertModule

_MAX_NAMED = 8


def warm_start(start: Pretrained, module: BertModule) -> list[str]:
    """Give a new module the weights, and the optimiser that was read; return lines for the user."""
    report = load_weights(start, module)
    lines = [f"initialised from {start.source}: {len(report.loaded)} tensors"]
    if report.newly_initialized:
        lines.append(f"newly initialised: {', '.join(report.newly_initialized)}")
    lines += [f"note: {note}" for note in report.notes]
    state, start.optimizer = start.optimizer, None  # twice the weights: the module drops it, too
    if state is not None:
        state.check(module, module.optimizer_config)
        module.continued = state
        goes_on = module.optimizer_config.schedule_steps is not None
        schedule = f"at step {state.steps:,} of the schedule" if goes_on else "its schedule anew"
        lines.append(f"its optimiser goes on too, {schedule}")
    return lines


def load_weights(start: Pretrained, module: BertModule) -> LoadReport:
    """Copy the weights into a BertModule; tasks, pooler and BiLSTM that the source lacks stay new.

    A head takes the layers of the source's head if that is of the same kind (the same name in a
    run's config, the same class of ``transformers``) and has the same labels in the same order;
    else it stays new and a note says why. Its buffers, which its own data decides, stay as well.

    Returns:
        Which tensors were loaded, newly initialised and unused, and notes on the heads.
    """
    state = {f"encoder.{name}": tensor for name, tensor in start.encoder_state.items()}
    heads = {name: task for name, task in module.named_tasks().items() if isinstance(task, Head)}
    states = start.task_states
    for task, tensors in states.items():
        if task not in heads:
            state |= _below(task, tensors)
    notes: list[str] = []
    left: list[str] = []
    for name, head in heads.items():
        source = states.get(name, {}) if start.head is None else start.head.state
        reason = _mismatch(start, source, name, head) if source else None
        if reason is not None:
            notes.append(f"the head {name} starts anew: {reason}")
        wanted = () if reason is not None else tuple(each for each, _ in head.named_parameters())
        state |= _below(name, {each: source[each] for each in wanted if each in source})
        left += [f"tasks.{name}.{each}" for each in source if each not in wanted]
    # not encoder.layers: an encoder with some layers new would be a silent mistake
    may_lack = ("tasks.", "encoder.pooler.", "encoder.bilstm.")
    report = load_matching(module, state, start.source, may_lack)
    report.unused += left
    report.notes += notes
    return report


def _below(task: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    # mlm, dense.weight -> tasks.mlm.dense.weight
    return {f"tasks.{task}.{name}": tensor for name, tensor in tensors.items()}


def _mismatch(start: Pretrained, source: Mapping[str, Tensor], name: str, head: Head) -> str | None:
    """Say why a head cannot take over the tensors of the source's head; None if it can."""
    if start.head is not None and start.head.layout.kind != head.huggingface:
        return f"the source has that of a {start.head.architecture}"
    if start.head is not None and start.head.problem_type != head.problem_type:
        return f"the source's is for {start.head.problem_type or 'single labels or numbers'}"
    is_causal = start.encoder_config.get("causal", False)  # ModernBERT's has no such key
    if start.head is not None and start.head.layout.has_pooler and is_causal:
        return "the source's reads the first token of a left-to-right encoder, bertlab's the last"
    theirs, ours = start.head_labels.get(name, start.labels), head.labels or None
    if not _same_classes(start, theirs, ours):
        unnamed = "unnamed" if start.head is not None and start.head.has_classes else "none"
        there = unnamed if theirs is None else _list_names(theirs)
        here = "none" if ours is None else _list_names(ours)
        return f"labels differ: {there} in the source, {here} here"
    differing = [
        name
        for name, tensor in head.named_parameters()
        if name not in source or source[name].shape != tensor.shape
    ]
    return f"the source's has other layers ({', '.join(differing)})" if differing else None


def _same_classes(start: Pretrained, theirs: Labels | None, ours: Labels | None) -> bool:
    if theirs is not None:
        return ours is not None and ours.names == theirs.names
    if start.head is not None and start.head.has_classes:  # unnamed: data may number them as well
        numbers = tuple(str(number) for number in range(start.head.num_rows))
        return ours is not None and ours.names == numbers
    return ours is None


def _list_names(labels: Labels) -> str:
    shown = ", ".join(labels.names[:_MAX_NAMED])
    return shown if len(labels) <= _MAX_NAMED else f"{shown}, … ({len(labels)})"
