"""The fixtures of ``tests/conftest.py``, for the tests of the packages."""

from tests.conftest import (
    all_hooks,
    bertlab,
    cache_dir,
    corpus_file,
    drawn,
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
    "tiny_config",
    "tiny_run",
    "undrawn",
]
