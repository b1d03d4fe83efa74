"""Fixtures for the tests of plugins: ``pytest_plugins = ["bertlab_conformance.pytest_plugin"]``.

This line in ``conftest.py`` opts in to them; ``conformance`` works without.
"""

import pytest

from bertlab import BertEncoder
from bertlab.api import Tokenizer
from bertlab_conformance.samples import SampleLanguage
from bertlab_conformance.stack import seeded, tiny_encoder


@pytest.fixture(scope="session")
def bertlab_tokenizer() -> Tokenizer:
    """A WordPiece tokenizer of about 300 tokens: common words, letters, endings, digits."""
    return SampleLanguage.of(None).tokenizer


@pytest.fixture
def bertlab_encoder(bertlab_tokenizer: Tokenizer) -> BertEncoder:
    """A new BertEncoder of three layers of width 32 for ``bertlab_tokenizer``, always the same."""
    with seeded(0):
        return tiny_encoder(bertlab_tokenizer.vocab_size)
