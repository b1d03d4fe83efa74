"""The core LightningModule: one encoder, its tasks, one optimiser. Nothing task-specific."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn
from torch.optim import Optimizer
from torchmetrics import Metric

from bertlab.api.batch import EncoderOutput, PackedBatch
from bertlab.api.encoder import Encoder
from bertlab.api.rng import CounterRNG
from bertlab.api.task import Head, Objective, Task, TaskContext, TaskLoss
from bertlab.data.module import EvaluationRows, TaskData
from bertlab.errors import PluginError
from bertlab.model.build import build_layers, check_tasks, keeps_encoder_fixed
from bertlab.model.evaluation import VAL_LOSS, Evaluations
from bertlab.model.losses import NumericalGuard, Passes, StepLoss, global_counts, shares_of
from bertlab.model.optimizer import (
    ENTRIES,
    EarlierOptimizer,
    build_optimizer,
    build_schedule,
    build_timed_schedule,
    freeze_layers,
    run_timer,
)
from bertlab.model.optimizer_config import OptimizerConfig


class BertModule(LightningModule):
    """Runs one encoder over a packed batch and hands the hidden states to its tasks.

    The loss is the sum over tasks of each task's mean over its predictions in the whole optimiser
    step: all accumulated batches of all devices (paper app. A.2: mean masked-LM likelihood plus
    mean next-sentence likelihood).

    Args:
        encoder: built, with or without loaded weights.
        tasks: by config name; each is built here for the encoder.
        context: what the tasks are built for.
        optimizer: the optimiser and its schedule.
        evaluation_sets: labelled rows of each evaluation set; objectives need none.
        metrics: further metrics of every task, by config name.
        seed: of what training draws while it computes: dropout, and whatever a plugin draws.

    Raises:
        ConfigError: if two objectives overwrite the input, or one needs attention that the encoder
            does not have.
    """

    def __init__(
        self,
        encoder: Encoder,
        tasks: Mapping[str, Task],
        context: TaskContext,
        optimizer: OptimizerConfig,
        evaluation_sets: Sequence[EvaluationRows] = (EvaluationRows(),),
        metrics: Mapping[str, Metric] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_tasks(tasks, encoder)
        self.encoder = encoder
        self.tasks = nn.ModuleDict(dict(tasks))
        self.encoder_is_fixed = keeps_encoder_fixed(self.heads)
        build_layers(tasks, context)
        self.reads_all_layers = any(head.reads_all_layers for head in self.heads.values())
        if self.encoder_is_fixed:
            encoder.requires_grad_(False)
        freeze_layers(optimizer, self)
        if not any(task.uses_pooled for task in tasks.values()):
            encoder.pooler.requires_grad_(False)  # DDP waits for the gradient of what may have one
        self.optimizer_config = optimizer
        self.learning_rate = optimizer.learning_rate  # which Lightning's LearningRateFinder sets
        self.continued: EarlierOptimizer | None = None  # of an earlier phase
        self.evaluations = Evaluations(tasks, evaluation_sets, metrics or {})
        self.moving = [t for t in tasks.values() if type(t).after_step is not Task.after_step]
        self.draws = CounterRNG(seed, "draws")
        self.numerical_guard = NumericalGuard()
        self.evaluated_step = -1  # optimiser step of the last evaluation
        self.tunes = False  # what is tuned on the rows of an evaluation; training always does
        self.history: dict[int, dict[str, float]] = {}  # evaluations of training, by step
        self.warnings: list[str] = []  # of the last evaluation
        self.step_loss = StepLoss()
        self.passes = Passes()  # of training; a package may compute them otherwise
        self.own_callbacks = [*optimizer.recipe.callbacks()]  # which may keep the trained weights

    def named_tasks(self) -> dict[str, Task]:
        """Return the tasks by name, in the order of the config."""
        return {name: task for name, task in self.tasks.items() if isinstance(task, Task)}

    @property
    def heads(self) -> dict[str, Head]:
        """The heads that are fine-tuned, by name; none while pre-training."""
        return {name: task for name, task in self.tasks.items() if isinstance(task, Head)}

    @property
    def head(self) -> Head | None:
        """The head that is fine-tuned, if it is one; None while pre-training."""
        return next(iter(self.heads.values())) if len(self.heads) == 1 else None

    def tasks_of(self, batch: PackedBatch) -> dict[str, Task]:
        """Return the tasks that a batch has predictions for; all, if it counts those of none."""
        tasks = self.named_tasks()
        # of two heads, each has batches of its own: counts {"mrpc": 32}
        return {name: tasks[name] for name in tasks if name in batch.counts} or tasks

    def metric_names(self) -> list[str]:
        """Return the names under which a run logs what a checkpoint can be chosen by."""
        losses = [f"train/{name}/loss" for name in self.tasks]
        return ["train/loss", *losses, "val/loss", *self.evaluations.names("val")]

    def configure_model(self) -> None:
        """Divide the weights among the processes, where that is how the strategy works."""
        divide = getattr(self.trainer.strategy, "divide", None)  # see the hook bertlab_strategy
        if divide is not None:
            divide(self)

    def forward(self, batch: PackedBatch) -> EncoderOutput:
        """Encode a batch."""
        read = self._tokens_read(batch)
        if read is not None:
            batch = replace(batch, tokens_read=read)
        return self._encode(batch)

    def _encode(self, batch: PackedBatch) -> EncoderOutput:
        # evaluation runs under no_grad already
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.encoder_is_fixed):
            output: EncoderOutput = self.encoder(batch, all_layers=self.reads_all_layers)
        output.encode = self._encode
        return output

    def train(self, mode: bool = True) -> "BertModule":
        """Switch dropout on or off; an encoder that gives fixed features has none."""
        super().train(mode)
        if self.encoder_is_fixed:
            self.encoder.eval()
        return self

    def on_train_start(self) -> None:
        """Begin the passes of training, now that the module is on its device."""
        self.passes.begin(self)

    def on_train_batch_start(self, batch: PackedBatch, batch_idx: int) -> None:
        """Begin the draws of a micro-batch by its number in the step over all devices."""
        del batch
        each, trainer = self.trainer.accumulate_grad_batches, self.trainer
        self.seed_draws(trainer.global_step, trainer.global_rank * each + batch_idx % each)

    def seed_draws(self, step: int, part: int) -> None:
        """Seed torch for a micro-batch: dropout is a function of seed, step and part, from 0."""
        torch.manual_seed(int(self.draws.bits(step, part)))

    def training_step(self, batch: PackedBatch, batch_idx: int) -> Tensor:
        """Return the batch's share of the loss, scaled so that gradients add up to the mean's."""
        shares = self.passes.shares(self, batch, batch_idx)
        names, each = list(self.tasks_of(batch)), self.trainer.accumulate_grad_batches
        self.step_loss.add(names, shares, is_first=batch_idx % each == 0)
        if (batch_idx + 1) % each == 0:
            values = self.step_loss.over_devices(self.trainer.world_size)
            # the bar reads it when it is drawn: prog_bar=True reads it, and waits, at each step
            self.log("train/loss", values.sum(), batch_size=1)
            for name, value in zip(self.step_loss.by_task, values, strict=True):
                self.log(f"train/{name}/loss", value, batch_size=1)
        return self.scaled_loss(shares)

    def shares(self, batch: PackedBatch, counts: Tensor | None = None) -> list[Tensor]:
        """Return the batch's share of each task's mean loss in its step."""
        losses = self.losses(batch)
        if counts is None:  # where they are given, further sequences may fill the batch up
            for name, loss in zip(self.tasks_of(batch), losses, strict=True):
                if loss.count != (announced := batch.counts.get(name, loss.count)):
                    told = f"{name}: its loss is of {loss.count} predictions, and its sequences"
                    raise PluginError(f"{told} announced {announced}; expected the same number")
            counts = self.counts(batch)
        return shares_of(losses, counts)

    def counts(self, batch: PackedBatch) -> Tensor:
        """Return ``(tasks,)`` predictions of each of a batch's tasks in its step."""
        return global_counts(
            batch, list(self.tasks_of(batch)), self.device, self.trainer.world_size
        )

    def scaled_loss(self, shares: list[Tensor]) -> Tensor:
        """Return the sum of the shares, times what Lightning and DDP divide gradients by."""
        # Lightning divides by the number of accumulated batches, DDP by the number of devices
        scale = self.trainer.accumulate_grad_batches * self.trainer.world_size
        total: Tensor = torch.stack(shares).sum() * scale  # (tasks,) -> ()
        return total

    def backward(self, loss: Tensor) -> None:
        """Compute the gradient."""
        self.passes.backward(loss)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Optimizer) -> None:
        """Forget the gradient of the last step."""
        del epoch, batch_idx
        self.passes.zero_gradients(optimizer)

    def optimizer_step(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401  Lightning's
        """Take a step; where it was taken, tasks then move what they move themselves."""
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)  # of fp16
        # to read its scale waits for a GPU
        scale = scaler.get_scale() if scaler and self.moving else 0.0
        super().optimizer_step(*arguments, **named)
        if self.moving and not (scaler and scaler.get_scale() < scale):
            self.numerical_guard.finish()  # which waits for a GPU, too
            if self.numerical_guard.was_taken:
                self.after_step(self.trainer.global_step + 1)

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        """Let tasks move weights of their own after a step, counted from 1."""
        for task in self.moving:
            task.after_step(step)

    def losses(self, batch: PackedBatch) -> list[TaskLoss]:
        """Return the loss of each task that a batch is for, in the order of the config."""
        batch = self._rewrite_input(batch)
        output = self(batch)
        return [task.loss(output, batch) for task in self.tasks_of(batch).values()]

    def validation_step(self, batch: PackedBatch, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Update every task's metrics on held-out data."""
        del batch_idx
        batch = self._rewrite_input(batch)
        output = self(batch)
        evaluation = self.evaluations.sets()[dataloader_idx]
        for name in evaluation.tasks:
            task = self.named_tasks()[name]
            evaluation.update(name, task, output, batch, task.loss(output, batch))

    def on_validation_epoch_start(self) -> None:
        """Begin each evaluation anew, also after one that was interrupted."""
        self.evaluations.reset()

    def on_validation_epoch_end(self) -> None:
        """Log every task's metrics as ``val/<task>/<metric>``, and the summed loss.

        Where there are several sets, ``val/<task>/<set>/<metric>``; the first one's loss counts.
        """
        self._log_evaluations("val")
        self.evaluated_step = self.trainer.global_step
        if self.optimizer_config.schedule.monitor and self.trainer.state.fn == TrainerFn.FITTING:
            schedule: Any = self.lr_schedulers()
            schedule.last_epoch -= 1  # the next step's rate anew, now that it has this score
            schedule.step()

    # of a test set, the same
    test_step, on_test_epoch_start = validation_step, on_validation_epoch_start

    def on_test_epoch_end(self) -> None:
        """As :meth:`on_validation_epoch_end`, as ``test/…``."""
        self._log_evaluations("test")

    def predict_step(self, batch: PackedBatch, batch_idx: int) -> list[dict[str, Any]]:
        """Return one dict of predictions for each sequence, merged over the tasks."""
        del batch_idx
        output = self(batch)
        rows: list[dict[str, Any]] = [{} for _ in range(len(batch))]
        for task in self.named_tasks().values():
            for row, prediction in zip(rows, task.decode(output, batch), strict=True):
                row.update(prediction)  # of mlm and nsp: one dict with the keys of both
        return rows

    def configure_callbacks(self) -> list[Callback]:
        """Return what the optimiser needs beside itself: the same in all that a Trainer runs."""
        return [*self.own_callbacks]

    def configure_optimizers(self) -> Any:  # noqa: ANN401  Lightning's type is a private union
        """Return the optimiser and its schedule, stepped once an optimiser step."""
        config = replace(self.optimizer_config, learning_rate=self.learning_rate)
        fused = self.trainer.precision != "16-mixed"  # Lightning cannot clip a fused fp16 step
        optimizer = build_optimizer(config, self, fused)
        done = 0
        if self.continued is not None:
            take = getattr(self.trainer.strategy, "take_optimizer_state", None)
            self.continued.load(self, optimizer, take)
            done, self.continued = self.continued.steps, None  # twice the size of the weights
        steps, timer = self.trainer.estimated_stepping_batches, run_timer(self.trainer)
        # Lightning's word for neither max_steps nor max_epochs
        if steps == float("inf") and timer is not None and config.schedule_steps is None:
            schedule = build_timed_schedule(config, optimizer, timer, self._scores)
        else:
            schedule = build_schedule(config, optimizer, steps, done, self._scores)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip by the global norm.

        A step whose gradient is not finite is not taken: :attr:`numerical_guard` says what follows.
        Lightning refuses to clip under bf16-mixed with a fused optimiser because of fp16's scaler;
        bf16 has none.
        """
        if self.trainer.precision == "16-mixed":  # whose scaler skips such steps itself
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)
            return
        norm = self.clip(optimizer, gradient_clip_val, gradient_clip_algorithm)
        if type(norm) is torch.Tensor:  # under FSDP its parts would have to be gathered
            self.log("gradient_norm", norm, batch_size=1)
        rate = max(group["lr"] for group in optimizer.param_groups)
        self.log("learning_rate", torch.tensor(rate), batch_size=1)
        describe = partial(self._describe_step, self.trainer.global_step, self.step_loss.by_task)
        self.numerical_guard.check(norm, optimizer, describe)

    def clip(self, optimizer: Optimizer, value: float | None, algorithm: str | None) -> Tensor:
        """Clip the gradient; return its norm before."""
        if value and algorithm in (None, "norm"):
            return nn.utils.clip_grad_norm_(self.parameters(), value)
        gradients = [p.grad for p in self.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients)  # only to see whether it is finite
        self.clip_gradients(optimizer, value, algorithm)
        return norm

    def on_validation_start(self) -> None:
        """Evaluate no weights that come after a step which was not taken."""
        self.numerical_guard.finish()

    on_train_end = on_validation_start  # the last step may be one

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save no state that comes after a step which was not taken, and the size of it."""
        self.numerical_guard.finish()
        for each in checkpoint.get("optimizer_states", ()):
            each[ENTRIES] = len(each.get("state", ()))

    def _describe_step(self, step: int, losses: Mapping[str, Tensor], norm: float) -> str:
        """Return the message about a step, counted from 0, whose gradient is not finite."""
        parts = ", ".join(f"{name} {float(loss):.4g}" for name, loss in losses.items())
        data = getattr(self.trainer, "datamodule", None)
        where = f" on {data.training_steps.describe(step)}" if isinstance(data, TaskData) else ""
        return f"step {step + 1}: the gradient's norm is {norm} (loss: {parts}){where}"

    def _rewrite_input(self, batch: PackedBatch) -> PackedBatch:
        """Return the batch as the one objective that may rewrites it on the device."""
        for task in self.tasks_of(batch).values():
            if isinstance(task, Objective):
                batch = task.rewrite_input(batch)
        return batch

    def _tokens_read(self, batch: PackedBatch) -> Tensor | None:
        """Return the positions that tasks read; None for all, and on a GPU, which would wait."""
        if batch.tokens_read is not None or batch.input_ids.device.type != "cpu":
            return batch.tokens_read
        found = [task.tokens_read(batch) for task in self.tasks_of(batch).values()]
        read = [places for places in found if places is not None]
        return torch.cat(read) if len(read) == len(found) else None

    def _scores(self) -> list[float]:
        """Return the metric that the schedule goes by, of each evaluation so far."""
        monitor = self.optimizer_config.schedule.monitor or ""
        return [found[monitor] for _, found in sorted(self.history.items()) if monitor in found]

    def _log_evaluations(self, stage: str) -> None:
        # thresholds are not chosen on test rows
        tunes = self.tunes or self.trainer.state.fn == TrainerFn.FITTING
        found = self.evaluations.compute(stage, tunes)
        self.warnings = found.warnings
        # a resumed run may score a step again whose evaluation it has logged
        logger = False if self.trainer.global_step in self.history else None
        # equal on all devices; sync_dist tells Lightning so
        self.log_dict(found.results, logger=logger, sync_dist=True)
        self.log(f"{stage}/loss", found.loss, prog_bar=True, logger=logger, sync_dist=True)
        if self.trainer.state.fn == TrainerFn.FITTING and not self.trainer.sanity_checking:
            self.history[self.trainer.global_step] = found.results | {VAL_LOSS: found.loss}
