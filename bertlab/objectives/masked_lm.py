"""Masked language model (paper sec. 3.1, task 1)."""

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import torch

from bertlab.api.batch import EncoderOutput, PackedBatch, PackedSequences
from bertlab.api.optimizer import Progress
from bertlab.errors import ConfigError, check_at_least
from bertlab.objectives.changing import Change, ChangingNumber
from bertlab.objectives.language_model import TokenPrediction
from bertlab.objectives.masking import (
    MaskingRecipe,
    dynamic_draws,
    evaluation_draws,
    mask_tokens,
    static_draws,
)

if TYPE_CHECKING:
    from bertlab.api.rng import CounterRNG

EvaluationMasks = Literal["standard", "training"]
EVALUATION_RECIPE = MaskingRecipe()  # 15 %, tokens, 80/10/10


class MaskedLM(TokenPrediction):
    """Predict the tokens that were masked, from both sides.

    Args:
        rate: share of the tokens that are predicted; at most 1. ``{from: 0.4, to: 0.15}`` changes
            it from step to step of the run; ``schedule`` beside them is a name or a name and
            arguments, as of the learning rate, and linear by default.
        unit: what is selected together: ``token``, ``whole_word`` (all pieces of a word),
            ``span`` of bertlab-modern (up to 10 neighbouring words; SpanBERT, Joshi et al. 2020),
            or that of a plugin.
        mask_share: share of the selected that become ``[MASK]``.
        random_share: share of the selected that become a random token.
        keep_share: share of the selected that stay as they are. The three sum to 1.
        dynamic: draw new masks in every epoch (RoBERTa); False: a fixed set of masked copies of
            the text, as BERT's own data.
        static_copies: number of masked copies that epochs take in turn if not ``dynamic``.
        evaluation: ``standard`` masks held-out text as BERT's, 15 % of the tokens, 80/10/10, which
            makes runs comparable; ``training`` masks it as training does, for objectives that build
            on what is masked.

    Raises:
        ConfigError: an argument is out of range.
    """

    name = "mlm"
    corrupts_input = True
    requires_mask = True
    requires_causal = False
    predicts_from: ClassVar[int] = 0  # the state that predicts a token: -1, the one before it

    def __init__(
        self,
        rate: float | Change = 0.15,
        unit: str = "token",
        mask_share: float = 0.8,
        random_share: float = 0.1,
        keep_share: float = 0.1,
        dynamic: bool = True,
        static_copies: int = 10,
        evaluation: EvaluationMasks = "standard",
    ) -> None:
        super().__init__()
        key = f"model.objectives.{self.name}"  # of a subclass its own
        self.rate: ChangingNumber | None = None
        if isinstance(rate, dict):
            self.rate = ChangingNumber.read(rate, f"{key}.rate")
            self.requires_steps = f"{key}.rate" if self.rate.schedule.needs_end else None
            rates = [self.rate.end, self.rate.start]
        else:
            rates = [rate]
        for each in rates:  # both ends are looked at; where there is no run, it is the first
            shares = mask_share, random_share, keep_share
            self.recipe = MaskingRecipe(each, unit, *shares, objective=self.name)
        check_at_least(f"{key}.static_copies", static_copies, 1)
        if evaluation not in get_args(EvaluationMasks):
            expected = " or ".join(get_args(EvaluationMasks))
            raise ConfigError(f"{key}.evaluation: found {evaluation!r}, expected {expected}")
        self.evaluation = evaluation
        self.dynamic = dynamic
        self.static_copies = static_copies

    def prepare(self, sequences: PackedSequences, rng: "CounterRNG", training: bool) -> int:
        """Mask a batch; write ``mlm_positions`` and ``mlm_labels``, both ``(K,)`` int64.

        Draws are keyed by epoch, sequence and position, or by epoch and place in the corpus if
        static; in evaluation by sequence and position, so that its masks never change.
        """
        stream = rng.child(self.name)
        if not training:
            draws = evaluation_draws(sequences, stream)
        elif self.dynamic:
            draws = dynamic_draws(sequences, stream)
        else:
            draws = static_draws(sequences, stream, self.static_copies)
        as_trained = training or self.evaluation == "training"
        recipe = self._recipe_at(sequences.progress) if as_trained else EVALUATION_RECIPE
        positions, labels = mask_tokens(sequences, recipe, self.classes, draws)
        return self.write_labels(sequences, positions, labels)

    def _recipe_at(self, progress: Progress | None) -> MaskingRecipe:
        """Return how a batch of a step is masked: the same in every worker and after a resume."""
        if self.rate is None:
            return self.recipe
        return replace(self.recipe, rate=self.rate.at(progress))

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return ``{"fillers": [[{"token", "probability"}, …], …]}`` of each sequence.

        One inner list, best first, for every ``[MASK]`` that the input holds.
        """
        positions = (batch.input_ids == self.classes.mask_id).nonzero().squeeze(-1)
        read = (positions + self.predicts_from).clamp(min=0)
        fillers = self.most_probable(output.tokens.index_select(0, read))
        # [MASK] at [1, 2, 6], cu_seqlens [0, 4, 6, 8] -> ends [0, 2, 2, 3]
        ends = torch.searchsorted(positions, batch.cu_seqlens.long()).tolist()
        return [{"fillers": fillers[start:end]} for start, end in pairwise(ends)]
