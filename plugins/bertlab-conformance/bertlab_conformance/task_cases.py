"""The cases of tasks, encoders and evaluations: a class under test, its sequences or rows."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bertlab import CausalLM, MaskedLM, encode_examples, prepare_sequences
from bertlab.api import (
    Adapter,
    BertlabError,
    Encoder,
    Example,
    Head,
    Labels,
    Objective,
    PackedBatch,
    PackedSequences,
    Task,
    TaskContext,
    pack,
)
from bertlab.extend import EncodedExamples, build_layers, load_class
from bertlab_conformance.cases import SEED, Case, Options
from bertlab_conformance.check import ConformanceFailure
from bertlab_conformance.samples import sample_rows, without_truth
from bertlab_conformance.stack import MAX_LENGTH, Stack, disturb, seeded, tiny_encoder

if TYPE_CHECKING:
    from bertlab.api import EvaluatedModel, Evaluation

TASK = "plugin"  # the task's name in its run
SEQUENCE_LENGTH = 32


class TaskCase(Case, ABC):
    """A task under test.

    Attributes:
        units: numbers of what a batch is made of: sequences, or rows of which several sequences
            belong together.
    """

    units: range

    @abstractmethod
    def batch(self, stack: Stack, units: Sequence[int]) -> PackedBatch:
        """Return a labelled batch of the units in the order given."""

    @abstractmethod
    def unlabelled(self, stack: Stack) -> PackedBatch:
        """Return a batch to predict, without what is to be predicted."""

    @abstractmethod
    def twice(self, stack: Stack) -> PackedBatch:
        """Return a batch that has every unit twice."""

    @abstractmethod
    def context(self, encoder: Encoder) -> TaskContext:
        """Return what the task is built for."""

    def build(self, task: Task, context: TaskContext) -> dict[str, Objective]:
        """Build the task; return the objectives that it requires, by name."""
        task.build(context)
        return {}

    def all(self, stack: Stack) -> PackedBatch:
        """Return the batch of all units."""
        return self.batch(stack, self.units)

    def each(self, stack: Stack) -> list[PackedBatch]:
        """Return a batch of each unit alone."""
        return [self.batch(stack, [unit]) for unit in self.units]

    def encoder(self) -> Encoder:
        """Return a new encoder of the kind that the task needs."""
        vocab_size = self.language.tokenizer.vocab_size
        if self.options.encoder is not None:
            return self.options.encoder(vocab_size)
        return tiny_encoder(vocab_size, getattr(self.plugin, "requires_causal", None) is True)

    def stack(self, seed: int = SEED, disturbed: bool = True) -> Stack:
        """Return encoder and task, built, in evaluation mode.

        Args:
            seed: of the weights.
            disturbed: no weight is zero or too small to make a difference; False: as built.
        """
        with seeded(seed):
            encoder = self.encoder()
            task: Task = self.new()
            companions = self.build(task, self.context(encoder))
            if disturbed:
                for module in (encoder, task, *companions.values()):
                    disturb(module.parameters())
        stack = Stack(encoder, task, companions)
        encoder.requires_grad_(not stack.is_fixed)
        return stack.train(False)


class ObjectiveCase(TaskCase):
    """An objective under test, with the sequences of a small corpus."""

    units = range(8)
    plugin: type[Objective]

    @cached_property
    def _sampled(self) -> dict[tuple[object, ...], PackedSequences]:
        return {}

    def context(self, encoder: Encoder) -> TaskContext:
        """Return encoder, tokenizer and counts of the text."""
        return TaskContext(encoder, self.language.tokenizer, self.corpus.token_counts)

    def build(self, task: Task, context: TaskContext) -> dict[str, Objective]:
        """Build the objective after those that it requires, which are returned by name."""
        companions: dict[str, Objective] = {}
        wanted = [*getattr(task, "requires", ())]
        while wanted:
            name = wanted.pop()
            arguments = (self.options.companions or {}).get(name, {})
            companions[name] = load_class("objective", name, Objective)(**arguments)
            wanted += [each for each in companions[name].requires if each not in companions]
        build_layers({**companions, TASK: task}, context)
        return companions

    @cached_property
    def _preparing(self) -> dict[str, Objective]:
        return self.build(self.new(), self.context(self.encoder()))

    def prepare_companions(self, sequences: PackedSequences) -> None:
        """Let the objectives that this one requires label (and corrupt) sequences."""
        prepare_sequences(sequences, self._preparing, SEED, True)

    def sequences(
        self,
        units: Sequence[int],
        input_format: str = "segment_pairs",
        max_seq_length: int = SEQUENCE_LENGTH,
    ) -> PackedSequences:
        """Return the sampler's sequences, as the objective gets them: after those it requires."""
        key = (tuple(units), input_format, max_seq_length)
        if key not in self._sampled:
            # moving text needs the true next segment, which random pairs do not have
            share = 0.0 if self.plugin.rearranges_input else 0.5
            sampler = self.corpus.sampler(input_format, max_seq_length, share)
            indices = np.asarray(units, np.int64) % len(sampler)
            # epochs 0 and 1 in one batch, as at the border of two epochs
            sampled = self._sampled[key] = sampler.sample(indices % 2, indices)
            self.prepare_companions(sampled)
        return copy.deepcopy(self._sampled[key])  # prepare() writes into them

    def prepare(
        self, task: Task, sequences: PackedSequences, training: bool = True
    ) -> PackedSequences:
        """Let the objective label sequences; return them."""
        assert isinstance(task, Objective)
        prepare_sequences(sequences, {TASK: task}, SEED, training)
        return sequences

    def batch(self, stack: Stack, units: Sequence[int]) -> PackedBatch:
        """Return training sequences by number."""
        return self.prepare(stack.task, self.sequences(units)).to_batch()

    def unlabelled(self, stack: Stack) -> PackedBatch:
        """Return the sequences as they are, without any field."""
        sequences = self.sequences(self.units)
        sequences.fields, sequences.counts = {}, {}
        return sequences.to_batch()

    def twice(self, stack: Stack) -> PackedBatch:
        """Return every sequence twice."""
        return self.batch(stack, [*self.units, *self.units])


