"""Classification and regression of single sentences (paper sec. 4.1, fig. 4 b)."""

from bertlab.api.examples import Column, Example, Features, text_ids
from bertlab.errors import ConfigError
from bertlab.heads.classification import SequenceClassifier
from bertlab.tokenizer.wordpiece import WordPieceTokenizer


class SingleSentence(SequenceClassifier):
    """Predict a label or a score of a text: CoLA, SST-2."""

    columns = (Column("text"), Column("label", "label", is_truth=True))

    def encode(
        self, example: Example, tokenizer: WordPieceTokenizer, max_seq_length: int
    ) -> list[Features]:
        """Return ``[CLS] text [SEP]``; what does not fit is cut off the end.

        Raises:
            DataError: if the text is empty or the label unknown.
            ConfigError: if not even one token fits.
        """
        ids = text_ids(example.values.get("text"), example, "text", tokenizer)
        room = max_seq_length - 2  # [CLS] and [SEP]
        if room < 1:
            raise ConfigError(
                f"data.max_seq_length: found {max_seq_length}, expected 3 or more for a text"
            )
        inputs = tokenizer.build_inputs(ids[:room])
        return [
            Features(*inputs, fields={**self.truth_of(example)}, truncated=max(0, len(ids) - room))
        ]
