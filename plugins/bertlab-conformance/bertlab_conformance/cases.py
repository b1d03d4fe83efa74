"""``Case``: a class under test and the data for its checks."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from inspect import signature
from types import ModuleType
from typing import Any

import numpy as np
import torch

from bertlab.api import DataSource, Encoder, Tokenizer, TokenizerKind
from bertlab.extend import Kind, train_tokenizer
from bertlab_conformance.plugin_list import base_of
from bertlab_conformance.samples import SampleCorpus, SampleLanguage

SEED = 7
# an object is of the first kind whose class it derives from
KINDS: tuple[Kind, ...] = (
    "encoder",
    "objective",
    "head",
    "adapter",
    "masking_unit",
    "input_format",
    "transform",
    "metric",
    "source",
    "evaluation",
    "optimizer",
    "schedule",
    "tokenizer",
    "command",
    "exporter",
    "reader",
    "executor",
    "format",
    "data_module",
    "tokenizer_model",
    "huggingface_form",
    "name",
    "hooks",
)
NO_CLASSES = ("name", "hooks")  # a function and a module are of no class


def bases() -> Iterator[tuple[Kind, type[Any]]]:
    """Yield each kind that is checked, with the class that those of the kind derive from."""
    for kind in KINDS:
        # an ImportError: its package is missing, and nothing derives from it
        with suppress(ImportError):
            if kind not in NO_CLASSES:
                yield kind, base_of(kind)


def kind_of(plugin: type[Any] | ModuleType | Callable[..., Any]) -> Kind | None:
    """Return the kind of a plugin; None if it is of none."""
    if isinstance(plugin, ModuleType):
        return "hooks"
    if not isinstance(plugin, type):
        return "name"
    return next((kind for kind, base in bases() if issubclass(plugin, base)), None)


@dataclass(frozen=True)
class Options:
    """What the author of a plugin gives the kit beside the class.

    Attributes:
        arguments: of ``__init__``.
        rows: of a head, metric, transform or evaluation.
        vocabulary: tokens of the tokenizer; a small English one if None.
        encoder: makes the encoder that a task is checked with from the vocabulary's size.
        companions: arguments of the objectives that an objective requires, by name.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    rows: Sequence[Mapping[str, Any]] | None = None
    vocabulary: Sequence[str] | None = None
    encoder: Callable[[int], Encoder] | None = None
    companions: Mapping[str, Mapping[str, Any]] | None = None


@cache
def _corpus(vocabulary: tuple[str, ...] | None, special: tuple[str, ...]) -> SampleCorpus:
    return SampleCorpus.of(SampleLanguage.of(vocabulary, special))


@dataclass
class Case:
    """A class under test.

    Attributes:
        plugin: the class.
        options: what its author gave.
        shared: what one check makes for the next ones.
    """

    plugin: type[Any]
    options: Options
    shared: dict[str, Any] = field(default_factory=dict)

    def new(self) -> Any:  # noqa: ANN401  an object of the plugin's class
        """Return a new object with the author's arguments."""
        return self.plugin(**self.options.arguments)

    @cached_property
    def corpus(self) -> SampleCorpus:
        """Text of the vocabulary."""
        given = self.options.vocabulary
        # of a task; those of a tokenizer are a property
        asked = getattr(self.plugin, "special_tokens", ())
        special = asked if isinstance(asked, tuple) else ()
        return _corpus(None if given is None else tuple(given), special)

    @property
    def language(self) -> SampleLanguage:
        """What the text is written in."""
        return self.corpus.language

    def ids(self, words: int, *seed: int) -> list[int]:
        """Return the ids of a text, at most as many as words."""
        return self.language.tokenizer.encode(self.language.text(words, *seed))[:words]


class TokenizerCase(Case):
    """A kind of tokenizer under test, with a little text."""

    plugin: type[TokenizerKind]
    vocab_size = 600

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Two hundred sentences of words and endings, with capitals and punctuation marks."""
        language, endings = self.language, ("", "", "s", "ed", "ing")
        sentences = []
        for number in range(200):
            words = language.text(12, number).split()
            inflected = [f"{w}{endings[(number + n) % 5]}" for n, w in enumerate(words)]
            sentences.append(
                " ".join(inflected).capitalize() + (".", "!", ", and so on.")[number % 3]
            )
        return tuple(sentences)

    def train(self, texts: Iterable[str], lowercase: bool) -> Tokenizer:
        """Return what a new object of the kind learns."""
        return train_tokenizer(self.new(), texts, self.vocab_size, lowercase)

    def trained(self, lowercase: bool) -> Tokenizer:
        """Return what it learns of :attr:`texts`, once for all checks."""
        if lowercase not in self._trained:
            self._trained[lowercase] = self.train(iter(self.texts), lowercase)
        return self._trained[lowercase]

    @cached_property
    def _trained(self) -> dict[bool, Tokenizer]:
        return {}


class MetricCase(Case):
    """A metric under test, with predictions and targets."""

    @property
    def plugin_tasks(self) -> tuple[str, ...]:
        """The tasks that it is for; of any, if empty."""
        return tuple(getattr(self.plugin, "tasks", ()))

    @cached_property
    def samples(self) -> list[tuple[torch.Tensor, ...]]:
        """What ``update`` takes of three batches, in its order: given, or ids of three classes."""
        if self.options.rows is not None:
            names = ["preds", "target", *[*signature(self.plugin.update).parameters][3:]]
            return [
                tuple(torch.as_tensor(row[name]) for name in names if name in row)
                for row in self.options.rows
            ]
        rng = np.random.default_rng(SEED)
        sizes = (7, 1, 12)  # unequal: a mean of the batches' means is another number
        return [
            (torch.from_numpy(rng.integers(0, 3, n)), torch.from_numpy(rng.integers(0, 3, n)))
            for n in sizes
        ]


class TransformCase(Case):
    """A transform of rows under test."""

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Rows that it is given: the author's, or some of a text and a list of words."""
        if self.options.rows is not None:
            return [dict(row) for row in self.options.rows]
        texts = [self.language.text(words, words) for words in (3, 5, 8, 12)]
        return [{"text": text.capitalize(), "words": text.upper().split()} for text in texts]


class SourceCase(Case):
    """A data source under test."""

    plugin: type[DataSource]

    @property
    def split(self) -> str:
        """The split that is read: ``train`` if none is given."""
        return str(self.options.arguments.get("split", "train"))

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of ``__init__`` behind name and argument that the author gave."""
        taken = list(signature(self.plugin).parameters)[2:]
        given = self.options.arguments
        return {key: value for key, value in given.items() if key in taken}

    def new(self) -> DataSource:
        """Return a source for the given ``argument`` and settings."""
        argument = str(self.options.arguments.get("argument", ""))
        name = f"conformance:{argument}" if argument else "conformance"
        return self.plugin(name, argument, **self.settings)
