"""What an unknown class is told: the nearest, or that the column holds no classes."""

import pytest

from bertlab.api.examples import Labels
from bertlab.errors import DataError


@pytest.mark.parametrize(
    ("counts", "words"),
    [((3, 1, 2), "did you mean 'x12'"), ((1, 1, 1), "no two rows have the same")],
)
def test_an_unknown_class(counts: tuple[int, ...], words: str) -> None:
    with pytest.raises(DataError, match=words):
        Labels(("x10", "x12", "x30"), counts).id_of("x11", "rows.csv:2")
