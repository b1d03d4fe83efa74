"""AdamW as the paper sets it (app. A.2), in PyTorch's fused kernel."""

from collections.abc import Sequence

from torch.optim import AdamW as TorchAdamW
from torch.optim import Optimizer

from bertlab.api.optimizer import OptimizerRecipe, ParameterGroup
from bertlab.errors import ConfigError


def check_betas(betas: tuple[float, float]) -> None:
    """Raise ConfigError unless both decay rates are in [0, 1)."""
    if not all(0 <= beta < 1 for beta in betas):
        raise ConfigError(f"model.optimizer.betas: found {list(betas)}, expected each in [0, 1)")


def check_eps(eps: float) -> None:
    """Raise ConfigError if the term of the denominator is below 0, or no number."""
    if not eps >= 0:
        raise ConfigError(f"model.optimizer.eps: found {eps}, expected 0 or more")


class AdamW(OptimizerRecipe):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    Args:
        betas: decay rates of the moment estimates.
        eps: term that is added to the denominator (BERT's code: 1e-6).
    """

    def __init__(self, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6) -> None:
        check_betas(betas)
        check_eps(eps)
        self.betas = betas
        self.eps = eps

    def build(
        self, groups: Sequence[ParameterGroup], learning_rate: float, fused: bool
    ) -> Optimizer:
        """Return AdamW over the groups as they are.

        Args:
            groups: all that is trained.
            learning_rate: the default of its groups, each of which has its own.
            fused: PyTorch's fused kernel.
        """
        return TorchAdamW(
            [group.settings() for group in groups],
            lr=learning_rate,
            betas=self.betas,
            eps=self.eps,
            fused=fused,
        )
