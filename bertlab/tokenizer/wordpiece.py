"""BERT's WordPiece tokenizer (paper sec. 3): text to ids and back."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as Backend

from bertlab.api.tokenizer import (
    BoolArray,
    PairLayout,
    SpecialTokens,
    TokenArray,
    Tokenizer,
    TokenizerFiles,
)
from bertlab.files import write_json, write_text
from bertlab.tokenizer.files import read_files, vocabulary_state, wordpiece_state
from bertlab.tokenizer.word_cache import WordIds


class WordPieceTokenizer(Tokenizer):
    """Splits text into word pieces with the same ids as the original BERT.

    Args:
        state: checked content of a ``tokenizer.json``; use :meth:`load` or
            :meth:`from_vocabulary` to get one.
        source: what to name in errors.
    """

    def __init__(self, state: dict[str, Any], source: str = "tokenizer") -> None:
        super().__init__(state, SpecialTokens(), PairLayout(), source)
        # Word by word only where words are known not to influence each other.
        self._by_words = (
            _has_bert_normalizer(state)
            and state["normalizer"]["clean_text"]
            and state["pre_tokenizer"] == {"type": "BertPreTokenizer"}
            and all(token["special"] for token in state["added_tokens"])
        )

    def _word_marks(
        self, state: dict[str, Any], tokens: Sequence[str]
    ) -> tuple[BoolArray, BoolArray | None]:
        prefix: str = state["model"]["continuing_subword_prefix"]
        return prefixed(tokens, prefix), None

    def _is_uncased(self, state: dict[str, Any]) -> bool:
        return _has_bert_normalizer(state) and bool(state["normalizer"]["lowercase"])

    def _identity(self, state: dict[str, Any]) -> dict[str, Any]:
        return state

    @classmethod
    def from_vocabulary(cls, tokens: Sequence[str], lowercase: bool = True) -> "WordPieceTokenizer":
        """Return BERT's tokenizer for a list of tokens, one of each id."""
        return cls(vocabulary_state(tokens, lowercase))

    @classmethod
    def load(cls, path: str | Path, lowercase: bool | None = None) -> "WordPieceTokenizer":
        """Load a ``vocab.txt``, a ``tokenizer.json`` or a folder with either.

        Nothing in the files is executed; truncation and padding presets are ignored.

        Args:
            path: the file or folder.
            lowercase: overrides ``do_lower_case`` of the folder's ``tokenizer_config.json``. If
                None and no file says it, a vocabulary with capital letters is taken for cased.

        Raises:
            TokenizerError: missing or damaged file, not a WordPiece model, or a vocabulary
                without BERT's special tokens, with duplicates, or empty.
        """
        return cls.from_files(read_files(Path(path)), lowercase)

    @classmethod
    def from_files(
        cls, files: TokenizerFiles, lowercase: bool | None = None
    ) -> "WordPieceTokenizer":
        """Return the tokenizer of files that were read; ``lowercase`` as in :meth:`load`.

        Raises:
            TokenizerError: as :meth:`load`.
        """
        return cls(wordpiece_state(files, lowercase), str(files.path))

    def to_json(self) -> str:
        """Return the whole tokenizer in the format of ``tokenizer.json``."""
        return self._json

    @cached_property
    def _plain_backend(self) -> Backend:
        backend = Backend.from_str(self._json)
        backend.encode_special_tokens = True  # [MASK] in a text -> [ mask ]
        return backend

    @cached_property
    def _word_ids(self) -> WordIds:
        return WordIds(self._plain_backend, self.lowercase, self.dtype)

    def encode_texts(self, texts: Sequence[str]) -> tuple[TokenArray, npt.NDArray[np.int64]]:
        """Tokenize many texts; see :meth:`bertlab.Tokenizer.encode_texts`."""
        if self._by_words:
            return self._word_ids.encode(texts)
        rows = [
            row.ids for row in self._plain_backend.encode_batch(texts, add_special_tokens=False)
        ]
        flat = np.fromiter((number for row in rows for number in row), self.dtype)
        return flat, np.fromiter(map(len, rows), np.int64, len(rows))

    def save(self, folder: str | Path) -> None:
        """Write the four files from which ``transformers`` loads an equal tokenizer.

        They are ``tokenizer.json``, ``vocab.txt``, ``tokenizer_config.json`` and
        ``special_tokens_map.json``. The folder is made if need be.

        Raises:
            OSError: the folder cannot be written.
        """
        folder = Path(folder)
        state = json.loads(self._json)
        normalizer = state["normalizer"] or {}
        special = self.special.huggingface()
        config = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.lowercase,
            "strip_accents": normalizer.get("strip_accents", self.lowercase),
            "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
        }
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "vocab.txt", "".join(f"{token}\n" for token in self._tokens))
        write_json(folder / "special_tokens_map.json", special)
        write_json(folder / "tokenizer_config.json", config | special)
        write_json(folder / "tokenizer.json", state)


def _has_bert_normalizer(state: dict[str, Any]) -> bool:
    normalizer = state["normalizer"]
    return isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer"


def prefixed(tokens: Sequence[str], prefix: str) -> BoolArray:
    """Return ``(V,)`` bool, True for the V tokens that have a prefix such as ``##``."""
    # "##" alone is a word of two number signs
    return np.array([token.startswith(prefix) and token != prefix for token in tokens], np.bool_)
