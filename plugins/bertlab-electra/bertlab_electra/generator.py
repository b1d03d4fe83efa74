"""The generator: a narrow BERT that fills masked positions (ELECTRA, Clark et al. 2020, sec. 2)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertlab import BertEncoder, Encoder, PackedBatch, initialize

HEAD_WIDTH = 64  # of an attention head in all of BERT's and ELECTRA's sizes


class Generator(nn.Module):
    """A BERT of a fraction of the width, with the main encoder's token embedding (sec. 3.2).

    The embedding is that of the input and, transposed, of the output; linear layers come between
    where the widths differ. Positions, segments and everything else are the generator's own.

    Args:
        encoder: the main encoder.
        size: its width as a share of the main encoder's.
        num_hidden_layers: its layers; as many as the main encoder has if None.
    """

    def __init__(self, encoder: Encoder, size: float, num_hidden_layers: int | None) -> None:
        super().__init__()
        width = max(1, round(encoder.hidden_size * size))
        self.body = BertEncoder(
            vocab_size=encoder.vocab_size,
            num_hidden_layers=num_hidden_layers or encoder.num_hidden_layers,
            hidden_size=width,
            num_attention_heads=attention_heads(width),
            max_position_embeddings=encoder.max_position_embeddings,
            hidden_dropout_prob=encoder.hidden_dropout_prob,
            attention_probs_dropout_prob=encoder.hidden_dropout_prob,
            layer_norm_eps=encoder.layer_norm_eps,
            initializer_range=encoder.initializer_range,
        )
        self.body.pooler = nn.Identity()  # nothing reads it
        self._shared = (encoder.token_embedding,)  # in a tuple, so that it stays the encoder's own
        self.body.token_embedding = SharedEmbedding(encoder.token_embedding, width)  # type: ignore[assignment]
        self.dense = nn.Linear(width, encoder.hidden_size)
        self.layer_norm = nn.LayerNorm(encoder.hidden_size, eps=encoder.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(encoder.vocab_size))
        for layer in (self.body.token_embedding, self.dense, self.layer_norm):
            initialize(layer, encoder.initializer_range)

    def forward(self, batch: PackedBatch, positions: Tensor) -> Tensor:
        """Return ``(K, V)`` float32 scores of the vocabulary at flat ``positions`` ``(K,)``."""
        hidden = self.body(batch).tokens.index_select(0, positions)
        transformed = self.layer_norm(F.gelu(self.dense(hidden)))
        return F.linear(transformed, self._shared[0].weight, self.bias).float()


class SharedEmbedding(nn.Module):
    """An embedding that is another module's, projected to a width of its own.

    Args:
        shared: ``(V, H)`` table, which is not registered here.
        width: of what it returns; equal to H: nothing is projected.
    """

    def __init__(self, shared: nn.Embedding, width: int) -> None:
        super().__init__()
        self._shared = (shared,)
        same = width == shared.embedding_dim
        self.projection = nn.Identity() if same else nn.Linear(shared.embedding_dim, width)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Map ``(T,)`` ids to ``(T, width)``."""
        projected: Tensor = self.projection(self._shared[0](input_ids))
        return projected


def attention_heads(width: int) -> int:
    """Return the number of heads of about 64 that divides a width; at least 1."""
    most = max(1, width // HEAD_WIDTH)
    return next(heads for heads in range(most, 0, -1) if width % heads == 0)  # 192 -> 3, 160 -> 2


def sample(scores: Tensor, noise: Tensor, excluded: Tensor) -> Tensor:
    """Draw an id from each row's softmax: where its cumulative probability passes the noise.

    A draw depends on its own row and noise only, not on the batch; there is no gradient.

    Args:
        scores: ``(K, V)`` float32.
        noise: ``(K,)`` float32 in [0, 1).
        excluded: ``(V,)`` bool, True for ids that are never drawn.

    Returns:
        ``(K,)`` int64.
    """
    with torch.no_grad():
        # shares [0.5, 0.2, 0.3], noise 0.6: cumulative [0.5, 0.7, 1.0] -> id 1. Noise is scaled,
        # as float32 sums end near 1. right=True passes over excluded ids, which add nothing.
        cumulative = scores.masked_fill(excluded, -torch.inf).softmax(-1).cumsum(-1)
        passed = cumulative[:, -1:] * noise[:, None]
        drawn = torch.searchsorted(cumulative, passed, right=True).squeeze(-1)
        return drawn.clamp(max=scores.shape[-1] - 1)  # rounding: noise just below 1
