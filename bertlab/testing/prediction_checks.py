"""Checks of ``decode``: predictions in the user's terms."""

from bertlab.packed_batch import PackedBatch
from bertlab.testing.check import TASK_KINDS, check
from bertlab.testing.comparisons import difference, not_json
from bertlab.testing.failures import ConformanceFailure
from bertlab.testing.stacks import Stack
from bertlab.testing.task_cases import TaskCase

_TRUTH_ADVICE = "read no field in decode() that is made from the truth; predict has none of them"


@check(*TASK_KINDS, after=("loss_is_a_finite_scalar",))
def decodes(case: TaskCase) -> None:
    """``decode`` returns a list with one dict for each sequence, which can be written as JSON."""
    stack = case.stack()
    _decoded(stack, case.all(stack))


@check(*TASK_KINDS, after=("decodes",))
def decodes_without_truth(case: TaskCase) -> None:
    """``decode`` needs no field that is made from the truth, nor what ``prepare`` writes."""
    stack = case.stack()
    batch = case.unlabelled(stack)
    try:
        _decoded(stack, batch)
    except (KeyError, AttributeError, TypeError) as error:
        raise ConformanceFailure(
            f"decode() of new text raises {type(error).__name__}: {error}; the batch has the "
            f"fields {', '.join(batch.fields) or 'of no task'}",
            _TRUTH_ADVICE,
        ) from error


@check(*TASK_KINDS, after=("decodes_without_truth", "evaluation_repeats"))
def decoding_repeats(case: TaskCase) -> None:
    """``decode`` gives the same twice, also with a loss in between."""
    stack = case.stack()
    batch = case.unlabelled(stack)
    first = stack.decode(batch)
    stack.loss(case.all(stack))
    found = difference(first, stack.decode(batch))
    if found:
        raise ConformanceFailure(
            f"decode() of one batch differs the second time: {found.strip()}",
            "keep nothing of a batch in the task, and draw nothing in evaluation mode",
        )


def _decoded(stack: Stack, batch: PackedBatch) -> None:
    predictions = stack.decode(batch)
    if not isinstance(predictions, list) or not all(isinstance(p, dict) for p in predictions):
        raise ConformanceFailure(
            f"decode() returns {type(predictions).__name__} {str(predictions)[:80]}",
            "return a list with a dict for each sequence",
        )
    if len(predictions) != len(batch):
        raise ConformanceFailure(
            f"decode() returns {len(predictions)} dicts for {len(batch)} sequences",
            "return a dict for each of len(batch) sequences, an empty one where there is nothing "
            "to say",
        )
    reason = not_json(predictions)
    if reason:
        raise ConformanceFailure(
            f"predictions cannot be written as JSON: {reason}",
            "return texts, numbers, lists and dicts: .tolist() of tensors, no NaN or infinity",
        )
