"""The most probable text, word piece by word piece (Vaswani et al. 2017, sec. 6.1)."""

from collections.abc import Callable

import torch
from torch import Tensor


def beam_search(
    advance: Callable[[Tensor, Tensor], Tensor],
    texts: int,
    beam_size: int,
    max_length: int,
    start_id: int,
    end_id: int,
    length_penalty: float,
    device: torch.device,
) -> list[list[int]]:
    """Return the best hypothesis of each text that is to be written, without its end.

    A hypothesis that has ended keeps its place in the beam. Among the ``beam_size`` most probable
    ones that are left at the end, the best has the highest log probability over
    ``((5 + length) / 6) ** length_penalty`` (Wu et al. 2016, eq. 14), which longer ones need.
    ``beam_size`` 1 is greedy.

    Args:
        advance: maps the rows ``(R,)`` int64 that the R hypotheses go on from, and the last token
            of each ``(R,)``, to log probabilities ``(R, V)`` of the next. The hypotheses of a text
            are neighbors, R is B times ``beam_size``.
        texts: B.
        beam_size: hypotheses of each text.
        max_length: most tokens of a hypothesis, its end included.
        start_id: what is read first.
        end_id: what ends a hypothesis.
        length_penalty: 0 prefers short texts; the paper has 0.6.
        device: of the tensors that ``advance`` takes.
    """
    rows = torch.arange(texts * beam_size, device=device)
    firsts = torch.arange(texts, device=device)[:, None] * beam_size  # row of each text's first
    tokens = torch.full((texts * beam_size, 1), start_id, device=device)
    scores = torch.full((texts, beam_size), float("-inf"), device=device)
    scores[:, 0] = 0.0  # all hypotheses are one at first
    lengths = torch.zeros(texts * beam_size, dtype=torch.long, device=device)
    ended = torch.zeros(texts * beam_size, dtype=torch.bool, device=device)
    for _ in range(max_length):
        following = advance(rows, tokens[:, -1])
        # a hypothesis that has ended goes on with its end only, at no cost: its score stays
        following[ended] = float("-inf")
        following[ended, end_id] = 0.0
        vocab_size = following.shape[1]
        totals = scores[:, :, None] + following.view(texts, beam_size, vocab_size)  # (B, beam, V)
        scores, places = totals.flatten(1).topk(beam_size)
        # V = 5: places [1, 7] are token 1 of hypothesis 0 and token 2 of hypothesis 1
        rows = (firsts + places // vocab_size).flatten()
        chosen = (places % vocab_size).flatten()
        tokens = torch.cat([tokens[rows], chosen[:, None]], dim=1)
        lengths = lengths[rows] + ~ended[rows]
        ended = ended[rows] | (chosen == end_id)
        if ended.all():
            break
    penalties = ((5 + lengths) / 6) ** length_penalty
    best = (scores / penalties.view(texts, beam_size)).argmax(1) + firsts[:, 0]
    written = lengths[best] - ended[best].long()
    return [
        row[1 : 1 + length]  # without the start
        for row, length in zip(tokens[best].tolist(), written.tolist(), strict=True)
    ]
