"""What a user is told of a bit that has flipped; read without PyTorch, for `bertlab explain`."""

from bertlab.api import BertlabError


class CorruptionError(BertlabError):
    """Weights, moments or a step's gradient are not what they should be: a bit has flipped.

    A step that was computed again from the same weights on the same sequences, twice with the same
    bits, ended with other bits than the first time; or weights or moments changed between two
    steps. Memory, processor or their cooling may be at fault. The message names step and tensors.
    """

    code = "E603"
    remedy = (
        "Go on from the last checkpoint, on another machine if it happens again; test this one's "
        "memory (memtest86+). `--check_every 0` looks no more."
    )
