"""Values beside the rate that change over a run: of the optimiser's groups, and of tasks."""

import math
from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from bertlab import nearest
from bertlab.api import ConfigError, PackedBatch, Progress
from bertlab.extend import BertModule, ChangingNumber, split_by_weight_decay

_OPTIMIZER = "optimizer"
_ELSEWHERE = dict.fromkeys(("lr", "initial_lr"), "model.optimizer.schedule")


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
        if len(lists[0]) != len(lists[1]) or not all(map(_is_number, numbers)):
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
        """Refuse what nobody has, or has in another form, before the first step."""
        assert isinstance(pl_module, BertModule)
        self._plain = {id(each) for each in split_by_weight_decay(pl_module)[1]}
        tasks = pl_module.named_tasks()
        groups = [group for each in trainer.optimizers for group in each.param_groups]
        settings = {key: value for group in groups for key, value in group.items()}
        changing = {key for key, value in settings.items() if _can_change(value)}
        known = {_OPTIMIZER: sorted(changing - {*_ELSEWHERE})}
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
            own = settings[name] if owner == _OPTIMIZER else getattr(tasks[owner], name)
            self._check_form(owner, name, own)
            endless = math.isinf(self._end(trainer))
            if endless and any(each.schedule.needs_end for each in numbers):
                raise ConfigError(f"{key}.{name}: needs the number of steps; set trainer.max_steps")

    def _check_form(self, owner: str, name: str, own: Any) -> None:  # noqa: ANN401  number or list
        """Refuse a number in place of a list such as ``own``, or a list of another length."""
        numbers, is_list = self.numbers[owner, name], (owner, name) in self.are_lists
        if is_list != isinstance(own, list | tuple) or (is_list and len(numbers) != len(own)):
            start, end = [each.start for each in numbers], [each.end for each in numbers]
            found = f"from {start} to {end}" if is_list else f"from {start[0]} to {end[0]}"
            raise ConfigError(
                f"schedules.{owner}.{name}: found {found}, expected two values of the form of "
                f"{list(own) if isinstance(own, tuple) else own}"
            )

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


def _is_number(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)  # type: ignore[arg-type]


def _can_change(value: object) -> bool:
    """Whether a setting is a number, or some: ``1e-6`` or ``(0.9, 0.999)``; no count, as ``5``."""
    if isinstance(value, list | tuple):
        return all(map(_is_number, value))
    # 0 may be that of a weight decay
    return _is_number(value) and (isinstance(value, float) or value == 0)
