"""A small tokenised corpus, and the real samplers over it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertlab.data.counter_rng import CounterRNG
from bertlab.data.input_formats import InputFormat, build_sampler
from bertlab.data.sampling import SequenceSampler
from bertlab.packed_batch import IntArray, PackedSequences
from bertlab.testing.sample_language import SampleLanguage

_DOCUMENTS, _SENTENCES = 12, 10


@dataclass(frozen=True)
class SampleCorpus:
    """Twelve documents of ten sentences as a token store has them.

    Attributes:
        language: that they are written in.
        tokens: ``(N,)`` uint16 ids.
        sentence_offsets: ``(S + 1,)`` int64.
        document_offsets: ``(D + 1,)`` int64, in sentences.
        document_token_offsets: ``(D + 1,)`` int64, in tokens.
    """

    language: SampleLanguage
    tokens: npt.NDArray[np.uint16]
    sentence_offsets: IntArray
    document_offsets: IntArray
    document_token_offsets: IntArray

    @classmethod
    def of(cls, language: SampleLanguage) -> "SampleCorpus":
        """Write and tokenize the documents."""
        texts = [language.text(3 + number % 7, number) for number in range(_DOCUMENTS * _SENTENCES)]
        sentences = [language.tokenizer.encode(text) for text in texts]
        ends = np.cumsum([0, *map(len, sentences)])
        return cls(
            language=language,
            tokens=np.concatenate(sentences).astype(np.uint16),
            sentence_offsets=ends,
            document_offsets=np.arange(0, len(sentences) + 1, _SENTENCES),
            document_token_offsets=ends[::_SENTENCES],
        )

    @property
    def token_counts(self) -> IntArray:
        """``(V,)`` occurrences of each id."""
        return np.bincount(self.tokens, minlength=self.language.tokenizer.vocab_size)

    def sampler(
        self, input_format: InputFormat, max_seq_length: int, random_pair_share: float
    ) -> SequenceSampler:
        """Return a sampler of sequences, a tenth of them shorter than the others."""
        return build_sampler(
            input_format,
            self,
            self.language.tokenizer,
            np.arange(_DOCUMENTS),
            max_seq_length,
            0.1,
            CounterRNG(5, "conformance"),
            random_pair_share,
        )


def short_sequences(
    language: SampleLanguage, texts: Sequence[Sequence[int]], pairs: bool
) -> PackedSequences:
    """Pack ``[CLS] text [SEP]`` by hand, or ``[CLS] text [SEP] text [SEP]``.

    Args:
        language: gives the special ids.
        texts: ids of each of B texts.
        pairs: whether each text stands there twice, as A and B.
    """
    made = [language.tokenizer.build_inputs(text, text if pairs else None) for text in texts]
    lengths = np.array([len(ids) for ids, _ in made])
    input_ids = np.concatenate([ids for ids, _ in made]).astype(np.int64)
    special = np.isin(input_ids, [language.tokenizer.cls_id, language.tokenizer.sep_id])
    labels = {"next_sentence_label": np.arange(len(made)) % 2} if pairs else {}
    return PackedSequences(
        input_ids=input_ids,
        token_type_ids=np.concatenate([types for _, types in made]).astype(np.int64),
        position_ids=np.concatenate([np.arange(length) for length in lengths]),
        cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        corpus_offsets=np.where(special, -1, np.cumsum(~special) - 1).astype(np.int64),
        epochs=np.zeros(len(made), np.int64),
        indices=np.arange(len(made), dtype=np.int64),
        fields={**labels},
    )
