"""How long a run is, in steps, tokens, words or epochs, and how many sequences a step reads.

Both may change over the run: then the sizes of its steps decide where it ends, and its end decides
the sizes of its steps.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bertlab.api.batch import IntArray
from bertlab.api.optimizer import Progress
from bertlab.api.task import Objective, Task
from bertlab.data.sampler import SequenceSampler
from bertlab.errors import ConfigError, check_at_least
from bertlab.objectives.changing import (
    Change,
    ChangingNumber,
    WholeNumber,
    moments,
    read_whole,
    whole_at,
    whole_ends,
)

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

    from bertlab.data.module import TaskData

_DEFAULT_SIZE = 256  # BERT's, app. A.2
_SAMPLED, _SAMPLED_AT_A_TIME = 2**16, 4096  # sequences


@dataclass(frozen=True)
class StepSettings:
    """The settings of a DataModule that say what a step reads, by their names in ``data``."""

    numbers: Mapping[str, WholeNumber]  # max_seq_length, and batch_size or batch_tokens if given

    @classmethod
    def read(cls, settings: Mapping[str, int | Change | None]) -> "StepSettings":
        """Read the settings."""
        given = {name: each for name, each in settings.items() if each is not None}
        if "batch_size" in given and "batch_tokens" in given:
            raise ConfigError("data.batch_size and data.batch_tokens: give one of them, not both")
        numbers = {name: read_whole(each, f"data.{name}") for name, each in given.items()}
        for name, each in numbers.items():
            least, _ = (each, each) if isinstance(each, int) else each.ends
            check_at_least(f"data.{name}", least, 1)
        return cls(numbers)

    @property
    def requires_steps(self) -> list[str]:
        """Config keys whose values change up to the end of the run."""
        return [f"data.{name}" for name, each in self.numbers.items() if not isinstance(each, int)]

    @property
    def lengths(self) -> tuple[int, int]:
        """The smallest and the largest ``max_seq_length``."""
        return whole_ends(self.numbers["max_seq_length"])

    @property
    def changing_length(self) -> ChangingNumber | None:
        """How ``max_seq_length`` changes; None if it does not."""
        length = self.numbers["max_seq_length"]
        return None if isinstance(length, int) else length


@dataclass(frozen=True)
class StepSizes:
    """Divides an endless stream of sequences into optimiser steps; both count from 0."""

    size: WholeNumber  # sequences in a step, over all devices, or how their number changes
    steps: float = math.inf  # of the whole run; of a size that changes a finite number

    @property
    def mean(self) -> float:
        """Sequences in a step, on average over the run."""
        return float(self.size) if isinstance(self.size, int) else self.total() / self.steps

    def span(self, step: int) -> tuple[int, int]:
        """Return the position of a step's first sequence, and the one behind its last."""
        if isinstance(self.size, int):
            return step * self.size, (step + 1) * self.size
        return int(self._bounds[step]), int(self._bounds[step + 1])

    def progress(self, position: int) -> Progress:
        """Return how far the run is in the step that reads a position."""
        if isinstance(self.size, int):
            return Progress(position // self.size, self.steps)
        # bounds [0, 2, 5, 9]: positions 2, 3 and 4 are of step 1
        return Progress(int(np.searchsorted(self._bounds, position, side="right")) - 1, self.steps)

    def total(self) -> int:
        """Return the sequences of a whole run of a finite number of steps."""
        return self.span(int(self.steps) - 1)[1]

    @cached_property
    def _bounds(self) -> IntArray:
        """``(steps + 1,)`` int64 position at which each step begins, and where the last ends."""
        # the sizes before it decide where a step begins: they are added up once, so that any
        # process finds any step alone, also after a resume
        assert self.steps != math.inf, "a size that changes needs the number of steps"
        count = int(self.steps)
        sizes = (whole_at(self.size, Progress(step, self.steps)) for step in range(count))
        return np.concatenate([[0], np.cumsum(np.fromiter(sizes, np.int64, count))])


def mean_sequence_length(sampler: SequenceSampler, sample_size: int = 4096) -> float:
    """Return the mean length in tokens of the first ``sample_size`` sequences of epoch 0."""
    indices = np.arange(min(sample_size, len(sampler)))
    return float(sampler.sample(np.zeros_like(indices), indices).lengths.mean())


@dataclass(frozen=True)
class Amounts:
    """Means over a run, in which the size of a step may change."""

    sampler: SequenceSampler
    settings: StepSettings

    @cached_property
    def size(self) -> WholeNumber:
        """Sequences of full length in a step, or how their number changes."""
        tokens = self.settings.numbers.get("batch_tokens")
        if tokens is None:
            return self.settings.numbers.get("batch_size", _DEFAULT_SIZE)
        length = self._full_length  # batch_tokens are divided by it
        if isinstance(tokens, int):
            return max(1, round(tokens / length))
        return replace(tokens, start=tokens.start / length, end=tokens.end / length)

    def _mean_size(self, steps: float) -> float:
        return float(np.mean([whole_at(self.size, moment) for moment in moments(steps)]))

    def tokens(self, steps: float) -> tuple[float, float]:
        """Return the mean tokens of a sequence and of a step, special tokens included."""
        return self._full_length, self._full_length * self._mean_size(steps)

    def text(self, steps: float) -> float:
        """Return the mean tokens of text in a step."""
        return self._full_text * self._mean_size(steps)

    @cached_property
    def _full_length(self) -> float:
        return mean_sequence_length(self.sampler)

    @cached_property
    def _full_text(self) -> float:
        """Mean tokens of text, without ``[CLS]`` and ``[SEP]``, of the first sequences."""
        count, tokens = min(_SAMPLED, len(self.sampler)), 0
        for start in range(0, count, _SAMPLED_AT_A_TIME):
            indices = np.arange(start, min(start + _SAMPLED_AT_A_TIME, count))
            sequences = self.sampler.sample(np.zeros_like(indices), indices)
            tokens += int(np.count_nonzero(sequences.corpus_offsets >= 0))
        return tokens / count


def steps_for_sequences(size: WholeNumber, sequences: int) -> int:
    """Return the fewest steps that read at least so many sequences."""
    if isinstance(size, int):
        return math.ceil(sequences / size)
    steps = 1
    # how a size changes depends on the steps themselves; their mean settles after a few rounds
    for _ in range(8):
        steps = max(1, math.ceil(sequences / StepSizes(size, steps).mean))
    while StepSizes(size, steps).total() < sequences:
        steps += 1
    while steps > 1 and StepSizes(size, steps - 1).total() >= sequences:
        steps -= 1
    return steps


def is_endless(max_steps: int, max_epochs: int | None) -> bool:
    """Whether neither steps nor epochs end a run."""
    return max_steps == -1 and max_epochs in (None, -1)


def check_budget(
    max_tokens: float | None, max_words: float | None, max_steps: int, max_epochs: int | None
) -> None:
    """Raise ConfigError if a run that tokens or words end has another end as well.

    ``trainer.max_epochs`` beside ``max_words`` is no end but a limit, see :func:`steps_for_words`.
    """
    if max_tokens is not None and max_words is not None:
        raise ConfigError("max_words: found max_tokens beside it; give one of them")
    if max_tokens is not None and not is_endless(max_steps, max_epochs):
        found = "trainer.max_steps or trainer.max_epochs"
        raise ConfigError(f"max_tokens: found {found} beside it; give one of them")
    if max_words is not None and max_steps != -1:
        raise ConfigError("max_words: found trainer.max_steps beside it; give one of them")
    for key, amount in (("max_tokens", max_tokens), ("max_words", max_words)):
        if amount is not None and not 0 < amount < math.inf:  # NaN is not either
            raise ConfigError(f"{key}: found {amount:g}, expected a number above 0")


def asked_steps(
    max_tokens: float | None, max_words: float | None, trainer: "Trainer", data: "TaskData"
) -> int | None:
    """Return the optimiser steps of a run that something else ends; None if steps end it.

    That is tokens or words; and epochs, where the number of sequences in a step changes. (Else
    Lightning counts epochs.)
    """
    max_steps, max_epochs = trainer.max_steps, trainer.max_epochs
    check_budget(max_tokens, max_words, max_steps, max_epochs)
    if max_words is not None:
        return steps_for_words(max_words, max_epochs, data)
    if max_tokens is not None:
        return steps_for("max_tokens", max_tokens, lambda steps: data.mean_lengths(steps)[1])
    if max_epochs in (None, -1) or isinstance(data.sequences_per_step(), int):
        return None
    steps = data.steps_for_epochs(max_epochs)
    return steps if max_steps == -1 else min(steps, max_steps)


def steps_for_words(max_words: float, max_epochs: int | None, data: "TaskData") -> int:
    """Return the optimiser steps that read about ``max_words``."""
    corpus = data.corpus_words("max_words")
    # a hundredth: a corpus of whole documents has a little less than its ten million
    if max_epochs not in (None, -1) and max_words > 1.01 * max_epochs * corpus:
        raise ConfigError(
            f"max_words: found {max_words:,.0f}, expected at most {max_epochs * corpus:,}: "
            f"trainer.max_epochs is {max_epochs} and the corpus has {corpus:,} words; give more "
            "text or fewer words"
        )
    return steps_for("max_words", max_words, partial(data.words_per_step, "max_words"))


def steps_for(key: str, amount: float, mean_step: Callable[[float], float]) -> int:
    """Return the steps that read about an amount."""
    a_step = mean_step(math.inf)  # a run's first
    if not amount >= a_step:
        expected = f"at least a step's, about {a_step:,.0f}"
        raise ConfigError(f"{key}: found {amount:g}, expected {expected}")
    steps = round(amount / a_step)
    # where steps grow from 32 to 96 sequences: 100 of the first size are 50 of the mean one
    for _ in range(8):
        steps = max(1, round(amount / mean_step(steps)))
    return steps


def training_size(
    trainer: "Trainer", data: "TaskData", words_for: str | None = None
) -> dict[str, Any]:
    """Return mean sequence length and, unless a time limit ends the run, training tokens."""
    steps = data.total_steps(trainer)
    length, a_step = data.mean_lengths(steps)
    sizes = {"mean_sequence_length": length}
    if steps != math.inf:
        sizes["training_tokens"] = steps * a_step
    if words_for is not None:
        sizes["words_per_step"] = data.words_per_step(words_for, steps)
        if steps != math.inf:
            sizes["training_words"] = steps * sizes["words_per_step"]
    return sizes


def check_changes(tasks: Mapping[str, Task], data: "TaskData", endless: bool) -> None:
    """Raise ConfigError if a setting changes up to the end of a run, and no step is its end."""
    keys = [task.requires_steps for task in tasks.values() if isinstance(task, Objective)]
    for key in [*keys, *data.requires_steps]:
        if endless and key is not None:
            raise ConfigError(
                f"{key}: it changes up to the run's end, expected the number of steps; set "
                "trainer.max_steps, trainer.max_epochs, max_tokens or max_words (a time is none: "
                "a resumed run would not be the same)"
            )
