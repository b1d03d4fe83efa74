"""Checks of adapters: what they train, and that checkpoints are those of a plain encoder."""

import copy

import torch
from torch import Tensor

from bertlab.api import Encoder
from bertlab_conformance.cases import SEED
from bertlab_conformance.check import ConformanceFailure, check
from bertlab_conformance.comparisons import state_difference
from bertlab_conformance.stack import disturb, seeded
from bertlab_conformance.task_cases import AdapterCase

_SAME = 1e-4  # of the largest state: a merged weight is rounded anew


def _pair(case: AdapterCase) -> tuple[Encoder, Encoder]:
    """Return an encoder, and a copy of it whose adapter has moved as in training."""
    plain = case.encoder()
    adapted = copy.deepcopy(plain)
    case.adapt(adapted)
    with seeded(SEED):
        disturb(each for each in adapted.parameters() if each.requires_grad)
    return plain, adapted


def _states(case: AdapterCase, encoder: Encoder) -> Tensor:
    with torch.no_grad():
        states: Tensor = encoder.eval()(case.batch()).tokens
    return states


@check("adapter", after=("is_complete", "arguments_have_defaults"))
def trains_fewer_weights(case: AdapterCase) -> None:
    """Something is trained in an adapted encoder, and of its own weights not all."""
    adapted = case.encoder()
    own = dict(adapted.named_parameters())
    case.adapt(adapted)
    trained = [name for name, each in adapted.named_parameters() if each.requires_grad]
    if not trained or all(each.requires_grad for each in own.values()):
        raise ConformanceFailure(
            f"{len(trained)} tensors are trained, and all of the encoder's own" * bool(trained)
            or "nothing is trained",
            "let adapt() call requires_grad_(False) of what stays, and not of what it adds",
        )


@check("adapter", after=("trains_fewer_weights",))
def gradient_reaches_what_it_trains(case: AdapterCase) -> None:
    """The states depend on all that is trained, which DDP waits for."""
    _, adapted = _pair(case)
    output = adapted(case.batch())
    (output.tokens.square().sum() + output.pooled.square().sum()).backward()
    named = [each for each in adapted.named_parameters() if each[1].requires_grad]
    left = [name for name, each in named if each.grad is None]
    if left:
        raise ConformanceFailure(
            f"no gradient reaches {', '.join(left)}", "use it in forward(), or do not train it"
        )


@check("adapter", after=("trains_fewer_weights",))
def a_plain_encoder_loads_it(case: AdapterCase) -> None:
    """``state_dict`` has every name of the plain encoder, which then computes the same."""
    plain, adapted = _pair(case)
    state, own = adapted.state_dict(), plain.state_dict()
    left = [n for n, each in own.items() if n not in state or state[n].shape != each.shape]
    if left:
        raise ConformanceFailure(
            f"state_dict() lacks {left[0]}, or has it in another shape",
            "put the merged weight there in register_state_dict_post_hook, as lora does",
        )
    plain.load_state_dict({name: state[name] for name in own})
    off = state_difference(_states(case, plain), _states(case, adapted))
    if not off < _SAME:
        raise ConformanceFailure(
            f"the states of a plain encoder with the weights of state_dict() are off by {off:.2g}",
            "merge what is added into the weights that state_dict() has under their names",
        )


@check("adapter", after=("a_plain_encoder_loads_it",))
def goes_on_from_its_state_dict(case: AdapterCase) -> None:
    """An adapted encoder that loads ``state_dict`` has the same states, bit for bit."""
    _, adapted = _pair(case)
    again = case.encoder()
    case.adapt(again)
    again.load_state_dict(adapted.state_dict())
    if not torch.equal(_states(case, again), _states(case, adapted)):
        raise ConformanceFailure(
            "the states are others after load_state_dict()",
            "keep W and what is added beside the merged weight, and take them from there",
        )
