"""Metrics of every task on the evaluation sets of a run."""

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torchmetrics import MeanMetric, Metric, MetricCollection

from bertlab.api.batch import EncoderOutput, IntArray, PackedBatch
from bertlab.api.examples import Example
from bertlab.api.measures import end_of
from bertlab.api.task import Head, Task, TaskLoss
from bertlab.data.module import EvaluationRows
from bertlab.errors import ConfigError, PluginError, mistake_in, told, warn

VAL_LOSS = "val/loss"  # of all tasks
HEADS_MEAN = "heads/mean"  # of what several heads are judged by, logged as val/heads/mean
# row, sequence, and what was predicted for the sequence
Part = tuple[int, int, dict[str, Any]]


class EvaluationSet(nn.Module):
    """Torchmetrics of every task, and merged predictions of heads that score whole examples.

    ``name`` is empty where there is one set only, and ``examples`` where there are objectives only.
    ``metrics`` are those that the config names beside the tasks' own.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task],
        name: str,
        examples: Sequence[Example],
        metrics: Mapping[str, Metric],
        sequences: Mapping[str, IntArray] | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.examples, self._sequences = examples, sequences
        self.metrics = nn.ModuleDict(
            {task: _collection(task, tasks[task], metrics) for task in tasks}
        )
        self._parts: list[Part] = []

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks that are evaluated on the set."""
        return list(self.metrics)

    def names(self, task_name: str, task: Task) -> list[str]:
        """Return the names of a task's metrics, as :meth:`compute` will give them."""
        values = {str(key): 1.0 for key in self._of(task_name).keys(keep_base=True)}
        scores = task.score_names() if isinstance(task, Head) else []
        return [*values, *task.derived_metrics(values), *scores]

    def update(
        self, name: str, task: Task, output: EncoderOutput, batch: PackedBatch, loss: TaskLoss
    ) -> None:
        """Take in a batch."""
        # copy_state is for compute groups, which _collection() leaves out
        for key, metric in self._of(name).items(keep_base=True, copy_state=False):
            if key == "loss":
                # means 2.0 of 3 and 1.0 of 1 -> 1.75, as if all four came in one batch
                metric.update(loss.sum.float() / max(1, loss.count), weight=loss.count)
            elif loss.count:
                _update(key, metric, name, loss)
        if isinstance(task, Head) and task.score_names():
            rows, sequences = (batch.fields[key].tolist() for key in ("row", "sequence"))
            self._parts += zip(rows, sequences, task.decode(output, batch), strict=True)

    def compute(self, name: str, task: Task, tune: bool) -> dict[str, float]:
        """Return a task's metrics over all devices, and reset them."""
        collection = self._of(name)
        values = {key: float(value) for key, value in collection.compute().items()}
        collection.reset()
        values |= task.derived_metrics(values)
        if isinstance(task, Head) and task.score_names():
            numbers, predictions = self._predictions(task)
            if not numbers:  # none was seen whole
                return values | dict.fromkeys(task.score_names(), math.nan)
            rows = [self.examples[number] for number in numbers]
            if tune:
                task.tune(rows, predictions)
            values |= task.score(rows, predictions)
        return values

    def reset(self) -> None:
        """Forget a half-done evaluation."""
        self._parts = []
        for name in self.metrics:
            self._of(name).reset()

    def _predictions(self, head: Head) -> tuple[list[int], list[dict[str, Any]]]:
        """Return the rows whose sequences the devices saw all, each once, and their predictions."""
        parts = self._parts
        self._parts = []
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            gathered: list[list[Part]] = [[] for _ in range(torch.distributed.get_world_size())]
            # dicts of texts and numbers, which no tensor's reduction could join
            torch.distributed.all_gather_object(gathered, parts)
            parts = [part for each in gathered for part in each]
        by_row: dict[int, dict[int, dict[str, Any]]] = {}
        for row, sequence, prediction in parts:
            by_row.setdefault(row, {})[sequence] = prediction
        # where limit_val_batches ends an evaluation, it may have seen a part of a row
        whole = (self._sequences or {}).get(self.name)
        numbers = sorted(n for n in by_row if whole is None or len(by_row[n]) == whole[n])
        return numbers, [
            head.merge(self.examples[row], [by_row[row][key] for key in sorted(by_row[row])])
            for row in numbers
        ]

    def of_task(self, task: str) -> dict[str, Metric]:
        """Return the torchmetrics of a task, by name."""
        return dict(self._of(task).items(keep_base=True, copy_state=False))

    def _of(self, task: str) -> MetricCollection:
        collection = self.metrics[task]
        assert isinstance(collection, MetricCollection)
        return collection


