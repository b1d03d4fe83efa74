"""Training a tokenizer of any kind, and the core's own kind: WordPiece."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers

from bertlab.api.tokenizer import Tokenizer, TokenizerKind
from bertlab.errors import ConfigError, TokenizerError, check_at_least, warn
from bertlab.plugins.index import load_class
from bertlab.tokenizer.files import SPECIAL_TOKENS, tokenizer_of
from bertlab.tokenizer.wordpiece import WordPieceTokenizer, ascii_pieces, delete_control_spaces

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
    """

    def __init__(self, min_frequency: int = 2) -> None:
        self.min_frequency = min_frequency

    def train(self, texts: Iterable[str], vocab_size: int, lowercase: bool) -> Backend:
        """Train as :func:`train_wordpiece`."""
        trained = train_wordpiece(texts, vocab_size, lowercase, self.min_frequency)
        return Backend.from_str(trained.to_json())


TRAINING_VERSION = 1  # of WordPiece; raised when the same text gives other ids
_MIN_VOCAB_SIZE = 32
MAX_WORD_CHARACTERS = 100  # WordPiece makes [UNK] of longer words
_ALPHABET = 1000  # characters, as the limit_alphabet of BertWordPieceTokenizer
_CHARACTER_COVERAGE = 0.9995  # as SentencePiece's default
_WORDS_AT_ONCE = 2**20  # different ones in memory before they are split
_LINE_WORDS = 2**12  # of a line that the trainer is given


def train_wordpiece(
    texts: Iterable[str],
    vocab_size: int,
    lowercase: bool = True,
    min_frequency: int = 2,
    show_progress: bool = False,
) -> WordPieceTokenizer:
    """Train a vocabulary as BERT's: ``[PAD]`` is 0, then ``[UNK] [CLS] [SEP] [MASK]``.

    The same text gives the same ids in every run. Memory grows with the number of different
    words, not with the text.

    Warns:
        UserWarning: the text gives less than 90 % of ``vocab_size``.
    """
    check_at_least("vocab_size", vocab_size, _MIN_VOCAB_SIZE)
    check_at_least("min_frequency", min_frequency, 1)
    pieces = _count_pieces(texts, lowercase)
    if not pieces:
        raise TokenizerError("no words to train a vocabulary on: the text is empty")
    alphabet = _alphabet(pieces, vocab_size)
    words = {word: count for word, count in pieces.items() if alphabet.issuperset(word)}
    first = sorted({word[0] for word in words})
    following = sorted({f"##{character}" for word in words for character in word[1:]})
    # The trainer numbers letters in the order of a randomized hash table and breaks ties by these
    # numbers. Letters that it is given as special tokens keep the numbers that they are given.
    given = [*SPECIAL_TOKENS, *first, *following]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        show_progress=show_progress,
        special_tokens=given,
        continuing_subword_prefix="##",
    )
    backend = Backend(models.WordPiece(unk_token="[UNK]"))  # noqa: S106
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.train_from_iterator(_lines(words), trainer)
    ids = backend.get_vocab()
    if len(ids) < 0.9 * vocab_size:
        warn(
            f"the text gives only {len(ids):,} of the {vocab_size:,} tokens asked for: it has too "
            f"few words that occur {min_frequency} times; use more text or a smaller vocab_size"
        )
    return WordPieceTokenizer.from_vocabulary(sorted(ids, key=ids.__getitem__), lowercase)


def _count_pieces(texts: Iterable[str], lowercase: bool) -> Counter[str]:
    """Count words and punctuation marks as BERT splits them, normalized."""
    splitter = WordPieceTokenizer.from_vocabulary(SPECIAL_TOKENS, lowercase)
    pieces: Counter[str] = Counter()
    words: Counter[str] = Counter()

    def flush() -> None:
        for word, count in words.items():
            found = ascii_pieces(word, lowercase)
            for piece in splitter.words(word) if found is None else found:
                if len(piece) <= MAX_WORD_CHARACTERS:
                    pieces[piece] += count
        words.clear()

    for text in texts:
        words.update(delete_control_spaces(text).split())
        if len(words) > _WORDS_AT_ONCE:
            flush()
    flush()
    return pieces


def _alphabet(pieces: Counter[str], vocab_size: int) -> set[str]:
    """Return the characters of the vocabulary: the commonest 1,000 and all that are common.

    Languages with thousands of common characters get as many as cover 99.95 % of the text, but
    the alphabet (each character as the start of a word and within one) never takes more than half
    of the vocabulary.
    """
    counts: Counter[str] = Counter()
    for word, count in pieces.items():
        for character in word:
            counts[character] += count
    ranked = sorted(counts, key=lambda character: (-counts[character], character))
    wanted = _CHARACTER_COVERAGE * counts.total()
    covered = needed = 0
    while covered < wanted:
        covered += counts[ranked[needed]]
        needed += 1
    # a quarter, as each takes two tokens: "a" and "##a"
    return set(ranked[: min(max(needed, _ALPHABET), vocab_size // 4)])


def _lines(words: dict[str, int]) -> Iterator[str]:
    """Repeat each word as often as it was counted: the trainer takes no counts."""
    for word in sorted(words):
        # 5,000 times: 1 line of 4,096, and one of 904
        whole, rest = divmod(words[word], _LINE_WORDS)
        line = f"{word} " * _LINE_WORDS if whole else ""
        for _ in range(whole):
            yield line
        yield f"{word} " * rest
