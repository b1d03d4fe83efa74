"""WrittenDates: the conformance kit, and what is its own."""

from datetime import date, datetime

import pytest

from bertlab import DataError
from bertlab.testing import conformance
from bertlab_seq2seq.written_dates import STYLES, WrittenDates, written

test_conformance = conformance(WrittenDates)

READ_BACK = (  # by the standard library's parser, %y with POSIX's pivot moved to 1950
    "%d %B %Y",
    "%B %d, %Y",
    "%A, %B %d, %Y",
    "the %dth of %B %Y",
    "%A the %dth of %B, %Y",
    "%b %dth %Y",
    "%d-%b-%y",
    "%d. %m. %Y",
    "%m/%d/%y",
)


def source() -> WrittenDates:
    return WrittenDates("written-dates", "")


@pytest.mark.parametrize(("style", "pattern"), list(zip(STYLES, READ_BACK, strict=True)))
def test_every_style_is_read_back_as_the_day_it_stands_for(style: str, pattern: str) -> None:
    for day in (date(1950, 1, 4), date(1996, 5, 13), date(2000, 12, 30), date(2049, 11, 24)):
        found = datetime.strptime(written(day, style), pattern).date()
        if "%y" in pattern and found.year >= 2050:
            found = found.replace(year=found.year - 100)
        if "%y" in pattern and found.year < 1950:
            found = found.replace(year=found.year + 100)
        assert found == day


@pytest.mark.parametrize(
    ("day", "ordinal"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (11, "11th"), (13, "13th"), (22, "22nd")],
)
def test_ordinals_are_english(day: int, ordinal: str) -> None:
    assert written(date(1996, 5, day), STYLES[3]) == f"the {ordinal} of May 1996"


def test_every_day_is_in_one_split_and_no_day_in_both() -> None:
    train, validation = (
        [row["target"] for row in source().examples(s)] for s in ("train", "validation")
    )
    assert len({*train, *validation}) == len(train) + len(validation) == 36525
    assert 0.01 < len(validation) / 36525 < 0.03


def test_every_style_is_in_validation() -> None:
    rows = list(source().examples("validation"))
    found = {
        style
        for row in rows
        for style in STYLES
        if row["source"] == written(date.fromisoformat(row["target"]), style)
    }
    assert found == set(STYLES)


def test_other_splits_and_arguments_are_refused() -> None:
    with pytest.raises(DataError, match="found split 'test', expected train or validation"):
        source().examples("test")
    with pytest.raises(DataError, match="takes nothing behind the colon"):
        WrittenDates("written-dates:iso", "iso").examples("train")
