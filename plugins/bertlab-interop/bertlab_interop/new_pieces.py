"""New pieces for a tokenizer: which ones, and its ``tokenizer.json`` with them.

A piece is joined from old ones that stand side by side, so that these say where its embedding
begins, and text without a new piece keeps its ids.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from bertlab import TokenizerError
from bertlab.api import Tokenizer
from bertlab.extend import MAX_WORD_CHARACTERS, model_ids, read_text, tokenizer_from_json
from bertlab_interop.piece_joins import Joining, Pair

_TYPES = ("WordPiece", "BPE", "Unigram")
_SHOWN = 3
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")  # of a character that no piece of a Unigram has


@dataclass
class NewPieces:
    """Pieces in the order of their ids, and what stood for them.

    Attributes:
        old_ids: by piece the ids of the old pieces that it was split into.
        joins: the joins that a BPE makes of them, in this order; empty of other types.
    """

    old_ids: dict[str, tuple[int, ...]] = field(default_factory=dict)
    joins: list[Pair] = field(default_factory=list)


class Vocabulary:
    """What a tokenizer makes of words, and the same one with new pieces.

    Args:
        tokenizer: WordPiece, BPE or Unigram.

    Raises:
        TokenizerError: it is of another type.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.content: dict[str, Any] = json.loads(tokenizer.to_json())
        # beside the special tokens by their role, or alone
        self.state: dict[str, Any] = self.content.get("tokenizer", self.content)
        self.model: dict[str, Any] = self.state["model"]
        self.type = str(self.model["type"])
        if self.type not in _TYPES:
            raise TokenizerError(
                f"{tokenizer.source}: a vocabulary of type {self.type} has no pieces to join, "
                f"expected {', '.join(_TYPES)}"
            )
        self.ids = model_ids(self.model)
        self.ids |= {each["content"]: each["id"] for each in self.state["added_tokens"]}
        self.prefix = str(self.model.get("continuing_subword_prefix") or "")

    @cached_property
    def _model(self) -> Any:  # noqa: ANN401  tokenizers has no types
        return Backend.from_str(json.dumps(self.state)).model

    def words(self, text: str) -> list[str]:
        """Return the words of a text that stands behind a space: ``Ġthe`` of byte-level BPE."""
        return self.tokenizer.words(f" {text}")

    def pieces(self, word: str) -> tuple[list[str], list[int]]:
        """Return the pieces of a word, and their ids."""
        found = self._model.tokenize(word)
        return [each.value for each in found], [each.id for each in found]

    def new_pieces(self, joining: Joining) -> NewPieces:
        """Return the pieces that joins have made, with the ids that each was made of."""
        made: dict[str, tuple[int, ...]] = {}
        for a, b in joining.joins:
            piece = joining.join((a, b))
            if piece not in self.ids and piece not in made:
                # a piece of two made ones has the old ids of both
                made[piece] = sum((made.get(each) or (self.ids[each],) for each in (a, b)), ())
        if self.type == "BPE":
            return NewPieces(made, joining.joins)
        return NewPieces({piece: ids for piece, ids in made.items() if joining.keeps(piece)})

    def with_pieces(self, new: NewPieces) -> Tokenizer:
        """Return the tokenizer with new pieces, whose ids begin behind the last old one."""
        content = json.loads(json.dumps(self.content))
        state = content.get("tokenizer", content)
        model = state["model"]
        first = self.tokenizer.vocab_size
        if self.type == "Unigram":
            self._add_to_unigram(model, new)
        else:
            model["vocab"] |= {piece: first + n for n, piece in enumerate(new.old_ids)}
        if self.type == "BPE":
            merges = model["merges"]
            # older files have "a b" in place of ["a", "b"]
            as_text = bool(merges) and isinstance(merges[0], str)
            merges += [f"{a} {b}" if as_text else [a, b] for a, b in new.joins]
        return tokenizer_from_json(json.dumps(content), self.tokenizer.source)

    def _add_to_unigram(self, model: dict[str, Any], new: NewPieces) -> None:
        pieces: list[list[Any]] = model["vocab"]
        # its ids are places in a list: tokens that were added behind it need places as well
        by_id = {number: token for token, number in self.ids.items()}
        pieces += [[by_id[n], 0.0] for n in range(len(pieces), self.tokenizer.vocab_size)]
        scores = [score for _, score in pieces]
        # log-probabilities: the least of the parts is more than their sum, so the piece wins
        pieces += [[piece, min(scores[n] for n in ids)] for piece, ids in new.old_ids.items()]


def count_words(vocabulary: Vocabulary, texts: Iterable[str]) -> tuple[Counter[str], int]:
    """Return how often each word of a tokenizer occurs, and the number of words between spaces."""
    raw: Counter[str] = Counter()
    for text in texts:
        raw.update(text.split())
    words: Counter[str] = Counter()
    for word, count in raw.items():
        for part in vocabulary.words(word):
            if len(part) <= MAX_WORD_CHARACTERS:
                words[part] += count
    return words, raw.total()


