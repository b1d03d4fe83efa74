"""A little text to train tokenizers on, and a strategy for hostile text."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from bertlab.api.tokenizer import Tokenizer
from bertlab.tokenizer.kinds import WordPiece, train_tokenizer

LICENSE = Path(__file__).parents[2] / "LICENSE"
TEXT = [
    LICENSE.read_text(),
    "The quick brown fox jumps over the lazy dog, don't you think? It isn't so quick.\n",
    "Pre-training of deep bidirectional transformers: 15 % of all tokens are masked (80/10/10).\n",
    "Ein Café in Zürich, naïve façade; smörgåsbord. 東京は日本の首都です。 Привет, мир!\n",
    "playing played player plays; masking masked masks unmasked; training trained trains\n",
]

_PIECES = st.sampled_from(
    [
        *("the", "playing", " ", "  ", "\t", "\n", "don't", "Café", "e\u0301", "\u0301", "\u200d"),
        *(
            "\U0001f469\u200d\U0001f4bb",
            "\U0001f600",
            "東京",
            "です",
            "שלום",
            "\u202e",
            "مرحبا",
            "\x00",
        ),
        *("\x1f", "\x85", "\u2028", "\ufeff", "\u00a0", "\u3000", "\ufffd", "\U0010ffff", "ﬁ", "ß"),
        *(
            "İ",
            "각",
            "\u1100\u1161",
            "x" * 300,
            "<s>",
            "[MASK]",
            "</s>",
            "[CLS]",
            "<mask>",
            "▁",
            "Ġ",
        ),
        *("##ing", "<0x41>", "|||IP_ADDRESS|||", "1234", "...", "Ⅷ", "½", "\ud7ff", "\ue000"),
    ]
)
HOSTILE = st.lists(_PIECES | st.text(max_size=6), max_size=8).map("".join)


def train_wordpiece(
    texts: Iterable[str], vocab_size: int, lowercase: bool = True, **settings: Any
) -> Tokenizer:
    return train_tokenizer(WordPiece(**settings), texts, vocab_size, lowercase)
