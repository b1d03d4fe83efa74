"""Replaced-token detection (ELECTRA, Clark et al. 2020)."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import Metric

from bertlab import (
    ConfigError,
    CounterRNG,
    EncoderOutput,
    MaskingRecipe,
    Objective,
    PackedBatch,
    PackedSequences,
    TaskContext,
    TaskLoss,
    TokenClasses,
    Tokenizer,
    check_at_least,
    check_share,
    dynamic_draws,
    evaluation_draws,
    initialize,
    mask_tokens,
)
from bertlab_electra.generator import Generator, sample
from bertlab_electra.token_metrics import replacement_metrics

EVALUATION_RATE = 0.15  # as BERT
MASK_SHARE = 0.85  # ELECTRA's code; its paper says 1


class ReplacedTokenDetection(Objective):
    """Tell which tokens a small masked language model has replaced, and train that model too.

    The generator fills masked positions with samples; the encoder reads the result and says of
    every token whether it is the original. A sample that equals the original counts as original.
    The loss is the generator's, plus ``discriminator_weight`` times that of the detection.

    Args:
        generator_size: width of the generator as a share of the encoder's (paper: 1/4 to 1/2).
        generator_layers: layers of the generator; as many as the encoder has if not given.
        discriminator_weight: weight λ of the detection's loss (paper: 50).
        rate: share of the tokens that the generator predicts, in training (paper: 0.15; 0.25 for
            ELECTRA-Large). Evaluation always takes 15 %.
        mask_share: share of these that the generator reads as ``[MASK]``, in training; it sees the
            others as they are. The paper's text says all, its code 0.85.

    Raises:
        ConfigError: an argument is out of range.
    """

    corrupts_input = True
    requires_mask = True
    requires_causal = False
    uses_pooled = False
    shares = ("accuracy", "precision", "recall", "f1", "generator_accuracy")
    generator: Generator
    tokenizer: Tokenizer
    classes: TokenClasses
    special: Tensor

    def __init__(
        self,
        generator_size: float = 0.25,
        generator_layers: int | None = None,
        discriminator_weight: float = 50.0,
        rate: float = EVALUATION_RATE,
        mask_share: float = MASK_SHARE,
    ) -> None:
        super().__init__()
        _check("generator_size", generator_size, 0 < generator_size <= 1, "over 0 and at most 1")
        check_at_least("model.objectives.rtd.generator_layers", generator_layers, 1)
        check_at_least("model.objectives.rtd.discriminator_weight", discriminator_weight, 0)
        _check("rate", rate, 0 < rate <= 1, "over 0 and at most 1")
        check_share("model.objectives.rtd.mask_share", mask_share)
        self.generator_size = generator_size
        self.generator_layers = generator_layers
        self.discriminator_weight = discriminator_weight
        self.recipe = _recipe(rate, mask_share)

    def build(self, context: TaskContext) -> None:
        """Create the generator and the head that detects."""
        encoder = context.encoder
        self.tokenizer = context.tokenizer
        self.classes = TokenClasses.of(context.tokenizer)
        self.register_buffer("special", torch.from_numpy(self.classes.special), persistent=False)
        self.generator = Generator(encoder, self.generator_size, self.generator_layers)
        self.dense = nn.Linear(encoder.hidden_size, encoder.hidden_size)
        self.dense_prediction = nn.Linear(encoder.hidden_size, 1)
        initialize(self.dense, encoder.initializer_range)
        initialize(self.dense_prediction, encoder.initializer_range)

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        """Mask a batch for the generator and draw the noise that it samples with.

        Writes ``rtd_tokens`` ``(N,)`` int64, flat positions of the tokens that are judged: all text
        but ``[UNK]``; ``rtd_positions`` and ``rtd_labels`` ``(K,)`` int64, the selected and what
        stood there; ``rtd_noise`` ``(K,)`` float32; and ``rtd_rate``, a scalar.

        Args:
            sequences: written to: ``fields`` and ``input_ids``.
            rng: keyed by epoch, sequence and position, in evaluation by sequence and position.
            training: False selects 15 % whatever the settings.

        Returns:
            N, the number of tokens that are judged.
        """
        draws = (dynamic_draws if training else evaluation_draws)(sequences, rng)
        recipe = self.recipe if training else EVALUATION_RECIPE
        tokens = np.flatnonzero(self.classes.countable(sequences))
        positions, labels = mask_tokens(sequences, recipe, self.classes, draws)
        sequences.write_token_labels("rtd", positions, labels)
        sequences.fields |= {
            "rtd_tokens": tokens,
            "rtd_noise": draws.uniform("sample", positions).astype(np.float32),
            "rtd_rate": np.array(recipe.rate, np.float32),
        }
        return len(tokens)

    def rewrite_input(self, batch: PackedBatch) -> PackedBatch:
        """Return the batch with the generator's samples instead of what it was asked for.

        Adds ``rtd_replaced`` ``(T,)`` int64, 0 or 1, ``rtd_selected`` ``(T,)`` bool, and
        ``rtd_generator_loss``, a scalar with a gradient: cross-entropy in nats, summed over the
        selected tokens.
        """
        fields = batch.fields
        asked = batch.token_labels("rtd")
        positions, labels = asked.positions, asked.labels
        scores = self.generator(batch, positions)
        samples = sample(scores, fields["rtd_noise"], self.special)
        nowhere = torch.zeros_like(batch.input_ids)
        added = {
            "rtd_replaced": nowhere.index_copy(0, positions, (samples != labels).long()),
            "rtd_selected": nowhere.bool().index_fill(0, positions, value=True),
            "rtd_generator_loss": F.cross_entropy(scores, labels, reduction="sum"),
        }
        input_ids = batch.input_ids.index_copy(0, positions, samples)
        return replace(batch, input_ids=input_ids, fields={**fields, **added})

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return both losses in nats, summed in float32; the count is that of the N judged tokens.

        A task has one count, and the generator's mean is over fewer tokens, ``rate`` times N but
        for rounding. So its sum is divided by ``rate``: then the mean over N of the whole is the
        paper's loss, every selected token of a step weighs the same however the step is divided
        into batches, and batches add up. ``preds`` and ``target`` are 1 for replaced; the extra
        ``selected`` is True for what the generator was asked for.
        """
        tokens = batch.fields["rtd_tokens"]
        replaced = batch.fields["rtd_replaced"][tokens]
        selected = batch.fields["rtd_selected"][tokens]
        logits = self._logits(output.tokens[tokens])
        detection = F.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="sum")
        generation = batch.fields["rtd_generator_loss"] / batch.fields["rtd_rate"]
        return TaskLoss(
            sum=generation + self.discriminator_weight * detection,
            count=len(tokens),
            preds=(logits.detach() > 0).long(),  # a probability above one half
            target=replaced,
            extras={"selected": selected},
        )

    def metrics(self) -> dict[str, Metric]:
        """Return what :func:`replacement_metrics` has."""
        return replacement_metrics()

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return ``{"replaced": [{"token", "probability"}, …]}`` of each sequence.

        One entry for each token that is not special: the probability that it has been replaced.
        """
        probabilities = self._logits(output.tokens).sigmoid().tolist()
        ids = batch.input_ids.tolist()
        borders = batch.cu_seqlens.tolist()
        return [
            {
                "replaced": [
                    {
                        "token": self.tokenizer.readable(ids[place]),
                        "probability": probabilities[place],
                    }
                    for place in range(start, stop)
                    if not self.classes.special[ids[place]]
                ]
            }
            for start, stop in pairwise(borders)
        ]

    def _logits(self, hidden: Tensor) -> Tensor:
        """Return ``(N,)`` float32 scores of "replaced" for ``(N, H)`` hidden states."""
        logits: Tensor = self.dense_prediction(F.gelu(self.dense(hidden)))
        return logits.squeeze(-1).float()


def _recipe(rate: float, mask_share: float) -> MaskingRecipe:
    return MaskingRecipe(rate, "token", mask_share, random_share=0.0, keep_share=1 - mask_share)


def _check(name: str, found: object, fits: bool, expected: str) -> None:
    if not fits:
        raise ConfigError(f"model.objectives.rtd.{name}: found {found}, expected {expected}")


EVALUATION_RECIPE = _recipe(EVALUATION_RATE, MASK_SHARE)
