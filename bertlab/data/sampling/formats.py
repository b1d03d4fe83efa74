"""The input formats by name: table 2 of RoBERTa (Liu et al. 2019)."""

from typing import Literal, get_args

from bertlab.api.batch import IntArray
from bertlab.api.rng import CounterRNG
from bertlab.data.sampling.pairs import SegmentPairsSampler, SentencePairsSampler
from bertlab.data.sampling.sampler import SequenceSampler, SpecialTokens, TokenArrays
from bertlab.data.sampling.single_segments import DocSentencesSampler, FullSentencesSampler
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
    tokenizer: SpecialTokens,
    documents: IntArray,
    max_seq_length: int,
    short_sequence_probability: float,
    rng: CounterRNG,
    random_pair_share: float = 0.5,
) -> SequenceSampler:
    """Return the sampler of an input format; arguments as in :class:`SequenceSampler`.

    Raises:
        ConfigError: the format is unknown or a setting is out of range.
        CorpusError: the documents are too few or too short for the format.
    """
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
