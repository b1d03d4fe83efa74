"""Numbers that change over a run by a schedule, such as the masking rate."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from bertlab.api.schedule import Progress, Schedule
from bertlab.errors import ConfigError, nearest
from bertlab.plugins.index import load_class

DEFAULT_SCHEDULE = "linear"

# ``from`` is no name in Python, but the word in a config
Change = TypedDict(
    "Change", {"from": float, "to": float, "schedule": str | dict[str, Any]}, total=False
)
_KEYS = ("from", "to", "schedule")


def make_schedule(given: str | Mapping[str, Any]) -> Schedule:
    """Return a schedule.

    Args:
        given: the name of a plugin, or ``name`` and its arguments.

    Raises:
        ConfigError: an argument is out of range.
        PluginError: the plugin cannot be used.
    """
    arguments = {"name": given} if isinstance(given, str) else dict(given)
    made = load_class("schedule", arguments.pop("name"), Schedule)(**arguments)
    assert isinstance(made, Schedule)
    return made


@dataclass(frozen=True)
class ChangingNumber:
    """A number that goes from one value to another.

    Attributes:
        start: value where the schedule's factor is 1, at the first step.
        end: value where it is 0.
        schedule: without warm-up.
    """

    start: float
    end: float
    schedule: Schedule

    @classmethod
    def read(cls, given: Change, key: str) -> "ChangingNumber":
        """Return what ``{from: 0.4, to: 0.15, schedule: linear}`` means; linear by default.

        Raises:
            ConfigError: a key is missing or unknown, or no number.
            PluginError: the schedule cannot be used.
        """
        for name in given:
            if name not in _KEYS:
                raise ConfigError(
                    f"{key}.{name}: no such key, expected {', '.join(_KEYS)}{nearest(name, _KEYS)}"
                )
        missing = [name for name in ("from", "to") if given.get(name) is None]
        if missing:
            raise ConfigError(f"{key}: found no {' and no '.join(missing)}, expected both ends")
        schedule = _schedule(given.get("schedule", DEFAULT_SCHEDULE), key)
        return cls(given["from"], given["to"], schedule)

    def at(self, progress: Progress | None) -> float:
        """Return the number at a moment of the run; the first one where there is no run."""
        if progress is None:
            return self.start
        # from 0.4 to 0.15, linear, 100 steps: step 0 -> 0.4, 50 -> 0.275, 100 -> 0.15
        factor = min(1.0, self.schedule.factor(progress))
        return self.end + (self.start - self.end) * factor


def _schedule(given: object, key: str) -> Schedule:
    named = given.get("name") if isinstance(given, Mapping) else given
    if not isinstance(named, str) or not isinstance(given, str | Mapping):
        raise ConfigError(
            f"{key}.schedule: found {given!r}, expected a name, or a name and its arguments, as in "
            "{name: wsd, decay_share: 0.2}"
        )
    try:
        return make_schedule(given)
    except TypeError as error:  # of the call: jsonargparse does not look into this mapping
        raise ConfigError(f"{key}.schedule: {named}: {error}") from error
