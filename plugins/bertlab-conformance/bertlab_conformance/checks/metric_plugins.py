"""Checks of metrics that a config names (``model.metrics``)."""

import warnings

import torch
from torchmetrics import Metric

from bertlab_conformance.cases import MetricCase
from bertlab_conformance.check import ConformanceFailure, NotApplicable, check
from bertlab_conformance.checks.building import USABLE
from bertlab_conformance.checks.metrics import check_shares, metric_values
from bertlab_conformance.checks.training import refused_output
from bertlab_conformance.comparisons import difference, pickled

_NAME = "metric"
_STATES = (
    "declare every state with self.add_state(name, default, dist_reduce_fx=…), and add to it in "
    "update()"
)


@check("metric", after=USABLE)
def takes_predictions(case: MetricCase) -> None:
    """``update`` takes ``preds`` and ``target``, and ``compute`` gives one finite number."""
    metric: Metric = case.new()
    try:
        for preds, target, *extras in case.samples:
            metric.update(preds, target, *extras)
    except Exception as error:
        raise ConformanceFailure(
            f"update() of {tuple(preds.shape)} {preds.dtype} predictions raises "
            f"{type(error).__name__}: {error}",
            "give the kit batches of what the metric is for: "
            "rows=[{'preds': …, 'target': …}, …], with what else update() takes; the default is "
            "class ids 0 to 2",
        ) from error
    value = metric.compute()
    if not torch.is_tensor(value) or value.numel() != 1 or not torch.isfinite(value).all():
        raise ConformanceFailure(f"compute() gives {value!r}", "return a scalar tensor")


@check("metric", after=("takes_predictions", "begins_anew"))
def adds_up(case: MetricCase) -> None:
    """Batches one by one give what all predictions at once give."""
    together = tuple(map(torch.cat, zip(*case.samples, strict=True)))
    whole = metric_values({_NAME: case.new()}, [together])
    # caught: batches of 7, 1 and 12 predictions whose three means are averaged
    parts = metric_values({_NAME: case.new()}, case.samples)
    found = difference(whole, parts)
    if found:
        raise ConformanceFailure(
            f"all at once against in {len(case.samples)} batches: {found.strip()}",
            "add to the states (self.total += …) instead of replacing them or averaging values "
            "of batches",
        )


@check("metric", after=("takes_predictions",))
def begins_anew(case: MetricCase) -> None:
    """After ``reset``, it has forgotten what it saw."""
    metric: Metric = case.new()
    metric_values({_NAME: metric}, case.samples[:1])
    metric.reset()
    again = metric_values({_NAME: metric}, case.samples[1:])
    found = difference(metric_values({_NAME: case.new()}, case.samples[1:]), again)
    if found:
        raise ConformanceFailure(f"a new metric against one that was reset: {found}", _STATES)


@check("metric", after=("adds_up",))
def shares_are_from_0_to_1(case: MetricCase) -> None:
    """A metric whose class has ``is_share = True`` is from 0 to 1."""
    metric: Metric = case.new()
    if not getattr(metric, "is_share", False):
        raise NotApplicable("its class has no is_share = True")
    check_shares(metric_values({_NAME: metric}, case.samples), (_NAME,))


@check("metric", after=("adds_up",))
def several_devices_agree(case: MetricCase) -> None:
    """The states of two processes, reduced as declared, give what one process gives."""
    one, other = case.new(), case.new()
    one.update(*case.samples[0])
    for sample in case.samples[1:]:
        other.update(*sample)
    # what torchmetrics does when it gathers: lists are joined, tensors stacked and reduced
    for name, reduction in one._reductions.items():
        states = [getattr(each, name) for each in (one, other)]
        joined = (
            states[0] + states[1] if isinstance(states[0], list) else _reduce(states, reduction)
        )
        setattr(one, name, joined)
    # torchmetrics keeps the value of compute() until the next update
    one._computed = None
    found = difference(
        metric_values({_NAME: case.new()}, case.samples), {_NAME: float(one.compute())}
    )
    if found:
        raise ConformanceFailure(f"one process against two: {found.strip()}", _STATES)


@check("metric", after=("takes_predictions", "adds_up"))
def order_does_not_matter(case: MetricCase) -> None:
    """The batches in another order give the same."""
    one = metric_values({_NAME: case.new()}, case.samples)
    found = difference(one, metric_values({_NAME: case.new()}, case.samples[::-1]))
    if found:
        raise ConformanceFailure(f"in order against in reverse: {found.strip()}", _STATES)


@check("metric", after=("takes_predictions",))
def nothing_seen_is_no_error(case: MetricCase) -> None:
    """``compute`` of nothing gives a number, NaN for example: an evaluation set may be empty."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchmetrics: compute before update
        value = case.new().compute()
    if not torch.is_tensor(value) or value.numel() != 1:
        raise ConformanceFailure(f"compute() of nothing gives {value!r}", "return torch.nan")


@check("metric", after=("takes_predictions",))
def pickles(case: MetricCase) -> None:
    """It can be pickled and copied with what it has seen."""
    metric: Metric = case.new()
    values = metric_values({_NAME: metric}, case.samples)
    copy = pickled(metric, "metric")
    found = difference(values, {_NAME: float(copy.compute())})
    if found:
        raise ConformanceFailure(f"the copy differs: {found.strip()}", _STATES)


@check("metric", after=("takes_predictions",))
def leaves_its_input_alone(case: MetricCase) -> None:
    """``update`` changes neither ``preds`` nor ``target``, which other metrics read."""
    given = [each.clone() for each in case.samples[0]]
    case.new().update(*given)
    if not all(map(torch.equal, given, case.samples[0])):
        raise ConformanceFailure("update() changes its input", "work on a copy")


@check("metric", after=("takes_predictions",))
def prints_nothing(case: MetricCase) -> None:
    """Updating and computing writes nothing to the terminal."""
    with refused_output():
        metric_values({_NAME: case.new()}, case.samples)


@check("metric", after=("is_complete",))
def tasks_are_names(case: MetricCase) -> None:
    """``tasks``, if the class has it, is a tuple of the names of the tasks that it is for."""
    tasks = getattr(case.plugin, "tasks", ())
    if not isinstance(tasks, tuple) or not all(isinstance(name, str) for name in tasks):
        raise ConformanceFailure(f"tasks is {tasks!r}", 'write a tuple of names: tasks = ("mlm",)')


def _reduce(states: list[torch.Tensor], reduction: object) -> torch.Tensor:
    if not callable(reduction):
        raise ConformanceFailure(
            "a state has no dist_reduce_fx, so that several devices do not add up", _STATES
        )
    reduced: torch.Tensor = reduction(torch.stack(states))
    return reduced
