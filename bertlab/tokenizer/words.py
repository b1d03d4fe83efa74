"""Words of BERT's tokenizer: split as BERT splits them, and their ids remembered."""

import re
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as Backend

from bertlab.errors import TokenizerError

# str.split() takes these for spaces, BERT deletes them as control characters.
_DELETED_SPACES = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"
_DELETE = dict.fromkeys(map(ord, _DELETED_SPACES))
# the four ranges are ASCII's punctuation; "don't" -> ["don", "'", "t"]
_ASCII_PIECES = re.compile(r"[0-9A-Za-z]+|[!-/:-@\[-`{-~]")
_MOST_GROWTH = 64  # 12 of T5, whose spaces are three bytes
_MAX_CACHED_CHARACTERS = 2**22  # of words and bytes of ids, in each generation


def delete_control_spaces(text: str) -> str:
    """Delete the control characters that ``str.split`` takes for spaces, as BERT does."""
    if any(character in text for character in _DELETED_SPACES):
        return text.translate(_DELETE)
    return text


def ascii_pieces(word: str, lowercase: bool) -> list[str] | None:
    """Split a word at punctuation as BERT does; None of one that is not printable ASCII.

    To that BERT's Unicode rules apply.
    """
    if not (word.isascii() and word.isprintable()):
        return None
    return _ASCII_PIECES.findall(word.lower() if lowercase else word)


class WordIds(dict[str, bytes]):
    """A dictionary from a word to the bytes of its ids, which computes missing entries.

    When it is full it becomes the old generation and starts anew; words that are met again move
    from the old generation to the new one, and rare words are forgotten.

    The backend has BERT's normalizer, which lowers capitals if ``lowercase``, BERT's pre-tokenizer
    and a WordPiece model, and reads special tokens in the text as plain text. Ids are of ``dtype``,
    uint16 or uint32.
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


def parts(component: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 (JSON)
    """Yield the objects of a part of ``tokenizer.json``, those in a ``Sequence`` as well."""
    if isinstance(component, dict):
        yield component
        component = list(component.values())
    if isinstance(component, list):
        for each in component:
            yield from parts(each)


def check_growth(content: Mapping[str, Any], source: str, growth: float = 1) -> None:
    """Refuse a ``tokenizer.json`` that makes very much of a text, ``growth`` and its parts' times.

    Nine times "a" -> "aaaaaaaaaa", one behind the other, makes a gigabyte of one letter.
    """
    for part in parts([content.get("normalizer"), content.get("pre_tokenizer")]):
        growth = min(growth * _growth(part), 1e18)
    if growth > _MOST_GROWTH:
        told = f"{source}: normalizer, pre_tokenizer: they make up to {growth:,.0f} bytes of one"
        raise TokenizerError(f"{told}, expected at most {_MOST_GROWTH}")


def _growth(part: Mapping[str, Any]) -> float:
    """Return how many bytes a part makes of one at most, but for what Unicode decomposes."""

    def size(text: object) -> int:  # U+FDFA, of 3 bytes, is 33 to whatever comes behind
        return len(unicodedata.normalize("NFKD", str(text)).encode(errors="replace"))

    match part:
        case {"type": "BertNormalizer"}:
            return 5 / 3  # spaces around a Chinese character
        case {"type": "ByteLevel"}:
            return 2
        case {"type": "Metaspace" | "Prepend"}:
            return 1 + size(part.get("replacement", part.get("prepend", "")))
        case {"type": "Replace", "pattern": {"String": str(plain)}} if plain:
            return max(1, size(part.get("content", "")) / len(plain.encode(errors="replace")))
        case {"type": "Replace"}:  # an expression may match nothing, between any two letters
            return 1 + size(part.get("content", ""))
    return 1


def check_added(tokens: Iterable[str], known: set[str], source: Path) -> None:
    """Refuse tokens beside the ``known`` ones: a slow tokenizer finds them by rules of its own."""
    if beyond := [token for token in tokens if token not in known]:
        raise TokenizerError(
            f"{source}: holds {len(beyond)} tokens that are not in vocab.txt, as {beyond[0]!r}; "
            "expected a tokenizer.json, which has them: save_pretrained of transformers' "
            f"AutoTokenizer.from_pretrained({str(source.parent)!r}) writes it"
        )


def tokens_beside(config: Mapping[str, Any], source: Path) -> list[str]:
    """Return the tokens that a ``tokenizer_config.json`` adds, most of them the vocabulary's."""
    added = config.get("added_tokens_decoder") or {}
    if not isinstance(added, dict) or not all(isinstance(each, dict) for each in added.values()):
        raise TokenizerError(f"{source}: added_tokens_decoder: expected {{id: {{content: token}}}}")
    return [str(each.get("content")) for each in added.values()]


def has_capitals(tokens: Sequence[str]) -> bool:
    """Return whether a vocabulary is of cased text."""
    bracketed = re.compile(r"\[[^\]]*\]")  # [UNK], [unused1]: of uncased ones too
    # not isupper(): ℝ has no lower case
    return any(token != token.lower() for token in tokens if not bracketed.fullmatch(token))
