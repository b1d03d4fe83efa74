"""Values beside the rate that change over a run: of the optimiser's groups, and of tasks."""

import math
from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from bertlab import nearest
from bertlab.api import ConfigError, PackedBatch, Progress
from bertlab.extend import BertModule, ChangingNumber, split_by_weight_decay

_OPTIMIZER = "optimizer"
_ELSEWHERE = {"lr": "model.optimizer.schedule", "params": "none"}


class ScheduledValues(Callback):
    """Sets values before each step, by the number of the step alone: a resumed run has the same.

    Args:
        given: by ``optimizer`` or the name of a task, then of the value: ``from``, ``to``,
            ``schedule`` and ``until``, as other values that change. ``from`` and ``to`` may be
            lists, such as ``betas``.
    """

    def __init__(self, given: Mapping[str, Mapping[str, Any]]) -> None:
        self.numbers: dict[tuple[str, str], list[ChangingNumber]] = {}
        self.are_lists: set[tuple[str, str]] = set()
        for owner, values in given.items():
            for name, change in values.items():
                self._read(owner, name, change)
        self._plain: set[int] = set()  # parameters without weight decay

    def _read(self, owner: str, name: str, change: Any) -> None:  # noqa: ANN401  of a config
        key = f"schedules.{owner}.{name}"
        if not isinstance(change, dict):
            raise ConfigError(f"{key}: found {change!r}, expected {{from: …, to: …}}")
        ends = [change.get("from"), change.get("to")]
        lists = [each if isinstance(each, list | tuple) else [each] for each in ends]
        numbers = [each for end in lists for each in end if each is not None]
        if len(lists[0]) != len(lists[1]) or not all(isinstance(n, int | float) for n in numbers):
            raise ConfigError(
                f"{key}: found from {ends[0]} to {ends[1]}, expected two numbers, or two lists of "
                "as many"
            )
        if isinstance(ends[0], list | tuple):
            self.are_lists.add((owner, name))
        self.numbers[owner, name] = [
            ChangingNumber.read({**change, "from": one, "to": other}, key)  # type: ignore[typeddict-item]
            for one, other in zip(*lists, strict=True)
        ]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse what nobody has, before the first step."""
        assert isinstance(pl_module, BertModule)
        self._plain = {id(each) for each in split_by_weight_decay(pl_module)[1]}
        tasks = pl_module.named_tasks()
        groups = [group for each in trainer.optimizers for group in each.param_groups]
        known = {_OPTIMIZER: sorted({key for group in groups for key in group} - {*_ELSEWHERE})}
        known |= {name: list(task.scheduled) for name, task in tasks.items()}
        for (owner, name), numbers in self.numbers.items():
            key = f"schedules.{owner}"
            if owner not in known:
                raise ConfigError(
                    f"{key}: expected one of {', '.join(known)}{nearest(owner, known)}"
                )
            if name not in known[owner]:
                told = f"; see {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
                raise ConfigError(
                    f"{key}.{name}: nothing that can change{told}, expected one of "
                    f"{', '.join(known[owner]) or 'none'}{nearest(name, known[owner])}"
                )
            endless = math.isinf(self._end(trainer))
            if endless and any(each.schedule.needs_end for each in numbers):
                raise ConfigError(f"{key}.{name}: needs the number of steps; set trainer.max_steps")

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: PackedBatch, batch_idx: int
    ) -> None:
        """Set what the step of this batch has."""
        if batch_idx % trainer.accumulate_grad_batches:
            return
        assert isinstance(pl_module, BertModule)
        progress = Progress(trainer.global_step, self._end(trainer))
        for (owner, name), numbers in self.numbers.items():
            found: Any = tuple(each.at(progress) for each in numbers)
            value = found if (owner, name) in self.are_lists else found[0]
            if owner != _OPTIMIZER:
                setattr(pl_module.named_tasks()[owner], name, value)
                continue
            for group in (group for each in trainer.optimizers for group in each.param_groups):
                decays = any(id(each) not in self._plain for each in group["params"])
                if name in group and (name != "weight_decay" or decays):
                    group[name] = value

    @staticmethod
    def _end(trainer: Trainer) -> float:
        steps = trainer.estimated_stepping_batches
        return float(steps) if steps >= 0 else math.inf
