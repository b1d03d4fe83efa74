"""Dropout whose mask is cheap on a CPU, where torch draws it one element at a time."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

LEVELS = 1 << 16  # a CPU's mask compares 16 random bits


class Dropout(nn.Dropout):
    """``nn.Dropout``, with :func:`dropout`."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with elements dropped in training, and as it is otherwise."""
        return dropout(input, self.p) if self.training else input


def dropout(values: Tensor, probability: float) -> Tensor:
    """Set elements to 0 with a probability; scale the others so that the mean stays.

    On a CPU the bits come from SFC64, seeded by torch's generator: the state of that alone decides
    what is dropped. The probability is rounded to a multiple of 2^-16 there, the scale follows.

    Args:
        values: of any shape and floating dtype.
        probability: 0 to 1.
    """
    if values.device.type != "cpu" or not 0 < probability < 1:
        return F.dropout(values, probability)
    noise: Tensor = dropout_noise(values, probability)
    return values * noise


@torch.compiler.disable  # type: ignore[untyped-decorator]  # NumPy draws the bits
def dropout_noise(values: Tensor, probability: float) -> Tensor:
    """Return what dropout multiplies CPU ``values`` by: 0, or 1 over the share that is kept."""
    dropped = min(max(round(probability * LEVELS), 1), LEVELS - 1)
    seed = int(torch.randint(np.iinfo(np.int64).max, ()))
    words = np.random.SFC64(seed).random_raw(-(-values.numel() // 4))
    bits = torch.from_numpy(words.view(np.int16))[: values.numel()].view(values.shape)
    threshold, scale = dropped - LEVELS // 2, LEVELS / (LEVELS - dropped)
    if values.element_size() == bits.element_size():  # comparing to other dtypes takes 4 times that
        pattern = int(torch.tensor(scale, dtype=values.dtype).view(torch.int16))
        return torch.ge(bits, threshold, out=bits).mul_(pattern).view(values.dtype)
    noise = torch.empty_like(values, memory_format=torch.contiguous_format)
    return torch.ge(bits, threshold, out=noise).mul_(scale)
