"""Kinds of tokenizer with one bug each, and the check that has to catch it."""

import itertools
import json
from collections.abc import Iterable

from tokenizers import Tokenizer as Backend
from tokenizers import pre_tokenizers

from good_plugins import GoodTokenizer

_CALLS = itertools.count()


class ForgetsASetting(GoodTokenizer):
    """Its setting is under another name."""

    expects = ("settings_are_plain", "__init__ takes")

    def __init__(self, min_frequency: int = 2) -> None:
        super().__init__(min_frequency)
        del self.min_frequency
        self._frequency = 2

    def __getattr__(self, name: str) -> int:
        if name == "min_frequency":
            return 2
        raise AttributeError(name)


class MarksNoWord(GoodTokenizer):
    """Its tokens do not show what starts a word."""

    expects = ("trains", "start a word")

    def train(self, texts: Iterable[str], vocab_size: int, lowercase: bool) -> Backend:
        backend = super().train(texts, vocab_size, lowercase)
        backend.pre_tokenizer = pre_tokenizers.Whitespace()  # tokens mark no word any more
        return backend


class ReadsTwice(GoodTokenizer):
    """It reads its texts twice."""

    expects = ("text_is_read_once", "generator")

    def train(self, texts: Iterable[str], vocab_size: int, lowercase: bool) -> Backend:
        given = list(itertools.chain(texts, texts))
        return super().train(given[:40] if len(given) < 300 else given[200:], vocab_size, lowercase)


class DependsOnTheRun(GoodTokenizer):
    """No two trainings are the same."""

    expects = ("training_repeats", "two tokenizers")

    def train(self, texts: Iterable[str], vocab_size: int, lowercase: bool) -> Backend:
        return super().train(texts, vocab_size - next(_CALLS) % 40, lowercase)


class AcceptsNoText(GoodTokenizer):
    """It learns from nothing."""

    expects = ("no_text_is_refused", "all the same")

    def train(self, texts: Iterable[str], vocab_size: int, lowercase: bool) -> Backend:
        return super().train([*texts, "the end"], vocab_size, lowercase)


class AlwaysUncased(GoodTokenizer):
    """It lower-cases cased text."""

    expects = ("lowercase_is_heard", "lowercase=False")

    def train(self, texts: Iterable[str], vocab_size: int, lowercase: bool) -> Backend:
        return super().train(texts, vocab_size, lowercase=True)


class JoinsWords(GoodTokenizer):
    """Its tokens reach over spaces."""

    expects = ("words_start_at_spaces", "whole-word masking")

    def train(self, texts: Iterable[str], vocab_size: int, lowercase: bool) -> Backend:
        trained = super().train(texts, vocab_size, lowercase)
        content = json.loads(trained.to_str())
        content["pre_tokenizer"]["use_regex"] = False  # spaces no longer part words
        model = content["model"]
        letters = [token for token in model["vocab"] if len(token) == 1]
        # each letter takes the space behind it: e + Ġ -> eĠ
        last = list(model["vocab"])[-len(letters) :]
        model["merges"] = [[letter, "Ġ"] for letter in letters]
        for old, letter in zip(last, letters, strict=True):
            model["vocab"][f"{letter}Ġ"] = model["vocab"].pop(old)
        return Backend.from_str(json.dumps(content))
