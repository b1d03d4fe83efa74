"""The pytest plugin: fixtures for authors of plugins, and the kit's failures without traceback.

It is loaded in every run of pytest, so that nothing heavy is imported before a fixture is used.
"""

import os
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from bertlab.errors import BertlabError
from bertlab.testing.check import ConformanceFailure

if TYPE_CHECKING:
    from bertlab.encoders.bert import BertEncoder
    from bertlab.tokenizer.wordpiece import WordPieceTokenizer


@pytest.fixture(scope="session")
def bertlab_tokenizer() -> "WordPieceTokenizer":
    """A WordPiece tokenizer of about 300 tokens: common words, letters, endings, digits."""
    from bertlab.testing.samples import SampleLanguage  # noqa: PLC0415

    return SampleLanguage.of(None).tokenizer


@pytest.fixture
def bertlab_encoder(bertlab_tokenizer: "WordPieceTokenizer") -> "BertEncoder":
    """A new BertEncoder of three layers of width 32 for ``bertlab_tokenizer``, always the same."""
    from bertlab.testing.task_cases import seeded, tiny_encoder  # noqa: PLC0415

    with seeded(0):
        return tiny_encoder(bertlab_tokenizer.vocab_size)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show a ConformanceFailure as its message."""
    del item
    report = yield
    _shorten(report, call.excinfo, ConformanceFailure)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Show what ``conformance(…)`` refuses as its message."""
    del collector
    report = yield
    call: pytest.CallInfo[object] | None = getattr(report, "call", None)
    _shorten(report, call and call.excinfo, BertlabError)
    return report


def _shorten(
    report: pytest.TestReport | pytest.CollectReport,
    raised: pytest.ExceptionInfo[BaseException] | None,
    kind: type[BaseException],
) -> None:
    """Leave the traceback of an error of a kind out, unless BERTLAB_DEBUG is 1."""
    if raised is None or not isinstance(raised.value, kind):
        return
    if os.environ.get("BERTLAB_DEBUG") == "1":
        return
    shown = raised.getrepr(style="value", chain=False)
    if shown.reprcrash is not None:
        shown.reprcrash.message = str(raised.value)  # of the summary at the end
    report.longrepr = shown
