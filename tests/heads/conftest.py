"""The toy vocabulary in transformers' hands."""

import pytest
from transformers import BertTokenizerFast

from tests.checkpoints.peers import TOKENIZER


@pytest.fixture(scope="session")
def hugging_face_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> BertTokenizerFast:
    """The tokenizer of the tests as transformers reads it."""
    folder = tmp_path_factory.mktemp("tokenizer")
    TOKENIZER.save(folder)
    return BertTokenizerFast.from_pretrained(folder)
