"""What the encoder is trained or scored on: the contracts of tasks, objectives and heads."""

import inspect
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from bertlab.api.batch import EncoderOutput, PackedBatch, PackedSequences
from bertlab.api.examples import Column, Example, Features, Labels
from bertlab.api.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torchmetrics import Metric

    from bertlab.api.encoder import Encoder
    from bertlab.api.rng import CounterRNG


@dataclass(frozen=True)
class TaskContext:
    """What a task is built for.

    Attributes:
        encoder: whose hidden states the task reads; its token embedding can be tied. Its weights
            are new: those of ``model.init_from`` or a checkpoint are loaded after ``build``.
        tokenizer: ids of special tokens, which ids continue a word, and the way back to text.
        token_counts: ``(vocab_size,)`` int64 occurrences in the training text, for baselines;
            None where there is no training text at hand (prediction, export).
        labels: the classes of a head's training examples; None where a task has none.
        head_labels: those of each of several heads, by name; a head has its own as ``labels``.
    """

    encoder: "Encoder"
    tokenizer: "Tokenizer"
    token_counts: npt.NDArray[np.int64] | None = None
    labels: "Labels | None" = None
    head_labels: "Mapping[str, Labels]" = field(default_factory=dict)


class TaskLoss:
    """A loss as a sum and a count, so that accumulation and several devices average right.

    Args:
        sum: scalar, summed over the predictions of the batch.
        count: number of predictions (masked tokens, sequences, …).
        preds: what the metrics compare, one row a prediction, detached; usually class ids
            ``(count,)``. A function that returns it is called when metrics ask, not in training.
        target: the truth, in the shape that the metrics expect.
        extras: further tensors, one row a prediction, under the names by which metrics ask for
            them: ``update(self, preds, target, selected)`` gets ``extras["selected"]``. Each may be
            a function, as ``preds``.
    """

    def __init__(
        self,
        sum: Tensor,
        count: int,
        preds: Tensor | Callable[[], Tensor],
        target: Tensor,
        extras: Mapping[str, Tensor | Callable[[], Tensor]] | None = None,
    ) -> None:
        self.sum = sum
        self.count = count
        self._preds = preds
        self.target = target
        self._extras = dict(extras or {})

    @property
    def preds(self) -> Tensor:
        """What the metrics compare."""
        if callable(self._preds):
            self._preds = self._preds()
        return self._preds

    @preds.setter
    def preds(self, preds: Tensor | Callable[[], Tensor]) -> None:
        self._preds = preds

    @property
    def extras(self) -> dict[str, Tensor]:
        """The further tensors by name."""
        return {name: self._extra(name) for name in self._extras}

    def update(self, metric: "Metric") -> None:
        """Update a metric with ``preds``, ``target`` and the extras that its ``update`` names."""
        names = _names_after_target(type(metric))
        extras = {name: self._extra(name) for name in names if name in self._extras}
        metric.update(self.preds, self.target, **extras)

    def _extra(self, name: str) -> Tensor:
        found = self._extras[name]
        if callable(found):
            found = self._extras[name] = found()
        return found


@cache
def _names_after_target(metric: "type[Metric]") -> tuple[str, ...]:
    """Return the names of a metric's arguments behind ``self``, ``preds`` and ``target``."""
    # update(self, preds, target, selected) -> ("selected",)
    parameters = list(inspect.signature(metric.update).parameters.values())[3:]
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(each.name for each in parameters if each.kind in named)


