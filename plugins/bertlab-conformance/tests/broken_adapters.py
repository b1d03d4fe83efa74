"""Adapters with one bug each. ``expects``: the check that finds it, and words of its message."""

import torch
from torch import nn
from torch.nn.utils import parametrize

from bertlab.api.encoder import Encoder
from bertlab_modern.lora import LoRA
from broken_others import Expects
from good_plugins import GoodAdapter


class TrainsAll(GoodAdapter):
    """Freezes nothing."""

    expects: Expects = ("trains_fewer_weights", "all of the encoder's own")

    def adapt(self, encoder: Encoder) -> None:
        pass


class TrainsNothing(GoodAdapter):
    """Freezes all."""

    expects: Expects = ("trains_fewer_weights", "nothing is trained")

    def adapt(self, encoder: Encoder) -> None:
        encoder.requires_grad_(False)


class LeavesOneIdle(GoodAdapter):
    """Trains a weight that nothing reads."""

    expects: Expects = ("gradient_reaches_what_it_trains", "no gradient reaches idle")

    def adapt(self, encoder: Encoder) -> None:
        super().adapt(encoder)
        encoder.idle = nn.Parameter(torch.zeros(3))


class RenamesWeights(LoRA):
    """Has the names that torch's parametrizations give."""

    expects: Expects = ("a_plain_encoder_loads_it", "state_dict() lacks layers.0.")

    def adapt(self, encoder: Encoder) -> None:
        super().adapt(encoder)
        encoder._state_dict_hooks.clear()
        encoder._load_state_dict_pre_hooks.clear()


class MovesItsBase(LoRA):
    """Goes on from another W than it had."""

    expects: Expects = ("goes_on_from_its_state_dict", "the states are others")

    def adapt(self, encoder: Encoder) -> None:
        super().adapt(encoder)
        encoder.register_load_state_dict_pre_hook(_move_base)


def _move_base(module: nn.Module, state: dict[str, torch.Tensor], *_: object) -> None:
    for name, part in module.named_modules():
        if parametrize.is_parametrized(part, "weight"):
            base = f"{name}.parametrizations.weight.original"
            state[base] = state[base] + 1
