"""The contract of an encoder."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar

from torch import Tensor, nn

from bertlab.api.batch import EncoderOutput, PackedBatch
from bertlab.api.huggingface import HuggingFaceForm


class Encoder(nn.Module, ABC):
    """Maps a packed batch to hidden states.

    Its attention can be shown and measured if its layers of attention are
    :class:`bertlab.encoders.bert.SelfAttention`, or subclasses that leave ``forward`` as it is.

    Attributes:
        vocab_size: rows of ``token_embedding``.
        hidden_size: width H of the hidden states.
        num_hidden_layers: L; ``all_layers`` of the output has one more, the embeddings.
        max_position_embeddings: longest sequence that it can read, in tokens.
        causal: True if a position sees only itself and what is to its left; the output's
            ``summary`` is then :func:`bertlab.last_token`.
        reads_directions: ``batch.causal`` says of each sequence, in place of ``causal``, how it is
            read and which token sums it up.
        hidden_dropout_prob: dropout that heads use as well (paper app. A.2: 0.1 on all layers).
        layer_norm_eps: epsilon of its LayerNorms; heads use the same.
        initializer_range: standard deviation of new weights (BERT: 0.02); heads use the same.
        token_embedding: ``(vocab_size, E)`` table, which the masked-LM head shares; E is H or less.
        activation: of the masked-LM head as well; GELU by default.
        pooler: layers that make the pooled output; frozen where no task reads it.
        huggingface: forms in which ``transformers`` keeps such an encoder; it is read from any, and
            written in the first. Empty if there is none. Packages may add others.
        layer_lists: names of its attributes, each an ``nn.ModuleList``, that hold its layers from
            below; those of equal number in several lists are of equal depth. For layer-wise decay
            and frozen layers.
        decays: which of its parameters decay, by name or by that of a module: ``{"gate": False}``.
            Of others biases, norms and all of one dimension do not.
    """

    huggingface: ClassVar[tuple[HuggingFaceForm, ...]] = ()
    layer_lists: ClassVar[tuple[str, ...]] = ("layers",)
    decays: Mapping[str, bool] = MappingProxyType({})
    activation: Callable[[Tensor], Tensor]  # no default here, which would hide an ``nn.Module``

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    max_position_embeddings: int
    causal: bool
    reads_directions: bool = False
    hidden_dropout_prob: float
    layer_norm_eps: float
    initializer_range: float
    token_embedding: nn.Embedding
    pooler: nn.Module

    @abstractmethod
    def forward(self, batch: PackedBatch, all_layers: bool = False) -> EncoderOutput:
        """Encode a batch of T tokens.

        Args:
            batch: T tokens of B sequences, laid end to end; no sequence sees another.
            all_layers: also return the hidden states of every layer.
        """


class Adapter(ABC):
    """Trains a few new weights in place of an encoder's: ``model.adapter: {name: NAME, …}``."""

    @abstractmethod
    def adapt(self, encoder: Encoder) -> None:
        """Freeze weights of an encoder and add those that are trained.

        ``encoder.state_dict()`` keeps every name, with the weights of a plain encoder that computes
        the same: all but ``fit`` load these. ``load_state_dict`` goes on with further names.
        """


def layers_of(encoder: nn.Module) -> list[nn.Module]:
    """Return what an encoder calls one after the other: the members of its ``nn.ModuleList``s."""
    lists = [each for each in encoder.modules() if isinstance(each, nn.ModuleList)]
    return [layer for each in lists for layer in each]