class Task(nn.Module, ABC):
    """Owns its parameters, data needs, loss, metrics and decoding.

    ``__init__`` takes the user's settings only (they become config keys). Layers are made in
    :meth:`build`, when the sizes are known.

    Attributes:
        uses_pooled: the loss reads ``output.pooled``; where no task does, the pooler is frozen.
        monitor: the metric that the task is judged by, and which end of it is better. It chooses
            the best checkpoint of a head, and decides a study.
        better: which end is better of metrics that no torchmetrics metric tells, by name: those of
            :meth:`derived_metrics` and of a head's ``score``.
        shares: names of its metrics that are from 0 to 1, which are shown in percent; ``f1``
            stands for ``f1/PER`` and for the baseline ``majority_f1``, too.
        compares_sequences: the loss compares the sequences of a batch with each other, as
            contrastive losses do. A step is then one batch: one that is divided, among accumulated
            batches or devices, would have another loss and is refused.
        decays: which of its parameters decay, by name or by that of a module: ``{"gate": False}``.
            Of others biases, norms and all of one dimension do not.
        requires_encoder: what attributes of the encoder have to be, ``{"reads_directions": True}``;
            any that an encoder may have. Another encoder is refused before data is read.
        special_tokens: tokens that it writes into sequences, ``("[E1]", "[/E1]")``. A tokenizer
            that is trained for the run has them, and one that lacks them is refused.
        scheduled: names of its attributes, numbers that :meth:`after_step` reads, which a config
            may let change over a run: ``schedules: {NAME: {decay: {from: 0.99, to: 0.999}}}``.
    """

    special_tokens: ClassVar[tuple[str, ...]] = ()

    scheduled: ClassVar[tuple[str, ...]] = ()

    requires_encoder: ClassVar[Mapping[str, object]] = MappingProxyType({})

    decays: Mapping[str, bool] = MappingProxyType({})

    uses_pooled: ClassVar[bool] = True
    compares_sequences: ClassVar[bool] = False
    monitor: ClassVar[tuple[str, Literal["min", "max"]]] = ("loss", "min")
    better: ClassVar[Mapping[str, Literal["min", "max"]]] = {}
    shares: ClassVar[tuple[str, ...]] = ("accuracy",)

    @abstractmethod
    def build(self, context: TaskContext) -> None:
        """Create the layers that the task adds to the encoder. Called once, before training."""

    @abstractmethod
    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return the summed loss, its count, and predictions with their truth for the metrics."""

    def tokens_read(self, batch: PackedBatch) -> Tensor | None:
        """Return the positions of the tokens whose states :meth:`loss` or :meth:`decode` reads.

        An encoder need not compute what nobody reads: BERT's leaves it out of its last layer.

        Returns:
            ``(N,)`` int64, without those behind ``output.cls`` and ``pooled``, which are always
            there; None: all tokens. In prediction nothing is prepared: labels are not there.
        """
        del batch
        return None

    def after_step(self, step: int) -> None:
        """Move weights of its own, such as an EMA teacher, a queue or a centre.

        Called without gradients, on every device, after each optimiser step that was taken. What it
        goes by lies in parameters, buffers and ``step``, so that a resumed run ends with the same.

        Args:
            step: of the run, from 1.
        """

    def metrics(self) -> "dict[str, Metric]":
        """Return fresh torchmetrics by name.

        They are updated with ``preds`` and ``target`` of the loss, and with those of its ``extras``
        that the arguments of their ``update`` name.
        """
        return {}

    def derived_metrics(self, values: dict[str, float]) -> dict[str, float]:
        """Return metrics made from the epoch's ``values``: ``loss`` and those of ``metrics``."""
        del values
        return {}

    @abstractmethod
    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return predictions in the user's terms, one JSON-ready dict for each of B sequences."""


class Objective(Task):
    """A self-supervised task: it labels, and may corrupt, unlabelled sequences.

    Attributes:
        requires_pairs: the objective needs segments A and B (``nsp``).
        requires_mask: it needs a tokenizer that has a mask token (``mlm``).
        corrupts_input: :meth:`prepare` or :meth:`rewrite_input` overwrites ``input_ids``; one
            objective of a run may. It is prepared after all others.
        rearranges_input: :meth:`prepare` moves the text of a sequence (sentence order); it is then
            called before those of all others. One objective of a run may.
        requires_causal: ``requires_encoder`` of ``causal``: True needs a left-to-right encoder,
            False a bidirectional one.
        requires_steps: the key of a setting that changes with ``sequences.progress`` up to the end
            of the run, which a number of steps has to give; None if there is none. Set it in
            ``__init__``.
        requires: names of the objectives that this one builds on, in the config beside it. They are
            built and prepared before it.
        required: these objectives by name, from :meth:`build` on: ``self.required["mlm"]``. Their
            parameters stay their own.
    """

    requires_pairs: ClassVar[bool] = False
    requires_mask: ClassVar[bool] = False
    corrupts_input: ClassVar[bool] = False
    rearranges_input: ClassVar[bool] = False
    requires_causal: ClassVar[bool | None] = None
    requires_steps: str | None = None
    requires: ClassVar[tuple[str, ...]] = ()
    required: "Mapping[str, Objective]" = MappingProxyType({})

    @abstractmethod
    def prepare(self, sequences: PackedSequences, rng: "CounterRNG", training: bool) -> int:
        """Label (and corrupt) a batch in place, vectorised, in a data worker.

        Args:
            sequences: written to: ``fields`` for labels, ``input_ids`` for corruption.
            rng: draws keyed by counters; key them by ``epochs`` and ``indices`` (or
                ``corpus_offsets``), never by the place in the batch.
            training: False for evaluation, which must not depend on training settings.

        Returns:
            The number of predictions that :meth:`loss` will make on this batch.
        """

    def rewrite_input(self, batch: PackedBatch) -> PackedBatch:
        """Return the batch that the encoder reads instead, made on the device (ELECTRA).

        Called in training and evaluation, not in prediction. ``dataclasses.replace(batch,
        input_ids=…)`` keeps the rest.
        """
        return batch


