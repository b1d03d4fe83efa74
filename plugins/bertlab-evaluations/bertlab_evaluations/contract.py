"""The contract of an evaluation: it scores a model without training it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from rich.progress import track

from bertlab import TokenPrediction
from bertlab.api import Column, Encoder, Example, Task, Tokenizer
from bertlab.extend import read_manifest
from bertlab_evaluations.domain import parts_in
from bertlab_evaluations.language_model import language_model

if TYPE_CHECKING:
    from bertlab import PretrainedModel

FloatArray = npt.NDArray[np.float64]
_Batch = TypeVar("_Batch")


@dataclass(frozen=True)
class EvaluatedModel:
    """What an evaluation scores: an earlier model, in evaluation mode.

    Attributes:
        source: where it comes from, for messages: a file, a folder or a hub name.
        encoder: with its weights; :attr:`device` is where it is.
        tokenizer: that the weights were trained with.
        tasks: the objectives or the head that it was trained with, by config name; none if it is an
            encoder alone. ``tasks["mlm"]`` has the masked-LM head.
        shows_progress: whether :meth:`track` draws a bar.
        training_parts: how far parts of its training text are from the rest of it, by their size
            in tokens (:mod:`bertlab_evaluations.domain`); empty if that is not known.
    """

    source: str
    encoder: Encoder
    tokenizer: Tokenizer
    tasks: Mapping[str, Task]
    shows_progress: bool = False
    training_parts: Mapping[int, float] = field(default_factory=dict)

    @property
    def max_seq_length(self) -> int:
        """Longest sequence that the encoder reads, in tokens, special tokens included."""
        return self.encoder.max_position_embeddings

    def track(self, batches: Sequence[_Batch]) -> Iterable[_Batch]:
        """Return batches, and draw a bar of those that are done on a terminal.

        Args:
            batches: each of which takes about as long as any other.
        """
        console = Console(stderr=True)
        silent = not (self.shows_progress and console.is_terminal)
        return track(batches, "evaluating", console=console, transient=True, disable=silent)

    @cached_property
    def language_model(self) -> tuple[TokenPrediction, int]:
        """The language model, and where the state stands from which it predicts a token.

        0: at the token, which is masked; -1: before it; as :func:`bertlab.language_model` finds.

        Raises:
            EvaluationError: there is none, or none whose states can be read.
        """
        return language_model(self.source, self.encoder, self.tokenizer, self.tasks)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.encoder.token_embedding.weight.device


def evaluated(model: "PretrainedModel") -> EvaluatedModel:
    """Return a model in the form that evaluations read: ``model.evaluated()``."""
    # RUN/checkpoints/last.ckpt -> RUN
    manifest = {} if model.path is None else read_manifest(model.path.parent.parent)
    return EvaluatedModel(
        model.source,
        model.encoder,
        model.tokenizer,
        model.tasks,
        shows_progress=True,
        training_parts=parts_in(manifest),
    )


@dataclass(frozen=True)
class ScoreGrid:
    """Scores by two things, such as layers and tasks; shown as a table and drawn as a heat map.

    Attributes:
        title: what is scored.
        rows: names of the R rows.
        columns: names of the C columns.
        values: ``(R, C)`` float64; NaN where there is no score.
        share: the values are shares in 0 … 1, which are shown in percent.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: FloatArray
    share: bool = True


@dataclass(frozen=True)
class EvaluationResult:
    """What an evaluation found.

    Attributes:
        metrics: figures over all rows by name, that of ``monitor`` among them.
        scores: ``(N,)`` float64, one for each of the rows, in their order; NaN where a row could
            not be scored. Their mean is the metric of ``monitor``, so that a study can test
            differences over rows.
        groups: for each kind of group, such as ``phenomenon``, the group of each of the N rows. The
            framework makes a table of means and intervals of each kind.
        details: further values of each of the N rows by name, written beside its score.
        clusters: of each of the N rows, which others it is not independent of, as ``KIND:ID``:
            ``document:12``. Intervals and tests are then over clusters. Empty if it is not known;
            what the user's ``cluster`` says goes before.
        grids: further scores that are no means over rows: layers × tasks.
        pages: HTML pages by file name, each of which needs no other file.
        notes: what happened, a line each: how many rows were not scored and why.
    """

    metrics: Mapping[str, float]
    scores: FloatArray
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    details: Mapping[str, Sequence[float | int | str]] = field(default_factory=dict)
    clusters: Sequence[str] = ()
    grids: Sequence[ScoreGrid] = ()
    pages: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()


class Evaluation(ABC):
    """Scores a model without training it: zero-shot tasks, probes, analyses.

    The arguments of ``__init__`` are the user's settings and become config keys. An evaluation is
    deterministic: the same model and rows give the same result, in any process.

    Attributes:
        columns: what it reads of each row. A column without which it can do is not ``required``.
        monitor: the metric that decides, and which end of it is better.
        better: which end is better of its other metrics, by name.
        shares: names of its metrics that are from 0 to 1, and are shown in percent.
        chance: the score of a guess, which pictures show as a line; None if there is no one number.
        added_settings: default of each setting that came after a release. It is not recorded where
            it has its default, so that earlier runs stay what is asked for.
    """

    columns: ClassVar[tuple[Column, ...]]
    monitor: ClassVar[tuple[str, Literal["min", "max"]]] = ("accuracy", "max")
    better: ClassVar[Mapping[str, Literal["min", "max"]]] = {}
    shares: ClassVar[tuple[str, ...]] = ("accuracy",)
    chance: ClassVar[float | None] = None
    added_settings: ClassVar[Mapping[str, Any]] = {}

    @abstractmethod
    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        """Score a model; the weights stay as they are. Called under ``torch.no_grad()``.

        Args:
            model: in evaluation mode, its tasks built.
            rows: N rows with the values of :attr:`columns`; at least one. A row's value of a column
                that is not required may be missing.

        Raises:
            EvaluationError: the model has not what is scored (no language model, no layers).
            DataError: a row is not usable; names ``row.where`` and the column.
        """
