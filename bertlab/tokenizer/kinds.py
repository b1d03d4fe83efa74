"""Training a tokenizer of any kind, and the core's own kind: WordPiece."""

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers

from bertlab.api.tokenizer import SpecialTokens, Tokenizer, TokenizerFiles, TokenizerKind
from bertlab.errors import ConfigError, TokenizerError, check_at_least, warn
from bertlab.files import explain_failed_write, new_folder
from bertlab.tokenizer.files import (
    SPECIAL_TOKENS,
    WordPieceTokenizer,
    special_token,
    tokenizer_from_json,
    tokenizer_of_files,
)
from bertlab.tokenizer.words import ascii_pieces, delete_control_spaces

TRAINING_VERSION = 2  # of WordPiece; raised when the same text gives other ids
_MIN_VOCAB_SIZE = 32
MAX_WORD_CHARACTERS = 100  # WordPiece makes [UNK] of longer words
_ALPHABET = 1000  # characters, as the limit_alphabet of BertWordPieceTokenizer
_CHARACTER_COVERAGE = 0.9995  # as SentencePiece's default
_WORDS_AT_ONCE = 2**20  # different ones in memory before they are split
_CHARACTERS_AT_ONCE = 2**26  # of the texts that they stand in, as words have any length
_MARKED_WORDS = 0.02  # a share of all words from which on their loss of marks is noted
_LINE_WORDS = 2**12  # of a line that the trainer is given
_MOST_TOKENS = 10_000_000  # above 2^62 the trainers of tokenizers panic


def train_tokenizer(
    kind: TokenizerKind,
    texts: Iterable[str],
    vocab_size: int,
    lowercase: bool = True,
    special_tokens: Iterable[str] = (),  # beside those that have a role
) -> Tokenizer:
    """Train a tokenizer of a kind and check that it can be used."""
    named = kind.special_tokens.names()
    more = [each for each in dict.fromkeys(special_tokens) if each not in named]
    if vocab_size > _MOST_TOKENS:
        raise ConfigError(f"vocab_size: found {vocab_size}, expected at most {_MOST_TOKENS:,}")
    backend = kind.train(texts, vocab_size - len(more), lowercase)
    source = f"tokenizer of {type(kind).__name__}"
    return with_special_tokens(tokenizer_of(backend, kind.special_tokens, source), more)


def tokenizer_of(backend: Backend, special: SpecialTokens, source: str) -> Tokenizer:
    """Return the tokenizer that a kind has trained."""
    content = json.loads(backend.to_str())
    return tokenizer_of_files(TokenizerFiles(Path(source), content, special.huggingface()))


def with_special_tokens(tokenizer: Tokenizer, tokens: Iterable[str]) -> Tokenizer:
    """Return a tokenizer with further special tokens, whose ids begin behind its last one."""
    content = json.loads(tokenizer.to_json())
    added = content.get("tokenizer", content)["added_tokens"]
    known = {token["content"] for token in added if token["special"]}
    new = [token for token in dict.fromkeys(tokens) if token not in known]
    added += [special_token(each, tokenizer.vocab_size + n) for n, each in enumerate(new)]
    return tokenizer_from_json(json.dumps(content), tokenizer.source)


class WordPiece(TokenizerKind):
    """BERT's own: words and punctuation marks, split into the longest pieces that are known.

    ``[PAD]`` is 0, then ``[UNK] [CLS] [SEP] [MASK]``. The same text gives the same ids in every
    run. Memory grows with the number of different words, not with the text.

    Args:
        min_frequency: a pair of pieces that occurs less often is not joined.
        strip_accents: whether "café" is read as "cafe"; None, as ``lowercase`` says.
    """

    version = TRAINING_VERSION

    def __init__(self, min_frequency: int = 2, strip_accents: bool | None = None) -> None:
        self.min_frequency = min_frequency
        self.strip_accents = strip_accents

    def train(self, texts: Iterable[str], vocab_size: int, lowercase: bool) -> Backend:
        """Train a vocabulary; warn if the text gives less than 90 % of ``vocab_size``."""
        check_at_least("vocab_size", vocab_size, _MIN_VOCAB_SIZE)
        check_at_least("min_frequency", self.min_frequency, 1)
        strip_accents = lowercase if self.strip_accents is None else self.strip_accents
        splitter = WordPieceTokenizer.from_vocabulary(SPECIAL_TOKENS, lowercase, strip_accents)
        pieces = _count_pieces(texts, splitter, strip_accents)
        if not pieces:
            raise TokenizerError("no words to train a vocabulary on: the text is empty")
        characters = _Characters.of(pieces)
        alphabet = _alphabet(characters, vocab_size)
        words = {word: count for word, count in pieces.items() if alphabet.issuperset(word)}
        first = sorted({word[0] for word in words})
        following = sorted({f"##{character}" for word in words for character in word[1:]})
        # The trainer numbers letters in the order of a randomized hash table and breaks ties by
        # these numbers. Letters that it is given as special tokens keep the numbers given to them.
        given = [*SPECIAL_TOKENS, *first, *following]
        trainer = trainers.WordPieceTrainer(
            vocab_size=vocab_size,
            min_frequency=self.min_frequency,
            show_progress=False,
            special_tokens=given,
            continuing_subword_prefix="##",
        )
        backend = Backend(models.WordPiece(unk_token="[UNK]"))  # noqa: S106
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        backend.train_from_iterator(_lines(words), trainer)
        ids = backend.get_vocab()
        tokens = sorted(ids, key=ids.__getitem__)
        # what is left over goes to rarer characters: of Chinese, where nothing can be joined, all
        rarer = (form for forms in characters.forms.values() for form in forms if form not in ids)
        tokens += islice(rarer, vocab_size - len(tokens))
        if len(tokens) < 0.9 * vocab_size:
            warn(
                f"the text gives only {len(tokens):,} of the {vocab_size:,} tokens asked for: it "
                f"has too few words that occur {self.min_frequency} times; use more text or a "
                "smaller vocab_size"
            )
        trained = WordPieceTokenizer.from_vocabulary(tokens, lowercase, strip_accents)
        return Backend.from_str(trained.to_json())


