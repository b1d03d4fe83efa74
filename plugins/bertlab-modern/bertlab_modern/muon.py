"""Muon for the matrices of the encoder, AdamW for the rest."""

from collections.abc import Sequence
from typing import Literal

from torch.optim import AdamW, Muon, Optimizer

from bertlab import check_at_least, check_share
from bertlab.api import ConfigError, OptimizerRecipe, ParameterGroup
from bertlab.extend import check_betas, check_eps
from bertlab_modern.stepping import JoinedOptimizer


class MuonWithAdamW(OptimizerRecipe):
    """``torch.optim.Muon``: momentum made orthogonal by Newton-Schulz steps (Jordan et al. 2024).

    It is meant for matrices inside a network. Embeddings, heads, biases and norms are trained by
    AdamW.

    Args:
        momentum: decay rate of the momentum.
        nesterov: Nesterov's momentum.
        ns_steps: Newton-Schulz steps.
        adjust_rate: how the rate follows a matrix' shape. ``match_rms_adamw``: updates are as large
            as AdamW's, so that one learning rate suits both (Liu et al. 2025, sec. 2.2).
            ``original``: Jordan's.
        matrix_learning_rate: peak learning rate of the matrices; by default ``learning_rate``,
            which is that of the rest. ``original`` wants about 0.02.
        betas: of AdamW.
        eps: of AdamW.
    """

    def __init__(
        self,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_steps: int = 5,
        adjust_rate: Literal["match_rms_adamw", "original"] = "match_rms_adamw",
        matrix_learning_rate: float | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
    ) -> None:
        check_share("model.optimizer.momentum", momentum)
        check_at_least("model.optimizer.ns_steps", ns_steps, 1)
        check_at_least("model.optimizer.matrix_learning_rate", matrix_learning_rate, 0)
        check_betas(betas)
        check_eps(eps)
        self.momentum = momentum
        self.nesterov = nesterov
        self.ns_steps = ns_steps
        self.adjust_rate = adjust_rate
        self.matrix_learning_rate = matrix_learning_rate
        self.betas = betas
        self.eps = eps

    def build(
        self, groups: Sequence[ParameterGroup], learning_rate: float, fused: bool
    ) -> Optimizer:
        """Return one optimiser of both.

        Args:
            groups: all that is trained.
            learning_rate: peak rate of what is no matrix.
            fused: PyTorch's fused kernel for AdamW.

        Raises:
            ConfigError: no matrix of the encoder is trained.
        """
        matrices = [group.of_kinds("matrix") for group in groups]
        others = [group.of_kinds("embedding", "vector", "head") for group in groups]
        if not any(group.parameters for group in matrices):
            raise ConfigError(
                "model.optimizer.name: muon trains matrices of the encoder, and none is trained "
                "here; use adamw, or see model.optimizer.frozen_layers"
            )
        parts: list[Optimizer] = [self._muon(matrices, learning_rate)]
        settings = [group.settings() for group in others if group.parameters]
        if settings:
            parts.append(
                AdamW(settings, lr=learning_rate, betas=self.betas, eps=self.eps, fused=fused)
            )
        return JoinedOptimizer(parts)

    def _muon(self, matrices: Sequence[ParameterGroup], learning_rate: float) -> Optimizer:
        settings = [group.settings() for group in matrices if group.parameters]
        own = self.matrix_learning_rate
        for group in settings:
            # layer_decay made the group's rate half of the peak: half of our own peak, too
            group["lr"] *= 1.0 if own is None else own / learning_rate
        return Muon(
            settings,
            lr=learning_rate if own is None else own,
            momentum=self.momentum,
            nesterov=self.nesterov,
            ns_steps=self.ns_steps,
            adjust_lr_fn=self.adjust_rate,
        )
