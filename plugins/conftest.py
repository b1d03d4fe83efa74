"""The fixtures of ``tests/conftest.py``, for the tests of the packages."""

import pytest

from bertlab_conformance.check import Check
from bertlab_conformance.checks import whole_runs
from tests.conftest import (
    all_hooks,
    bertlab,
    cache_dir,
    corpus_file,
    drawn,
    found_arguments,
    kept_parsers,
    pytest_collection_finish,
    pytest_sessionfinish,
    tiny_config,
    tiny_run,
    undrawn,
)
from tests.conftest import pytest_collection_modifyitems as begin_with_slow_ones

__all__ = [
    "all_hooks",
    "bertlab",
    "cache_dir",
    "corpus_file",
    "drawn",
    "found_arguments",
    "kept_parsers",
    "pytest_collection_finish",
    "pytest_sessionfinish",
    "tiny_config",
    "tiny_run",
    "undrawn",
]

# an objective and a head whose runs are among the fast tests
IN_FAST = ("test_mlm[", "test_single_sentence[")
# checks of the kit that need a run of fit
IN_A_RUN = {each.name for each in vars(whole_runs).values() if isinstance(each, Check)}


@pytest.hookimpl(tryfirst=True)  # before -m and -n divide them
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the checks of a class to one worker, as they build on each other.

    Those of its run go together: they share it, and each of them makes it where it is alone.
    """
    for item in items:
        given = getattr(item, "callspec", None)
        if not isinstance(item, pytest.Function) or given is None or "check" not in given.params:
            continue
        if item.function.__name__ != "test_conformance":
            continue
        place = item.nodeid.partition("[")[0]
        in_run = given.params["check"] in IN_A_RUN
        item.add_marker(pytest.mark.xdist_group(f"{place} in a run" if in_run else place))
        named = item.nodeid.partition("::")[2]
        if in_run and item.config.option.markexpr and not named.startswith(IN_FAST):
            item.add_marker("slow")
    begin_with_slow_ones(items)
