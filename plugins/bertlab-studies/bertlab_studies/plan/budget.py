"""How long pre-training is for every variant, and what a run costs in tokens and FLOPs.

A backward pass needs twice the operations of the forward pass (Kaplan et al., 2020, sec. 2.1).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import isfinite
from typing import Any

import torch

from bertlab.api import Encoder
from bertlab.extend import (
    OBJECTIVES_SHARE,
    Change,
    ChangingNumber,
    build_encoder,
    build_tasks,
    largest_of,
    moments,
)
from bertlab_studies.errors import StudyError
from bertlab_studies.plan.flops import PASSES, encoder_flops, task_flops
from bertlab_studies.plan.stages import STAGES_KEY, stage_configs
from bertlab_studies.plan.values import fine_tunes
from bertlab_studies.settings import Overrides

_KEYS = {
    "steps": "trainer.max_steps",
    "tokens": "max_tokens",
    "words": "max_words",
    "time": "trainer.max_time",
}
# what would also end a run is taken out, in the base config too
_NO_END: Overrides = {
    "trainer.max_steps": -1,
    "trainer.max_epochs": -1,
    "max_tokens": None,
    "max_words": None,
    "trainer.max_time": None,
}
_CLOCK = re.compile(r"(\d+):(\d\d):(\d\d):(\d\d)")  # 00:02:30:00


def budget_settings(given: object, where: str) -> Overrides:
    """Return the overrides of the base config that a budget stands for.

    Args:
        given: one of ``steps``, ``tokens``, ``words`` and ``time``, and how much; none of it if
            None.
        where: file and key, for messages.

    Raises:
        StudyError: if it is another key, several, or no amount.
    """
    if given is None:
        return {}
    if not isinstance(given, dict) or len(given) != 1 or next(iter(given)) not in _KEYS:
        raise StudyError(f"{where}: found {given!r}, expected one of steps, tokens, words, time")
    ((kind, amount),) = given.items()
    read = {"steps": _steps, "tokens": _amount, "words": _amount, "time": _time}[kind]
    settings = {**_NO_END, _KEYS[kind]: read(amount, f"{where}.{kind}")}
    if kind == "words":
        del settings["trainer.max_epochs"]  # no end there but a limit, as BabyLM's ten epochs
    return settings


def _steps(given: object, where: str) -> int:
    if type(given) is not int or given < 1:
        raise StudyError(f"{where}: found {given!r}, expected a whole number above 0")
    return given


def _amount(given: object, where: str) -> float:
    try:
        amount = float(given) if isinstance(given, int | float | str) else 0.0  # 1e9 is a text
    except ValueError:
        amount = 0.0
    if isinstance(given, bool) or not (isfinite(amount) and amount > 0):
        what = where.rpartition(".")[2]  # tokens, words
        raise StudyError(f"{where}: found {given!r}, expected a number of {what} above 0")
    return amount


def _time(given: object, where: str) -> str:
    """Return ``days:hours:minutes:seconds``, as Lightning reads it."""
    seconds = 0
    if isinstance(given, str) and (found := _CLOCK.fullmatch(given)):
        days, hours, minutes, rest = map(int, found.groups())
        seconds = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    elif isinstance(given, dict):
        try:
            seconds = round(timedelta(**given).total_seconds())
        except (TypeError, ValueError, OverflowError):  # {hours: .nan}
            seconds = 0
    if seconds < 1:
        raise StudyError(
            f"{where}: found {given!r}, expected a text as in '00:02:30:00' (days, hours, minutes, "
            "seconds) or a mapping as in {hours: 2, minutes: 30}"
        )
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days:02}:{hours:02}:{minutes:02}:{rest:02}"


_VOCABULARY = 30_522  # where none is known yet
_STEPS = 1000.0  # where something else ends the run: what changes over it does so by the share done


@dataclass(frozen=True)
class Cost:
    """Of a training run; of one that is not begun at most, as if all sequences were full.

    Attributes:
        tokens: that the encoder reads.
        flops: floating-point operations that the algorithm needs for them.
    """

    tokens: float
    flops: float


def pretraining_cost(config: dict[str, Any]) -> Cost | None:
    """Return the cost of a pre-training; None if its config does not say how long or large it is.

    That of a fine-tuning does not: its model is another run's.
    """
    if "model" not in config:  # an evaluation that trains nothing
        return Cost(0, 0)
    if config.get(STAGES_KEY):
        costs = [pretraining_cost(each) for each in stage_configs(config)]
        known = [cost for cost in costs if cost is not None]
        return sum_of(known) if len(known) == len(costs) else None
    if fine_tunes(config) or config["model"].get("init_from"):
        return None
    steps, data = config["trainer"]["max_steps"], config["data"]
    run = _run_steps(config)
    longest = largest_of(data["max_seq_length"])
    if config.get("max_tokens"):
        tokens = float(config["max_tokens"])
    elif steps is not None and steps > 0:
        if data["batch_tokens"]:
            a_step = _mean_of(data["batch_tokens"], "data.batch_tokens", run)
        else:  # 256: data's own default; a sequence that is read in parts has as many tokens
            a_step = _mean_of(data["batch_size"] or 256, "data.batch_size", run) * longest
        tokens = run * a_step
    else:
        return None
    return cost_of(config, tokens, _mean_of(data["max_seq_length"], "data.max_seq_length", run))


def sum_of(costs: Sequence[Cost]) -> Cost:
    """Return what several runs cost together."""
    return Cost(sum(cost.tokens for cost in costs), sum(cost.flops for cost in costs))


def measured_cost(config: dict[str, Any], manifest: dict[str, Any]) -> Cost:
    """Return the cost of a run by its config, with all sizes, and its manifest."""
    return cost_of(config, manifest["training_tokens"], manifest["mean_sequence_length"])


def cost_of(config: dict[str, Any], tokens: float, sequence_length: float) -> Cost:
    """Return the cost of training on ``tokens`` in sequences of about one length."""
    vocab_size = config["data"].get("vocab_size") or _VOCABULARY
    encoder = meta_encoder(config, vocab_size)
    a_token, steps = PASSES * encoder_flops(encoder, sequence_length), _run_steps(config)
    mixing = config["data"].get("mixing") or {}  # beside heads, objectives have a share of steps
    share = (mixing.get("objectives") or OBJECTIVES_SHARE) if "mixing" in config["data"] else 1.0
    for task in build_tasks({"objectives": config["model"].get("objectives")}).values():
        a_token += share * task_flops(task, encoder, sequence_length, steps)
    return Cost(tokens, tokens * a_token)


_ENCODERS: dict[str, Encoder] = {}  # by their settings: the variants of a study have few


def meta_encoder(config: dict[str, Any], vocab_size: int = _VOCABULARY) -> Encoder:
    """Return the encoder of a config without memory for its weights; nobody changes it."""
    settings = config["model"]["encoder"]
    asked = repr((settings, vocab_size))
    if asked not in _ENCODERS:
        with torch.device("meta"):
            _ENCODERS[asked] = build_encoder(settings, vocab_size)
    return _ENCODERS[asked]


def _run_steps(config: dict[str, Any]) -> float:
    """Return the steps that a mean is taken over of what changes up to the end of a run."""
    steps = config["trainer"]["max_steps"]
    return float(steps) if steps is not None and steps > 0 else _STEPS


def _mean_of(given: float | Change, key: str, steps: float) -> float:
    """Return the mean over a run of so many steps of a setting of a config; errors as ``read``."""
    if not isinstance(given, dict):
        return given
    number = ChangingNumber.read(given, key)
    found = [number.at(moment) for moment in moments(steps)]
    return sum(found) / len(found)
