"""Checks of a kind of tokenizer: it is trained on a little text, and what it has learnt is used.

What it returns is a pipeline of ``tokenizers``, which bertlab itself saves, loads and keeps from
making special ids of text: there is nothing in that for a kind to get wrong.
"""

import inspect
import json

import numpy as np
from tokenizers import Tokenizer as Backend

from bertlab.api import BertlabError, TokenizerError
from bertlab.extend import word_starts
from bertlab_conformance.cases import TokenizerCase
from bertlab_conformance.check import ConformanceFailure, check

_TRAINED = ("trains",)


@check("tokenizer", after=("is_complete",))
def settings_are_plain(case: TokenizerCase) -> None:
    """Its settings are its arguments, as plain data: the cache of tokenizers is named by them."""
    settings = case.new().settings()
    names = set(inspect.signature(case.plugin).parameters)
    if set(settings) != names:
        raise ConformanceFailure(
            f"settings() has {sorted(settings)}, __init__ takes {sorted(names)}",
            "keep each argument as an attribute of its name, and all else under names with _",
        )
    try:
        json.dumps(settings)
    except TypeError as error:
        raise ConformanceFailure(
            f"settings() is no plain data: {error}", "keep numbers, texts, lists and mappings"
        ) from None


@check("tokenizer", after=("is_complete",))
def trains(case: TokenizerCase) -> None:
    """``train`` gives a tokenizer of the ``tokenizers`` library that a model can use."""
    found = case.new().train(iter(case.texts), case.vocab_size, True)
    if not isinstance(found, Backend):
        raise ConformanceFailure(
            f"train() returned a {type(found).__name__}", "return a tokenizers.Tokenizer"
        )
    try:
        tokenizer = case.trained(lowercase=True)
    except TokenizerError as error:
        raise ConformanceFailure(
            f"what train() returned cannot be used: {error}",
            "add all of special_tokens, give ids without gaps, and use a pre-tokenizer that marks "
            "words: ByteLevel or Metaspace, or a prefix of pieces that continue one",
        ) from error
    if not 0 < tokenizer.vocab_size <= case.vocab_size:
        raise ConformanceFailure(
            f"train() made {tokenizer.vocab_size} tokens of the {case.vocab_size} asked for",
            "count the special tokens into vocab_size",
        )


@check("tokenizer", after=_TRAINED)
def training_repeats(case: TokenizerCase) -> None:
    """The same text gives the same tokenizer, from another object too."""
    first, second = (case.train(iter(case.texts), lowercase=True) for _ in range(2))
    if first.fingerprint != second.fingerprint:
        raise ConformanceFailure(
            "training twice on the same text gives two tokenizers",
            "sort what comes out of sets and hash tables, and break ties by the token",
        )


@check("tokenizer", after=("training_repeats",))
def text_is_read_once(case: TokenizerCase) -> None:
    """``train`` reads its texts once, as a generator gives them."""
    once = case.train(iter(case.texts), lowercase=True)
    # caught: a second pass, which finds a generator used up
    if once.fingerprint != case.train(list(case.texts), lowercase=True).fingerprint:
        raise ConformanceFailure(
            "train() learns something else from a generator than from a list of the same texts",
            "read texts in one pass, and keep counts of what is needed twice",
        )


@check("tokenizer", after=_TRAINED)
def no_text_is_refused(case: TokenizerCase) -> None:
    """``train`` raises a BertlabError where there is no word to learn from."""
    try:
        case.new().train(iter(["", "\n"]), case.vocab_size, True)
    except BertlabError:
        return
    except Exception as error:
        raise ConformanceFailure(
            f"without a word, train() raises {type(error).__name__}: {error}",
            "raise bertlab.TokenizerError('… the text is empty')",
        ) from error
    raise ConformanceFailure(
        "without a word, train() makes a tokenizer all the same",
        "raise bertlab.TokenizerError('… the text is empty')",
    )


@check("tokenizer", after=_TRAINED)
def lowercase_is_heard(case: TokenizerCase) -> None:
    """``lowercase`` decides whether ``House`` and ``house`` are one word."""
    for lowercase in (True, False):
        tokenizer = case.trained(lowercase)
        same = tokenizer.encode("House") == tokenizer.encode("house")
        if same != lowercase:
            raise ConformanceFailure(
                f"with lowercase={lowercase}, 'House' and 'house' have "
                f"{'the same' if same else 'different'} ids",
                "add normalizers.Lowercase() if, and only if, lowercase is true",
            )


@check("tokenizer", after=_TRAINED)
def words_start_at_spaces(case: TokenizerCase) -> None:
    """The first token of each word of letters starts a word, and no other does."""
    tokenizer = case.trained(lowercase=True)
    for text in case.texts[:50]:
        words = [word for word in text.lower().split() if word.isalpha()]
        ids, _ = tokenizer.encode_texts([" ".join(words)])
        starts = word_starts(ids, tokenizer.continuation_mask, tokenizer.closing_mask)
        if int(np.sum(starts)) != len(words):
            raise ConformanceFailure(
                f"{len(words)} words become {int(np.sum(starts))} by their tokens, so that "
                "whole-word masking masks something else",
                "let the pre-tokenizer mark each word: ByteLevel and Metaspace mark its space, "
                "continuing_subword_prefix the pieces behind its first",
            )
