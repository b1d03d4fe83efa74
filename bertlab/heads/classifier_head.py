"""What the heads with a ``classifier`` share: dropout and one linear layer (paper fig. 4)."""

from torch import Tensor, nn

from bertlab.encoders.base import Encoder
from bertlab.encoders.dropout import Dropout
from bertlab.encoders.initialization import initialize
from bertlab.errors import ConfigError
from bertlab.heads.base import Head


class ClassifierHead(Head):
    """A head that adds dropout and one linear layer, ``classifier``.

    Args:
        dropout: on what the classifier reads; the encoder's ``hidden_dropout_prob`` if not given.

    Attributes:
        dropout_prob: the argument; None if not given.

    Raises:
        ConfigError: if the dropout is not a probability.
    """

    classifier: nn.Linear

    def __init__(self, dropout: float | None = None) -> None:
        super().__init__()
        check_dropout(dropout)
        self.dropout_prob = dropout

    def add_classifier(self, encoder: Encoder, outputs: int) -> None:
        """Create both layers, for hidden states or the pooled output; all weights are new."""
        given = self.dropout_prob
        self.dropout = Dropout(encoder.hidden_dropout_prob if given is None else given)
        self.classifier = nn.Linear(encoder.hidden_size, outputs)
        initialize(self, encoder.initializer_range)

    def classify(self, states: Tensor) -> Tensor:
        """Return ``(K, C)`` float32 scores of C outputs for ``(K, H)`` states."""
        scores: Tensor = self.classifier(self.dropout(states)).float()
        return scores


def check_dropout(dropout: float | None, name: str = "dropout") -> None:
    """Raise ConfigError if a head's argument ``name`` is given and is not a probability."""
    if dropout is not None and not 0 <= dropout <= 1:
        raise ConfigError(f"model.head.{name}: found {dropout}, expected 0 to 1")
