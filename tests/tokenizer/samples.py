"""Tokenizers of each kind on a little text, and strategies for hostile text."""

from functools import cache
from pathlib import Path
from typing import Any

import transformers
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers, processors

from bertlab.api.tokenizer import SpecialTokens, Tokenizer
from bertlab.tokenizer.kinds import train_tokenizer
from bertlab.tokenizer.loading import tokenizer_of
from bertlab_modern.subword_kinds import ByteLevelBPE, Unigram

LICENSE = Path(__file__).parents[2] / "LICENSE"
TEXT = [
    LICENSE.read_text(),
    "The quick brown fox jumps over the lazy dog, don't you think? It isn't so quick.\n",
    "Pre-training of deep bidirectional transformers: 15 % of all tokens are masked (80/10/10).\n",
    "Ein Café in Zürich, naïve façade; smörgåsbord. 東京は日本の首都です。 Привет, мир!\n",
    "playing played player plays; masking masked masks unmasked; training trained trains\n",
]
NAMES = (
    *("bpe", "bpe-cased", "bpe-no-prefix", "roberta", "modernbert"),
    *("unigram", "unigram-cased", "unigram-unknown", "xlm-r"),
)


@cache
def tokenizer_called(name: str) -> Tokenizer:
    """Return a tokenizer of :data:`NAMES`."""
    if name in ("roberta", "modernbert"):
        return _published_form(name)
    if name == "xlm-r":
        return _xlm_r_form()
    kind, vocab_size, lowercase = {
        "bpe": (ByteLevelBPE(), 600, True),
        "bpe-cased": (ByteLevelBPE(), 600, False),
        "bpe-no-prefix": (ByteLevelBPE(add_prefix_space=False), 600, False),
        "unigram": (Unigram(), 700, True),
        "unigram-cased": (Unigram(), 700, False),
        "unigram-unknown": (Unigram(byte_fallback=False), 450, True),
    }[name]
    return train_tokenizer(kind, TEXT * 8, vocab_size, lowercase)


def as_transformers(tokenizer: Tokenizer, folder: Any) -> Any:
    """Save a tokenizer and load it by ``transformers``."""
    tokenizer.save(folder)
    return transformers.AutoTokenizer.from_pretrained(str(folder))


def _published_form(name: str) -> Tokenizer:
    """Return our byte-level BPE with the parts around it as RoBERTa or ModernBERT have them."""
    roles = "roberta" if name == "roberta" else "bert"
    kind = ByteLevelBPE(add_prefix_space=False, special_names=roles)
    backend = kind.train(TEXT * 8, 600, lowercase=False)
    special = kind.special_tokens
    if name == "roberta":
        backend.normalizer = None
        ends = [(each, backend.token_to_id(each)) for each in (special.sep, special.cls)]
        backend.post_processor = processors.RobertaProcessing(*ends, True, False)
    else:  # ModernBERT: runs of spaces and private marks are added tokens that are not special
        backend.normalizer = normalizers.NFC()
        backend.add_tokens(["|||IP_ADDRESS|||", "  ", "   ", "<|padding|>"])
    return tokenizer_of(backend, special, name)


def _xlm_r_form() -> Tokenizer:
    """Return a Unigram as XLM-R's: special tokens are pieces, two separators between segments."""
    trained = tokenizer_called("unigram-unknown")
    words = [trained.token(number) for number in range(5, trained.vocab_size)]
    special = SpecialTokens("<pad>", "<unk>", "<s>", "</s>", "<mask>")
    pieces = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    pieces += [(word, -2.0 - number / 50) for number, word in enumerate(words)]
    backend = Backend(models.Unigram([*pieces, ("<mask>", 0.0)], 3))
    backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("  ", " ")])
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    backend.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return tokenizer_of(backend, special, "xlm-r")


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
