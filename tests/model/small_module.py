"""A small encoder with a head, and gradients for it."""

import copy

import torch
from torch import nn

from bertlab.encoders.bert import BertEncoder
from bertlab.model.optimizer import build_optimizer, parameter_kinds
from bertlab.model.optimizer_config import read_optimizer
from bertlab_studies.optimizer_state import OptimizerState

SIZE = 8


class Module(nn.Module):
    """A small encoder and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = BertEncoder(
            vocab_size=11,
            num_hidden_layers=2,
            hidden_size=SIZE,
            num_attention_heads=2,
            max_position_embeddings=16,
        )
        head = nn.Module()
        head.classifier = nn.Linear(SIZE, 2)
        head.decoder = self.encoder.token_embedding
        self.tasks = nn.ModuleDict({"head": head})


def give_gradients(module: nn.Module, step: int) -> None:
    rng = torch.Generator().manual_seed(step)
    for parameter in module.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=rng)


def named_kinds(module: nn.Module) -> dict[str, str]:
    kinds = parameter_kinds(module)
    return {name: kinds[each] for name, each in module.named_parameters()}


def check_that_a_run_goes_on_bit_by_bit(module: Module, name: str) -> None:
    config = read_optimizer({"name": name, "learning_rate": 1e-2, "layer_decay": 0.9})
    peer = copy.deepcopy(module)
    optimizer = build_optimizer(config, module)
    for step in range(3):
        give_gradients(module, step)
        optimizer.step()
    peer.load_state_dict(module.state_dict())
    resumed = build_optimizer(config, peer)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    content = {
        "state_dict": module.state_dict(),
        "optimizer_states": [optimizer.state_dict()],
        "lr_schedulers": [{"last_epoch": 3}],
    }
    second = copy.deepcopy(module)  # the second phase of model.init_optimizer
    state = OptimizerState.of_checkpoint("earlier", copy.deepcopy(content), name)
    state.check(second, config)
    continued = build_optimizer(config, second)
    state.load(second, continued)
    for step in range(3, 6):
        for each, steps in ((module, optimizer), (peer, resumed), (second, continued)):
            give_gradients(each, step)
            steps.step()
    for one, other, third in zip(
        module.parameters(), peer.parameters(), second.parameters(), strict=True
    ):
        assert torch.equal(one, other)
        assert torch.equal(one, third)
