"""The contract of a head: a supervised task on examples."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from bertlab.api.examples import Column, Example, Features, Labels
from bertlab.api.task import Task, TaskContext
from bertlab.api.tokenizer import Tokenizer


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

    def tune(self, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]) -> None:
        """Choose what is chosen on development data, such as a threshold, before its score.

        Called at each evaluation during training. What is chosen belongs into buffers, so that
        checkpoints keep it.
        """

    def warning(self, values: dict[str, float]) -> str | None:
        """Return a warning about an evaluation's metrics, if the run looks degenerate."""
        del values
        return None
