"""The fixtures of ``tests/conftest.py``, for the tests of the packages."""

from tests.conftest import bertlab, cache_dir, corpus_file, tiny_config, tiny_run

__all__ = ["bertlab", "cache_dir", "corpus_file", "tiny_config", "tiny_run"]
