"""An LSTM over sequences that are laid end to end, without padding them."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from bertlab.packed_batch import PackedBatch, first_token, last_token


def packed_lstm(lstm: nn.LSTM, values: Tensor, lengths: Tensor) -> Tensor:
    """Run an LSTM over each sequence of a batch on its own, from zero states.

    It computes in the LSTM's own dtype, also under autocast, whose LSTM on CUDA takes float16
    even where bfloat16 was asked for.

    Args:
        lstm: of input width F and output width D; D is twice ``hidden_size`` if bidirectional.
        values: ``(T, F)`` inputs of B sequences, one after the other.
        lengths: ``(B,)`` int64 lengths of the sequences, at least 1 each and T together.

    Returns:
        ``(T, D)`` outputs in the order of ``values``.
    """
    ranks = lengths.argsort(descending=True, stable=True).argsort()  # the longest first
    starts = lengths.cumsum(0) - lengths
    total = len(values)
    sequence = torch.repeat_interleave(lengths, output_size=total)
    step = torch.arange(total, device=values.device) - starts[sequence]
    order = (step * len(lengths) + ranks[sequence]).argsort()  # all first tokens, all second, …
    dtype = next(lstm.parameters()).dtype
    with torch.autocast(values.device.type, enabled=False):
        by_step = PackedSequence(values[order].to(dtype), step.bincount().cpu())
        outputs: Tensor = lstm(by_step)[0].data
    return torch.empty_like(outputs).index_copy(0, order, outputs)


def final_states(tokens: Tensor, batch: PackedBatch) -> Tensor:
    """Return ``(B, D)``: what either direction gives once it has read the whole sequence.

    Args:
        tokens: ``(T, D)`` outputs of a bidirectional LSTM: forward in the first half of D, backward
            in the second.
        batch: gives the borders of the B sequences.
    """
    forward, backward = tokens.chunk(2, dim=-1)
    return torch.cat([last_token(forward, batch), first_token(backward, batch)], dim=-1)
