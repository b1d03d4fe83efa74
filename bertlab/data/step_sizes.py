"""What each optimiser step reads: how many sequences and how long ones, which may change."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bertlab.api.batch import IntArray
from bertlab.api.schedule import Progress
from bertlab.errors import ConfigError, check_at_least
from bertlab.objectives.changing import (
    Change,
    ChangingNumber,
    WholeNumber,
    read_whole,
    whole_at,
    whole_ends,
)

_DEFAULT_SIZE = 256  # BERT's, app. A.2


@dataclass(frozen=True)
class StepSettings:
    """The settings of a DataModule that say what a step reads, by their names in ``data``.

    Attributes:
        numbers: ``max_seq_length``, and ``batch_size`` or ``batch_tokens`` if it was given.
    """

    numbers: Mapping[str, WholeNumber]

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

    def check_format(self, input_format: str, least: int) -> None:
        """Raise ConfigError if a length that changes is too short, or a format has no parts."""
        if self.changing_length is None:
            return
        check_at_least("data.max_seq_length", self.lengths[0], least)
        if input_format == "sentence_pairs":
            raise ConfigError(
                "data.max_seq_length: found one that changes, expected a number: sequences of "
                "data.input_format sentence_pairs are sentences, not parts of a text; choose "
                "segment_pairs, full_sentences or doc_sentences"
            )

    def sequences_per_step(self, mean_length: Callable[[], float]) -> WholeNumber:
        """Return the sequences in a step; ``batch_tokens`` are divided by their mean length."""
        tokens = self.numbers.get("batch_tokens")
        if tokens is None:
            return self.numbers.get("batch_size", _DEFAULT_SIZE)
        length = mean_length()
        if isinstance(tokens, int):
            return max(1, round(tokens / length))
        return replace(tokens, start=tokens.start / length, end=tokens.end / length)


@dataclass(frozen=True)
class StepSizes:
    """Divides an endless stream of sequences into optimiser steps; step and position count from 0.

    Attributes:
        size: sequences in a step, over all devices, or how their number changes.
        steps: of the whole run; infinite if no number of them ends it, which a size that changes
            does not allow.
    """

    size: WholeNumber
    steps: float = math.inf

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

    def nearest_step(self, sequences: float) -> int:
        """Return how many steps read about so many sequences; one more than all if it is beyond."""
        if isinstance(self.size, int):
            return round(sequences / self.size)
        # bounds [0, 2, 5, 9]: 3 -> 1, 4 -> 2, 9.5 -> 3, 12 -> 4
        bounds = np.append(self._bounds, 2 * self._bounds[-1] - self._bounds[-2])
        return int(np.abs(bounds - sequences).argmin())

    def total(self) -> int:
        """Return the sequences of a whole run of a finite number of steps."""
        return self.span(int(self.steps) - 1)[1]

    @cached_property
    def _bounds(self) -> IntArray:
        """``(steps + 1,)`` int64 position at which each step begins, and where the last one ends.

        The sizes before it decide where a step begins: they are added up once, so that any process
        finds any step alone, also after a resume.
        """
        assert self.steps != math.inf, "a size that changes needs the number of steps"
        count = int(self.steps)
        sizes = (whole_at(self.size, Progress(step, self.steps)) for step in range(count))
        return np.concatenate([[0], np.cumsum(np.fromiter(sizes, np.int64, count))])


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
