"""The four input formats of table 2 of RoBERTa (Liu et al. 2019), by name."""

from typing import Literal, get_args

import numpy as np

from bertlab.api.batch import IntArray
from bertlab.api.rng import CounterRNG
from bertlab.api.tokenizer import Tokenizer
from bertlab.data.corpus.store import TokenStore
from bertlab.data.sampling.pairs import SegmentPairsSampler, SentencePairsSampler
from bertlab.data.sampling.sampler import SequenceSampler, TokenArrays
from bertlab.data.sampling.single_segment import DocSentencesSampler, FullSentencesSampler
from bertlab.errors import ConfigError, nearest

InputFormat = Literal["segment_pairs", "sentence_pairs", "full_sentences", "doc_sentences"]

SAMPLERS: dict[str, type[SequenceSampler]] = {
    "segment_pairs": SegmentPairsSampler,
    "sentence_pairs": SentencePairsSampler,
    "full_sentences": FullSentencesSampler,
    "doc_sentences": DocSentencesSampler,
}


def build_sampler(
    input_format: InputFormat,
    store: TokenArrays,
    tokenizer: Tokenizer,
    documents: IntArray,
    max_seq_length: int,
    short_sequence_probability: float,
    rng: CounterRNG,
    random_pair_share: float = 0.5,
) -> SequenceSampler:
    """Return the sampler of an input format; arguments as in :class:`SequenceSampler`."""
    if input_format not in SAMPLERS:
        raise ConfigError(
            f"input_format is {input_format!r}, expected one of "
            f"{', '.join(get_args(InputFormat))}{nearest(input_format, SAMPLERS)}"
        )
    return SAMPLERS[input_format](
        store,
        tokenizer,
        documents,
        max_seq_length,
        short_sequence_probability,
        rng,
        random_pair_share,
    )


def paper_sampler(store: TokenStore, max_seq_length: int, seed: int) -> SequenceSampler:
    """Return the paper's sampling (app. A.2) over all documents of a store."""
    return build_sampler(
        "segment_pairs",
        store=store,
        tokenizer=store.tokenizer,
        documents=np.arange(len(store)),
        max_seq_length=max_seq_length,
        short_sequence_probability=0.1,  # create_pretraining_data.py of google-research/bert
        rng=CounterRNG(seed, "sampler"),
    )
