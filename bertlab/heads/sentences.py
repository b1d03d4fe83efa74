"""Classification and regression of sentences and pairs (paper sec. 4.1, fig. 4 a and b)."""

from collections.abc import Sequence

from bertlab.api.examples import Column, Example, Features, text_ids
from bertlab.api.tokenizer import Tokenizer
from bertlab.errors import ConfigError
from bertlab.heads.classification import SequenceClassifier

_FOUND = "data.max_seq_length: found"


class SingleSentence(SequenceClassifier):
    """Predict a label or a score of a text: CoLA, SST-2."""

    columns = (Column("text", aliases=("sentence",)), Column("label", "label", is_truth=True))

    def encode(self, example: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        """Return ``[CLS] text [SEP]``; what does not fit is cut off the end."""
        features = text_features(example, tokenizer, max_seq_length)
        features.fields |= self.truth_of(example)
        return [features]


def text_features(example: Example, tokenizer: Tokenizer, max_seq_length: int) -> Features:
    """Return ``[CLS] text [SEP]`` of an example; what does not fit is cut off the end."""
    ids = text_ids(example.values.get("text"), example, "text", tokenizer)
    room = tokenizer.room(max_seq_length)
    if room < 1:
        raise ConfigError(f"{_FOUND} {max_seq_length}, expected 3 or more for a text")
    return Features(*tokenizer.build_inputs(ids[:room]), truncated=max(0, len(ids) - room))


class SentencePair(SequenceClassifier):
    """Predict a label or a score of two texts: MNLI, QQP, QNLI, STS-B, MRPC, RTE, WNLI."""

    columns = (
        Column("text_a", aliases=("text", "sentence1", "premise", "question1")),
        Column("text_b", aliases=("text_pair", "sentence2", "hypothesis", "question2")),
        Column("label", "label", is_truth=True),
    )
    splits_by = "text_a"

    def encode(self, example: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        """Return ``[CLS] A [SEP] B [SEP]``, cut as :func:`pair_features` says."""
        a = text_ids(example.values.get("text_a"), example, "text_a", tokenizer)
        b = text_ids(example.values.get("text_b"), example, "text_b", tokenizer)
        features = pair_features(a, b, tokenizer, max_seq_length)
        features.fields |= self.truth_of(example)
        return [features]


def pair_features(
    a: Sequence[int], b: Sequence[int], tokenizer: Tokenizer, max_seq_length: int
) -> Features:
    """Return ``[CLS] A [SEP] B [SEP]`` of two lists of ids, neither empty.

    The longer text is cut at its end until both fit or are equally long, then both are, so that
    one that is short stays whole: Hugging Face's "longest first", to the token.
    """
    room = tokenizer.room(max_seq_length, segments=2)
    if room < 2:
        raise ConfigError(f"{_FOUND} {max_seq_length}, expected 5 or more for pairs of texts")
    excess = max(0, len(a) + len(b) - room)
    if excess:
        # room 8: lengths 9 and 2 -> 6 and 2; 9 and 7 -> 4 and 4
        half = room // 2
        short = min(len(a), len(b), half)
        keep_a, keep_b = (room - short, short) if len(a) > len(b) else (short, room - short)
        a, b = a[:keep_a], b[:keep_b]
    return Features(*tokenizer.build_inputs(a, b), truncated=excess)