def pieces_of(vocabulary: Vocabulary, words: Mapping[str, int]) -> int:
    """Return the number of pieces of all words."""
    return sum(count * len(vocabulary.pieces(word)[1]) for word, count in words.items())


def pieces_of_corpus(
    vocabulary: Vocabulary, words: Mapping[str, int], most: int, least: int, corpus: str
) -> NewPieces:
    """Return the ``most`` pieces that join the most frequent neighbours within words.

    Args:
        vocabulary: the tokenizer's.
        words: how often each word occurs.
        most: number of pieces.
        least: a pair that occurs less often is not joined.
        corpus: what to name in errors.

    Raises:
        TokenizerError: the text gives fewer.
    """
    if not words:
        raise TokenizerError(f"{corpus}: no words to find pieces in: the text is empty")
    split: Counter[tuple[str, ...]] = Counter()
    for word, count in words.items():
        pieces, ids = vocabulary.pieces(word)
        is_known = vocabulary.tokenizer.unk_id not in ids
        if len(ids) > 1 and is_known and not any(map(_BYTE.fullmatch, pieces)):
            split[tuple(pieces)] += count
    joining = Joining(split, vocabulary.prefix, least, keeps_all=vocabulary.type == "BPE")
    while joining.kept < most and joining.step(vocabulary.ids):
        pass
    new = vocabulary.new_pieces(joining)
    if len(new.old_ids) < most:
        raise TokenizerError(
            f"--add: {corpus} gives only {len(new.old_ids):,} new pieces that occur at least "
            f"{least:,} times, expected {most:,}; use more text or a smaller number"
        )
    return new


def read_words(path: Path) -> list[str]:
    """Return the words of a file, one a line.

    Raises:
        TokenizerError: it cannot be read, or has none.
    """
    try:
        lines = [line.strip() for line in read_text(path).removeprefix("\ufeff").split("\n")]
    except UnicodeDecodeError as error:
        raise TokenizerError(f"--words: {path}: not UTF-8 at byte {error.start}") from None
    except OSError as error:
        raise TokenizerError(f"--words: {path}: cannot be read: {error.strerror}") from None
    if not (found := [line for line in lines if line]):
        raise TokenizerError(f"--words: {path}: is empty, expected one word a line")
    return found


def pieces_of_words(vocabulary: Vocabulary, words: Sequence[str], source: str) -> NewPieces:
    """Return the pieces that make one of each word; a BPE needs others on the way to them.

    Raises:
        TokenizerError: one is there already or twice, is read as another or as several, or cannot
            be made one piece.
    """
    twice = [word for word, count in Counter(words).items() if count > 1]
    _refuse(twice, len(words), source, "stand there twice; each needs one line")
    wanted = {word: vocabulary.words(word) for word in words}
    several = [word for word, found in wanted.items() if len(found) != 1]
    _refuse(several, len(words), source, "are several words to this tokenizer, or none")
    normalizer = Backend.from_str(json.dumps(vocabulary.state)).normalizer
    read = {} if normalizer is None else {word: normalizer.normalize_str(word) for word in words}
    changed = [word for word, found in read.items() if found.strip(" ▁") != word]
    as_read = f"; {changed[0]!r} is read as {read[changed[0]].strip(' ▁')!r}" if changed else ""
    _refuse(changed, len(words), source, f"are changed by the tokenizer's normalizer{as_read}")
    most = int(vocabulary.model.get("max_input_chars_per_word", MAX_WORD_CHARACTERS))
    long = [word for word in words if len(word) > most]
    _refuse(long, len(words), source, f"are longer than {most} characters")
    forms = {word: found[0] for word, found in wanted.items()}
    split = {word: vocabulary.pieces(form) for word, form in forms.items()}
    unknown = vocabulary.tokenizer.unk_id
    there = [
        word
        for word, (_, ids) in split.items()
        if forms[word] in vocabulary.ids or (len(ids) == 1 and ids[0] != unknown)
    ]
    _refuse(there, len(words), source, "are pieces already; leave them out")
    if vocabulary.type != "BPE":
        return NewPieces({forms[word]: tuple(ids) for word, (_, ids) in split.items()})
    cut = [word for word, (_, ids) in split.items() if unknown in ids]
    _refuse(cut, len(words), source, "have characters that no piece has, which a BPE cannot join")
    joining = Joining(Counter(tuple(pieces) for pieces, _ in split.values()), vocabulary.prefix)
    while joining.step():
        pass
    new = vocabulary.new_pieces(joining)
    after = Vocabulary(vocabulary.with_pieces(new))
    left = [word for word, form in forms.items() if len(after.pieces(form)[1]) > 1]
    _refuse(left, len(words), source, "cannot be made one piece by joins behind the old ones")
    return new


def _refuse(found: Sequence[str], among: int, source: str, why: str) -> None:
    """Raise TokenizerError if there are words that cannot become pieces."""
    if found:
        shown = ", ".join(repr(each[:40]) for each in found[:_SHOWN])
        more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
        raise TokenizerError(f"--words: {source}: {len(found)} of {among:,} {why}: {shown}{more}")
