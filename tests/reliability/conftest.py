"""How much is generated, and what is said about it at the end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st


class Search(Protocol):
    """Checks inputs that a strategy generates, ``times`` as many as ``--rounds`` says."""

    def __call__(
        self, strategy: st.SearchStrategy[Any], check: Callable[[Any], None], times: int = 1
    ) -> None: ...


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, empty, of no run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BERTLAB_RUN_DIR", raising=False)
    return tmp_path


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """How many inputs each test generates; ``--rounds`` says."""
    return int(request.config.getoption("--rounds"))


@pytest.fixture
def search(rounds: int, record_property: Callable[[str, object], None]) -> Search:
    """Check generated inputs, the same ones each time."""

    def run(strategy: st.SearchStrategy[Any], check: Callable[[Any], None], times: int = 1) -> None:
        seen = 0

        @settings(
            max_examples=times * rounds,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],  # each takes a second: no search for the simplest one
            suppress_health_check=list(HealthCheck),
        )
        @given(strategy)
        def every(case: Any) -> None:
            nonlocal seen
            seen += 1
            check(case)

        every()
        record_property("generated", seen)

    return run


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many inputs were generated."""
    reports = terminalreporter.getreports("passed")
    counts = [
        value
        for report in reports
        if report.when == "call"
        for name, value in report.user_properties
        if name == "generated"
    ]
    if counts:
        terminalreporter.write_line(
            f"{sum(counts)} generated inputs in {len(counts)} tests: all as they should be"
        )
