"""Checks of a task's metrics, on the predictions of its own loss."""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from bertlab.api import Task, TaskLoss
from bertlab.extend import EvaluationSet, is_among, known_shares
from bertlab_conformance.check import TASK_KINDS, ConformanceFailure, NotApplicable, check
from bertlab_conformance.comparisons import close, difference
from bertlab_conformance.stack import Stack
from bertlab_conformance.task_cases import TASK, HeadCase, TaskCase


@check(*TASK_KINDS, after=("builds",))
def metrics_are_fresh(case: TaskCase) -> None:
    """``metrics`` returns new torchmetrics at each call, under identifiers as names."""
    task = case.stack().task
    one, other = task.metrics(), task.metrics()
    for name, metric in one.items():
        if not isinstance(metric, Metric):
            raise ConformanceFailure(
                f"metrics()[{name!r}] is a {type(metric).__name__}",
                "return torchmetrics.Metric objects: they add up over batches and devices",
            )
        if not name.isidentifier() or name == "loss":
            raise ConformanceFailure(
                f"a metric is called {name!r}",
                'call it in lower case with underscores; "loss" is there already',
            )
        if metric is other.get(name):
            raise ConformanceFailure(
                f"metrics()[{name!r}] is the same object at the second call",
                "make the metrics inside metrics(): each evaluation set needs its own",
            )


@check(*TASK_KINDS, after=("metrics_are_fresh", "predictions_have_targets"))
def metrics_take_the_predictions(case: TaskCase) -> None:
    """Every metric takes ``preds`` and ``target`` of the loss and computes one number."""
    stack = case.stack()
    loss = _loss(case, stack)
    for name, metric in stack.task.metrics().items():
        loss.update(metric)
        value = metric.compute()
        if not torch.is_tensor(value) or value.numel() != 1:
            raise ConformanceFailure(
                f"{name} computes {value!r}", "return a scalar tensor; give each class its metric"
            )


