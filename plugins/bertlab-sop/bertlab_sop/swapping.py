"""Swapping segments A and B of packed pairs: vectorised NumPy."""

import numpy as np
import numpy.typing as npt

from bertlab import IntArray, PackedSequences


def swap_segments(sequences: PackedSequences, swapped: npt.NDArray[np.bool_]) -> None:
    """Turn ``[CLS] A [SEP] B [SEP]`` into ``[CLS] B [SEP] A [SEP]``, in place.

    ``input_ids`` and ``corpus_offsets`` move; ``token_type_ids`` follow the new border. Positions
    and lengths of the sequences stay what they are.

    Args:
        sequences: pairs, as the sampler laid them out.
        swapped: ``(B,)`` True for the pairs to swap.
    """
    a_lengths, b_lengths = text_lengths(sequences)
    place = sequences.position_ids
    first = np.where(swapped, b_lengths, a_lengths)  # text length of the segment that now leads
    a, b, lead = (np.repeat(each, sequences.lengths) for each in (a_lengths, b_lengths, first))
    # A of 2 tokens, B of 1: [CLS] b [SEP] a1 a2 [SEP] takes places 0, 4, 3, 1, 2, 5
    source = np.select(
        [
            (place == 0) | (place == a + b + 2),
            place <= lead,  # text of B stood behind [CLS] A [SEP]
            place == lead + 1,
        ],
        [place, place + a + 1, a + 1],
        place - b - 1,  # text of A stood behind [CLS]
    )
    moves = np.repeat(swapped, sequences.lengths)
    number = np.arange(len(place))
    order = np.where(moves, number - place + source, number)
    sequences.input_ids[:] = sequences.input_ids[order]
    sequences.corpus_offsets[:] = sequences.corpus_offsets[order]
    sequences.token_type_ids[:] = place > lead + 1


def text_lengths(sequences: PackedSequences) -> tuple[IntArray, IntArray]:
    """Return the tokens of text in each pair's segments A and B, both ``(B,)`` int64."""
    of_b = np.add.reduceat(sequences.token_type_ids, sequences.cu_seqlens[:-1])  # with its [SEP]
    return sequences.lengths - of_b - 2, of_b - 1
