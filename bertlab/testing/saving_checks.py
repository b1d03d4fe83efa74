"""Checks that a task can be saved, sent to a worker, and gone on with."""

import io
import pickle
from typing import Any

import torch

from bertlab.testing.cases import SEED
from bertlab.testing.check import TASK_KINDS, check
from bertlab.testing.comparisons import changed_tensor, difference
from bertlab.testing.failures import ConformanceFailure
from bertlab.testing.pickling import PLAIN_FUNCTIONS, pickled
from bertlab.testing.stacks import Stack, seeded
from bertlab.testing.task_cases import ObjectiveCase, TaskCase


@check(*TASK_KINDS, after=("loss_is_a_finite_scalar",))
def state_is_complete_after_build(case: TaskCase) -> None:
    """Using a task adds nothing to its ``state_dict``: all layers are there from ``build`` on."""
    stack = case.stack()
    before = set(stack.task.state_dict())
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
    for _ in range(2):
        with seeded(SEED):
            stack.step(optimizer, case.all(stack))
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
