"""The learning rate over a run, and how long the run is: in steps, time, tokens or words."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import Timer
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from bertlab.api.schedule import Progress, Schedule, factor_at
from bertlab.api.task import Objective, Task
from bertlab.data.module import TaskData
from bertlab.errors import ConfigError
from bertlab.model.optimizer_config import OptimizerConfig
from bertlab.model.task_checks import check_whole_steps

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


def check_changes(tasks: Mapping[str, Task], data: TaskData, endless: bool) -> None:
    """Raise ConfigError if a setting changes up to the end of a run, and no step is its end."""
    keys = [task.requires_steps for task in tasks.values() if isinstance(task, Objective)]
    for key in [*keys, *data.requires_steps]:
        if endless and key is not None:
            raise ConfigError(
                f"{key}: it changes up to the run's end, expected the number of steps; set "
                "trainer.max_steps, trainer.max_epochs, max_tokens or max_words (a time is none: "
                "a resumed run would not be the same)"
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


def is_endless(max_steps: int, max_epochs: int | None) -> bool:
    """Whether neither steps nor epochs end a run."""
    return max_steps == -1 and max_epochs in (None, -1)


def check_budget(
    max_tokens: float | None, max_words: float | None, max_steps: int, max_epochs: int | None
) -> None:
    """Raise ConfigError if a run that tokens or words end has another end as well.

    ``trainer.max_epochs`` beside ``max_words`` is no end but a limit, see :func:`steps_for_words`.
    """
    if max_tokens is not None and max_words is not None:
        raise ConfigError("max_words: found max_tokens beside it; give one of them")
    if max_tokens is not None and not is_endless(max_steps, max_epochs):
        raise ConfigError(
            "max_tokens: found trainer.max_steps or trainer.max_epochs beside it; give one of them"
        )
    if max_words is not None and max_steps != -1:
        raise ConfigError("max_words: found trainer.max_steps beside it; give one of them")
    for key, amount in (("max_tokens", max_tokens), ("max_words", max_words)):
        if amount is not None and not amount > 0:  # NaN is not either
            raise ConfigError(f"{key}: found {amount:g}, expected above 0")


def asked_steps(
    max_tokens: float | None, max_words: float | None, trainer: Trainer, data: TaskData
) -> int | None:
    """Return the optimiser steps of a run that something else ends; None if steps end it.

    That is tokens or words; and epochs, where the number of sequences in a step changes. (Else
    Lightning counts epochs.)
    """
    max_steps, max_epochs = trainer.max_steps, trainer.max_epochs
    check_budget(max_tokens, max_words, max_steps, max_epochs)
    if max_words is not None:
        return steps_for_words(max_words, max_epochs, data)
    if max_tokens is not None:
        return steps_for_tokens(max_tokens, data)
    if max_epochs in (None, -1) or isinstance(data.sequences_per_step(), int):
        return None
    steps = data.steps_for_epochs(max_epochs)
    return steps if max_steps == -1 else min(steps, max_steps)


def steps_for_tokens(max_tokens: float, data: TaskData) -> int:
    """Return the optimiser steps that read about ``max_tokens``."""
    return _steps("max_tokens", max_tokens, lambda steps: data.mean_lengths(steps)[1])


def steps_for_words(max_words: float, max_epochs: int | None, data: TaskData) -> int:
    """Return the optimiser steps that read about ``max_words``."""
    corpus = data.corpus_words("max_words")
    # a hundredth: a corpus of whole documents has a little less than its ten million
    if max_epochs not in (None, -1) and max_words > 1.01 * max_epochs * corpus:
        raise ConfigError(
            f"max_words: found {max_words:,.0f}, expected at most {max_epochs * corpus:,}: "
            f"trainer.max_epochs is {max_epochs} and the corpus has {corpus:,} words; give more "
            "text or fewer words"
        )
    return _steps("max_words", max_words, partial(data.words_per_step, "max_words"))


def _steps(key: str, amount: float, mean_step: Callable[[float], float]) -> int:
    """Return the steps that read about an amount."""
    a_step = mean_step(math.inf)  # a run's first
    if not amount >= a_step:
        raise ConfigError(
            f"{key}: found {amount:g}, expected at least a step's, about {a_step:,.0f}"
        )
    steps = round(amount / a_step)
    # where steps grow from 32 to 96 sequences: 100 of the first size are 50 of the mean one
    for _ in range(8):
        steps = max(1, round(amount / mean_step(steps)))
    return steps


def training_size(trainer: Trainer, data: TaskData, words_for: str | None = None) -> dict[str, Any]:
    """Return mean sequence length and, unless a time limit ends the run, training tokens."""
    steps = data.total_steps(trainer)
    length, a_step = data.mean_lengths(steps)
    sizes = {"mean_sequence_length": length}
    if steps != math.inf:
        sizes["training_tokens"] = steps * a_step
    if words_for is not None:
        sizes["words_per_step"] = data.words_per_step(words_for, steps)
        if steps != math.inf:
            sizes["training_words"] = steps * sizes["words_per_step"]
    return sizes
