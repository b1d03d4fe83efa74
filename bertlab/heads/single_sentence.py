"""Classification and regression of single sentences (paper sec. 4.1, fig. 4 b)."""

from bertlab.api.examples import Column, Example, Features, text_ids
from bertlab.api.tokenizer import Tokenizer
from bertlab.errors import ConfigError
from bertlab.heads.classification import SequenceClassifier


class SingleSentence(SequenceClassifier):
    """Predict a label or a score of a text: CoLA, SST-2."""

    columns = (Column("text"), Column("label", "label", is_truth=True))

    def encode(self, example: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        """Return ``[CLS] text [SEP]``; what does not fit is cut off the end.

        Raises:
            DataError: if the text is empty or the label unknown.
            ConfigError: if not even one token fits.
        """
        features = text_features(example, tokenizer, max_seq_length)
        features.fields |= self.truth_of(example)
        return [features]


def text_features(example: Example, tokenizer: Tokenizer, max_seq_length: int) -> Features:
    """Return ``[CLS] text [SEP]`` of an example; what does not fit is cut off the end."""
    ids = text_ids(example.values.get("text"), example, "text", tokenizer)
    room = tokenizer.room(max_seq_length)
    if room < 1:
        raise ConfigError(
            f"data.max_seq_length: found {max_seq_length}, expected 3 or more for a text"
        )
    return Features(*tokenizer.build_inputs(ids[:room]), truncated=max(0, len(ids) - room))
