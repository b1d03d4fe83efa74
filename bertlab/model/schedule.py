"""The learning rate over a run, by steps or by the clock."""

import math
from collections.abc import Mapping
from functools import partial

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import Timer
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from bertlab.api.optimizer import Progress, Schedule, factor_at
from bertlab.api.task import Task
from bertlab.data.module import TaskData
from bertlab.data.run_length import check_changes, is_endless
from bertlab.errors import ConfigError
from bertlab.model.build import check_whole_steps
from bertlab.model.optimizer_config import OptimizerConfig

_STEPS_THAT_COMPILE = 2


def check_schedule(config: OptimizerConfig, endless: bool, timed: bool = False) -> None:
    """Raise ConfigError if the schedule needs an end and the run has none."""
    if not endless or config.schedule_steps is not None:
        return
    if timed and config.warmup_steps >= 1:
        raise ConfigError(
            f"model.optimizer.warmup_steps: found {config.warmup_steps:g}, expected a share below "
            "1, of the time, where trainer.max_time ends the run"
        )
    if not timed and (config.schedule.needs_end or 0 < config.warmup_steps < 1):
        raise ConfigError(
            "model.optimizer.schedule: this one, or a warm-up share, needs the number of steps; "
            "set trainer.max_steps or trainer.max_epochs, or schedule: constant with whole "
            "warmup_steps"
        )


def check_schedule_steps(config: OptimizerConfig, done: int, steps: int) -> None:
    """Raise ConfigError if the schedule ends before the run."""
    if config.schedule_steps is None:
        return
    last = done + max(steps, 1)
    if config.schedule.needs_end and last > config.schedule_steps:
        raise ConfigError(
            f"model.optimizer.schedule_steps: found {config.schedule_steps}, expected at least "
            f"{last}, where this run ends; the schedule would be over before"
        )


def check_end(
    config: OptimizerConfig,
    trainer: Trainer,
    done: int,
    tasks: Mapping[str, Task],
    data: TaskData,
) -> None:
    """Raise ConfigError if schedule or tasks do not fit the end of a run, or its steps."""
    endless = is_endless(trainer.max_steps, trainer.max_epochs)
    check_schedule(config, endless, run_timer(trainer) is not None)
    check_schedule_steps(config, done, trainer.max_steps)
    check_changes(tasks, data, endless)
    check_whole_steps(tasks, trainer.accumulate_grad_batches, trainer.world_size)


def build_schedule(
    config: OptimizerConfig, optimizer: Optimizer, total_steps: float, steps_done: int = 0
) -> LambdaLR:
    """Return the schedule, to be stepped once an optimiser step."""
    endless = total_steps == float("inf") or total_steps < 0
    check_schedule(config, endless)
    if config.schedule_steps is None:
        steps_done = 0
    else:
        total_steps, endless = config.schedule_steps, False
    warmup = config.warmup_steps
    if warmup < 1:
        warmup = 0 if endless else round(warmup * total_steps)
    factor = partial(
        _factor_at_step,
        schedule=config.schedule,
        end=math.inf if endless else total_steps,
        warmup=int(warmup),
    )
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]  # LambdaLR wants it where it does not begin at 0
    return LambdaLR(optimizer, factor, last_epoch=steps_done - 1)  # it counts one when it is made


def _factor_at_step(step: int, schedule: Schedule, end: float, warmup: int) -> float:
    return factor_at(schedule, Progress(step, end, warmup))


def build_timed_schedule(config: OptimizerConfig, optimizer: Optimizer, timer: Timer) -> LambdaLR:
    """Return a schedule whose warm-up and decay follow the clock, to be stepped once a step.

    The clock starts after the first two steps: compiling in them can take longer than the warm-up.
    That of a run that goes on counts from its start.
    """
    check_schedule(config, endless=True, timed=True)
    # resumed after 40 of 60 minutes: the end stays 60, and warm-up is over
    end = timer.time_elapsed() + (timer.time_remaining() or 0.0)
    goes_on, begun = timer.time_elapsed() > 0, 0.0

    def factor(step: int) -> float:
        nonlocal begun
        now = timer.time_elapsed()
        if step <= _STEPS_THAT_COMPILE and not goes_on:  # the clock stands still
            begun = now
        length = end - begun
        return factor_at(
            config.schedule, Progress(now - begun, length, config.warmup_steps * length)
        )

    return LambdaLR(optimizer, factor)


def run_timer(trainer: Trainer) -> Timer | None:
    """Return the timer of ``trainer.max_time``; None if there is none."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return next((each for each in callbacks if isinstance(each, Timer)), None)
