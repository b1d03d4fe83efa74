"""How optimiser steps are dealt out among several heads, and objectives beside them.

Each step is of one head (MT-DNN, Liu et al. 2019): which one is a pure function of seed and step.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from bertlab import IntArray, nearest
from bertlab.api import ConfigError, CounterRNG, PackedBatch
from bertlab.extend import OBJECTIVES_SHARE, TrainingSteps

# what the steps of all objectives are called among those of heads; no head can have the name
OBJECTIVES = "objectives"


@dataclass(frozen=True)
class Mixing:
    """How much of training each head has, and the objectives beside them.

    Args:
        temperature: T in n^(1/T), to which a head's share of the steps is proportional, n being the
            batches that its training rows fill: 1, the default, visits every row once an epoch; a
            large one gives all heads equal shares.
        weights: instead of it a number for each head, to which its share is proportional.
        objectives: share of all steps that are of the objectives beside the heads: half of them, if
            there are objectives and nothing is said.
    """

    temperature: float | None = None
    weights: dict[str, float] | None = None
    objectives: float | None = None

    def check(self, names: Sequence[str], has_objectives: bool = False) -> None:
        """Raise ConfigError if a setting cannot be, or weights are not those of ``names``."""
        self._check_objectives(has_objectives)
        if self.temperature is not None and self.weights is not None:
            raise ConfigError(
                "data.mixing: found temperature and weights, expected one of the two keys"
            )
        temperature = 1.0 if self.temperature is None else self.temperature
        if not temperature > 0 or math.isinf(temperature):  # or NaN
            raise ConfigError(
                f"data.mixing.temperature: found {temperature}, expected a number above 0"
            )
        self._check_weights(names)

    def _check_objectives(self, has_objectives: bool) -> None:
        if self.objectives is not None and not has_objectives:
            raise ConfigError(
                f"data.mixing.objectives: found {self.objectives}, but there are none beside the "
                "heads: expected model.objectives, or no such key"
            )
        if self.objectives is not None and not 0 < self.objectives < 1:
            raise ConfigError(
                f"data.mixing.objectives: found {self.objectives}, expected a share of the steps "
                "between 0 and 1"
            )

    def _check_weights(self, names: Sequence[str]) -> None:
        if self.weights is None:
            return
        for name, weight in self.weights.items():
            if name not in names:
                raise ConfigError(
                    f"data.mixing.weights.{name}: model.heads has no {name}{nearest(name, names)} "
                    f"(it has: {', '.join(names)})"
                )
            if not weight > 0 or math.isinf(weight):
                raise ConfigError(
                    f"data.mixing.weights.{name}: found {weight}, expected a number above 0"
                )
        for name in names:
            if name not in self.weights:
                raise ConfigError(
                    f"data.mixing.weights.{name}: found none, expected a weight for each of "
                    f"{', '.join(names)}"
                )

    def steps(self, batches: Mapping[str, int], has_objectives: bool = False) -> dict[str, int]:
        """Return the steps of each head in an epoch, which has as many as all rows fill batches.

        Args:
            batches: that the training rows of each head fill.
            has_objectives: add theirs, ``OBJECTIVES``, to those of the heads.
        """
        steps = self._steps_of_heads(batches)
        if has_objectives:
            share = OBJECTIVES_SHARE if self.objectives is None else self.objectives
            # 30 steps of heads, a quarter for objectives: 10 more
            steps[OBJECTIVES] = max(1, round(sum(steps.values()) * share / (1 - share)))
        return steps

    def _steps_of_heads(self, batches: Mapping[str, int]) -> dict[str, int]:
        if self.weights is not None:
            parts = np.array([self.weights[name] for name in batches], np.float64)
        else:
            # logarithms: of a small temperature the powers overflow
            logs = np.log(np.array(list(batches.values()), np.float64)) / (self.temperature or 1.0)
            parts = np.exp(logs - logs.max())
        return dict(zip(batches, _whole_parts(parts, sum(batches.values())), strict=True))


def _whole_parts(parts: npt.NDArray[np.float64], total: int) -> list[int]:
    """Return whole numbers in proportion to ``parts`` whose sum is ``total``, all 1 or more."""
    # rounded, as powers of logarithms are off in their last digits: 3 batches are 3, not 2.9999999
    quotas = np.round(parts / parts.sum() * total, 6)
    # quotas [6.6, 3.3, 0.1] of 10 -> [6, 3, 1]; [5.5, 3.4, 1.1] -> [5, 3, 1], then 6 for the first
    counts = np.maximum(1, np.floor(quotas)).astype(np.int64)
    while counts.sum() < total:
        counts[np.argmax(quotas - counts)] += 1
    while counts.sum() > total:
        counts[np.argmax(np.where(counts > 1, counts - quotas, -np.inf))] -= 1
    return [int(count) for count in counts]


@dataclass
class StepOrder:
    """Which head each optimiser step of a run is of; an epoch is a permutation of its steps.

    Attributes:
        steps: of each head in an epoch, and of the objectives beside them.
        seed: of the permutation.
    """

    steps: Mapping[str, int]
    seed: int
    _kept: tuple[int, IntArray] | None = field(default=None, init=False, repr=False)

    def __len__(self) -> int:
        """Steps in an epoch."""
        return sum(self.steps.values())

    def place(self, step: int) -> tuple[str, int]:
        """Return the head of a step, and how many steps it had before, from 0."""
        epoch, number = divmod(step, len(self))
        order = self._order(epoch)
        head = int(order[number])
        name = list(self.steps)[head]
        # order [0, 1, 0, 0, 1] in each of two epochs: step 7 is head 0's step 3 + 1
        return name, epoch * self.steps[name] + int((order[:number] == head).sum())

    def _order(self, epoch: int) -> IntArray:
        """``(S,)`` number of the head of each step of an epoch, kept while the epoch lasts."""
        if self._kept is None or self._kept[0] != epoch:
            slots = np.repeat(np.arange(len(self.steps)), list(self.steps.values()))
            order = np.empty_like(slots)
            ranks = CounterRNG(self.seed, "heads").permute(np.arange(len(slots)), len(slots), epoch)
            order[ranks] = slots
            self._kept = epoch, order
        return self._kept[1]


@dataclass
class MixedSteps(TrainingSteps):
    """Maps an optimiser step to the micro-batches of the head that it is of.

    Attributes:
        parts: the steps of each head, which count its own.
        order: which head a step is of.
    """

    parts: Mapping[str, TrainingSteps]
    order: StepOrder

    def __getitem__(self, step: int) -> list[PackedBatch]:
        """Return the micro-batches of an optimiser step."""
        name, number = self.order.place(step)
        return self.parts[name][number]

    def describe(self, step: int) -> str:
        """Return words by which a person finds the data of a step again."""
        name, number = self.order.place(step)
        return f"{name}: {self.parts[name].describe(number)}"

    def first(self, count: int) -> PackedBatch:
        """Return at most ``count`` sequences of a first step: of the head with the longest ones."""
        batches = [part.first(count) for part in self.parts.values()]
        return max(batches, key=lambda batch: len(batch.input_ids) / len(batch))
