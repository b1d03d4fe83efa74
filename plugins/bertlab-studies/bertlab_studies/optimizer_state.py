"""The moments of an earlier run, which the next takes over (``model.init_optimizer``)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer

from bertlab import CheckpointError
from bertlab.extend import (
    DEFAULT_OPTIMIZER,
    DamagedCheckpointError,
    OptimizerConfig,
    build_optimizer,
    check_optimizer_state,
    parameter_names,
)


@dataclass(frozen=True)
class OptimizerState:
    """What an optimiser remembers at the end of a run, and the steps that its schedule had done.

    Attributes:
        source: the run's checkpoint, for messages.
        tensors: names of all of the model's tensors, in its order.
        content: the optimiser's ``state_dict``.
        steps: that the schedule has done.
        optimizer: name of the optimiser.
        parameters: names of the parameters that the n-th entries of ``content`` are of; None of a
            checkpoint from before they were kept.
    """

    source: str
    tensors: Sequence[str]
    content: dict[str, Any]
    steps: int
    optimizer: str = DEFAULT_OPTIMIZER
    parameters: Sequence[str] | None = None

    @classmethod
    def of_checkpoint(
        cls,
        source: str,
        content: dict[str, Any],
        optimizer: str = DEFAULT_OPTIMIZER,
        parameters: object = None,
    ) -> "OptimizerState":
        """Return that of the content of a Lightning checkpoint."""
        optimizers, schedules = content.get("optimizer_states"), content.get("lr_schedulers")
        if not optimizers or not schedules or len(optimizers) != 1:
            raise CheckpointError(
                f"model.init_optimizer: {source} has no optimiser's state (it was saved as weights "
                "only); take the key out"
            )
        state, names = optimizers[0], list(content["state_dict"])
        steps = int(schedules[0]["last_epoch"])
        if parameters is None:
            return cls(source, names, state, steps, optimizer)
        count = sum(len(group["params"]) for group in state["param_groups"])
        if (
            not isinstance(parameters, list)
            or len(parameters) != count
            or not all(isinstance(name, str) for name in parameters)
        ):
            raise DamagedCheckpointError(
                f"{source}: a damaged bertlab checkpoint: its optimizer_parameters are "
                f"{str(parameters)[:80]}, expected the names of {count} parameters"
            )
        return cls(source, names, state, steps, optimizer, parameters)

    def check(self, module: nn.Module, config: OptimizerConfig) -> None:
        """Raise CheckpointError unless a module's optimiser can take some of it over."""
        if self.optimizer != config.name:
            raise CheckpointError(
                f"model.init_optimizer: {self.source} was trained by {self.optimizer}, this run's "
                f"model.optimizer.name is {config.name}; choose the same, or take the key out"
            )
        optimizer = build_optimizer(config, module)
        if self.parameters is None:
            self._check_order(module, optimizer)
        elif set(self.parameters).isdisjoint(parameter_names(module, optimizer)):
            raise CheckpointError(
                f"model.init_optimizer: {self.source} trained none of the parameters that this run "
                "trains; see model.optimizer.frozen_layers, or take the key out"
            )

    def _check_order(self, module: nn.Module, optimizer: Optimizer) -> None:
        """Raise CheckpointError unless the n-th parameter there is the n-th here."""
        ours = [len(group["params"]) for group in optimizer.param_groups]
        theirs = [len(group["params"]) for group in self.content["param_groups"]]
        if list(self.tensors) != list(module.state_dict()) or ours != theirs:
            raise CheckpointError(
                f"model.init_optimizer: {self.source} trained other tensors than this run "
                f"({sum(theirs)} there, {sum(ours)} here), and does not tell their names, as it is "
                "of an older bertlab; give it the same encoder, objectives and frozen_layers, or "
                "take the key out"
            )

    def load(
        self,
        module: nn.Module,
        optimizer: Optimizer,
        take: Callable[[nn.Module, Optimizer, dict[str, Any]], None] | None = None,
    ) -> None:
        """Give an optimiser these moments, by the names of parameters; what is new has none.

        The optimiser's own settings (``betas``, …) stay. ``take`` loads them where a strategy has
        divided the weights.
        """
        ours = parameter_names(module, optimizer)
        theirs = ours if self.parameters is None else self.parameters
        # theirs [a, b, c], ours [c, d, a] -> {0: that of c, 2: that of a}
        numbers = {name: number for number, name in enumerate(theirs)}
        known = self.content["state"]
        state = {
            number: known[numbers[name]]
            for number, name in enumerate(ours)
            if numbers.get(name) in known
        }
        groups = optimizer.state_dict()["param_groups"]  # this run's learning rates
        moved = {"state": state, "param_groups": groups}
        check_optimizer_state(optimizer, moved, self.source)
        if take is None:
            optimizer.load_state_dict(moved)
        else:
            take(module, optimizer, moved)
