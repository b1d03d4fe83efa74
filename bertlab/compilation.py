"""``torch.compile`` for the layers of an encoder and the losses over its vocabulary."""

import torch._dynamo
from torch import nn

from bertlab.encoders.base import layers_of
from bertlab.objectives.summed_cross_entropy import SummedCrossEntropy


def compile_layers(encoder: nn.Module) -> None:
    """Compile each layer when it is called first; names of weights stay as they are.

    All layers of a kind share what was compiled. The number of tokens is left open, as packed
    batches differ in it. Attention is called between what is compiled before and after it, but for
    a GPU's flash kernel, which is a part of it.
    """
    torch._dynamo.config.specialize_float = True  # dropout and epsilon stay as they are
    for layer in layers_of(encoder):
        layer.compile(dynamic=True)


def compile_losses(tasks: nn.Module) -> None:
    """Compile the cross-entropy of the tasks that keep one as a module."""
    for part in tasks.modules():
        if isinstance(part, SummedCrossEntropy):
            part.compile(dynamic=True)
