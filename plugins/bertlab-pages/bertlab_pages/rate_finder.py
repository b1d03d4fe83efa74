"""Lightning's ``LearningRateFinder``, whose answer is checked before a run goes on with it."""

import sys
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import LearningRateFinder
from lightning.pytorch.tuner import lr_finder
from torch.optim.lr_scheduler import LambdaLR

from bertlab.api import TaskData
from bertlab.extend import BertModule, TrainerError, can_draw, say, write_json
from bertlab_pages.rate_range import RATES, RateRange, losses_of, propose, smooth


class CheckedFinder(LearningRateFinder):
    """Lightning's sweep, which a resumed run leaves out, and which ends with no bad step's error.

    Lightning trains while the rate rises, and puts weights, draws and place in the data back.

    Args:
        given: of the config, with its settings.
    """

    def __init__(self, given: LearningRateFinder) -> None:
        super().__init__()
        vars(self).update(vars(given))

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Sweep, unless the rate comes with a checkpoint."""
        if trainer.ckpt_path is not None:
            return  # its schedule has the rate; and a sweep would lose its place
        guard = pl_module.numerical_guard if isinstance(pl_module, BertModule) else None
        policy = guard.policy if guard is not None else "stop"
        if guard is not None:
            guard.policy = "skip"  # a step that is too large for the numbers ends no run
        # its bar goes to standard error, and not into a file or a pipe
        hides = not can_draw() or (sys.stdout.isatty() and not sys.stderr.isatty())
        bar = partial(lr_finder.tqdm, disable=hides)  # type: ignore[attr-defined]
        try:
            with patch.object(lr_finder, "tqdm", bar):
                super().on_fit_start(trainer, pl_module)
        finally:
            if guard is not None:
                guard.policy = policy


class FoundLearningRate(Callback):
    """Has the schedule go on from the rate that a sweep proposes; refuses a sweep that shows none.

    Args:
        directory: of the run, which gets ``learning-rates.json``.
    """

    takes_found_rate = True  # the core refuses the finder without it

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def prepare(self, trainer: Trainer, data: TaskData) -> None:
        """Have a finder of Lightning's sweep at the right time only, over all of its rates."""
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        for each in callbacks:
            if isinstance(each, LearningRateFinder):
                check_room(each._num_training_steps, trainer, data)
        callbacks[:] = [
            CheckedFinder(each) if type(each) is LearningRateFinder else each for each in callbacks
        ]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Multiply the peak rate of each group by what the proposed rate is of the config's.

        The finder sets the rates of module and optimiser itself. By then the schedule exists, and
        would overwrite these at its next step.
        """
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        finders = [each for each in callbacks if isinstance(each, LearningRateFinder)]
        if not finders or finders[0].optimal_lr is None or not isinstance(pl_module, BertModule):
            return
        results = finders[0].optimal_lr.results
        rates, losses = results["lr"], losses_of(results["loss"]).tolist()
        try:
            found = propose(rates, losses)
        except TrainerError:
            self._write(trainer, rates, losses, None)
            raise
        self._write(trainer, rates, losses, found)
        given = pl_module.optimizer_config.learning_rate
        pl_module.learning_rate = found.best
        for each in trainer.lr_scheduler_configs:
            raise_rates(each.scheduler, found.best / given)
        if trainer.is_global_zero:
            say(
                f"learning rate found: {found.best:.2g}, of a range from {found.low:.2g} to "
                f"{found.high:.2g} (the config has {given:.3g}); to repeat the run without looking "
                f"for it: --model.optimizer.learning_rate {found.best!r}"
            )

    def _write(
        self, trainer: Trainer, rates: list[float], losses: list[float], found: RateRange | None
    ) -> None:
        if not trainer.is_global_zero or not self.directory.is_dir():
            return
        smoothed = (
            smooth(np.asarray(rates), np.asarray(losses)) if found is None else found.smoothed
        )
        proposed = None if found is None else [found.low, found.best, found.high]
        lists = {"losses": losses, "smoothed": smoothed.tolist()}
        finite = {
            name: [value if np.isfinite(value) else None for value in values]
            for name, values in lists.items()
        }
        write_json(self.directory / RATES, {"rates": rates, **finite, "proposed": proposed})


def check_room(rates: int, trainer: Trainer, data: TaskData) -> None:
    """Refuse a sweep that the run's last epoch would end: a few rows have few steps.

    Raises:
        TrainerError: says what ends the run at the same step, and the sweep not.
    """
    epochs = trainer.max_epochs
    if epochs is None or epochs == -1:
        return  # the finder itself puts max_steps off
    steps = epochs * data.steps_per_epoch()
    if steps < rates:
        raise TrainerError(
            f"LearningRateFinder: tries {rates} rates, a step each, but trainer.max_epochs "
            f"{epochs} ends after {steps}; expected --trainer.max_epochs -1 --trainer.max_steps "
            f"{steps}, which end the run there and not the search"
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
