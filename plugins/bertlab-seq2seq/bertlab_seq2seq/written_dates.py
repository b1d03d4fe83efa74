"""Dates as people write them, and as ISO 8601 has them: a small job, made up, offline."""

import hashlib
from collections.abc import Iterator
from datetime import date, timedelta

from bertlab import DataError, DataSource, nearest

FIRST, LAST = date(1950, 1, 1), date(2049, 12, 31)  # so that two digits tell the century
_HELD_OUT = 0.02  # of the days
_SPLITS = ("train", "validation")

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
STYLES = (
    "{day} {month} {year}",  # 3 May 1996
    "{month} {day}, {year}",  # May 3, 1996
    "{weekday}, {month} {day}, {year}",  # Friday, May 3, 1996
    "the {day}{suffix} of {month} {year}",  # the 3rd of May 1996
    "{weekday} the {day}{suffix} of {month}, {year}",  # Friday the 3rd of May, 1996
    "{month:.3} {day}{suffix} {year}",  # May 3rd 1996
    "{day}-{month:.3}-{decade:02}",  # 3-May-96
    "{day}. {number}. {year}",  # 3. 5. 1996
    "{number}/{day}/{decade:02}",  # 5/3/96
)


class WrittenDates(DataSource):
    """Write a date that is written in one of nine styles as ISO 8601: ``source``, ``target``.

    ``Friday the 3rd of May, 1996`` and ``5/3/96`` are ``1996-05-03``. Each day from 1950 to 2049 is
    one row, in a style that a hash of it chooses; of these, about 2 % are the split ``validation``,
    so training has none of its days in any style.
    """

    def examples(self, split: str | None) -> Iterator[dict[str, str]]:
        """Yield the rows of ``train`` or ``validation``, always the same.

        Raises:
            DataError: there is no such split, or something stands behind the colon.
        """
        if self.argument:
            raise DataError(f"{self.name}: takes nothing behind the colon; give written-dates")
        if split not in _SPLITS:
            raise DataError(
                f"{self.name}: found split {split!r}{nearest(str(split), _SPLITS)}, expected "
                "train or validation"
            )
        return _rows(held_out=split == "validation")


def _rows(held_out: bool) -> Iterator[dict[str, str]]:
    for number in range((LAST - FIRST).days + 1):
        day = FIRST + timedelta(number)
        if (_hash(f"split {day}") < _HELD_OUT) == held_out:
            style = STYLES[int(_hash(f"style {day}") * len(STYLES))]
            yield {"source": written(day, style), "target": day.isoformat()}


def written(day: date, style: str) -> str:
    """Return a date in one of :data:`STYLES`; not by strftime, whose names go with the locale."""
    return style.format(
        day=day.day,
        # 11th, 12th and 13th, but 21st, 22nd and 23rd
        suffix="th" if 10 < day.day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th"),
        weekday=_WEEKDAYS[day.weekday()],
        month=_MONTHS[day.month - 1],
        number=day.month,
        year=day.year,
        decade=day.year % 100,
    )


def _hash(text: str) -> float:
    """Return a number in [0, 1) that depends on nothing but the text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6]) / 2**48  # exact in 53 bits
