"""Parsers of strangers' files: bytes that are damaged are read, or refused by one message."""

from pathlib import Path

import pytest

from tests.reliability.bad_files import Damage, damages
from tests.reliability.conftest import Search
from tests.reliability.parsers import PARSERS, Parser

PARSED = pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@PARSED
def test_a_whole_file_is_taken(parser: Parser, tmp_path: Path) -> None:
    path = tmp_path / parser.file
    path.write_bytes(parser.whole)
    parser.parse(path)


@pytest.mark.first_fast
@pytest.mark.first_slow
@PARSED
def test_damaged_bytes(parser: Parser, search: Search, tmp_path: Path) -> None:
    path = tmp_path / parser.file

    def check(damage: Damage) -> None:
        path.write_bytes(damage.content)
        parser.takes(path)

    search(damages(parser.whole), check, times=5)  # they take milliseconds
