"""Sample text in a small English vocabulary, its sequences, and labelled rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from bertlab import IntArray
from bertlab.api import Column, CounterRNG, Example, PackedSequences, Tokenizer, WordPieceTokenizer
from bertlab.extend import SPECIAL_TOKENS, SequenceSampler, load_sampler, with_special_tokens

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

    tokenizer: Tokenizer

    @classmethod
    def of(cls, vocabulary: Sequence[str] | None, special: Sequence[str] = ()) -> "SampleLanguage":
        """Return the language of a vocabulary, and of special tokens that a task asks for.

        The vocabulary is :func:`small_vocabulary` if None.
        """
        tokens = small_vocabulary() if vocabulary is None else vocabulary
        made = WordPieceTokenizer.from_vocabulary(tokens)
        return cls(with_special_tokens(made, special) if special else made)

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
        endings = rng.integers(0, 8 * len(_ENDINGS), words)  # one word in eight has one
        return " ".join(
            self.words[place] + (_ENDINGS[ending] if ending < len(_ENDINGS) else "")
            for place, ending in zip(rank, endings, strict=True)
        )


_DOCUMENTS, _SENTENCES = 12, 10


@dataclass(frozen=True)
class SampleCorpus:
    """Twelve documents of ten sentences as a token store has them.

    Attributes:
        language: that they are written in.
        tokens: ``(N,)`` uint16 ids.
        sentence_offsets: ``(S + 1,)`` int64.
        document_offsets: ``(D + 1,)`` int64, in sentences.
        document_token_offsets: ``(D + 1,)`` int64, in tokens.
    """

    language: SampleLanguage
    tokens: npt.NDArray[np.uint16]
    sentence_offsets: IntArray
    document_offsets: IntArray
    document_token_offsets: IntArray

    @classmethod
    def of(cls, language: SampleLanguage) -> "SampleCorpus":
        """Write and tokenize the documents."""
        texts = [language.text(3 + number % 7, number) for number in range(_DOCUMENTS * _SENTENCES)]
        sentences = [language.tokenizer.encode(text) for text in texts]
        # sentences of 4, 2 and 5 tokens -> sentence_offsets [0, 4, 6, 11]
        ends = np.cumsum([0, *map(len, sentences)])
        return cls(
            language=language,
            tokens=np.concatenate(sentences).astype(np.uint16),
            sentence_offsets=ends,
            document_offsets=np.arange(0, len(sentences) + 1, _SENTENCES),
            document_token_offsets=ends[::_SENTENCES],
        )

    @property
    def token_counts(self) -> IntArray:
        """``(V,)`` occurrences of each id."""
        return np.bincount(self.tokens, minlength=self.language.tokenizer.vocab_size)

    def sampler(
        self,
        input_format: str | type[SequenceSampler],
        max_seq_length: int,
        random_pair_share: float,
        documents: IntArray | None = None,
    ) -> SequenceSampler:
        """Return a sampler of sequences, a tenth of them shorter than the others.

        ``documents`` are the numbers of those that it reads, all if not given.
        """
        made = load_sampler(input_format) if isinstance(input_format, str) else input_format
        return made(
            cast("Any", self),
            self.language.tokenizer,
            np.arange(_DOCUMENTS) if documents is None else documents,
            max_seq_length,
            0.1,
            CounterRNG(5, "conformance"),
            random_pair_share,
        )


def short_sequences(
    language: SampleLanguage, texts: Sequence[Sequence[int]], pairs: bool
) -> PackedSequences:
    """Pack ``[CLS] text [SEP]`` by hand, or ``[CLS] text [SEP] text [SEP]``.

    Args:
        language: gives the special ids.
        texts: ids of each of B texts.
        pairs: whether each text stands there twice, as A and B.
    """
    made = [language.tokenizer.build_inputs(text, text if pairs else None) for text in texts]
    lengths = np.array([len(ids) for ids, _ in made])
    # sequences laid end to end: lengths [3, 2] -> cu_seqlens [0, 3, 5], positions [0, 1, 2, 0, 1]
    input_ids = np.concatenate([ids for ids, _ in made]).astype(np.int64)
    special = np.isin(input_ids, [language.tokenizer.cls_id, language.tokenizer.sep_id])  # (T,)
    labels = {"next_sentence_label": np.arange(len(made)) % 2} if pairs else {}
    return PackedSequences(
        input_ids=input_ids,
        token_type_ids=np.concatenate([types for _, types in made]).astype(np.int64),
        position_ids=np.concatenate([np.arange(length) for length in lengths]),
        cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        # [CLS] a b [SEP] [CLS] c [SEP] -> [-1, 0, 1, -1, -1, 2, -1]
        corpus_offsets=np.where(special, -1, np.cumsum(~special) - 1).astype(np.int64),
        epochs=np.zeros(len(made), np.int64),
        indices=np.arange(len(made), dtype=np.int64),
        fields={**labels},
    )


_TAGS = ("O", "O", "B-PER", "I-PER", "B-ORG", "O")
_CHOICES = 3
WORDS = 8  # of the longest texts, where nothing else is asked for


def sample_rows(
    columns: Iterable[Column],
    language: SampleLanguage,
    count: int,
    words: int | Mapping[str, int] = WORDS,
    classes: int = 3,
) -> list[Example]:
    """Return rows with all columns, the same every time.

    Labels are numbers from 0, which are names of classes, scores and places of choices alike.

    Args:
        columns: what the head declares.
        language: of the texts.
        count: number of rows.
        words: of the longest texts, or of those of some columns.
        classes: number of labels, if rows have no list of choices.
    """
    declared = list(columns)
    return [_row(declared, language, number, words, classes) for number in range(count)]


def without_truth(columns: Iterable[Column], rows: Sequence[Example]) -> list[Example]:
    """Return rows as new text has them."""
    truth = {column.name for column in columns if column.is_truth}
    return [
        Example({key: value for key, value in row.values.items() if key not in truth}, row.where)
        for row in rows
    ]


def changed(row: Example, column: Column, value: object) -> Example:
    """Return a row with another value in one column."""
    return Example({**row.values, column.name: value}, row.where)


def _row(
    columns: list[Column],
    language: SampleLanguage,
    number: int,
    words: int | Mapping[str, int],
    classes: int,
) -> Example:
    kinds = {column.kind for column in columns}
    values: dict[str, Any] = {}
    for place, column in enumerate(columns):
        seed = (number, place)
        longest = words if isinstance(words, int) else words.get(column.name, WORDS)
        # texts of 8 words at most: rows of 2, 4, 6, 8, 2, … words
        length = 1 + (longest - 1) * (1 + number % 4) // 4
        match column.kind:
            case "text":
                values[column.name] = language.text(length, *seed)
            case "texts":
                text = language.text(length if "tags" in kinds else longest, *seed)
                values[column.name] = text.split() if "tags" in kinds else _choices(text)
            case "labels":
                # of each row those whose bits its number has; row 0 has none
                values[column.name] = [str(n) for n in range(classes) if number >> n & 1]
            case "number":
                values[column.name] = float(number % classes)
            case "label":
                values[column.name] = str(number % (_CHOICES if "texts" in kinds else classes))
    for column in columns:
        if (value := _value_beside(column, columns, values, number, classes)) is not None:
            values[column.name] = value
    return Example(values, f"sample rows:{number + 1}")


def _value_beside(
    column: Column, columns: list[Column], values: dict[str, Any], number: int, classes: int
) -> object:
    """Return the value of a column that goes by the texts of the row; None of other kinds."""
    match column.kind:
        case "tags":
            return _tags(_first(columns, values, "texts"), number, classes)
        case "numbers":
            count = len(_first(columns, values, "texts")) or _CHOICES
            return [float((number + place) % count) for place in range(count)]
        case "span":
            text = str(values[column.of])
            word = text.split()[number % len(text.split())]
            return text.index(word), text.index(word) + len(word)
        case "answers":
            return _answers(_context(columns, values), number)
    return None


def _choices(text: str) -> list[str]:
    words = text.split()
    # seven words -> three choices of two words each
    size = max(1, len(words) // _CHOICES)
    return [
        " ".join(words[place * size : (place + 1) * size] or words) for place in range(_CHOICES)
    ]


def _first(columns: list[Column], values: dict[str, Any], kind: str) -> Any:  # noqa: ANN401
    return next((values[column.name] for column in columns if column.kind == kind), [])


def _context(columns: list[Column], values: dict[str, Any]) -> str:
    texts = [column.name for column in columns if column.kind == "text" and column.required]
    name = "context" if "context" in texts else texts[-1]
    context: str = values[name]
    return context


def _tags(words: Sequence[str], number: int, classes: int) -> list[str]:
    rng = np.random.default_rng(number)
    if classes > len(_TAGS):
        return [f"B-{kind}" for kind in rng.integers(0, classes, len(words))]
    tags = [_TAGS[(number + place) % len(_TAGS)] for place in range(len(words))]
    # a text cannot begin inside a name
    return ["B-PER" if tag == "I-PER" and place == 0 else tag for place, tag in enumerate(tags)]


def _answers(context: str, number: int) -> dict[str, list[Any]]:
    words = context.split()
    first = number % len(words)
    # "the old house is big", number 2: "house is" at character 8
    start = len(" ".join(words[:first])) + (first > 0)
    return {"text": [" ".join(words[first : first + 2])], "answer_start": [start]}
