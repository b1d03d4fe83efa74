"""The fixtures of ``tests/conftest.py``, for the tests of the packages."""

from tests.conftest import (
    all_hooks,
    bertlab,
    cache_dir,
    corpus_file,
    drawn,
    kept_parsers,
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_sessionfinish,
    tiny_config,
    tiny_run,
    undrawn,
)

__all__ = [
    "all_hooks",
    "bertlab",
    "cache_dir",
    "corpus_file",
    "drawn",
    "kept_parsers",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_sessionfinish",
    "tiny_config",
    "tiny_run",
    "undrawn",
]