@dataclass
class Evaluated:
    """What an evaluation found on all sets."""

    # by stage/task/metric, or stage/task/set/metric of several sets
    results: dict[str, float] = field(default_factory=dict)
    loss: float = 0.0  # of all tasks, each on its first set
    warnings: list[str] = field(default_factory=list)  # about runs that look degenerate


class Evaluations(nn.ModuleList):
    """All evaluation sets of a run, by the number of their data loader; a task's first decides."""

    def __init__(
        self,
        tasks: Mapping[str, Task],
        sets: Sequence[EvaluationRows],
        metrics: Mapping[str, Metric],
    ) -> None:
        super().__init__(
            EvaluationSet(
                {name: tasks[name] for name in each.tasks or tasks},
                *(each.name, each.rows, metrics, each.sequences),
            )
            for each in sets
        )
        used = {key for each in self.sets() for name in each.tasks for key in each.of_task(name)}
        for key in sorted(metrics.keys() - used) if len(self) else ():  # predict has no sets
            words = f"model.metrics.{key}: is for {metrics[key].tasks}"
            warn(f"{words}, and what is evaluated is {', '.join(tasks)}; left out")
        self._tasks = dict(tasks)  # of the module, which has registered them
        self.declared: dict[str, list[str]] = {}  # shares of what packages log beside the tasks

    def names(self, stage: str) -> list[str]:
        """Return the names under which :meth:`compute` gives its results."""
        names = [
            metric_name(stage, task, each.name, key)
            for each in self.sets()
            for task in each.tasks
            for key in each.names(task, self._tasks[task])
        ]
        return names if heads_direction(self._tasks) is None else [*names, f"{stage}/{HEADS_MEAN}"]

    def monitor_of(self, name: str, stage: str = "val") -> str:
        """Return the name of the metric that a task is judged by, on its first set."""
        first = next(each for each in self.sets() if name in each.tasks)
        return metric_name(stage, name, first.name, self._tasks[name].monitor[0])

    def better_end(self, name: str) -> str | None:
        """Return the better end of a logged metric, val/mlm/loss -> ``min``; None if unknown."""
        _, _, rest = name.partition("/")
        if rest in ("loss", HEADS_MEAN):
            return "min" if rest == "loss" else heads_direction(self._tasks)
        task, _, metric = rest.partition("/")
        if task not in self._tasks:
            return None
        sets = [each for each in self.sets() if task in each.tasks]
        return end_of(metric, known_ends(self._tasks[task], sets[0].of_task(task)))

    def shares(self) -> dict[str, list[str]]:
        """Return which metrics of each task are from 0 to 1."""
        return self.declared | {
            name: list(dict.fromkeys(known_shares(self._tasks[name], each.of_task(name))))
            for each in reversed(self.sets())
            for name in each.tasks
        }

    def compute(self, stage: str, tunes: bool) -> Evaluated:
        """Return the metrics of all sets, and reset them."""
        found, seen = Evaluated(), set()
        for each in self.sets():
            for name in each.tasks:
                task, is_first = self._tasks[name], name not in seen
                seen.add(name)
                values = each.compute(name, task, tunes and is_first)
                found.results |= {
                    metric_name(stage, name, each.name, key): value for key, value in values.items()
                }
                found.loss += values["loss"] if is_first else 0.0
                warning = task.warning(values) if isinstance(task, Head) else None
                of = f"{name}: " if len(_heads(self._tasks)) > 1 else ""
                found.warnings += [f"{of}{warning}"] if warning else []
        if heads_direction(self._tasks) is not None and seen.issuperset(_heads(self._tasks)):
            names = [self.monitor_of(name, stage) for name in _heads(self._tasks)]
            judged = [found.results.get(name, math.nan) for name in names]
            found.results[f"{stage}/{HEADS_MEAN}"] = sum(judged) / len(judged)
        return found

    def reset(self) -> None:
        """Forget half-done evaluations."""
        for each in self.sets():
            each.reset()

    def sets(self) -> list[EvaluationSet]:
        """Return the sets, in order."""
        return [each for each in self if isinstance(each, EvaluationSet)]


