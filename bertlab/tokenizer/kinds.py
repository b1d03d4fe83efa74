"""Training a tokenizer of any kind, and the core's own kind: WordPiece."""

from collections.abc import Iterable, Mapping
from typing import Any

from tokenizers import Tokenizer as Backend

from bertlab.api.tokenizer import Tokenizer, TokenizerKind
from bertlab.errors import ConfigError
from bertlab.plugins.index import load_class
from bertlab.tokenizer.loading import tokenizer_of
from bertlab.tokenizer.training import TRAINING_VERSION, train_wordpiece

_MOST_TOKENS = 10_000_000  # above 2^62 the trainers of tokenizers panic


def build_kind(section: Mapping[str, Any]) -> TokenizerKind:
    """Make the kind that a config's ``data.tokenizer_kind`` section describes."""
    settings = dict(section)
    kind = load_class("tokenizer", settings.pop("name"), TokenizerKind)(**settings)
    assert isinstance(kind, TokenizerKind)
    return kind


def train_tokenizer(
    kind: TokenizerKind, texts: Iterable[str], vocab_size: int, lowercase: bool = True
) -> Tokenizer:
    """Train a tokenizer of a kind and check that it can be used."""
    if vocab_size > _MOST_TOKENS:
        raise ConfigError(f"vocab_size: found {vocab_size}, expected at most {_MOST_TOKENS:,}")
    backend = kind.train(texts, vocab_size, lowercase)
    return tokenizer_of(backend, kind.special_tokens, f"tokenizer of {type(kind).__name__}")


class WordPiece(TokenizerKind):
    """BERT's own: words and punctuation marks, split into the longest pieces that are known.

    Args:
        min_frequency: a pair of pieces that occurs less often is not joined.
        strip_accents: whether "café" is read as "cafe"; None, as ``lowercase`` says.
    """

    version = TRAINING_VERSION

    def __init__(self, min_frequency: int = 2, strip_accents: bool | None = None) -> None:
        self.min_frequency = min_frequency
        self.strip_accents = strip_accents

    def train(self, texts: Iterable[str], vocab_size: int, lowercase: bool) -> Backend:
        """Train as :func:`train_wordpiece`."""
        trained = train_wordpiece(
            texts, vocab_size, lowercase, self.min_frequency, strip_accents=self.strip_accents
        )
        return Backend.from_str(trained.to_json())
