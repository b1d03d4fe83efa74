"""``model.init_optimizer``: a second phase of pre-training goes on with the first one's AdamW."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import AdamW, Optimizer

from bertlab.errors import CheckpointError
from bertlab.sharding import load_optimizer_state


@dataclass(frozen=True)
class OptimizerState:
    """What AdamW had learnt at the end of a run, and how far its schedule was.

    Attributes:
        source: the run's checkpoint, for messages.
        tensors: names of all of the model's tensors, in its order.
        content: the optimiser's ``state_dict``.
        steps: that the schedule has done.
    """

    source: str
    tensors: Sequence[str]
    content: dict[str, Any]
    steps: int

    @classmethod
    def of_checkpoint(cls, source: str, content: dict[str, Any]) -> "OptimizerState":
        """Return that of the content of a Lightning checkpoint.

        Raises:
            CheckpointError: if it has no optimiser, or more than one.
        """
        optimizers, schedules = content.get("optimizer_states"), content.get("lr_schedulers")
        if not optimizers or not schedules or len(optimizers) != 1:
            raise CheckpointError(
                f"model.init_optimizer: {source} has no optimiser's state (it was saved as weights "
                "only); take the key out"
            )
        names = list(content["state_dict"])
        return cls(source, names, optimizers[0], int(schedules[0]["last_epoch"]))

    def check(self, module: nn.Module, optimizer: AdamW) -> None:
        """Raise CheckpointError unless it is of a module and an optimiser like these."""
        ours = [
            parameter.shape for group in optimizer.param_groups for parameter in group["params"]
        ]
        numbers = [number for group in self.content["param_groups"] for number in group["params"]]
        moments = [self.content["state"].get(number) for number in numbers]
        theirs = [None if each is None else each["exp_avg"].shape for each in moments]
        if list(self.tensors) != list(module.state_dict()) or ours != theirs:
            raise CheckpointError(
                f"model.init_optimizer: {self.source} trained other tensors than this run "
                f"({len(theirs)} there, {len(ours)} here); give it the same encoder, objectives "
                "and frozen_layers, or take the key out"
            )

    def load(self, module: nn.Module, optimizer: Optimizer) -> None:
        """Give an optimiser these moments; its own settings (``betas``, …) stay."""
        groups = optimizer.state_dict()["param_groups"]
        load_optimizer_state(module, optimizer, {**self.content, "param_groups": groups})
