"""Optimisers that evaluate other weights than they train: at the right moments, and exactly."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn

from bertlab.api import ConfigError

_KEY = "trained_weights"  # in a checkpoint


class OptimizerModes(Callback):
    """Calls ``train()`` and ``eval()`` of an optimiser that has both, as ``schedulefree`` has.

    Evaluations, checkpoints and the module after training have the weights of ``eval()``; steps are
    taken from those of ``train()``, which are in the checkpoint too. They come back bit for bit, so
    that a run with more evaluations, or one that was resumed, takes the same steps.
    """

    def __init__(self) -> None:
        self._trained: dict[str, Tensor] | None = None  # while those of eval() are in the module
        self._begun = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse what would save the weights of ``train()``."""
        self._begun = False
        if stage != TrainerFn.FITTING:
            return
        if isinstance(trainer.strategy, ModelParallelStrategy) or hasattr(
            trainer.strategy, "divide"
        ):
            raise ConfigError(
                "trainer.strategy: expected auto or ddp with this optimizer, whose weights for "
                "evaluation are of whole tensors"
            )
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        if any(isinstance(each, ModelCheckpoint) and each.save_weights_only for each in callbacks):
            raise ConfigError(
                "checkpoint.save_weights_only: found true, expected false with this optimizer"
            )

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Take the weights to go on from."""
        self._trained = checkpoint.get(_KEY)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Go to the weights that are trained."""
        self._begun = True
        self._train(trainer, pl_module)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Go to the weights that are evaluated."""
        if self._begun:
            self._eval(trainer, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Go back."""
        if self._begun:
            self._train(trainer, pl_module)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Save the weights that are evaluated, and beside them those that are trained."""
        was_shown = self._trained is not None
        self._eval(trainer, pl_module)
        checkpoint[_KEY] = self._trained
        # anew: a tensor that a state dict computes, as LoRA's merged weight, does not follow eval()
        state = trainer.strategy.lightning_module_state_dict()
        if "averaging_state" in checkpoint:  # of Lightning's WeightAveraging, whose weights count
            state = checkpoint["state_dict"]
        copies: dict[tuple[int, Any], Tensor] = {}  # one of weights that two modules share
        for name, each in state.items():
            place = (each.data_ptr(), each.shape)
            if place not in copies:
                copies[place] = each.clone()
            checkpoint["state_dict"][name] = copies[place]
        if not was_shown:
            self._train(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the weights that are evaluated."""
        self._eval(trainer, pl_module)
        self._begun = False

    def _eval(self, trainer: Trainer, module: nn.Module) -> None:
        if self._trained is None:
            moved = _moved(trainer, module)
            self._trained = {name: each.detach().clone() for name, each in moved.items()}
            for optimizer in trainer.optimizers:
                optimizer.eval()  # type: ignore[attr-defined]

    def _train(self, trainer: Trainer, module: nn.Module) -> None:
        for optimizer in trainer.optimizers:
            optimizer.train()  # type: ignore[attr-defined]
        if self._trained is not None:  # train() comes back to them but for rounding
            for name, each in _moved(trainer, module).items():
                each.data.copy_(self._trained[name])
            self._trained = None


def _moved(trainer: Trainer, module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that the optimisers move, by name."""
    groups = [group for each in trainer.optimizers for group in each.param_groups]
    moved = {id(each) for group in groups for each in group["params"]}
    return {name: each for name, each in module.named_parameters() if id(each) in moved}
