"""The data report of what the model will see: sampled, masked sequences."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from bertlab.api.batch import IntArray, PackedSequences, TokenLabels
from bertlab.api.rng import CounterRNG
from bertlab.api.task import Objective
from bertlab.data.corpus.report import StoreReport
from bertlab.data.corpus.store import TokenStore
from bertlab.data.loader import prepare_sequences
from bertlab.data.run_length import StepSettings
from bertlab.data.sampling.sampler import SequenceSampler
from bertlab.data.sampling.segment_pairs import paper_sampler
from bertlab.errors import CorpusError
from bertlab.files import explain_vanished_folder, write_json
from bertlab.objectives.changing import ChangingNumber, WholeNumber, moments, whole_at
from bertlab.objectives.language_model import TokenClasses
from bertlab.objectives.masked_lm import MaskingRecipe, dynamic_draws, mask_tokens

REPORT_SEQUENCES = 2000


@dataclass(frozen=True)
class SamplingReport:
    """Figures of the first sequences of the training stream.

    Attributes:
        sequences: number of sequences looked at.
        sequences_per_epoch: sequences in one pass over the training text.
        documents_too_short: documents that the input format leaves out.
        mean_length: tokens of a sequence, special tokens included.
        padding_avoided: share of tokens that would be padding if every sequence were padded to
            ``max_seq_length``.
        next_sentence_share: share of pairs whose B follows A (paper: 50 %); None without pairs.
        selected_share: share of the text's tokens that the masked LM predicts (paper: 15 %); None
            without it.
        masked_share: share of the predicted that became ``[MASK]`` (paper: 80 %).
        random_share: share that became another token (paper: 10 %).
        kept_share: share that stayed (paper: 10 %).
    """

    sequences: int
    sequences_per_epoch: int
    documents_too_short: int
    mean_length: float
    padding_avoided: float
    next_sentence_share: float | None = None
    selected_share: float | None = None
    masked_share: float | None = None
    random_share: float | None = None
    kept_share: float | None = None

    def rows(self) -> list[tuple[str, str]]:
        """Return name and figure of each line to print."""
        lines = [
            ("sequences in an epoch", f"{self.sequences_per_epoch:,}"),
            ("documents too short, left out", f"{self.documents_too_short:,}"),
            ("mean length in tokens", f"{self.mean_length:.1f}"),
            ("padding avoided", f"{self.padding_avoided:.1%}"),
        ]
        if self.next_sentence_share is not None:
            lines.append(("pairs where B follows A", f"{self.next_sentence_share:.1%}"))
        if self.selected_share is not None:
            lines += [
                ("tokens to predict", f"{self.selected_share:.2%}"),
                (
                    "of these [MASK] / random / kept",
                    f"{self.masked_share:.1%} / {self.random_share:.1%} / {self.kept_share:.1%}",
                ),
            ]
        return lines


def report_sampling(
    sampler: SequenceSampler,
    objectives: Mapping[str, Objective],
    mask_id: int,
    seed: int,
) -> SamplingReport:
    """Sample the first sequences of epoch 0 as training will, and count."""
    sequences = _first_sequences(sampler)
    prepare_sequences(sequences, objectives, seed, training=True)
    masked = sequences.token_labels("mlm") if "mlm" in objectives else None
    return _count(sequences, sampler, masked, mask_id)


def report_store(store: TokenStore, max_seq_length: int) -> list[tuple[str, str]]:
    """Return the data report of a store: name and figure of each line to print.

    What BERT's sampling makes of the store is written beside it, as ``sampling.json``.
    """
    with explain_vanished_folder(store.path):
        report = StoreReport.read(store.path)
        rows = report.rows()
        try:
            sampling = report_pretraining(store, max_seq_length)
        except CorpusError as error:  # the store is good for other input formats
            return [*rows, ("BERT's sampling", f"not possible: {error}")]
        write_json(store.path / "sampling.json", asdict(sampling))
        return [*rows, *sampling.rows()]


def report_pretraining(store: TokenStore, max_seq_length: int) -> SamplingReport:
    """Count the results of the paper's sampling and masking on a whole store, with seed 0."""
    tokenizer = store.tokenizer
    sampler = paper_sampler(store, max_seq_length, seed=0)
    sequences = _first_sequences(sampler)
    draws = dynamic_draws(sequences, CounterRNG(0, "objective/mlm"))
    positions, labels = mask_tokens(sequences, MaskingRecipe(), TokenClasses.of(tokenizer), draws)
    return _count(sequences, sampler, TokenLabels(positions, labels), tokenizer.mask_id)


def _first_sequences(sampler: SequenceSampler) -> PackedSequences:
    indices = np.arange(min(REPORT_SEQUENCES, len(sampler)))
    return sampler.sample(np.zeros_like(indices), indices)


def _count(
    sequences: PackedSequences,
    sampler: SequenceSampler,
    masked: TokenLabels[IntArray] | None,
    mask_id: int,
) -> SamplingReport:
    size = len(sequences.indices)
    labels = sequences.fields.get("next_sentence_label")
    return SamplingReport(
        sequences=size,
        sequences_per_epoch=len(sampler),
        documents_too_short=sampler.documents_too_short,
        mean_length=float(sequences.lengths.mean()),
        padding_avoided=1 - len(sequences.input_ids) / (size * sampler.max_seq_length),
        next_sentence_share=None if labels is None else float((labels == 0).mean()),
        **({} if masked is None else _masking_shares(sequences, masked, mask_id)),
    )


def _masking_shares(
    sequences: PackedSequences, selected: TokenLabels[IntArray], mask_id: int
) -> dict[str, float]:
    if not len(selected.positions):
        return {}
    before, after = selected.labels, sequences.input_ids[selected.positions]
    masked = float((after == mask_id).mean())
    # a random token that happens to be the original counts as kept
    kept = float((after == before).mean())
    return {
        # special tokens have the offset -1
        "selected_share": len(selected.positions) / int((sequences.corpus_offsets >= 0).sum()),
        "masked_share": masked,
        "random_share": 1 - masked - kept,
        "kept_share": kept,
    }


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
