"""Operations of a forward pass for a token that is read, by the sizes of encoder and objectives.

A multiplication and an addition are two. Only matrix products count, which is all but a percent:
those with the weights of linear and recurrent layers, and attention.
"""

from statistics import mean

from torch import nn

from bertlab import MaskedLM, TokenPrediction
from bertlab.api import Encoder, Task
from bertlab.extend import moments

PASSES = 3  # forward, and twice that backward (Kaplan et al. 2020, sec. 2.1)


def encoder_flops(encoder: Encoder, sequence_length: float) -> float:
    """Return the operations of an encoder for one of the tokens of a sequence.

    An encoder whose layers do not see whole sequences has ``tokens_attended(sequence_length)``: to
    how many tokens a token attends, in all layers together.

    Args:
        encoder: its sizes; it may be on the meta device.
        sequence_length: S, a mean over the sequences, in tokens.
    """
    attended = encoder.num_hidden_layers * sequence_length
    if (own := getattr(encoder, "tokens_attended", None)) is not None:
        attended = own(sequence_length)
    # scores and weighted sums: 2 * attended * hidden_size operations each
    attention = 4 * encoder.hidden_size * attended
    # the pooler sees one token of a sequence
    once = _weights(encoder) - _weights(encoder.pooler)
    return 2 * (once + _weights_again(encoder)) + attention


def _weights_again(encoder: Encoder) -> float:
    """Return the weights of layers that share them, each time but the first that they are used.

    A list may have a layer several times, or fewer layers than the encoder: then all are used
    equally often. ``[a]`` of 12 layers: 11 times those of ``a``; ``[a, b, a, b]`` of 4: ``a + b``.
    """
    lists = [getattr(encoder, name, ()) for name in encoder.layer_lists]
    layers = [layer for each in lists for layer in each]
    if not layers:
        return 0.0
    used = sum(map(_weights, layers)) * max(1.0, encoder.num_hidden_layers / len(layers))
    return used - sum(map(_weights, set(layers)))


def task_flops(task: Task, encoder: Encoder, sequence_length: float, steps: float) -> float:
    """Return the operations of a task beyond the encoder's, forward and backward together.

    The task's own ``flops_per_token(encoder, sequence_length, steps)`` counts, if it has one: it
    returns those of the forward pass, or a pair, forward and backward, where these are not once and
    twice as many: ``(forward, 0.0)`` of a teacher that is not trained. Without it a classifier of
    one vector a sequence costs next to nothing: 0.

    Args:
        task: not built.
        encoder: its sizes.
        sequence_length: mean over the sequences, in tokens.
        steps: of the run, for what changes over it.
    """
    if (own := getattr(task, "flops_per_token", None)) is not None:
        found: float | tuple[float, float] = own(encoder, sequence_length, steps)
        return sum(found) if isinstance(found, tuple) else PASSES * found
    if not isinstance(task, TokenPrediction):
        return 0.0
    width = encoder.token_embedding.weight.shape[1]  # E, at most H
    # (H, E) of the transform, (E, V) of the scores
    weights = width * (encoder.hidden_size + encoder.vocab_size)
    return PASSES * 2.0 * weights * _predicted_share(task, steps)


def _predicted_share(task: TokenPrediction, steps: float) -> float:
    """Return the share of the tokens that are predicted, a mean over the run."""
    if not isinstance(task, MaskedLM):
        return 1.0
    if task.rate is None:
        return task.recipe.rate
    return mean(task.rate.at(moment) for moment in moments(steps))


def _weights(module: nn.Module) -> int:
    """Number of weights that each token is multiplied with: of linear and recurrent layers."""
    return sum(
        parameter.numel()
        for layer in module.modules()
        if isinstance(layer, nn.Linear | nn.RNNBase)
        for parameter in layer.parameters(recurse=False)
        if parameter.dim() > 1  # no biases, no norms
    )
