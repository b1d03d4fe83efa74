"""Left-to-right language model (the "LTR" ablation of paper sec. 5.1)."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bertlab.api.batch import EncoderOutput, PackedBatch, PackedSequences
from bertlab.objectives.language_model import TokenPrediction

if TYPE_CHECKING:
    from bertlab.api.rng import CounterRNG


class CausalLM(TokenPrediction):
    """Predict each token of the text from those before it in its sequence.

    Special tokens are read but never predicted, so that the loss counts text only.
    """

    name = "clm"
    requires_causal = True

    def prepare(self, sequences: PackedSequences, rng: "CounterRNG", training: bool) -> int:
        """Write ``clm_positions`` and ``clm_labels``, both ``(K,)`` int64.

        Args:
            sequences: ``fields`` are written to; the token after position t is t's label.
            rng: not used.
            training: not used.

        Returns:
            K, the number of text tokens that have a token before them.
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
