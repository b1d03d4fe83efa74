"""Checks of ``build``, and of a task that is saved, restored, resumed, or sent to a data worker."""

import dataclasses
import io
import pickle
from typing import Any

import torch
from torch import nn

from bertlab.api import Head, Labels, TaskContext
from bertlab_conformance.cases import SEED
from bertlab_conformance.check import TASK_KINDS, ConformanceFailure, check
from bertlab_conformance.comparisons import PLAIN_FUNCTIONS, changed_tensor, difference, pickled
from bertlab_conformance.stack import Stack, seeded
from bertlab_conformance.task_cases import HeadCase, ObjectiveCase, TaskCase

USABLE = (
    "is_complete",
    "methods_take_what_they_are_given",
    "class_attributes_have_their_types",
    "arguments_have_defaults",
)


@check(*TASK_KINDS, after=USABLE)
def builds(case: TaskCase) -> None:
    """It is built for a tiny encoder, with finite weights."""
    for name, parameter in case.stack(disturbed=False).task.named_parameters():
        if not parameter.isfinite().all():
            raise ConformanceFailure(
                f"{name} is {parameter.detach().flatten()[0].item()} after build()",
                "initialise it: bertlab.encoders.layers.initialize(self, "
                "context.encoder.initializer_range); torch.empty holds anything",
            )


@check(*TASK_KINDS, after=("builds",))
def builds_without_the_data(case: TaskCase) -> None:
    """It is built without counts of tokens or labels too, as for prediction and export."""
    encoder = case.encoder()
    context = case.context(encoder)
    # a restored checkpoint knows the names, not how often each was seen
    labels = context.labels and Labels(context.labels.names, (0,) * len(context.labels))
    case.build(case.new(), dataclasses.replace(context, token_counts=None, labels=labels))


@check(*TASK_KINDS, after=("builds",))
def builds_the_same_from_a_seed(case: TaskCase) -> None:
    """Two objects that are built under one seed have the same weights."""
    one, other = (case.stack(disturbed=False).task.state_dict() for _ in range(2))
    changed = changed_tensor(one, other)
    if changed:
        raise ConformanceFailure(
            f"{changed} differs between two tasks that were built after the same manual_seed",
            "draw initial weights with torch's own functions, without a generator of your own",
        )


@check(*TASK_KINDS, after=("builds",))
def build_leaves_the_encoder_alone(case: TaskCase) -> None:
    """``build`` changes nothing in the encoder, which other tasks share."""
    with seeded(1):
        encoder = case.encoder()
        before = {name: value.clone() for name, value in encoder.state_dict().items()}
        trained = [parameter.requires_grad for parameter in encoder.parameters()]
        case.build(case.new(), case.context(encoder))
    changed = changed_tensor(before, encoder.state_dict())
    if changed:
        raise ConformanceFailure(
            f"build() changes the encoder's {changed}", "give the task layers of its own"
        )
    if trained != [parameter.requires_grad for parameter in encoder.parameters()]:
        raise ConformanceFailure(
            "build() changes requires_grad of the encoder's parameters",
            "set trains_encoder = False (a head), or model.optimizer.freeze in the config",
        )


@check(*TASK_KINDS, after=("builds",))
def does_not_own_the_encoder(case: TaskCase) -> None:
    """No parameter of the encoder is registered as the task's own."""
    stack = case.stack()
    # caught: self.decoder = encoder.token_embedding
    encoders = {id(parameter): name for name, parameter in stack.encoder.named_parameters()}
    for name, parameter in stack.task.named_parameters():
        if id(parameter) in encoders:
            raise ConformanceFailure(
                f"{name} of the task is {encoders[id(parameter)]} of the encoder: the optimiser "
                "and checkpoints would have it twice",
                "keep it in a tuple, which torch does not look into: "
                "self._tied = (encoder.token_embedding,)",
            )


@check("head", after=("builds",))
def keeps_its_labels(case: HeadCase) -> None:
    """After ``build``, ``labels`` are those of the context; a checkpoint keeps them."""
    encoder = case.encoder()
    context: TaskContext = case.context(encoder)
    head: Head = case.new()
    head.build(context)
    if head.labels != context.labels:
        raise ConformanceFailure(
            f"labels is {head.labels} after build(), the context has {context.labels}",
            "call super().build(context) in build(), or override add_layers() instead",
        )


@check(*TASK_KINDS, after=("builds",))
def layers_are_registered(case: TaskCase) -> None:
    """No layer or parameter hides in a list or dict, where the optimiser does not find it."""
    task = case.stack().task
    for name, value in vars(task).items():
        # names with _ are torch's own dicts: _parameters, _modules
        if name.startswith("_") or name == "required" or not isinstance(value, list | dict):
            continue
        for each in value.values() if isinstance(value, dict) else value:
            if isinstance(each, nn.Module | nn.Parameter):
                raise ConformanceFailure(
                    f"{name} is a {type(value).__name__} with a {type(each).__name__} in it",
                    "use nn.ModuleList, nn.ModuleDict or nn.ParameterList",
                )


@check(*TASK_KINDS, after=("builds",))
def tensors_are_buffers(case: TaskCase) -> None:
    """No tensor is a plain attribute, which stays behind when the model moves to a GPU."""
    found = [name for name, value in vars(case.stack().task).items() if torch.is_tensor(value)]
    if not found:
        return
    raise ConformanceFailure(
        f"{', '.join(found)}: a tensor as a plain attribute",
        "self.register_buffer(name, tensor, persistent=False) if it can be made again, else "
        "without persistent=False, so that checkpoints keep it",
    )