class HeadCase(TaskCase):
    """A head under test, with rows that its author gave or that are made for its columns."""

    plugin: type[Head]

    @property
    def rows(self) -> list[Example]:
        """Labelled rows, new objects each time: a head may write into them."""
        return [Example({**row.values, **_copied(row)}, row.where) for row in self._rows]

    @rows.setter
    def rows(self, rows: list[Example]) -> None:
        self._rows = rows

    @cached_property
    def _rows(self) -> list[Example]:
        if self.options.rows is None:
            return sample_rows(self.plugin.columns, self.language, 12)
        return [Example(row, f"rows:{number}") for number, row in enumerate(self.options.rows, 1)]

    @cached_property
    def units(self) -> range:  # type: ignore[override]
        """Rows, or their sequences where the head does not keep them together."""
        return range(len(self.encoded(self.stack(), self.rows)))

    def labels(self, rows: Sequence[Example]) -> Labels | None:
        """Return the classes of rows, as a run finds them."""
        head: Head = self.new()
        found = [name for row in rows for name in head.labels_of(row)]
        return Labels.of(found) if found else None

    def context(self, encoder: Encoder) -> TaskContext:
        """Return encoder, tokenizer and labels."""
        return TaskContext(encoder, self.language.tokenizer, labels=self.labels(self._rows))

    def encoded(
        self, stack: Stack, rows: Sequence[Example], max_seq_length: int = MAX_LENGTH
    ) -> EncodedExamples:
        """Encode rows that should be fine."""
        try:
            return encode_examples(stack.head, rows, self.language.tokenizer, max_seq_length)
        except BertlabError as error:
            given = "the given rows" if self.options.rows else "rows made for the declared columns"
            raise ConformanceFailure(
                f"encode() refuses {given}: {error}",
                "let encode() read them, or give the kit rows that suit the head: rows=[{…}, …]",
            ) from error

    def batch(self, stack: Stack, units: Sequence[int]) -> PackedBatch:
        """Return labelled rows by number."""
        encoded = self.encoded(stack, self.rows)
        return encoded.batch(np.asarray(units, np.int64), TASK)[0]

    def each(self, stack: Stack) -> list[PackedBatch]:
        """Return a batch of each unit alone."""
        encoded = self.encoded(stack, self.rows)
        return [encoded.batch(np.array([unit]), TASK)[0] for unit in self.units]

    def batch_of(self, stack: Stack, rows: Sequence[Example]) -> PackedBatch:
        """Return all sequences of rows."""
        encoded = self.encoded(stack, rows)
        return encoded.batch(np.arange(len(encoded)), TASK)[0]

    def unlabelled(self, stack: Stack) -> PackedBatch:
        """Return the rows without their truth."""
        return self.batch_of(stack, without_truth(self.plugin.columns, self.rows))

    def twice(self, stack: Stack) -> PackedBatch:
        """Return every row twice, the second time as another row."""
        return self.batch_of(stack, [*self.rows, *self.rows])


