"""From a module to its optimiser, and the state that an optimiser brings from an earlier run.

``OptimizerState`` carries the moments of a first phase of pre-training to a second one
(``model.init_optimizer``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer

from bertlab.errors import CheckpointError, PluginError
from bertlab.model.fsdp import load_optimizer_state
from bertlab.model.optimizer_config import DEFAULT_OPTIMIZER, OptimizerConfig
from bertlab.model.parameter_groups import freeze_layers, parameter_groups


def build_optimizer(config: OptimizerConfig, module: nn.Module, fused: bool = True) -> Optimizer:
    """Freeze what the config says and return its optimiser of the parameters left to train.

    Args:
        config: the optimiser, and the settings that all optimisers have.
        module: its ``encoder`` is what ``layer_decay`` and ``frozen_layers`` speak of.
        fused: whether a fused kernel may be used.

    Raises:
        ConfigError: if ``layer_decay`` or ``frozen_layers`` does not fit the encoder, or the
            optimiser's settings do not fit the parameters.
        PluginError: the optimiser does not train all of them.
    """
    freeze_layers(config, module)
    groups = parameter_groups(config, module)
    optimizer = config.recipe.build(groups, config.learning_rate, fused)
    given = {id(each) for group in groups for each in group.parameters}
    taken = {id(each) for group in optimizer.param_groups for each in group["params"]}
    if given != taken:
        left = [name for name, each in module.named_parameters() if id(each) in given - taken]
        raise PluginError(
            f"the optimizer {type(config.recipe).__name__} trains other parameters than it was "
            f"given; it leaves out {', '.join(left) or 'none, but has more'}"
        )
    return optimizer


@dataclass(frozen=True)
class OptimizerState:
    """What an optimiser remembers at the end of a run, and the steps that its schedule had done.

    Attributes:
        source: the run's checkpoint, for messages.
        tensors: names of all of the model's tensors, in its order.
        content: the optimiser's ``state_dict``.
        steps: that the schedule has done.
        optimizer: name of the optimiser.
    """

    source: str
    tensors: Sequence[str]
    content: dict[str, Any]
    steps: int
    optimizer: str = DEFAULT_OPTIMIZER

    @classmethod
    def of_checkpoint(
        cls, source: str, content: dict[str, Any], optimizer: str = DEFAULT_OPTIMIZER
    ) -> "OptimizerState":
        """Return that of the content of a Lightning checkpoint.

        Args:
            source: the file, for messages.
            content: of the file.
            optimizer: name of the optimiser in the run's config.

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
        return cls(source, names, optimizers[0], int(schedules[0]["last_epoch"]), optimizer)

    def check(self, module: nn.Module, config: OptimizerConfig) -> None:
        """Raise CheckpointError unless it is of a module and an optimiser like these."""
        if self.optimizer != config.name:
            raise CheckpointError(
                f"model.init_optimizer: {self.source} was trained by {self.optimizer}, this run's "
                f"model.optimizer.name is {config.name}; choose the same, or take the key out"
            )
        optimizer = build_optimizer(config, module)
        ours = [len(group["params"]) for group in optimizer.param_groups]
        theirs = [len(group["params"]) for group in self.content["param_groups"]]
        if list(self.tensors) != list(module.state_dict()) or ours != theirs:
            raise CheckpointError(
                f"model.init_optimizer: {self.source} trained other tensors than this run "
                f"({sum(theirs)} there, {sum(ours)} here); give it the same encoder, objectives "
                "and frozen_layers, or take the key out"
            )

    def load(self, module: nn.Module, optimizer: Optimizer) -> None:
        """Give an optimiser these moments; its own settings (``betas``, …) stay."""
        groups = optimizer.state_dict()["param_groups"]  # this run's learning rates
        load_optimizer_state(module, optimizer, {**self.content, "param_groups": groups})
