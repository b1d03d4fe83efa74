"""Weights, gradients and optimiser state divided among processes: FSDP2."""

from pathlib import Path
from typing import Any

from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.optim import Optimizer

from bertlab.extend import BertModule, layers_of

_STEPS = ("training_step", "validation_step", "test_step", "predict_step")


class FullyShardedStrategy(ModelParallelStrategy):
    """What ``trainer.strategy: fsdp`` means here: all processes share the data and the weights.

    Checkpoints are single files, assembled on the first process and equal to those of any other
    strategy, so that a run goes on under any.
    """

    def __init__(self) -> None:
        super().__init__(tensor_parallel_size=1, save_distributed_checkpoint=False)

    def setup_environment(self) -> None:
        """Divide the data among all processes, whose number is known now."""
        # Lightning's "auto" is the number of nodes, as if each node divided a layer's matrices
        self._data_parallel_size = self.num_nodes * self.num_processes
        super().setup_environment()

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the state as the optimiser's own ``state_dict`` has it; nothing on other ranks.

        Lightning numbers parameters as the module does, which other strategies would mistake.
        """
        assert self.model is not None
        if isinstance(optimizer, LightningOptimizer):
            optimizer = optimizer.optimizer
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        named: dict[str, Any] = get_optimizer_state_dict(self.model, optimizer, options=options)
        if not named:  # torch gathers the whole state on rank 0 only
            return {}
        # groups ["a", "c"] and ["b"] -> {"a": 0, "c": 1, "b": 2}
        names = [name for group in named["param_groups"] for name in group["params"]]
        return _renamed(named, {name: number for number, name in enumerate(names)})

    def load_checkpoint(
        self, checkpoint_path: str | Path, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load the checkpoint of any strategy, of which each process takes its part."""
        assert self.model is not None
        checkpoint: dict[str, Any] = self.checkpoint_io.load_checkpoint(
            checkpoint_path, weights_only=weights_only
        )
        options = StateDictOptions(full_state_dict=True)
        set_model_state_dict(self.model, checkpoint["state_dict"], options=options)
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            load_optimizer_state(self.model, optimizer, state)
        return checkpoint

    def divide(self, module: BertModule) -> None:
        """Divide each layer of the encoder, and then what is left, over the processes.

        A layer is gathered while it is called. What is left (embeddings, which heads are tied to,
        and the heads) is gathered for a whole step. Where it was done before, nothing is done.
        """
        if isinstance(module, FSDPModule):
            return
        assert module.device_mesh is not None
        mesh = module.device_mesh["data_parallel"]
        # from the inside out: fully_shard(module) takes what no call before it has taken
        for layer in layers_of(module.encoder):
            fully_shard(layer, mesh=mesh)
        fully_shard(module, mesh=mesh)
        # FSDP gathers weights around forward() only, and Lightning calls these instead
        for name in _STEPS:
            register_fsdp_forward_method(module, name)

    def take_optimizer_state(
        self, module: BertModule, optimizer: Optimizer, state: dict[str, Any]
    ) -> None:
        """Load the ``state_dict`` of an optimiser of an earlier run."""
        load_optimizer_state(module, optimizer, state)


def load_optimizer_state(module: nn.Module, optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Load an optimiser's ``state_dict``, of which each process takes its part of the weights.

    Parameters that have no entry there begin anew.
    """
    names = {parameter: name for name, parameter in module.named_parameters()}
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    # the way back: the n-th parameter of all groups -> its name in the module
    name_of = {n: names[each] for n, each in zip(numbers, parameters, strict=True)}
    options = StateDictOptions(full_state_dict=True, strict=False)
    set_optimizer_state_dict(module, optimizer, _renamed(state, name_of), options=options)
    # torch took a step of zero gradients, so that there is something to load into
    for number, parameter in zip(numbers, parameters, strict=True):
        if number not in state["state"]:
            optimizer.state.pop(parameter, None)


def _renamed(state: dict[str, Any], names: dict[Any, Any]) -> dict[str, Any]:
    """Return the state of an optimiser with its parameters called by other names."""
    return {
        "state": {names[name]: values for name, values in state["state"].items()},
        "param_groups": [
            {**group, "params": [names[name] for name in group["params"]]}
            for group in state["param_groups"]
        ],
    }
