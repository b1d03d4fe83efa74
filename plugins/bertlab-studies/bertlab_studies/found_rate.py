"""A learning rate that Lightning's ``LearningRateFinder`` found becomes that of the schedule."""

from lightning.pytorch import Callback, LightningModule, Trainer
from torch.optim.lr_scheduler import LambdaLR

from bertlab.extend import BertModule, say


class FoundLearningRate(Callback):
    """Has the schedule go on from a rate that Lightning's ``LearningRateFinder`` found; prints it.

    The finder trains while the rate rises, puts the weights back, and sets ``learning_rate`` of the
    module and the rates of the optimiser. By then the schedule exists, and would overwrite these at
    its next step.
    """

    takes_found_rate = True  # the core refuses the finder without it

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Multiply the peak rate of each group by what the found rate is of the config's."""
        if not isinstance(pl_module, BertModule):
            return
        found, given = pl_module.learning_rate, pl_module.optimizer_config.learning_rate
        if found == given:
            return
        for each in trainer.lr_scheduler_configs:
            raise_rates(each.scheduler, found / given)
        if trainer.is_global_zero:
            say(
                f"learning rate found: {found:.3g} (the config has {given:.3g}); to repeat the run "
                f"without looking for it: --model.optimizer.learning_rate {found!r}"
            )


def raise_rates(schedule: object, factor: float) -> None:
    """Multiply the rates of a schedule, those of the present step too."""
    if not isinstance(schedule, LambdaLR):
        return
    schedule.base_lrs = [rate * factor for rate in schedule.base_lrs]
    # a factor for each group; the finder has set all groups to one rate
    factors = [factor_at(schedule.last_epoch) for factor_at in schedule.lr_lambdas]
    groups = schedule.optimizer.param_groups
    for group, rate, part in zip(groups, schedule.base_lrs, factors, strict=True):
        group["initial_lr"] = rate
        group["lr"] = rate * part
