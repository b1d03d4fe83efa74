"""One feature vector a token from several layers of the encoder (paper sec. 5.3, table 7).

Tagging with fixed features of the encoder (paper sec. 5.3, table 7).
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from bertlab import check_at_least, check_share, initialize, packed_lstm
from bertlab.api import EncoderOutput, PackedBatch, TaskContext
from bertlab.extend import Dropout
from bertlab_tasks.layers import check_layers, combine_layers
from bertlab_tasks.tag_schemes import Scheme
from bertlab_tasks.tagging import Tagging


class WeightedSum(nn.Module):
    """Learned mix of n layers: softmax weights and a scale (Peters et al. 2018, eq. 1).

    Starts as the mean.

    Args:
        count: n, the number of layers that are mixed.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(count))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """Mix n tensors ``(T, H)`` to ``(T, H)``."""
        shares = self.scale * self.weights.softmax(0)
        return torch.einsum("n,nth->th", shares, torch.stack(list(layers)))


class FeatureTagging(Tagging):
    """Classify words by a two-layer BiLSTM over features of an encoder that is not trained.

    The features of a word are the hidden states of its first piece. The BiLSTM reads the words of a
    sequence, those that are only context included; of a sentence in several windows it reads each
    window on its own. Windows, tags and scores are those of :class:`Tagging`.

    The rows of the paper's table 7, for an encoder of 12 layers:

    ======================= ============================= =================
    row                     ``layers``                    ``combine``
    ======================= ============================= =================
    embeddings              ``[0]``                       any
    second-to-last hidden   ``[-2]``                      any
    last hidden             ``[-1]``                      any
    weighted sum last four  ``[-4, -3, -2, -1]``          ``weighted_sum``
    concat last four        ``[-4, -3, -2, -1]``          ``concat``
    weighted sum all layers ``[1, 2, …, 12]``             ``weighted_sum``
    ======================= ============================= =================

    Args:
        layers: of the encoder; 0 is the embeddings, -1 the last layer.
        combine: how several layers make one vector. ``weighted_sum`` learns softmax weights and a
            scale, as ELMo.
        hidden_size: width of each direction of the LSTM.
        lstm_dropout: on the features, between the LSTM's layers and on its output.
        scheme: as in ``tagging``.
        window_stride: as in ``tagging``.

    Raises:
        ConfigError: if a size is below 1, the dropout not in 0 to 1, or there is no layer.
    """

    trains_encoder = False
    reads_all_layers = True
    huggingface = None

    def __init__(
        self,
        layers: Sequence[int] = (-4, -3, -2, -1),
        combine: Literal["concat", "sum", "weighted_sum"] = "concat",
        hidden_size: int = 768,
        lstm_dropout: float = 0.5,
        scheme: Scheme = "auto",
        window_stride: int | None = None,
    ) -> None:
        super().__init__(scheme=scheme, window_stride=window_stride)
        check_at_least("model.head.hidden_size", hidden_size, 1)
        check_share("model.head.lstm_dropout", lstm_dropout)
        self.layers = tuple(layers)
        self.combine = combine
        self.hidden_size = hidden_size
        self.lstm_dropout = lstm_dropout

    def add_layers(self, context: TaskContext) -> None:
        """Create the LSTM and the classifier of its output.

        Raises:
            ConfigError: if the encoder does not have a layer.
        """
        encoder = context.encoder
        check_layers(self.layers, encoder.num_hidden_layers + 1, "model.head.layers")
        if self.combine == "weighted_sum":
            self.weighted_sum = WeightedSum(len(self.layers))
            self.decays = {"weighted_sum": True}  # Peters et al. 2018, sec. 3.3
        width = encoder.hidden_size * (len(self.layers) if self.combine == "concat" else 1)
        self.dropout = Dropout(self.lstm_dropout)
        self.lstm = nn.LSTM(
            width,
            self.hidden_size,
            num_layers=2,
            dropout=self.lstm_dropout,
            bidirectional=True,
        )
        self.classifier = nn.Linear(2 * self.hidden_size, len(self._classes))
        initialize(self, encoder.initializer_range)  # leaves the LSTM's weights as torch makes them

    def logits(self, output: EncoderOutput, batch: PackedBatch) -> Tensor:
        """Return ``(K, C)`` float32 scores of C tags for the K words predicted in the batch."""
        is_word = batch.fields["word"] >= 0
        # the LSTM reads first pieces only: is_word [0, 1, 0, 1, 0] and [0, 1, 0] -> lengths [2, 1]
        ends = torch.cumsum(is_word, 0)[batch.cu_seqlens[1:].long() - 1]
        lengths = ends.diff(prepend=ends.new_zeros(1))
        features = self.dropout(self.features(output)[is_word])
        states = packed_lstm(self.lstm, features, lengths)  # (words, 2 hidden_size)
        return self.classify(states[batch.fields["is_predicted"][is_word]])

    def features(self, output: EncoderOutput) -> Tensor:
        """Return the ``(T, F)`` features of all tokens, from ``output.all_layers``."""
        assert output.all_layers is not None
        layers = output.all_layers
        if self.combine != "weighted_sum":
            return combine_layers(layers, self.layers, self.combine, "model.head.layers")
        mixed: Tensor = self.weighted_sum([layers[index] for index in self.layers])
        return mixed
