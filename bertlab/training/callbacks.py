"""Callbacks that show how a run is going: bar, lines, curve, and warnings of what looks wrong."""

import math
import sys
import time
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar
from torch.optim.lr_scheduler import LambdaLR

from bertlab.api.batch import PackedBatch
from bertlab.data.module import TaskData
from bertlab.errors import say
from bertlab.model.module import BertModule
from bertlab.plugins.hooks import inspect_batch, inspects_batches
from bertlab.training.allocator import ReturnMemory
from bertlab.training.results import shown_figure


def own_callbacks() -> list[Callback]:
    """Return the callbacks that bertlab itself adds to every ``fit``."""
    reports = [TokenThroughput(), EvaluationLines(), FoundLearningRate()]
    inspection = [BatchInspection()] if inspects_batches() else []
    return [*reports, ReturnMemory(), *inspection]


class TokenThroughput(Callback):
    """Counts tokens, and the padding that packing avoids; logs both with the training loss.

    ``tokens_per_second`` counts tokens of this process since the last evaluation, or since the
    process started; ``padding_avoided`` is the share of a padded batch that would have been padding
    since the last evaluation, also where the run was interrupted in between.
    """

    def __init__(self) -> None:
        self._start_clock()
        self._start_count()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._start_clock()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start both anew, so that evaluation is not counted."""
        self._start_clock()
        self._start_count()

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401  Lightning's signature
        batch: PackedBatch,
        batch_idx: int,
    ) -> None:
        """Count a batch."""
        self.timed_tokens += len(batch.input_ids)
        self.tokens += len(batch.input_ids)
        # lengths [3, 2]: 5 tokens, 6 in a padded batch: 1/6 avoided
        self.padded += len(batch) * batch.max_seqlen
        seconds = time.perf_counter() - self.started
        # tensors: of numbers Lightning makes some on the GPU, which has to come to rest for that
        rate = torch.tensor(self.timed_tokens / seconds)
        avoided = torch.tensor(1 - self.tokens / self.padded)
        pl_module.log("tokens_per_second", rate, batch_size=len(batch))
        pl_module.log("padding_avoided", avoided, batch_size=len(batch))

    def state_dict(self) -> dict[str, int]:
        """Return the count, which a resumed run goes on with."""
        return {"tokens": self.tokens, "padded": self.padded}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Take the count of the interrupted run over."""
        self.tokens, self.padded = state_dict["tokens"], state_dict["padded"]

    def _start_clock(self) -> None:
        self.started = time.perf_counter()
        self.timed_tokens = 0

    def _start_count(self) -> None:
        self.tokens = 0
        self.padded = 0


class EvaluationLines(Callback):
    """Prints one plain line an evaluation, which stays in logs where no bar can be drawn."""

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print step, training loss, and held-out losses, accuracies and the head's score."""
        if trainer.sanity_checking or trainer.state.fn != "fit" or not trainer.is_global_zero:
            return
        logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
        parts = [f"step {trainer.global_step}"]
        wanted = {"loss", "accuracy"}
        heads = pl_module.heads if isinstance(pl_module, BertModule) else {}
        wanted |= {head.monitor[0] for head in heads.values()}
        if len(heads) > 1:  # the last step was one of them
            wanted.add("mean")
            names = [name for name in heads if f"train/{name}/loss" in logged]
            losses = [f"{name} {logged[f'train/{name}/loss']:.3f}" for name in names]
            parts.append(f"train loss {', '.join(losses)}")
        elif "train/loss" in logged:
            parts.append(f"train loss {logged['train/loss']:.3f}")
        for name, value in logged.items():
            if name.startswith("val/") and name.rpartition("/")[2] in wanted:
                shown = shown_figure(name, value)
                parts.append(f"{name.removeprefix('val/').replace('/', ' ')} {shown}")
        say("  ".join(parts))
        sys.stdout.flush()


class FoundLearningRate(Callback):
    """Has the schedule go on from a rate that Lightning's ``LearningRateFinder`` found; prints it.

    The finder trains while the rate rises, puts the weights back, and sets ``learning_rate`` of the
    module and the rates of the optimiser. By then the schedule exists, and would overwrite these at
    its next step.
    """

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


_REDRAWING_INTERVAL = 0.5  # seconds; reading a loss off a GPU waits for it


class StepBar(RichProgressBar):
    """Lightning's bar; in ``fit`` of the steps of the whole run, with loss and tokens a second."""

    def __init__(self) -> None:
        super().__init__(refresh_rate=4)
        self._drawn = 0.0

    @property
    def total_train_batches(self) -> float:
        """Optimiser steps of the run; infinite if no number of them ends it."""
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        steps = data.total_steps(self.trainer) if isinstance(data, TaskData) else math.inf
        return steps if math.isinf(steps) else int(steps)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the bar once: the end of an epoch is not its end."""
        if self.train_progress_bar_id is None:
            super().on_train_epoch_start(trainer, pl_module)
            self._update(self.train_progress_bar_id, trainer.global_step)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401  Lightning's signature
        batch: PackedBatch,
        batch_idx: int,
    ) -> None:
        """Show the step that is done, if it is time."""
        if time.monotonic() > self._drawn + _REDRAWING_INTERVAL:
            self._drawn = time.monotonic()
            done = trainer.global_step - 1  # the parent adds 1
            super().on_train_batch_end(trainer, pl_module, outputs, batch, done)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the last step."""
        self._update(self.train_progress_bar_id, trainer.global_step, hard=True)

    def get_metrics(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """Return the training loss and the speed, as far as they are known."""
        logged, found = trainer.callback_metrics, dict[str, Any]()
        if "train/loss" in logged:
            found["loss"] = float(logged["train/loss"])
        if "tokens_per_second" in logged:
            found["tok/s"] = f"{float(logged['tokens_per_second']):,.0f}"
        return found

    def _get_train_description(self, current_epoch: int) -> str:
        return "step"


def can_draw() -> bool:
    """Whether output goes to a terminal or a notebook, where a bar is redrawn in place."""
    return sys.stdout.isatty() or ("ipykernel" in sys.modules and "IPython" in sys.modules)


class BatchInspection(Callback):
    """Calls the hook ``bertlab_inspect_batch`` before each batch of a ``fit``."""

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: PackedBatch, batch_idx: int
    ) -> None:
        """Show a batch of training."""
        inspect_batch(batch, "train", trainer.global_step)

    def on_validation_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: PackedBatch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Show a batch of an evaluation."""
        inspect_batch(batch, "validate", trainer.global_step)
