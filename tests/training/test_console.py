"""Tables as they are printed where the terminal is narrow."""

import pytest

from bertlab.errors import print_table


def test_a_long_title_stays_on_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    title = "/a/run/with/a/path/that/is/longer/than/the/terminal: 2 seeds"
    print_table(title, [("share of [UNK]", "0.1 %")], ("metric", "value"), figures=1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == title
    assert any("share of [UNK] │ 0.1 %" in line for line in lines)


def test_a_heading_of_two_lines_is_as_wide_as_the_longer_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_table("study", [("mlm", "1"), ("nsp", "2")], ("variant", "packages\naccuracy, %"))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= len("│ variant │ accuracy, % │")