@check(*TASK_KINDS, after=("metrics_take_the_predictions",))
def metrics_add_up(case: TaskCase) -> None:
    """Two updates with parts of the predictions give what one with all of them gives."""
    stack = case.stack()
    loss = _loss(case, stack)
    rows = len(loss.preds)
    whole = metric_values(stack.task.metrics(), [loss])
    # of 9 predictions 1 + 8, 4 + 5, 8 + 1: a mean of two means is right for equal parts only
    for first in (1, rows // 2, rows - 1):
        parts = [_part(loss, slice(first)), _part(loss, slice(first, rows))]
        found = difference(whole, metric_values(stack.task.metrics(), parts))
        if not found:
            continue
        raise ConformanceFailure(
            f"all at once against in two batches: {found.strip()}",
            "add to the states in update() (self.total += …); do not replace them, nor average "
            "the values of batches",
        )


@check(*TASK_KINDS, after=("metrics_take_the_predictions",))
def metrics_begin_anew(case: TaskCase) -> None:
    """After ``reset``, a metric has forgotten what it saw."""
    stack = case.stack()
    loss = _loss(case, stack)
    metrics = stack.task.metrics()
    # caught: self.seen = [] in __init__ without add_state, which reset() leaves as it is
    metric_values(metrics, [_part(loss, slice(1))])
    for metric in metrics.values():
        metric.reset()
    rest = [_part(loss, slice(1, None))]
    found = difference(metric_values(stack.task.metrics(), rest), metric_values(metrics, rest))
    if found:
        raise ConformanceFailure(
            f"a new metric against one that was reset: {found.strip()}",
            "declare every state with self.add_state(…), which reset() sets back",
        )


@check(*TASK_KINDS, after=("metrics_take_the_predictions",))
def accuracy_counts_right(case: TaskCase) -> None:
    """A metric that is called accuracy is the share of predictions that equal their target."""
    stack = case.stack()
    loss = _loss(case, stack)
    metrics = stack.task.metrics()
    if "accuracy" not in metrics:
        raise NotApplicable("no metric is called accuracy")
    pairs = zip(loss.preds.tolist(), loss.target.tolist(), strict=True)
    # in plain Python, so that a mistake in torchmetrics' arguments shows
    right = [one == other for one, other in pairs]
    value = metric_values({"accuracy": metrics["accuracy"]}, [loss])
    expected = sum(right) / len(right)
    if not close(value["accuracy"], expected):
        raise ConformanceFailure(
            f"accuracy is {value['accuracy']:.4f}, but {sum(right)} of {len(right)} predictions "
            f"equal their target: {expected:.4f}",
            "compare preds and target row by row, or give the metric another name",
        )


@check(*TASK_KINDS, after=("metrics_take_the_predictions",))
def derived_metrics_are_numbers(case: TaskCase) -> None:
    """``derived_metrics`` returns numbers, under names that no metric has."""
    task = case.stack().task
    # any number does, as only the names are looked at
    values = dict.fromkeys(["loss", *task.metrics()], 1.0)
    derived = task.derived_metrics(dict(values))
    if not isinstance(derived, dict):
        raise ConformanceFailure(
            f"derived_metrics() returns {derived!r}", "return a dict of numbers by name"
        )
    for name, value in derived.items():
        if name in values:
            raise ConformanceFailure(
                f"derived_metrics() returns {name!r} again", "return the new ones only"
            )
        if not isinstance(value, float):
            raise ConformanceFailure(
                f"derived_metrics()[{name!r}] is a {type(value).__name__}", "return floats"
            )


@check(
    *TASK_KINDS,
    after=(
        "metrics_take_the_predictions",
        "decodes",
        "merges_to_rows",
        "prepare_repeats",
        "scores_are_named",
    ),
)
def evaluates(case: TaskCase) -> None:
    """An evaluation gives a number for every announced metric, and the same when repeated."""
    stack = case.stack()
    rows = case.rows if isinstance(case, HeadCase) else ()
    evaluation = EvaluationSet({TASK: stack.task}, "", rows, {})
    # caught: predictions that score() collects in self and never empties
    first, second = (_evaluate(case, stack, evaluation) for _ in range(2))
    names = evaluation.names(TASK, stack.task)
    if sorted(names) != sorted(first):
        raise ConformanceFailure(
            f"the metrics announced are {sorted(names)}, those computed {sorted(first)}",
            "let score_names() and derived_metrics() give the same names every time, and no name "
            "twice",
        )
    found = difference(first, second)
    if found:
        raise ConformanceFailure(
            f"the second evaluation of the same data differs: {found.strip()}",
            "keep nothing of an evaluation in the task",
        )


@check(*TASK_KINDS, after=("evaluates", "accuracy_counts_right"))
def shares_are_from_0_to_1(case: TaskCase) -> None:
    """Metrics that the task declares as ``shares`` are from 0 to 1."""
    stack = case.stack()
    rows = case.rows if isinstance(case, HeadCase) else ()
    check_shares(
        _evaluate(case, stack, EvaluationSet({TASK: stack.task}, "", rows, {})),
        known_shares(stack.task, stack.task.metrics()),
    )


def check_shares(values: Mapping[str, float], shares: Sequence[str]) -> None:
    """Raise ConformanceFailure if a declared share is not from 0 to 1; NaN is of nothing."""
    for name, value in values.items():
        if is_among(name, shares) and not math.isnan(value) and not 0 <= value <= 1:
            raise ConformanceFailure(
                f"{name} is {value:.6g}, and declared in shares, {', '.join(shares)}",
                "give a share from 0 to 1, not in percent, or leave its name out of shares (of a "
                "metric: is_share)",
            )


@check("head", after=("metrics_are_fresh",))
def monitor_exists(case: HeadCase) -> None:
    """``monitor`` names a metric, so that the best checkpoint can be chosen by it."""
    head = case.stack().head
    values = dict.fromkeys(["loss", *head.metrics()], 1.0)
    names = [*values, *head.derived_metrics(dict(values)), *head.score_names()]
    if head.monitor[0] not in names:
        raise ConformanceFailure(
            f"monitor is {head.monitor[0]!r}, which is none of {', '.join(names)}",
            "name one of metrics(), derived_metrics(), score_names(), or loss",
        )


def metric_values(
    metrics: Mapping[str, Metric], batches: Iterable[TaskLoss | tuple[Tensor, ...]]
) -> dict[str, float]:
    """Return what metrics compute after some batches: losses, or what ``update`` takes."""
    for batch in batches:
        for metric in metrics.values():
            batch.update(metric) if isinstance(batch, TaskLoss) else metric.update(*batch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchmetrics: compute before update
        return {name: float(metric.compute()) for name, metric in metrics.items()}


def _part(loss: TaskLoss, rows: slice) -> TaskLoss:
    """Return some of the predictions of a loss."""
    preds, target = loss.preds[rows], loss.target[rows]
    extras = {name: values[rows] for name, values in loss.extras.items()}
    return TaskLoss(loss.sum, len(target), preds, target, extras)


def _loss(case: TaskCase, stack: Stack) -> TaskLoss:
    if not stack.task.metrics():
        raise NotApplicable("the task has no metrics of its own")
    return stack.loss(case.all(stack))


def _evaluate(case: TaskCase, stack: Stack, evaluation: EvaluationSet) -> dict[str, float]:
    task: Task = stack.task
    # in two batches, so that metrics have to add up
    middle = len(case.units) // 2
    with torch.no_grad():
        for units in (case.units[:middle], case.units[middle:]):
            batch = stack.rewritten(case.batch(stack, units))
            output = stack.output(batch)
            evaluation.update(TASK, task, output, batch, task.loss(output, batch))
    return evaluation.compute(TASK, task, tune=False)
