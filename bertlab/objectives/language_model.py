"""What the language-model objectives share, and the left-to-right one (paper sec. 5.1)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import Metric

from bertlab.api.batch import (
    EncoderOutput,
    IntArray,
    PackedBatch,
    PackedSequences,
    pad_to_multiple_of,
)
from bertlab.api.rng import CounterRNG
from bertlab.api.task import Objective, TaskContext, TaskLoss
from bertlab.encoders.layers import initialize
from bertlab.objectives.classification import Accuracy
from bertlab.objectives.cross_entropy import (
    SummedCrossEntropy,
    linear_cross_entropy,
    losses_by_rows,
)
from bertlab.objectives.masking import TokenClasses

if TYPE_CHECKING:
    from bertlab.api.tokenizer import Tokenizer

COLUMNS = 64  # scores of the vocabulary are a multiple of it on a GPU
_HEIGHT = 512  # rows of scores that are in memory at a time: 62 MB of 30,522 in float32
ROWS = 16  # predictions on a CPU, whose bf16 products are compiled anew for each shape


class TargetMean(Metric):
    """Mean over the targets of the value that a ``(V,)`` float table gives to their class."""

    full_state_update = False
    table: Tensor
    total: Tensor
    count: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table, persistent=False)
        self.add_state("total", torch.tensor(0.0), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add the values of ``(K,)`` targets; ``preds`` play no part."""
        del preds
        self.total += self.table[target].sum()
        self.count += target.numel()

    def compute(self) -> Tensor:
        """Return the mean; NaN of nothing."""
        return self.total / self.count


def unigram_baselines(token_counts: IntArray, classes: TokenClasses) -> dict[str, Metric]:
    """Return what a model without context reaches, by ``(V,)`` int64 counts in the training text.

    ``unigram_loss`` is the cross-entropy in nats of the add-one smoothed unigram distribution,
    ``unigram_accuracy`` the share of targets that are the commonest token. Special ids never count.
    """
    counts = torch.from_numpy(np.where(classes.special, 0, token_counts))
    smoothed = (counts + 1).double()
    # counts [5, 3, 0] -> log of [11 / 6, 11 / 4, 11 / 1]
    surprise = smoothed.sum().log() - smoothed.log()
    commonest = torch.zeros(len(counts))
    commonest[counts.argmax()] = 1
    return {"unigram_loss": TargetMean(surprise.float()), "unigram_accuracy": TargetMean(commonest)}