def _count_pieces(
    texts: Iterable[str], splitter: WordPieceTokenizer, strip_accents: bool
) -> Counter[str]:
    """Count words and punctuation marks as BERT splits them, normalized."""
    pieces: Counter[str] = Counter()
    words: Counter[str] = Counter()
    marked: Counter[str] = Counter()  # words that lose a mark

    def flush() -> None:
        for word, count in words.items():
            found = ascii_pieces(word, splitter.lowercase)
            # stripping accents changes "café", "हिन्दी" and "が"
            apart = unicodedata.normalize("NFD", word) if found is None and strip_accents else ""
            if any(unicodedata.category(each) == "Mn" for each in apart):
                marked[word] += count
            for piece in splitter.words(word) if found is None else found:
                if len(piece) <= MAX_WORD_CHARACTERS:
                    pieces[piece] += count
        words.clear()

    seen = 0
    for text in texts:
        words.update(delete_control_spaces(text).split())
        seen += len(text)
        if len(words) > _WORDS_AT_ONCE or seen > _CHARACTERS_AT_ONCE:
            flush()
            seen = 0
    flush()
    _note_lost_marks(marked, pieces.total())
    return pieces


def _note_lost_marks(marked: Counter[str], words: int) -> None:
    """Say that a vocabulary without marks is of another spelling than the text."""
    lost = marked.total() / max(words, 1)
    if lost >= _MARKED_WORDS:
        shown = ", ".join(word for word, _ in marked.most_common(3))
        warn(
            f"{lost:.0%} of the words lose their marks ({shown}), as in BERT's uncased models; "
            "strip_accents: false keeps them, lowercase: false keeps capitals as well"
        )


@dataclass(frozen=True)
class _Characters:
    """The characters of a text, the commonest first."""

    counts: dict[str, int]  # how often each occurs
    forms: dict[str, list[str]]  # the tokens of each: of "the", "t" -> ["t"], "h" -> ["##h"]
    joined: set[str]  # those that stand within words of several; "中" is a word of its own

    @classmethod
    def of(cls, pieces: Counter[str]) -> "_Characters":
        counts: Counter[str] = Counter()
        first: set[str] = set()
        following: set[str] = set()
        joined: set[str] = set()
        for word, count in pieces.items():
            first.add(word[0])
            following.update(word[1:])
            joined.update(word if len(word) > 1 else ())
            for character in word:
                counts[character] += count
        ranked = sorted(counts, key=lambda character: (-counts[character], character))
        forms = {each: [each] * (each in first) for each in ranked}
        for each in following:
            forms[each].append(f"##{each}")
        return cls({each: counts[each] for each in ranked}, forms, joined)


def _alphabet(characters: _Characters, vocab_size: int) -> set[str]:
    """Return the characters that words may be made of: the commonest 1,000 and all common ones."""
    # languages with thousands of common characters get as many as cover 99.95 % of the text; those
    # that stand within words take at most half of the vocabulary: the rest is for their joins
    left = sum(characters.counts.values())
    uncovered = (1 - _CHARACTER_COVERAGE) * left
    free, free_for_joined = vocab_size - len(SPECIAL_TOKENS), vocab_size // 2
    alphabet: set[str] = set()
    for number, (character, count) in enumerate(characters.counts.items()):
        if number >= _ALPHABET and left <= uncovered:
            break
        left -= count
        tokens = len(characters.forms[character])
        is_joined = character in characters.joined
        if tokens <= (min(free, free_for_joined) if is_joined else free):
            alphabet.add(character)
            free -= tokens
            free_for_joined -= tokens * is_joined
    return alphabet


def _lines(words: dict[str, int]) -> Iterator[str]:
    """Repeat each word as often as it was counted: the trainer takes no counts."""
    for word in sorted(words):
        # 5,000 times: 1 line of 4,096, and one of 904
        whole, rest = divmod(words[word], _LINE_WORDS)
        line = f"{word} " * _LINE_WORDS if whole else ""
        for _ in range(whole):
            yield line
        yield f"{word} " * rest


def save_new(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the folder of a tokenizer, whole or not at all."""
    failure = f"{folder}: cannot be written"
    with explain_failed_write(failure, "; nothing is left"), new_folder(folder) as partial:
        tokenizer.save(partial)