class Head(Task):
    """Adds the layers that the paper adds for a task, and fine-tunes all of the encoder with them.

    An example is encoded to one or more sequences; :meth:`decode` predicts for each sequence, and
    :meth:`merge` makes one prediction of those of an example. Metrics come from :meth:`metrics`,
    which compares ``preds`` and ``target`` of the loss, or, where whole examples have to be scored,
    from :meth:`score`.

    Attributes:
        columns: what the head reads of an example.
        keeps_examples_together: all sequences of an example go into one batch (multiple choice); a
            batch is then counted in examples.
        trains_encoder: False for the feature-based approach (paper sec. 5.3): the encoder is fixed.
        splits_by: column whose equal values stay on one side when a part of the examples is held
            out; the first of ``columns`` if None.
        reads_all_layers: the head reads ``output.all_layers``.
        huggingface: the class of ``transformers`` with the same layers, whose names the head's
            layers then have.
        problem_type: what ``config.json`` says then, if the class of ``transformers`` is that of
            several tasks and it is none of single labels or numbers.
        labels: the classes, from :meth:`build` on; None where the task has none.
        notes: what happened to examples while they were encoded, counted by a few words; the run
            prints it for each split.
    """

    columns: ClassVar[tuple[Column, ...]]
    keeps_examples_together: ClassVar[bool] = False
    trains_encoder: ClassVar[bool] = True
    reads_all_layers: ClassVar[bool] = False
    splits_by: ClassVar[str | None] = None
    huggingface: ClassVar[str | None] = None
    problem_type: ClassVar[str | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.labels: Labels | None = None
        self.notes: Counter[str] = Counter()

    def build(self, context: TaskContext) -> None:
        """Keep the labels and create the layers, in :meth:`add_layers`."""
        self.labels = context.labels
        self.add_layers(context)

    @abstractmethod
    def add_layers(self, context: TaskContext) -> None:
        """Create the layers that the head adds to the encoder. Called once, before training."""

    def labels_of(self, example: Example) -> Iterable[str]:
        """Return the class names in a labelled example; nothing if the task has no classes."""
        del example
        return ()

    def describe_labels(self) -> dict[str, str]:
        """Return what the head takes the labels to mean, for the data report; after build."""
        return {}

    @abstractmethod
    def encode(self, example: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        """Return the sequences of an example, none longer than ``max_seq_length``.

        Called after :meth:`build`. Truth is encoded if the example has it. An example without
        sequences is not trained on, which :attr:`notes` should count.

        Raises:
            DataError: if the example is not usable; names ``example.where`` and the column.
        """

    def merge(self, example: Example, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the prediction of an example, JSON-ready, from those of its sequences in order."""
        del example
        return parts[0]

    def score(
        self, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]
    ) -> dict[str, float]:
        """Return metrics over all examples of an evaluation set and their merged predictions."""
        del examples, predictions
        return {}

    def score_names(self) -> list[str]:
        """Return the names that :meth:`score` gives; empty if the head does not use it."""
        return []

    def row_scores(self, metric: str, rows: Sequence[Mapping[str, Any]]) -> Sequence[float] | None:
        """Return a number for each row, whose mean is a metric: studies compare runs row by row.

        None: not known of this metric, such as ``accuracy`` or ``f1/PER``. ``rows`` are written
        predictions, each with its truth, ``row["gold"]["label"]``; the head is not built.
        """
        del metric, rows
        return None

    def tune(self, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]) -> None:
        """Choose what is chosen on development data, such as a threshold, before its score.

        Called at each evaluation during training. What is chosen belongs into buffers, so that
        checkpoints keep it.
        """

    def warning(self, values: dict[str, float]) -> str | None:
        """Return a warning about an evaluation's metrics, if the run looks degenerate."""
        del values
        return None