class TokenPrediction(Objective):
    """An objective that predicts ids at chosen positions; ``name`` prefixes its two fields.

    Its parameters are ``dense``, ``layer_norm`` and ``bias``, Hugging Face's
    ``cls.predictions.transform.dense``, ``.transform.LayerNorm`` and ``cls.predictions.bias``.
    """

    name: ClassVar[str]
    uses_pooled = False
    better: ClassVar[Mapping[str, Literal["min", "max"]]] = {"perplexity": "min"}
    classes: TokenClasses
    tokenizer: "Tokenizer"

    def __init__(self) -> None:
        super().__init__()
        self.top_k = 5
        self.token_counts: IntArray | None = None
        self.cross_entropy = SummedCrossEntropy()

    def build(self, context: TaskContext) -> None:
        """Create the head and keep what the data workers need of the tokenizer."""
        encoder = context.encoder
        width = encoder.token_embedding.embedding_dim
        self.dense = nn.Linear(encoder.hidden_size, width)
        self.layer_norm = nn.LayerNorm(width, eps=encoder.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(encoder.vocab_size))
        initialize(self, encoder.initializer_range)
        # in tuples, so that they stay the encoder's own
        activation = getattr(encoder, "activation", F.gelu)
        self._tied, self._activation = (encoder.token_embedding,), (activation,)
        self.classes = TokenClasses.of(context.tokenizer)
        self.tokenizer = context.tokenizer
        self.token_counts = context.token_counts

    def write_labels(
        self, sequences: PackedSequences, positions: IntArray, labels: IntArray
    ) -> int:
        """Write the fields that :meth:`loss` reads; return K.

        Args:
            sequences: ``fields`` are written to.
            positions: ``(K,)`` int64 flat positions whose hidden states predict.
            labels: ``(K,)`` int64 ids that they should predict.
        """
        sequences.write_token_labels(self.name, positions, labels)
        return len(positions)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return ``(K, V)`` float32 scores of the vocabulary for ``(K, H)`` hidden states.

        Dense layer, the encoder's activation, LayerNorm, then the tied token embedding with a bias
        of its own.
        """
        return self._scores(self._transform(hidden))[:, : len(self.bias)].float()

    @torch.no_grad()
    def log_probabilities(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """Return the ``(K,)`` float32 log-probabilities of ids that hidden states predict.

        Args:
            hidden: ``(K, H)`` states.
            labels: ``(K,)`` int64 ids, one for each.
        """
        found = torch.empty(len(labels), device=hidden.device)
        parts = (torch.split(each, _HEIGHT) for each in (hidden, labels, found))
        for rows, wanted, place in zip(*parts, strict=True):
            scores = self._scores(self._transform(rows))
            if scores.device.type == "cpu":
                losses = losses_by_rows(scores, wanted)
            else:
                losses = F.cross_entropy(scores.float(), wanted, reduction="none")
            torch.neg(losses, out=place)
        return found

    def tokens_read(self, batch: PackedBatch) -> Tensor | None:
        """Return the positions that predict; None of a batch without labels."""
        return batch.fields.get(f"{self.name}_positions")

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return cross-entropy in nats, summed in float32 over the K positions."""
        written = batch.token_labels(self.name)
        positions, labels = written.positions, written.labels
        if positions.device.type == "cpu":
            positions = pad_to_multiple_of(positions, ROWS)
        transformed = self._transform(output.tokens.index_select(0, positions))
        if positions.device.type == "cpu" and torch.is_grad_enabled():
            total = linear_cross_entropy(transformed, self._tied[0].weight, self.bias, labels)
            scores = None
        else:
            scores = self._scores(transformed)
            total = self.cross_entropy(scores, labels)

        def preds() -> Tensor:
            # the loss wrote over its scores: they are made anew where a metric asks
            found = self._scores(transformed.detach()) if scores is None else scores
            # of a padded vocabulary, 192 rows for 147 tokens, the last ones stand for no token
            return found[: len(labels), : self.tokenizer.vocab_size].detach().argmax(-1)

        return TaskLoss(total, labels.numel(), preds, labels)

    def _transform(self, hidden: Tensor) -> Tensor:
        transformed: Tensor = self.layer_norm(self._activation[0](self.dense(hidden)))
        return transformed

    def _scores(self, transformed: Tensor) -> Tensor:
        """Return the scores of the vocabulary, and on a GPU some columns of -inf after them."""
        # its matrix products are slow where rows do not begin at a multiple of 16 bytes, as 30,522
        # scores in half precision do not
        weight: Tensor = self._tied[0].weight
        bias: Tensor = self.bias
        if transformed.is_cuda:
            spare = -len(weight) % COLUMNS  # 30,522 -> 6
            weight = F.pad(weight, (0, 0, 0, spare))
            bias = F.pad(bias, (0, spare), value=-torch.inf)
        return F.linear(transformed, weight, bias)

    def metrics(self) -> dict[str, Metric]:
        """Return ``accuracy`` and, where the training text is known, the unigram baselines."""
        metrics: dict[str, Metric] = {"accuracy": Accuracy()}
        if self.token_counts is not None:
            metrics |= unigram_baselines(self.token_counts, self.classes)
        return metrics

    def derived_metrics(self, values: dict[str, float]) -> dict[str, float]:
        """Return ``perplexity``, the exponential of the loss in nats."""
        return {"perplexity": torch.tensor(values["loss"], dtype=torch.float64).exp().item()}

    def most_probable(self, hidden: Tensor) -> list[list[dict[str, Any]]]:
        """Return, for each row of ``(K, H)`` hidden states, the ``top_k`` tokens, best first."""
        probabilities = self.logits(hidden).softmax(-1)[:, : self.tokenizer.vocab_size]
        best = probabilities.topk(min(self.top_k, probabilities.shape[-1]))
        return [
            [
                {"token": self.tokenizer.readable(token), "probability": probability}
                for token, probability in zip(tokens, row, strict=True)
            ]
            for tokens, row in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]


class CausalLM(TokenPrediction):
    """Predict each token of the text from those before it in its sequence.

    Special tokens are read but never predicted, so that the loss counts text only.
    """

    name = "clm"
    requires_causal = True

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        """Write ``clm_positions`` and ``clm_labels``, both ``(K,)`` int64, of text tokens.

        The token after position t is t's label.
        """
        del rng, training
        predicted = self.classes.countable(sequences)
        # nothing stands before the first token to predict it from, even where it is no [CLS]
        predicted[sequences.cu_seqlens[:-1]] = False
        targets = np.flatnonzero(predicted)
        # targets [1, 2, 5] are predicted at [0, 1, 4]
        return self.write_labels(sequences, targets - 1, sequences.input_ids[targets])

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return ``{"next": [{"token", "probability"}, …]}`` of each sequence, best first.

        The prediction follows the last token that is not special, or else the first token.
        """
        special = torch.from_numpy(self.classes.special).to(batch.input_ids.device)
        # [CLS] a [SEP] [CLS] [SEP]: places [0, 1, 0, 0, 0], last of each sequence [1, 0]
        places = batch.position_ids.masked_fill(special[batch.input_ids], 0)
        starts = batch.cu_seqlens[:-1].long()
        sequence = torch.repeat_interleave(batch.lengths)
        last = torch.zeros_like(starts).scatter_reduce(0, sequence, places, "amax")
        return [{"next": best} for best in self.most_probable(output.tokens[starts + last])]