def known_ends(task: Task, metrics: Mapping[str, Metric]) -> dict[str, str]:
    """Return the better end, ``min`` or ``max``, of each metric of a task, where one tells."""
    ends = {"loss": "min"}
    for name, metric in metrics.items():
        if metric.higher_is_better is not None:
            ends[name] = "max" if metric.higher_is_better else "min"
    name, end = task.monitor
    return {**ends, **task.better, name: end}


def known_shares(task: Task, metrics: Mapping[str, Metric]) -> tuple[str, ...]:
    """Return a task's ``shares``, and the metrics whose class has ``is_share = True``."""
    own = (name for name, metric in metrics.items() if getattr(metric, "is_share", False))
    return (*task.shares, *own)


def heads_direction(tasks: Mapping[str, Task]) -> str | None:
    """Return which end is better of what several heads are judged by: ``min`` or ``max``.

    None if they differ in it, so that no mean of them says anything, or there are not several.
    """
    ends = [head.monitor[1] for head in _heads(tasks).values()]
    return ends[0] if len(ends) > 1 and len(set(ends)) == 1 else None


def _heads(tasks: Mapping[str, Task]) -> dict[str, Head]:
    return {name: task for name, task in tasks.items() if isinstance(task, Head)}


def metric_name(stage: str, task: str, evaluation: str, metric: str) -> str:
    """Return the name that a metric is logged under."""
    # ("val", "mlm", "", "loss") -> "val/mlm/loss"
    return "/".join(part for part in (stage, task, evaluation, metric) if part)


def _collection(name: str, task: Task, further: Mapping[str, Metric]) -> MetricCollection:
    metrics: dict[str, Metric | MetricCollection] = {
        "loss": MeanMetric(float("nan")),  # NaN stays NaN; "disable" of torchmetrics weighs nothing
        **task.metrics(),
    }
    for key, metric in further.items():
        if key in metrics:
            raise ConfigError(f"model.metrics: {name} has a metric {key} of its own; rename yours")
        # a metric whose class has ``tasks``, a tuple of names, is of these tasks only
        tasks = getattr(metric, "tasks", ()) or (name,)
        if name in ((tasks,) if isinstance(tasks, str) else tasks):
            metrics[key] = deepcopy(metric)  # each task, and each set, adds up its own
    # torchmetrics would join metrics whose states are equal after the first batch, for good
    return MetricCollection(metrics, compute_groups=False)


def _update(key: str, metric: Metric, task: str, loss: TaskLoss) -> None:
    try:
        loss.update(metric)
    except Exception as error:
        if mistake_in(error) is not None:  # memory ran out
            raise
        raise PluginError(
            f"metric {key!r} cannot take the predictions of {task} (preds "
            f"{tuple(loss.preds.shape)} {loss.preds.dtype}, target {tuple(loss.target.shape)} "
            f"{loss.target.dtype}): {told(error)}; `tasks` of its class, if it is of model.metrics,"
            " may name the tasks that it is for"
        ) from error
