"""Byte-level BPE and Unigram tokenizers on a little text."""

from functools import cache
from typing import Any

import transformers
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers, processors

from bertlab.api.tokenizer import SpecialTokens, Tokenizer
from bertlab.tokenizer.kinds import tokenizer_of, train_tokenizer
from bertlab_modern.subword_kinds import ByteLevelBPE, Unigram
from tests.tokenizer.samples import TEXT

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