@check(*TASK_KINDS, after=("loss_is_a_finite_scalar",))
def state_is_complete_after_build(case: TaskCase) -> None:
    """Using a task adds nothing to its ``state_dict``: all layers are there from ``build`` on."""
    stack = case.stack()
    before = set(stack.task.state_dict())  # caught: a layer made at the first loss()
    stack.loss(case.all(stack))
    stack.decode(case.all(stack))
    after = set(stack.task.state_dict())
    if before != after:
        raise ConformanceFailure(
            f"after loss() and decode(), state_dict() has changed by "
            f"{', '.join(sorted(before ^ after))}",
            "make every layer in build(): a later one is in no optimiser, and a checkpoint with "
            "it does not load",
        )


@check(
    *TASK_KINDS,
    after=(
        "decodes",
        "state_is_complete_after_build",
        "prepare_repeats",
        "does_not_own_the_encoder",
    ),
)
def saved_and_restored_is_the_same(case: TaskCase) -> None:
    """A new task that loads the ``state_dict`` of another has the same loss and predictions."""
    stack = case.stack()
    optimizer = stack.optimizer()
    # trained first, since initial values may hide what the state lacks
    for _ in range(2):
        with seeded(SEED):
            stack.step(optimizer, case.all(stack))
    # of another seed: a weight that is not loaded differs
    restored = case.stack(seed=SEED + 1)
    restored.load(_through_a_file(stack.state()))
    one, other = (each.loss(case.all(each)).sum.item() for each in (stack, restored))
    found = difference(
        [one, stack.decode(case.all(stack))], [other, restored.decode(case.all(restored))]
    )
    if found:
        raise ConformanceFailure(
            f"loss and predictions differ after the state was restored: {found.strip()}",
            "keep what training changes in parameters or in buffers (self.register_buffer), which "
            "the checkpoint keeps",
        )


@check(*TASK_KINDS, after=("saved_and_restored_is_the_same",))
def resumes_exactly(case: TaskCase) -> None:
    """Two steps, a checkpoint and two more steps give the very weights of four steps."""
    through = case.stack(disturbed=False)
    optimizer = through.optimizer()
    _steps(case, through, optimizer, range(2))
    saved = _through_a_file({"model": through.state(), "optimizer": optimizer.state_dict()})
    _steps(case, through, optimizer, range(2, 4))

    resumed = case.stack(seed=SEED + 1, disturbed=False)
    resumed.load(saved["model"])
    optimizer = resumed.optimizer()
    optimizer.load_state_dict(saved["optimizer"])
    # caught: a running mean in self.mean, an np.random.Generator in the task
    _steps(case, resumed, optimizer, range(2, 4))
    for part in ("task", "encoder"):
        changed = changed_tensor(through.state()[part], resumed.state()[part])
        if changed:
            raise ConformanceFailure(
                f"{changed} of the {part} is not the same when a run goes on from a checkpoint",
                "keep no running value outside parameters and buffers, and draw no numbers whose "
                "state is not torch's",
            )


@check(
    *TASK_KINDS,
    after=("loss_is_a_finite_scalar", "state_is_complete_after_build", "prepare_repeats"),
)
def pickles(case: TaskCase) -> None:
    """The task can be pickled, before and after ``build``, and its copy does the same."""
    _pickled(case.new())
    stack = case.stack()
    copy = _pickled(stack.task)
    stack_of_copy = Stack(stack.encoder, copy)
    one, other = (each.loss(case.all(each)).sum.item() for each in (stack, stack_of_copy))
    found = difference(one, other)
    if found:
        raise ConformanceFailure(
            f"the loss differs in a copy that was pickled: {found.strip()}",
            "keep in the object all that it needs; module-level state stays behind",
        )


@check("objective", after=("pickles", "prepare_repeats"))
def prepares_the_same_in_a_worker(case: ObjectiveCase) -> None:
    """A copy in a data worker labels sequences as the original does."""
    task = case.stack().task
    ours = case.prepare(task, case.sequences(case.units))
    theirs = case.prepare(_pickled(task), case.sequences(case.units))
    # caught: a cache that prepare() fills in the first process only
    ids = (ours.input_ids == theirs.input_ids).all()
    fields = difference(_lists(ours.fields), _lists(theirs.fields))
    if not ids or fields:
        raise ConformanceFailure(
            f"prepare() in a pickled copy differs: {fields or 'other input_ids'}",
            "let prepare() depend on settings, sequences and rng only",
        )


def _steps(case: TaskCase, stack: Stack, optimizer: torch.optim.Optimizer, steps: range) -> None:
    units = list(case.units)
    for step in steps:
        shift = step % len(units)
        with seeded(SEED + step):
            stack.step(optimizer, case.batch(stack, units[shift:] + units[:shift]))


def _through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    try:
        loaded: dict[str, Any] = torch.load(file, weights_only=True)
    except pickle.UnpicklingError as error:
        raise ConformanceFailure(
            f"the state_dict is not plain data: {error}",
            "keep tensors, numbers and texts in it; a checkpoint is loaded with weights_only=True",
        ) from error
    return loaded


def _pickled(value: Any) -> Any:  # noqa: ANN401  a task
    advice = (
        f"data workers need it pickled: {PLAIN_FUNCTIONS}, and no open files, locks or generators"
    )
    return pickled(value, "task", advice)


def _lists(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: values.tolist() for name, values in fields.items()}
