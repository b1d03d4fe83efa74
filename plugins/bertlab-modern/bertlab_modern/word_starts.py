"""Which tokens continue a word, told by the token alone: it has to work on stored ids.

WordPiece marks pieces that continue a word (``##ing``). Byte-level BPE and Unigram mark the space
before a word instead (``Ġin``, ``▁in``). A token without either mark continues a word if it begins
with a letter, a digit or a combining mark, unless the token before it ends in something else:
punctuation, symbols and Chinese characters are words of their own, as BERT has them.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from bertlab.api import TokenizerError
from bertlab.extend import BoolArray, parts, prefixed

METASPACE = "\u2581"  # ▁
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")  # of a Unigram with byte fallback
# of Chinese characters; the letters of U+20000 to U+3FFFF are such as well
_IDEOGRAPHS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))


def word_marks(
    state: dict[str, Any], tokens: Sequence[str], source: str
) -> tuple[BoolArray, BoolArray | None]:
    """Return which of V tokens continue a word, and behind which of them a word begins.

    Args:
        state: content of a ``tokenizer.json`` with a BPE, Unigram or WordLevel model.
        tokens: the token of each of the V ids.
        source: what to name in errors.

    Returns:
        continuing: ``(V,)`` bool.
        closing: ``(V,)`` bool; None if the first says all.

    Raises:
        TokenizerError: no token shows whether it starts a word.
    """
    model = state["model"]
    if model["type"] == "WordLevel":
        return np.zeros(len(tokens), np.bool_), None
    if prefix := model.get("continuing_subword_prefix"):
        return prefixed(tokens, prefix), None
    if is_byte_level(state):
        byte_of = _bytes_of_characters()
        # an added token is no code: what is in no table stands for a space
        texts = [bytes(byte_of.get(each, 0x20) for each in token) for token in tokens]
    elif _has_metaspace(state):
        texts = [_metaspace_bytes(token) for token in tokens]
    else:
        raise TokenizerError(
            f"{source}: its tokens do not show which of them start a word; expected a ByteLevel or "
            "Metaspace pre-tokenizer, or a model with a continuing_subword_prefix"
        )
    continuing = np.array([_continues(text) for text in texts], np.bool_)
    return continuing, np.array([_closes(text) for text in texts], np.bool_)


def is_byte_level(state: dict[str, Any]) -> bool:
    """Whether the letters of tokens stand for bytes."""
    return any(part.get("type") == "ByteLevel" for part in parts(state["pre_tokenizer"]))


def _has_metaspace(state: dict[str, Any]) -> bool:
    if any(part.get("type") == "Metaspace" for part in parts(state["pre_tokenizer"])):
        return True
    # Llama's way: {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    return any(part.get("content") == METASPACE for part in parts(state["normalizer"]))


def _metaspace_bytes(token: str) -> bytes:
    if found := _BYTE_TOKEN.fullmatch(token):
        return bytes([int(found[1], 16)])
    return token.replace(METASPACE, " ").encode(errors="replace")


def _continues(text: bytes) -> bool:
    """Whether a token of this text goes on with a word, by its first character."""
    if not text:
        return False
    if 0x80 <= text[0] < 0xC0:
        return True  # the middle of a character
    character = _first_character(text)
    return character is None or _joins(character)


def _closes(text: bytes) -> bool:
    """Whether a word begins behind a token of this text, by its last character."""
    for size in range(1, 5):
        try:
            character = text[-size:].decode()
        except UnicodeDecodeError:
            continue  # not the whole character
        return bool(character) and not (character.isspace() or _joins(character))
    return False


def _joins(character: str) -> bool:
    """Whether a character is one of a word with those beside it: a letter, digit or mark."""
    return unicodedata.category(character)[0] in "LNM" and not any(
        first <= ord(character) <= last for first, last in _IDEOGRAPHS
    )


def _first_character(start: bytes) -> str | None:
    """Return the first character; of one that is cut, the first that begins with these bytes."""
    size = 1 if start[0] < 0x80 else 2 if start[0] < 0xE0 else 3 if start[0] < 0xF0 else 4
    given = start[:size]
    # E4 of 3 bytes -> E4 80 80; the lowest of E0 and F0 would be overlong: E0 A0 80, F0 90 80 80
    for second in (0x80, 0xA0, 0x90):
        filler = bytes([second, 0x80, 0x80]) if len(given) == 1 else b"\x80\x80"
        try:
            return (given + filler)[:size].decode()
        except UnicodeDecodeError:
            continue
    return None


def _bytes_of_characters() -> dict[str, int]:
    """Return the byte that each character of a byte-level token stands for (GPT-2's table)."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in shown]
    # printable bytes stand for themselves, the others from U+0100 on: space is Ġ, U+0120
    return {chr(byte): byte for byte in shown} | {
        chr(256 + number): byte for number, byte in enumerate(others)
    }
