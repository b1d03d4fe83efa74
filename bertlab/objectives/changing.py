"""Numbers that change over a run by a schedule: masking rate, batch size, sequence length."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from bertlab.api.optimizer import Progress, Schedule
from bertlab.errors import ConfigError, UnknownPluginError, nearest
from bertlab.plugins.index import make_plugin

DEFAULT_SCHEDULE = "linear"

# ``from`` is no name in Python, but the word in a config
Change = TypedDict(
    "Change",
    {"from": float, "to": float, "schedule": str | dict[str, Any], "until": float},
    total=False,
)
_KEYS = ("from", "to", "schedule", "until")
_MOMENTS = 1000  # of a run, that a mean is taken over


def make_schedule(given: str | Mapping[str, Any]) -> Schedule:
    """Return a schedule."""
    section = {"name": given} if isinstance(given, str) else given
    return make_plugin("schedule", section, Schedule)


@dataclass(frozen=True)
class ChangingNumber:
    """A number that goes from one value to another.

    Attributes:
        start: value where the schedule's factor is 1, at the first step.
        end: value where it is 0.
        schedule: without warm-up.
        until: share of the run after which the schedule is at its end; above 0, at most 1.
    """

    start: float
    end: float
    schedule: Schedule
    until: float = 1.0

    @classmethod
    def read(cls, given: Change, key: str) -> "ChangingNumber":
        """Return what ``{from: 0.4, to: 0.15, schedule: linear}`` means; linear by default."""
        for name in given:
            if name not in _KEYS:
                expected = f"{', '.join(_KEYS)}{nearest(name, _KEYS)}"
                raise ConfigError(f"{key}.{name}: no such key, expected {expected}")
        missing = [name for name in ("from", "to") if given.get(name) is None]
        if missing:
            raise ConfigError(f"{key}: found no {' and no '.join(missing)}, expected both ends")
        schedule = _schedule(given.get("schedule", DEFAULT_SCHEDULE), key)
        if schedule.monitor is not None:
            raise ConfigError(
                f"{key}.schedule: found {given.get('schedule')}, expected one that goes by steps: "
                "workers make batches before the evaluation of the step before"
            )
        until = given.get("until", 1.0)
        if until is True or not isinstance(until, int | float) or not 0 < until <= 1:
            raise ConfigError(f"{key}.until: found {until}, expected above 0 and at most 1")
        if until < 1 and not schedule.needs_end:
            told = f"{key}.until: found {until:g}, but {given.get('schedule')} has no end"
            raise ConfigError(f"{told}; leave it out or choose another schedule")
        return cls(given["from"], given["to"], schedule, until)

    @property
    def ends(self) -> tuple[float, float]:
        """The smaller of both ends, and the larger one."""
        return min(self.start, self.end), max(self.start, self.end)

    def at(self, progress: Progress | None) -> float:
        """Return the number at a moment of the run; the first one where there is no run."""
        if progress is None:
            return self.start
        # from 0.4 to 0.15, linear, 100 steps: step 0 -> 0.4, 50 -> 0.275, 100 -> 0.15
        # until 0.5: step 25 -> 0.275, 50 and later -> 0.15
        scaled = Progress(progress.done, progress.end * self.until, progress.warmup)
        factor = min(1.0, self.schedule.factor(scaled))
        return self.end + (self.start - self.end) * factor


WholeNumber = int | ChangingNumber  # a setting that may change


def read_whole(given: int | Change, key: str) -> WholeNumber:
    """Return a whole number, or how one changes, from its config."""
    if not isinstance(given, dict):
        return given
    number = ChangingNumber.read(given, key)
    for name, end in (("from", number.start), ("to", number.end)):
        if not math.isfinite(end) or end != round(end):
            raise ConfigError(f"{key}.{name}: found {end:g}, expected a whole number")
    return number


def whole_at(number: WholeNumber, progress: Progress | None) -> int:
    """Return a whole number at a moment of the run, rounded and at least 1."""
    if isinstance(number, int):
        return number
    return max(1, round(number.at(progress)))


def whole_ends(number: WholeNumber) -> tuple[int, int]:
    """Return the smallest and the largest value of a whole number."""
    if isinstance(number, int):
        return number, number
    low, high = number.ends
    return max(1, round(low)), max(1, round(high))


def in_words(number: WholeNumber) -> str:
    """Return a whole number for people: ``32``, or ``32 to 256``."""
    if isinstance(number, int):
        return str(number)
    return f"{max(1, round(number.start))} to {max(1, round(number.end))}"


def largest_of(given: int | Change) -> int:
    """Return the larger end of a setting of a config that may change, or the setting."""
    return given if isinstance(given, int) else round(max(given["from"], given["to"]))


def moments(steps: float) -> Iterator[Progress]:
    """Return each step of a run, or a thousand moments of it if that is fewer, for a mean over it.

    Of a run that no number of steps ends it is the first one.
    """
    if math.isinf(steps):
        return iter([Progress(0, steps)])
    # 4 steps -> 0, 1, 2, 3; 4,000 -> 1.5, 5.5, … 3997.5, the middles of a thousand parts
    count = min(int(steps), _MOMENTS)
    part = steps / count
    return (Progress(number * part + (part - 1) / 2, steps) for number in range(count))


def _schedule(given: object, key: str) -> Schedule:
    named = given.get("name") if isinstance(given, Mapping) else given
    if not isinstance(named, str) or not isinstance(given, str | Mapping):
        told = f"{key}.schedule: found {given!r}, expected a name, or a name and its arguments"
        raise ConfigError(f"{told}, as in {{name: wsd, decay_share: 0.2}}")
    try:
        return make_schedule(given)
    except UnknownPluginError as error:
        raise ConfigError(f"{key}.schedule: {str(error).partition(': ')[2]}") from None
    except TypeError as error:  # of the call: jsonargparse does not look into this mapping
        raise ConfigError(f"{key}.schedule: {named}: {error}") from error
