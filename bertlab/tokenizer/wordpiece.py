"""BERT's WordPiece tokenizer (paper sec. 3): text to ids and back."""

import json
import re
from array import array
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
from bertlab.tokenizer.files import vocabulary_state, wordpiece_state

# str.split() takes these for spaces, BERT deletes them as control characters.
_DELETED_SPACES = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"
_DELETE = dict.fromkeys(map(ord, _DELETED_SPACES))
# the four ranges are ASCII's punctuation; "don't" -> ["don", "'", "t"]
_ASCII_PIECES = re.compile(r"[0-9A-Za-z]+|[!-/:-@\[-`{-~]")
_MAX_CACHED_CHARACTERS = 2**22  # of words and bytes of ids, in each generation


def delete_control_spaces(text: str) -> str:
    """Delete the control characters that ``str.split`` takes for spaces, as BERT does."""
    if any(character in text for character in _DELETED_SPACES):
        return text.translate(_DELETE)
    return text


def ascii_pieces(word: str, lowercase: bool) -> list[str] | None:
    """Split a word at punctuation as BERT does.

    Returns:
        The pieces, or None if the word is not printable ASCII: then BERT's Unicode rules apply.
    """
    if not (word.isascii() and word.isprintable()):
        return None
    return _ASCII_PIECES.findall(word.lower() if lowercase else word)


class WordIds(dict[str, bytes]):
    """A dictionary from a word to the bytes of its ids, which computes missing entries.

    When it is full it becomes the old generation and starts anew; words that are met again move
    from the old generation to the new one, and rare words are forgotten.

    Args:
        backend: a tokenizer with BERT's normalizer and pre-tokenizer and a WordPiece model, that
            reads special tokens in the text as plain text.
        lowercase: what the backend's normalizer does.
        dtype: of the ids, uint16 or uint32.
    """

    def __init__(self, backend: Backend, lowercase: bool, dtype: npt.DTypeLike) -> None:
        super().__init__()
        self._backend = backend
        self._model = backend.model
        self._lowercase = lowercase
        self._dtype = np.dtype(dtype)
        self._typecode = self._dtype.char  # "H" or "I", which array has as well
        self._characters = 0
        self._old: dict[str, bytes] = {}

    def __missing__(self, word: str) -> bytes:
        ids = self._old.get(word)
        if ids is None:
            ids = self._encode_word(word)
        if self._characters > _MAX_CACHED_CHARACTERS:
            self._old = dict(self)
            self.clear()
            self._characters = 0
        self._characters += len(word) + len(ids)
        self[word] = ids
        return ids

    def encode(
        self, texts: Sequence[str]
    ) -> tuple[npt.NDArray[np.unsignedinteger], npt.NDArray[np.int64]]:
        """Return the ids of all texts, concatenated, and the number of ids of each text."""
        everything = "\n".join(texts)
        # one search in all texts is faster than one in each
        if any(character in everything for character in _DELETED_SPACES):
            texts = [delete_control_spaces(text) for text in texts]
        lookup = self.__getitem__  # get() would not call __missing__
        ids = [b"".join(map(lookup, text.split())) for text in texts]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids)) // self._dtype.itemsize
        return np.frombuffer(b"".join(ids), self._dtype), lengths

    def _encode_word(self, word: str) -> bytes:
        pieces = ascii_pieces(word, self._lowercase)
        if pieces is None:
            return self._pack(self._backend.encode(word, add_special_tokens=False).ids)
        if pieces == [word]:
            # nothing left to split
            return self._pack([token.id for token in self._model.tokenize(word)])
        return b"".join(map(self.__getitem__, pieces))

    def _pack(self, ids: list[int]) -> bytes:
        return array(self._typecode, ids).tobytes()


class WordPieceTokenizer(Tokenizer):
    """Splits text into word pieces with the same ids as the original BERT.

    Args:
        state: checked content of a ``tokenizer.json``; use :meth:`from_files` or
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
    def from_vocabulary(
        cls, tokens: Sequence[str], lowercase: bool = True, strip_accents: bool | None = None
    ) -> "WordPieceTokenizer":
        """Return BERT's tokenizer for a list of tokens, one of each id.

        ``strip_accents``: whether "café" is read as "cafe"; None, as ``lowercase`` says.
        """
        return cls(vocabulary_state(tokens, lowercase, strip_accents=strip_accents))

    @classmethod
    def from_files(cls, files: TokenizerFiles) -> "WordPieceTokenizer":
        """Return the tokenizer of files that were read.

        If none of them says whether it is lower-cased, a vocabulary with capitals is taken for
        cased.

        Raises:
            TokenizerError: a vocabulary is damaged, empty, has duplicates or lacks special tokens.
        """
        return cls(wordpiece_state(files), str(files.path))

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
