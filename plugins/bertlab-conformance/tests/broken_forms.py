"""Hugging Face forms with one bug each, and the check that catches it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from bertlab.api import Encoder
from good_exchange import GoodForm


class NamesNoClass(GoodForm):
    """transformers has no such class."""

    expects = ("classes_are_of_transformers", "has no class CamembertModels")
    architectures: ClassVar = {**GoodForm.architectures, frozenset(): "CamembertModels"}


class NamesClassesOfAnother(GoodForm):
    """A folder's config.json and its architectures are of two types."""

    expects = ("classes_are_of_transformers", "RobertaModel is of model_type 'roberta'")
    architectures: ClassVar = {**GoodForm.architectures, frozenset(): "RobertaModel"}


class ExtendsNothing(GoodForm):
    """Nothing reads it."""

    expects = ("encoder_is_known", "extends is 'bort', and forms of encoders are ")
    extends = "bort"


class SwapsQueryAndKey(GoodForm):
    """They are stacked in another order than the encoder's."""

    expects = ("models_of_transformers_are_read", "states of ")

    def encoder_names(self, num_hidden_layers: int) -> dict[str, tuple[str, ...]]:
        names = super().encoder_names(num_hidden_layers)
        swapped = {o: (t[1], t[0], t[2]) for o, t in names.items() if len(t) == 3}
        return {**names, **swapped}


class LeavesTheBias(GoodForm):
    """The head of its language model lacks a tensor."""

    expects = ("models_of_transformers_are_read", "reads all but lm_head.bias")

    def head_names(self, causal: bool) -> dict[str, dict[str, str]]:
        return {
            task: {ours: theirs for ours, theirs in names.items() if ours != "bias"}
            for task, names in super().head_names(causal).items()
        }


class CountsFromNought(GoodForm):
    """It reads positions one too early."""

    expects = ("models_of_transformers_are_read", "states of ")

    def after_reading(
        self, content: Mapping[str, Any], encoder: dict[str, Tensor], heads: dict[str, Tensor]
    ) -> None:
        super().after_reading(content, encoder, heads)
        name = "embeddings.position_embeddings.weight"
        encoder[name] = torch.roll(encoder[name], 1, 0)


class WritesTheUsualEps(GoodForm):
    """A setting is read and not written."""

    expects = ("models_are_written_back", "that was read and written is off by ")

    def config(self, encoder: Any, architecture: str) -> dict[str, Any]:
        return super().config(encoder, architecture) | {"layer_norm_eps": 0.5}


class RoundsWhatItWrites(GoodForm):
    """The weights come back in fewer digits."""

    expects = ("models_are_written_back", "that was read and written is off by ")

    def state(self, encoder: Encoder) -> dict[str, Tensor]:
        return {name: each.bfloat16().float() for name, each in super().state(encoder).items()}


class TakesAnyActivation(GoodForm):
    """It reads a model with another activation as if it were one with GELU."""

    expects = ("other_layers_are_refused", "with hidden_act: relu are off by ")

    def arguments(self, content: Mapping[str, Any], path: Path) -> dict[str, Any]:
        return super().arguments({**content, "hidden_act": "gelu"}, path)


class HasOneEps(GoodForm):
    """It computes every model with the eps of most."""

    expects = ("other_layers_are_refused", "with layer_norm_eps: 0.1 are off by ")

    def arguments(self, content: Mapping[str, Any], path: Path) -> dict[str, Any]:
        return super().arguments(content, path) | {"layer_norm_eps": 1e-12}
