"""Training byte-level BPE and Unigram tokenizers."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

from tokenizers import (
    AddedToken,
    Regex,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from tokenizers import Tokenizer as Backend

from bertlab import check_at_least
from bertlab.api import SpecialTokens, TokenizerError, TokenizerKind
from bertlab.extend import MAX_WORD_CHARACTERS, warn
from bertlab_modern.unigram_training import check_settings, train_unigram
from bertlab_modern.word_starts import METASPACE

SpecialNames = Literal["bert", "roberta"]
_SPECIAL: dict[SpecialNames, SpecialTokens] = {
    "bert": SpecialTokens(),
    "roberta": SpecialTokens("<pad>", "<unk>", "<s>", "</s>", "<mask>"),
}
_BYTES = 256


class ByteLevelBPE(TokenizerKind):
    """RoBERTa's and ModernBERT's: joins of frequent pairs of bytes (Radford et al. 2019).

    No text is unknown to it, and cased text comes back as it was. Text is normalised to NFC; an
    uncased one loses its accents as BERT's does.

    Args:
        min_frequency: a pair that occurs less often is not joined.
        add_prefix_space: read a text as if it stood behind a space, so that a word has the same
            ids at the beginning of a text as within it.
        special_names: ``bert`` ([CLS], [MASK], as ModernBERT has) or ``roberta`` (<s>, <mask>).
    """

    def __init__(
        self,
        min_frequency: int = 2,
        add_prefix_space: bool = True,
        special_names: SpecialNames = "bert",
    ) -> None:
        self.min_frequency = min_frequency
        self.add_prefix_space = add_prefix_space
        self.special_names = special_names

    @property
    def special_tokens(self) -> SpecialTokens:
        """The special tokens by their role."""
        return _SPECIAL[self.special_names]

    def train(self, texts: Iterable[str], vocab_size: int, lowercase: bool) -> Backend:
        """Train; the vocabulary has the special tokens, the 256 bytes and their joins."""
        names = self.special_tokens.names()
        check_at_least("vocab_size", vocab_size, _BYTES + len(names))
        check_at_least("min_frequency", self.min_frequency, 1)
        backend = Backend(models.BPE())
        backend.normalizer = _normalizer("NFC", lowercase)
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(self.add_prefix_space)
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            min_frequency=self.min_frequency,
            show_progress=False,
            special_tokens=names,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        )
        backend.train_from_iterator(_some(texts), trainer)
        _warn_if_small(backend, vocab_size)
        return _finished(backend, self.special_tokens)


class Unigram(TokenizerKind):
    """SentencePiece's, as in ALBERT and XLM-R: the most probable pieces (Kudo 2018).

    Text is normalised to NFKC; spaces become part of the word behind them (▁the).

    Args:
        byte_fallback: spell characters that no piece has in bytes; else they are unknown.
        shrinking_factor: share of the pieces that each round of pruning keeps.
        max_piece_length: most characters of a piece.
        special_names: ``bert`` ([CLS], [MASK], as ALBERT has) or ``roberta`` (<s>, as XLM-R has).
    """

    def __init__(
        self,
        byte_fallback: bool = True,
        shrinking_factor: float = 0.75,
        max_piece_length: int = 16,
        special_names: SpecialNames = "bert",
    ) -> None:
        self.byte_fallback = byte_fallback
        self.shrinking_factor = shrinking_factor
        self.max_piece_length = max_piece_length
        self.special_names = special_names

    @property
    def special_tokens(self) -> SpecialTokens:
        """The special tokens by their role."""
        return _SPECIAL[self.special_names]

    def train(self, texts: Iterable[str], vocab_size: int, lowercase: bool) -> Backend:
        """Train; the vocabulary has the special tokens, the pieces and, with fallback, bytes."""
        special = self.special_tokens
        spare = _BYTES if self.byte_fallback else 0
        check_at_least("vocab_size", vocab_size, spare + len(special.names()) + 1)
        check_settings(self.shrinking_factor, self.max_piece_length)
        normalizer = _normalizer("NFKC", lowercase)
        pieces = train_unigram(
            _count_words(_some(texts), normalizer),
            vocab_size - len(special.names()),
            byte_fallback=self.byte_fallback,
            shrinking_factor=self.shrinking_factor,
            max_piece_length=self.max_piece_length,
        )
        names = special.names()
        vocabulary = [*((name, 0.0) for name in names), *pieces]
        unknown = names.index(special.unk)
        backend = Backend(models.Unigram(vocabulary, unknown, self.byte_fallback))
        backend.normalizer = normalizer
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        spaces = [decoders.Replace(METASPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
        backend.decoder = decoders.Sequence([*spaces, decoders.Strip(" ", 1, 0)])
        _warn_if_small(backend, vocab_size)
        return _finished(backend, special)


def _normalizer(form: Literal["NFC", "NFKC"], lowercase: bool) -> normalizers.Normalizer:
    """Return a normalizer: a Unicode form, for Unigram single spaces, for uncased text no case."""
    compose, decompose = {
        "NFC": (normalizers.NFC, normalizers.NFD),
        "NFKC": (normalizers.NFKC, normalizers.NFKD),
    }[form]
    # é -> e and a mark -> e; NFC at the end puts Hangul together again
    uncased = [decompose(), normalizers.Lowercase(), normalizers.StripAccents()]
    spaces = [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    return normalizers.Sequence(
        [*(uncased if lowercase else []), compose(), *(spaces if form == "NFKC" else [])]
    )


def _finished(backend: Backend, special: SpecialTokens) -> Backend:
    """Return a trained backend whose special tokens are known as such and surround sequences."""
    tokens = [
        AddedToken(name, normalized=False) for name in special.names() if name != special.mask
    ]
    # [MASK] takes the space before it, as the word that it stands for would: RoBERTa's way
    mask = [AddedToken(special.mask, lstrip=True, normalized=False)] if special.mask else []
    backend.add_special_tokens([*tokens, *mask])
    cls, sep = special.cls, special.sep
    ids = {name: backend.token_to_id(name) for name in (cls, sep)}
    backend.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}", pair=f"{cls} $A {sep} $B:1 {sep}:1", special_tokens=[*ids.items()]
    )
    return backend


def _some(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts; raise TokenizerError at their end if none has a word."""
    found = False
    for text in texts:
        found = found or bool(text.strip())
        yield text
    if not found:
        raise TokenizerError("no words to train a vocabulary on: the text is empty")


def _count_words(texts: Iterable[str], normalizer: normalizers.Normalizer) -> Counter[str]:
    """Count normalized words; those of over 100 characters are left out."""
    raw: Counter[str] = Counter()
    for text in texts:
        raw.update(text.split())
    words: Counter[str] = Counter()
    for word, count in raw.items():
        for part in normalizer.normalize_str(word).split():
            if len(part) <= MAX_WORD_CHARACTERS:
                words[part] += count
    return words


def _warn_if_small(backend: Backend, vocab_size: int) -> None:
    found = backend.get_vocab_size()
    if found < 0.9 * vocab_size:
        warn(
            f"the text gives only {found:,} of the {vocab_size:,} tokens asked for: it has too few "
            "words that occur often; use more text or a smaller vocab_size"
        )