def _copied(row: Example) -> dict[str, Any]:
    """Return copies of the lists and dicts in a row."""
    return {
        name: copy.deepcopy(value)
        for name, value in row.values.items()
        if isinstance(value, list | dict)
    }


class EvaluationCase(Case):
    """An evaluation under test, with a small model and rows for its columns."""

    plugin: "type[Evaluation]"

    @property
    def rows(self) -> list[Example]:
        """Rows, new objects each time."""
        if self.options.rows is None:
            return sample_rows(self.plugin.columns, self.language, 12)
        return [Example(row, f"rows:{number}") for number, row in enumerate(self.options.rows, 1)]

    def model(self, task: type[Task] | None = MaskedLM, causal: bool = False) -> "EvaluatedModel":
        """Return a model with one task, or with none."""
        from bertlab.api import EvaluatedModel  # noqa: PLC0415  of bertlab-evaluations

        given = self.options.encoder
        maker = partial(tiny_encoder, causal=causal) if given is None else given
        options = Options(vocabulary=self.options.vocabulary, encoder=maker)
        stack = ObjectiveCase(task or MaskedLM, options).stack()
        tasks = {"mlm" if task is MaskedLM else "clm": stack.task} if task else {}
        return EvaluatedModel("sample", stack.encoder, self.language.tokenizer, tasks)


class EncoderCase(Case):
    """An encoder under test."""

    plugin: type[Encoder]

    def encoder(self, seed: int = SEED, disturbed: bool = True) -> Encoder:
        """Return an encoder in evaluation mode; arguments as for :meth:`TaskCase.stack`."""
        with seeded(seed):
            encoder: Encoder = self.new()
            if disturbed:
                disturb(encoder.parameters())
        return encoder.eval()

    def below(self, task: type[Task], **arguments: Any) -> TaskCase:  # noqa: ANN401  any task's
        """Return the case of a task on this encoder."""
        maker = partial(self.plugin, **self.options.arguments)
        options = Options(arguments, vocabulary=self.options.vocabulary, encoder=maker)
        return (HeadCase if issubclass(task, Head) else ObjectiveCase)(task, options)

    def language_model(self) -> TaskCase:
        """Return the case of ``mlm``, or of ``clm`` on a left-to-right encoder."""
        return self.below(CausalLM if self.encoder().causal else MaskedLM)

    def batch(self, lengths: Sequence[int] = (9, 1, 16, 5, 12, 3)) -> PackedBatch:
        """Return sequences of words, none special, of the given lengths in tokens."""
        # unequal, with a single token in between: an offset that is wrong by one shows
        words = self.language.ids_of_words
        rng = np.random.default_rng(SEED)
        return pack([rng.choice(words, length).tolist() for length in lengths])

    def new(self) -> Encoder:
        """Return an encoder for the vocabulary."""
        vocab_size = self.language.tokenizer.vocab_size
        encoder: Encoder = self.plugin(vocab_size=vocab_size, **self.options.arguments)
        return encoder


class AdapterCase(Case):
    """An adapter under test."""

    plugin: type[Adapter]

    def encoder(self) -> Encoder:
        """Return a plain encoder in evaluation mode: of the given class, or a tiny BertEncoder."""
        with seeded(SEED):
            made = (self.options.encoder or tiny_encoder)(self.language.tokenizer.vocab_size)
            disturb(made.parameters())
        return made.eval()

    def adapt(self, encoder: Encoder) -> None:
        """Let a new adapter change an encoder."""
        with seeded(SEED):
            self.new().adapt(encoder)

    def batch(self) -> PackedBatch:
        """Return sequences of unequal lengths."""
        return pack([self.ids(words, words) for words in (9, 1, 16, 5)])
