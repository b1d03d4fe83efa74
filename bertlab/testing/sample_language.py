"""Text without meaning in a small English vocabulary, the same every time."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bertlab.data.tokenizer import WordPieceTokenizer
from bertlab.data.tokenizer_files import SPECIAL_TOKENS

_WORDS = """
the of and to in a is that it was for on are as with his they at be this from have or by one had not
but what all were when we there can an your which their said if do will each about how up out them
then she many some so these would other into has more her two like him see time could no make than
first been its who now people my made over did down only way find use may water long little very
after word call just where most know get through back much before go good new write our used me man
day too any same right look think also around another came come work three must because does part
even place well such here take why help put different away again off went old number great tell men
say small every found still between name should home big give air line set own under read last never
us left end along while might next sound below saw something thought both few those always looked
show large often together asked house world going want school important until form food keep
"""
_ENDINGS = ("s", "ed", "ing", "er", "ly", "est", "ness", "ful")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def small_vocabulary() -> list[str]:
    """Return BERT's special tokens, words, punctuation, letters, and pieces that continue words."""
    pieces = [f"##{piece}" for piece in (*_ENDINGS, *_LETTERS)]
    tokens = [*SPECIAL_TOKENS, *".,?!-'", *"0123456789", *_WORDS.split(), *_LETTERS, *pieces]
    return list(dict.fromkeys(tokens))  # some are letters and words, or letters and endings


@dataclass(frozen=True)
class SampleLanguage:
    """Makes texts that a tokenizer knows the words of.

    Attributes:
        tokenizer: whose vocabulary the words are taken from.
    """

    tokenizer: WordPieceTokenizer

    @classmethod
    def of(cls, vocabulary: Sequence[str] | None) -> "SampleLanguage":
        """Return the language of a vocabulary; of :func:`small_vocabulary` if None."""
        tokens = small_vocabulary() if vocabulary is None else vocabulary
        return cls(WordPieceTokenizer.from_vocabulary(tokens))

    @cached_property
    def words(self) -> list[str]:
        """Whole words of more than one letter."""
        tokens = [self.tokenizer.token(number) for number in range(self.tokenizer.vocab_size)]
        return [token for token in tokens if token.isalpha() and len(token) > 1]

    @cached_property
    def ids_of_words(self) -> list[int]:
        """Ids of :attr:`words`."""
        return [self.tokenizer.token_id(word) for word in self.words]

    def text(self, words: int, *seed: int) -> str:
        """Return a text of as many words, some of them inflected; every seed has its own."""
        rng = np.random.default_rng([words, *seed])
        rank = rng.zipf(1.3, words) % len(self.words)  # few words are common, as in real text
        endings = rng.integers(0, 8 * len(_ENDINGS), words)
        return " ".join(
            self.words[place] + (_ENDINGS[ending] if ending < len(_ENDINGS) else "")
            for place, ending in zip(rank, endings, strict=True)
        )
