"""How much training reads on average: tokens of sequences and steps, with and without specials."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from bertlab.data.run_length import StepSettings
from bertlab.data.sampling.sampler import SequenceSampler
from bertlab.objectives.changing import ChangingNumber, WholeNumber, moments, whole_at

_SAMPLED_AT_A_TIME = 4096
_LENGTHS = 9  # between both ends, at which it is looked how many tokens there are

FloatArray = npt.NDArray[np.float64]


def mean_sequence_length(sampler: SequenceSampler, sample_size: int = 4096) -> float:
    """Return the mean length in tokens of the first ``sample_size`` sequences of epoch 0."""
    indices = np.arange(min(sample_size, len(sampler)))
    return float(sampler.sample(np.zeros_like(indices), indices).lengths.mean())


def mean_text_length(sampler: SequenceSampler, sample_size: int = 2**16) -> float:
    """Return the mean tokens of text, without ``[CLS]`` and ``[SEP]``, of sequences of epoch 0."""
    count, tokens = min(sample_size, len(sampler)), 0
    for start in range(0, count, _SAMPLED_AT_A_TIME):
        indices = np.arange(start, min(start + _SAMPLED_AT_A_TIME, count))
        sequences = sampler.sample(np.zeros_like(indices), indices)
        tokens += int(np.count_nonzero(sequences.corpus_offsets >= 0))
    return tokens / count


@dataclass(frozen=True)
class Amounts:
    """Means over a run, in which the size of a step and the length of sequences may change.

    A sequence of full length that is read in parts counts as one of a step's size.

    Attributes:
        sampler: of the training part.
        settings: what a step reads.
    """

    sampler: SequenceSampler
    settings: StepSettings

    @cached_property
    def size(self) -> WholeNumber:
        """Sequences of full length in a step, or how their number changes."""
        return self.settings.sequences_per_step(lambda: self._full_length)

    def mean_size(self, steps: float) -> float:
        """Return the sequences of full length in a step of a run of ``steps``."""
        return float(np.mean([whole_at(self.size, moment) for moment in moments(steps)]))

    def tokens(self, steps: float) -> tuple[float, float]:
        """Return the mean tokens of a sequence and of a step, special tokens included."""
        if self._length is None:
            return self._full_length, self._full_length * self.mean_size(steps)
        ids, _, sequences = self._in_a_step(steps)
        return ids / sequences, ids

    def text(self, steps: float) -> float:
        """Return the mean tokens of text in a step."""
        if self._length is None:
            return self._full_text * self.mean_size(steps)
        return self._in_a_step(steps)[1]

    @property
    def _length(self) -> ChangingNumber | None:
        return self.settings.changing_length

    @cached_property
    def _full_length(self) -> float:
        return mean_sequence_length(self.sampler)

    @cached_property
    def _full_text(self) -> float:
        return mean_text_length(self.sampler)

    def _in_a_step(self, steps: float) -> tuple[float, float, float]:
        """Return the mean tokens, tokens of text and sequences of a step."""
        assert self._length is not None
        run = list(moments(steps))
        lengths = [whole_at(self._length, moment) for moment in run]
        sizes = np.array([whole_at(self.size, moment) for moment in run])
        known, counts = self._counts
        tokens, text, sequences = (
            float(np.mean(np.interp(lengths, known, each) * sizes)) for each in counts
        )
        return tokens, text, sequences

    @cached_property
    def _counts(self) -> tuple[FloatArray, FloatArray]:
        """Some lengths ``(L,)``; tokens, text, and sequences of a full one's text ``(3, L)``."""
        assert self._length is not None
        indices = np.arange(min(_SAMPLED_AT_A_TIME, len(self.sampler)))
        # 64 to 512 -> 64, 120, 176, … 512
        lengths = np.unique(np.linspace(*self._length.ends, _LENGTHS).round())
        counts = []
        for length in lengths:
            made = self.sampler.sample(np.zeros_like(indices), indices, int(length))
            text = np.count_nonzero(made.corpus_offsets >= 0)
            counts.append([len(made.input_ids), text, len(made.lengths)])
        return lengths, np.array(counts).T / len(indices)
