"""How long texts become by a ``tokenizer.json``, which may come from anybody."""

import base64
import contextlib
import unicodedata
from collections.abc import Mapping
from typing import Any

from bertlab.api import TokenizerError
from bertlab_modern.word_starts import parts

_MOST_GROWTH = 64  # 12 of T5, whose spaces are three bytes
_OF_UNICODE = 33  # bytes of U+FDFA, which NFKC makes of one character


def check_growth(content: Mapping[str, Any], source: str) -> None:
    """Refuse a ``tokenizer.json`` whose parts make very much of a text.

    Nine times "a" -> "aaaaaaaaaa", one behind the other, makes a gigabyte of one letter.
    """
    growth = 1.0
    for part in parts([content.get("normalizer"), content.get("pre_tokenizer")]):
        growth *= _growth(part)
    if growth > _MOST_GROWTH:
        raise TokenizerError(
            f"{source}: normalizer, pre_tokenizer: they make up to {min(growth, 1e18):,.0f} bytes "
            f"of one, expected at most {_MOST_GROWTH}"
        )


def _growth(part: Mapping[str, Any]) -> float:
    """Return how many bytes a part makes of one at most, but for what Unicode decomposes."""

    def size(text: object) -> int:  # U+FDFA, of 3 bytes, is 33 to whatever comes behind
        return len(unicodedata.normalize("NFKD", str(text)).encode(errors="replace"))

    pattern = part.get("pattern")
    match part.get("type"):
        case "ByteLevel":
            return 2
        case "Metaspace" | "Prepend":
            return 1 + size(part.get("replacement", part.get("prepend", "")))
        case "Replace":
            plain = pattern.get("String") if isinstance(pattern, Mapping) else None
            made = size(part.get("content", ""))
            if plain:
                return max(1.0, made / len(str(plain).encode(errors="replace")))
            # a regular expression may match nothing, between any two letters
            return 1.0 + made
        case "Precompiled":
            with contextlib.suppress(ValueError):  # whoever reads it says what is wrong
                table = base64.b64decode(str(part.get("precompiled_charsmap")))
                texts = table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")
                return max(1.0, max(map(len, texts)) / _OF_UNICODE)
    return 1.0
