"""``torch.compile`` for the layers of an encoder."""

from torch import nn

from bertlab.encoders.base import layers_of


def compile_layers(encoder: nn.Module) -> None:
    """Compile each layer when it is called first; names of weights stay as they are.

    All layers of a kind share what was compiled. The number of tokens is left open, as packed
    batches differ in it. Attention is called between what is compiled before and after it.
    """
    for layer in layers_of(encoder):
        layer.compile(dynamic=True)
