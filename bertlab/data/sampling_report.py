"""The data report of what the model will see: sampled, masked sequences."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from bertlab.api.batch import IntArray, PackedSequences, TokenLabels
from bertlab.api.rng import CounterRNG
from bertlab.api.task import Objective
from bertlab.data.corpus.store import StoreReport, TokenStore
from bertlab.data.loader import prepare_sequences
from bertlab.data.sampling.sampler import SequenceSampler
from bertlab.data.sampling.segment_pairs import SegmentPairsSampler
from bertlab.errors import CorpusError
from bertlab.files import explain_vanished_folder, write_json
from bertlab.objectives.language_model import TokenClasses
from bertlab.objectives.masked_lm import MaskingRecipe, dynamic_draws, mask_tokens

REPORT_SEQUENCES = 2000


@dataclass(frozen=True)
class SamplingReport:
    """Figures of the first sequences of the training stream."""

    sequences: int  # that were looked at
    sequences_per_epoch: int  # one pass over the training text
    documents_too_short: int  # the input format leaves them out
    mean_length: float  # in tokens, special tokens included
    padding_avoided: float  # share of tokens if every sequence were padded to max_seq_length
    next_sentence_share: float | None = None  # of pairs whose B follows A (paper: 50 %)
    selected_share: float | None = None  # of the text's tokens, to be predicted (paper: 15 %)
    masked_share: float | None = None  # of these, that became [MASK] (paper: 80 %)
    random_share: float | None = None  # that became another token (paper: 10 %)
    kept_share: float | None = None  # that stayed (paper: 10 %)

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


def paper_sampler(store: TokenStore, max_seq_length: int, seed: int) -> SequenceSampler:
    """Return the paper's sampling (app. A.2) over all documents of a store."""
    short = 0.1  # create_pretraining_data.py of google-research/bert
    rng = CounterRNG(seed, "sampler")
    documents = np.arange(len(store))
    return SegmentPairsSampler(store, store.tokenizer, documents, max_seq_length, short, rng)


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
