"""``mntp``: masked next-token prediction with a causal share (GPT-BERT)."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np

from bertlab import (
    CounterRNG,
    MaskedLM,
    PackedSequences,
    check_share,
    dynamic_draws,
    evaluation_draws,
    mask_tokens,
)
from bertlab.extend import EVALUATION_RECIPE, Change
from bertlab_modern.adaptive_masking import stream_of_mlm


class MaskedNextToken(MaskedLM):
    """Predict a masked token from the state before it, and some sequences left to right.

    Both are next-token predictions (Charpentier & Samuel 2024): what stands at a token is predicted
    from the state one place to its left. Of most sequences 15 % of the tokens are masked and the
    encoder reads them from both sides; the others, ``causal_share`` of them, it reads as they are,
    left to right, and every token is predicted. Each prediction weighs the same, and a causal
    sequence has about ``1 / rate`` times as many.

    Held-out text is masked as that of ``mlm``, the same tokens, so that the losses compare.

    Args:
        causal_share: share of the sequences that are read left to right (paper: 1 in 16).
        rate: share of the tokens of the others that are predicted, as of ``mlm``.
        unit: what is selected together, as of ``mlm``.
        mask_share: share of the selected that become ``[MASK]``.
        random_share: share of the selected that become a random token.
        keep_share: share of the selected that stay as they are.
        evaluation: ``standard`` or ``training``, which reads a part of the held-out sequences left
            to right, too.

    Raises:
        ConfigError: an argument is out of range.
    """

    name = "mntp"
    predicts_from: ClassVar[int] = -1
    requires_encoder: ClassVar[Mapping[str, object]] = {"reads_directions": True}

    def __init__(
        self,
        causal_share: float = 0.0625,
        rate: float | Change = 0.15,
        unit: str = "token",
        mask_share: float = 0.8,
        random_share: float = 0.1,
        keep_share: float = 0.1,
        evaluation: Literal["standard", "training"] = "standard",
    ) -> None:
        super().__init__(rate, unit, mask_share, random_share, keep_share, evaluation=evaluation)
        check_share("model.objectives.mntp.causal_share", causal_share)
        self.causal_share = causal_share
        if not causal_share:
            self.requires_encoder = {}  # type: ignore[misc]  # depends on the argument

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        """Write ``mntp_positions`` and ``mntp_labels``, both ``(K,)`` int64, and mask a batch.

        ``causal`` ``(B,)`` bool says which sequences are read left to right. Draws are keyed as
        those of ``mlm``, and are the same: a sequence is masked as ``mlm`` masks it.
        """
        stream = stream_of_mlm(rng, self.name)
        draws = (dynamic_draws if training else evaluation_draws)(sequences, stream)
        as_trained = training or self.evaluation == "training"
        recipe = self._recipe_at(sequences.progress) if as_trained else EVALUATION_RECIPE
        before = sequences.input_ids.copy()
        positions, labels = mask_tokens(sequences, recipe, self.classes, draws)
        if as_trained and self.causal_share:
            keys = (sequences.epochs, sequences.indices) if training else (sequences.indices,)
            causal = rng.child("direction").uniform(*keys) < self.causal_share  # (B,)
            row = sequences.sequence_of_token
            sequences.input_ids[causal[row]] = before[causal[row]]
            all_of = np.flatnonzero(self.classes.countable(sequences) & causal[row])
            masked = positions[~causal[row[positions]]]
            positions = np.sort(np.concatenate([masked, all_of]))
            labels = before[positions]
            sequences.fields["causal"] = causal
        # nothing stands before the first token to predict it from, even where it is no [CLS]
        has_left = sequences.position_ids[positions] > 0
        # tokens [1, 2, 5] are predicted at [0, 1, 4]
        states = positions[has_left] + self.predicts_from
        return self.write_labels(sequences, states, labels[has_left])
