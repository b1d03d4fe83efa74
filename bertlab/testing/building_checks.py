"""Checks of ``build``: layers for an encoder."""

import dataclasses

import torch
from torch import nn

from bertlab.heads.base import Head
from bertlab.labelled_rows import Labels
from bertlab.tasks import TaskContext
from bertlab.testing.check import TASK_KINDS, check
from bertlab.testing.comparisons import changed_tensor
from bertlab.testing.failures import ConformanceFailure
from bertlab.testing.stacks import seeded
from bertlab.testing.task_cases import HeadCase, TaskCase

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
                "initialise it: bertlab.encoders.initialization.initialize(self, "
                "context.encoder.initializer_range); torch.empty holds anything",
            )


@check(*TASK_KINDS, after=("builds",))
def builds_without_the_data(case: TaskCase) -> None:
    """It is built without counts of tokens or labels too, as for prediction and export."""
    encoder = case.encoder()
    context = case.context(encoder)
    labels = context.labels and Labels(context.labels.names, (0,) * len(context.labels))
    case.new().build(dataclasses.replace(context, token_counts=None, labels=labels))


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
        case.new().build(case.context(encoder))
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
        if name.startswith("_") or not isinstance(value, list | dict):
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
