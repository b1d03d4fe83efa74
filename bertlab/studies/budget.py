"""A length of pre-training that is the same for each variant: in steps, tokens or time."""

import re
from datetime import timedelta
from math import isfinite

from bertlab.errors import StudyError
from bertlab.studies.overrides import Overrides

_KEYS = {"steps": "trainer.max_steps", "tokens": "max_tokens", "time": "trainer.max_time"}
# what would also end a run is taken out, in the base config too
_NO_END: Overrides = {
    "trainer.max_steps": -1,
    "trainer.max_epochs": -1,
    "max_tokens": None,
    "trainer.max_time": None,
}
_CLOCK = re.compile(r"(\d+):(\d\d):(\d\d):(\d\d)")


def budget_settings(given: object, where: str) -> Overrides:
    """Return the overrides of the base config that a budget stands for.

    Args:
        given: one of ``steps``, ``tokens`` and ``time``, and how much; none of it if None.
        where: file and key, for messages.

    Raises:
        StudyError: if it is another key, several, or no amount.
    """
    if given is None:
        return {}
    if not isinstance(given, dict) or len(given) != 1 or next(iter(given)) not in _KEYS:
        raise StudyError(f"{where}: found {given!r}, expected one of steps, tokens, time")
    ((kind, amount),) = given.items()
    read = {"steps": _steps, "tokens": _tokens, "time": _time}[kind]
    return {**_NO_END, _KEYS[kind]: read(amount, f"{where}.{kind}")}


def _steps(given: object, where: str) -> int:
    if type(given) is not int or given < 1:
        raise StudyError(f"{where}: found {given!r}, expected a whole number above 0")
    return given


def _tokens(given: object, where: str) -> float:
    try:
        tokens = float(given) if isinstance(given, int | float | str) else 0.0  # 1e9 is a text
    except ValueError:
        tokens = 0.0
    if isinstance(given, bool) or not (isfinite(tokens) and tokens > 0):
        raise StudyError(f"{where}: found {given!r}, expected a number of tokens above 0")
    return tokens


def _time(given: object, where: str) -> str:
    """Return ``days:hours:minutes:seconds``, as Lightning reads it."""
    seconds = 0
    if isinstance(given, str) and (found := _CLOCK.fullmatch(given)):
        days, hours, minutes, rest = map(int, found.groups())
        seconds = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    elif isinstance(given, dict):
        try:
            seconds = round(timedelta(**given).total_seconds())
        except (TypeError, OverflowError):
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
