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
    looked_up_once,
    pytest_collection_finish,
    pytest_runtest_setup,
    pytest_sessionfinish,
    seed_of_runs_without_one,
    tiny_config,
    tiny_run,
    undrawn,
    unsynced,
)
from tests.conftest import pytest_collection_modifyitems as divide

__all__ = [
    "all_hooks",
    "bertlab",
    "cache_dir",
    "corpus_file",
    "drawn",
    "found_arguments",
    "kept_parsers",
    "looked_up_once",
    "pytest_collection_finish",
    "pytest_runtest_setup",
    "pytest_sessionfinish",
    "seed_of_runs_without_one",
    "tiny_config",
    "tiny_run",
    "undrawn",
    "unsynced",
]

# the kit runs an objective and a head in CI, all others at night
IN_CI = ("test_mlm[", "test_single_sentence[")
# checks of the kit that need a run of fit
IN_A_RUN = {each.name for each in vars(whole_runs).values() if isinstance(each, Check)}


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Divide the tests into tiers; checks of the kit in a whole run are slow or nightly."""
    divide(items)
    for item in items:
        given = getattr(item, "callspec", None)
        if isinstance(item, pytest.Function) and given and given.params.get("check") in IN_A_RUN:
            item.add_marker("slow")
            if not item.name.startswith(IN_CI):
                item.add_marker("nightly")
