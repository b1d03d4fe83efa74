"""``adaptive_mlm``: what a model predicts badly is masked more often."""

import math
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from bertlab import (
    ConfigError,
    CounterRNG,
    EncoderOutput,
    MaskedLM,
    PackedBatch,
    PackedSequences,
    TaskContext,
    TaskLoss,
    check_at_least,
    check_share,
    dynamic_draws,
    evaluation_draws,
    mask_tokens,
)
from bertlab.extend import EVALUATION_RECIPE, Change

Measure = Literal["hard", "soft"]
_UNIT = 2**20  # of a sum of losses: whole numbers add up to the same in every order
_FLOOR = 1 / 30  # the least weight; 0.005 of 0.15 in the authors' code


def stream_of_mlm(rng: CounterRNG, name: str) -> CounterRNG:
    """Return the stream by which ``mlm`` would mask the batch that an objective ``name`` masks."""
    # of a run each objective has its own, objective/mntp; elsewhere there is one for all
    own = rng.stream == f"objective/{name}"
    return (CounterRNG(rng.seed, "objective/mlm") if own else rng).child("mlm")


class AdaptiveMaskedLM(MaskedLM):
    """A masked LM that masks a token the more often, the worse it predicts it.

    Each token of the vocabulary has a weight, at first 1. Every ``update_every`` steps the weights
    become those of how badly the token was predicted since, mixed with the old ones (Edman & Fraser
    2025). Of each sequence ``rate`` of the tokens are masked as before: which ones is drawn by
    their weights. Held-out text is masked as that of ``mlm``, the same tokens.

    Args:
        rate: share of the tokens that are predicted; ``{from: 0.4, to: 0.15}`` changes it from
            step to step, as the paper's best model has it.
        measure: ``hard``: the share of wrong predictions; ``soft``: the mean loss, as a share of
            that of a uniform guess.
        update_every: steps from one change of the weights to the next (paper: 200).
        memory: share of the old weights in the new ones.
        mask_share: share of the selected that become ``[MASK]``.
        random_share: share of the selected that become a random token.
        keep_share: share of the selected that stay as they are.

    Attributes:
        weights: ``(V,)`` float32 buffer, mean 1.

    Raises:
        ConfigError: an argument is out of range.
    """

    name = "adaptive_mlm"
    weights: Tensor
    missed: Tensor
    seen: Tensor

    def __init__(
        self,
        rate: float | Change = 0.15,
        measure: Measure = "hard",
        update_every: int = 200,
        memory: float = 0.2,
        mask_share: float = 0.8,
        random_share: float = 0.1,
        keep_share: float = 0.1,
    ) -> None:
        super().__init__(rate, "token", mask_share, random_share, keep_share)
        if measure not in get_args(Measure):
            raise ConfigError(
                f"model.objectives.adaptive_mlm.measure: found {measure!r}, expected hard or soft"
            )
        check_at_least("model.objectives.adaptive_mlm.update_every", update_every, 1)
        check_share("model.objectives.adaptive_mlm.memory", memory)
        self.measure = measure
        self.update_every = update_every
        self.memory = memory
        self._of_step: list[tuple[Tensor, Tensor]] = []  # labels and their misses, of each batch

    def build(self, context: TaskContext) -> None:
        """Create the head, and a weight for each token."""
        super().build(context)
        size = context.encoder.vocab_size
        self.register_buffer("weights", torch.ones(size))
        # since the last change, the same on all devices
        self.register_buffer("missed", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("seen", torch.zeros(size, dtype=torch.int64))

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        """Draw what masks are chosen by on the device; mask held-out text as ``mlm`` does.

        Of the M maskable tokens it writes ``adaptive_tokens`` ``(M,)`` int64 flat positions,
        ``adaptive_keys`` ``(M,)`` float32, exponentially distributed, ``adaptive_fates`` ``(M,)``
        float32 and ``adaptive_random`` ``(M,)`` int64, what each becomes if it is selected; and
        ``adaptive_budgets`` ``(B,)`` int64, how many are of each sequence.
        """
        stream = stream_of_mlm(rng, self.name)
        if not training:
            draws = evaluation_draws(sequences, stream)
            masked = mask_tokens(sequences, EVALUATION_RECIPE, self.classes, draws)
            return self.write_labels(sequences, *masked)
        draws = dynamic_draws(sequences, stream)
        tokens = np.flatnonzero(self.classes.countable(sequences))
        row = sequences.sequence_of_token[tokens]
        maskable = np.bincount(row, minlength=len(sequences.lengths))  # (B,)
        first = tokens[np.flatnonzero(np.diff(row, prepend=-1))]
        rounding = np.zeros(len(maskable))
        rounding[maskable > 0] = draws.uniform("budget", first)
        rate = self._recipe_at(sequences.progress).rate
        # 0.15 of 30 tokens: 4 or 5 of them, as often
        budgets = np.floor(rate * maskable + rounding).astype(np.int64)
        budgets = np.clip(budgets, np.minimum(1, maskable), maskable)
        sequences.fields |= {
            "adaptive_tokens": tokens,
            "adaptive_keys": -np.log1p(-draws.uniform("key", tokens)).astype(np.float32),
            "adaptive_fates": draws.uniform("fate", tokens).astype(np.float32),
            "adaptive_random": draws.pick(self.classes.ordinary_ids, tokens),
            "adaptive_budgets": budgets,
        }
        return int(budgets.sum())

    def rewrite_input(self, batch: PackedBatch) -> PackedBatch:
        """Return the batch with masks, drawn by the weights of its tokens without repetition.

        Of exponential keys divided by weights the smallest of a sequence are such a draw
        (Efraimidis & Spirakis 2006).
        """
        fields = batch.fields
        if "adaptive_tokens" not in fields:  # of evaluation: it is masked
            return batch
        tokens = fields["adaptive_tokens"]
        keys = fields["adaptive_keys"] / self.weights[batch.input_ids[tokens]]
        row = torch.searchsorted(batch.cu_seqlens, tokens, right=True) - 1
        order = keys.argsort(stable=True)
        order = order[row[order].argsort(stable=True)]  # by sequence, in each by key
        sorted_row = row[order]
        # rows [0, 0, 0, 2, 2] begin at [0, 0, 0, 3, 3] -> ranks [0, 1, 2, 0, 1]
        rank = torch.arange(len(order), device=order.device)
        rank = rank - torch.searchsorted(sorted_row, sorted_row)
        chosen = order[rank < fields["adaptive_budgets"][sorted_row]].sort().values
        positions, fates = tokens[chosen], fields["adaptive_fates"][chosen]
        labels = batch.input_ids[positions]
        recipe = self.recipe
        is_random = fates < recipe.mask_share + recipe.random_share
        ids = torch.where(is_random, fields["adaptive_random"][chosen], labels)
        ids = ids.masked_fill(fates < recipe.mask_share, self.classes.mask_id)
        written = {f"{self.name}_positions": positions, f"{self.name}_labels": labels}
        input_ids = batch.input_ids.index_copy(0, positions, ids)
        return replace(batch, input_ids=input_ids, fields={**fields, **written})

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return cross-entropy in nats, summed in float32 over the K positions."""
        found = super().loss(output, batch)
        if self.training and "adaptive_tokens" in batch.fields:
            with torch.no_grad():
                self._of_step.append((found.target, self._misses(output, batch, found)))
        return found

    def _misses(self, output: EncoderOutput, batch: PackedBatch, found: TaskLoss) -> Tensor:
        """Return ``(K,)`` int64, how badly each was predicted in units of 2**-20."""
        if self.measure == "hard":
            return (found.preds != found.target).long() * _UNIT
        states = output.tokens[batch.token_labels(self.name).positions]
        losses = -self.log_probabilities(states, found.target) / math.log(len(self.weights))
        return (losses * _UNIT).long()

    def after_step(self, step: int) -> None:
        """Count what the step has predicted; from time to time change the weights."""
        counts = torch.zeros_like(self.missed), torch.zeros_like(self.seen)
        for labels, misses in self._of_step:
            counts[0].index_add_(0, labels, misses)
            counts[1].index_add_(0, labels, torch.ones_like(labels))
        self._of_step.clear()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            for each in counts:
                torch.distributed.all_reduce(each)
        self.missed += counts[0]
        self.seen += counts[1]
        if step % self.update_every == 0:
            self._change_weights()

    def _change_weights(self) -> None:
        # half a miss in one more prediction: a token that was never predicted has 0.5
        missed = self.missed.double() / _UNIT
        share = (missed + 0.5) / (self.seen.double() + 1)
        mixed = self.memory * self.weights.double() + (1 - self.memory) * share
        mixed = mixed.clamp(min=_FLOOR)
        self.weights.copy_(mixed / mixed.mean())
        self.missed.zero_()
        self.seen.zero_()
