"""The core LightningModule: one encoder, its tasks, one optimiser. Nothing task-specific."""

from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.optim import Optimizer
from torchmetrics import MeanMetric, Metric, MetricCollection

from bertlab.encoders.base import Encoder
from bertlab.errors import ConfigError
from bertlab.optimization import AdamWConfig, build_optimizer, build_schedule
from bertlab.packed_batch import EncoderOutput, PackedBatch
from bertlab.tasks import Objective, Task, TaskContext, TaskLoss


class BertModule(LightningModule):
    """Runs one encoder over a packed batch and hands the hidden states to its tasks.

    The loss is the sum over tasks of each task's mean over its predictions in the whole optimiser
    step: all accumulated batches of all devices (paper app. A.2: mean masked-LM likelihood plus
    mean next-sentence likelihood).

    Args:
        encoder: built, with or without loaded weights.
        tasks: by config name; each is built here for the encoder.
        context: what the tasks are built for.
        optimizer: AdamW and its schedule.

    Raises:
        ConfigError: if two objectives overwrite the input, or one needs attention that the encoder
            does not have.
    """

    def __init__(
        self,
        encoder: Encoder,
        tasks: Mapping[str, Task],
        context: TaskContext,
        optimizer: AdamWConfig,
    ) -> None:
        super().__init__()
        check_tasks(tasks, encoder)
        self.encoder = encoder
        self.tasks = nn.ModuleDict(dict(tasks))
        for task in tasks.values():
            task.build(context)
        if not any(task.uses_pooled for task in tasks.values()):
            encoder.pooler.requires_grad_(False)  # DDP waits for the gradient of what may have one
        self.optimizer_config = optimizer
        self.validation_metrics = nn.ModuleDict(
            {name: _task_metrics(task) for name, task in tasks.items()}
        )
        self.evaluated_step = -1  # optimiser step of the last evaluation
        self._step_loss: dict[str, Tensor] = {}  # by task, summed over the accumulation window

    def named_tasks(self) -> dict[str, Task]:
        """Return the tasks by name, in the order of the config."""
        return {name: task for name, task in self.tasks.items() if isinstance(task, Task)}

    def metric_names(self) -> list[str]:
        """Return the names under which a run logs what a checkpoint can be chosen by."""
        names = ["train/loss", "val/loss"]
        for name, task in self.named_tasks().items():
            collection = self.validation_metrics[name]
            assert isinstance(collection, MetricCollection)
            values = {str(key): 1.0 for key in collection.keys(keep_base=True)}
            keys = [*values, *task.derived_metrics(values)]
            names += [f"train/{name}/loss", *(f"val/{name}/{key}" for key in keys)]
        return names

    def forward(self, batch: PackedBatch) -> EncoderOutput:
        """Encode a batch."""
        output: EncoderOutput = self.encoder(batch)
        return output

    def training_step(self, batch: PackedBatch, batch_idx: int) -> Tensor:
        """Return the batch's share of the loss, scaled so that gradients add up to the mean's."""
        output = self(batch)
        names = list(self.named_tasks())
        losses = [task.loss(output, batch) for task in self.named_tasks().values()]
        counts = self._global_counts(batch, names)
        shares = [
            loss.sum.float() / count.clamp(min=1)
            for loss, count in zip(losses, counts, strict=True)
        ]
        self._track_training_loss(dict(zip(names, shares, strict=True)), batch, batch_idx)
        # Lightning divides by the number of accumulated batches, DDP by the number of devices
        scale = self.trainer.accumulate_grad_batches * self.trainer.world_size
        total: Tensor = torch.stack(shares).sum() * scale
        return total

    def validation_step(self, batch: PackedBatch, batch_idx: int) -> None:
        """Update every task's metrics on held-out data."""
        del batch_idx
        output = self(batch)
        for name, task in self.named_tasks().items():
            _update(self.validation_metrics[name], task.loss(output, batch))

    def on_validation_epoch_end(self) -> None:
        """Log every task's metrics as ``val/<task>/<metric>``, and the summed loss."""
        total = 0.0
        for name, task in self.named_tasks().items():
            collection = self.validation_metrics[name]
            assert isinstance(collection, MetricCollection)
            values = {key: float(value) for key, value in collection.compute().items()}
            values |= task.derived_metrics(values)
            logged = {f"val/{name}/{key}": value for key, value in values.items()}
            self.log_dict(logged, sync_dist=True)  # equal on all devices; says so to Lightning
            collection.reset()
            total += values["loss"]
        self.log("val/loss", total, prog_bar=True, sync_dist=True)
        self.evaluated_step = self.trainer.global_step

    def predict_step(self, batch: PackedBatch, batch_idx: int) -> list[dict[str, Any]]:
        """Return one dict of predictions for each sequence, merged over the tasks."""
        del batch_idx
        output = self(batch)
        rows: list[dict[str, Any]] = [{} for _ in range(len(batch))]
        for task in self.named_tasks().values():
            for row, prediction in zip(rows, task.decode(output, batch), strict=True):
                row.update(prediction)
        return rows

    def configure_optimizers(self) -> Any:  # noqa: ANN401  Lightning's type is a private union
        """Return AdamW and its schedule, stepped once an optimiser step."""
        fused = self.trainer.precision != "16-mixed"  # Lightning cannot clip a fused fp16 step
        optimizer = build_optimizer(self.optimizer_config, self, fused)
        steps = self.trainer.estimated_stepping_batches
        schedule = build_schedule(self.optimizer_config, optimizer, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip by the global norm.

        Lightning refuses to clip under bf16-mixed with a fused optimiser because of fp16's scaler;
        bf16 has none. FSDP needs its own norm, so there Lightning clips.
        """
        sharded = hasattr(self.trainer.strategy.model, "clip_grad_norm_")
        by_norm = gradient_clip_algorithm in (None, "norm")
        if gradient_clip_val and by_norm and not sharded and self.trainer.precision != "16-mixed":
            nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)
        else:
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def _global_counts(self, batch: PackedBatch, names: list[str]) -> Tensor:
        """``(len(names),)`` predictions of each task in the optimiser step, over all devices."""
        counts = torch.tensor([batch.window_counts[name] for name in names], device=self.device)
        if self.trainer.world_size > 1:
            torch.distributed.all_reduce(counts)
        return counts

    def _track_training_loss(
        self, shares: dict[str, Tensor], batch: PackedBatch, batch_idx: int
    ) -> None:
        accumulate = self.trainer.accumulate_grad_batches
        if batch_idx % accumulate == 0:
            self._step_loss = {}
        for name, share in shares.items():
            self._step_loss[name] = self._step_loss.get(name, 0) + share.detach()
        if (batch_idx + 1) % accumulate == 0:
            values = torch.stack(list(self._step_loss.values()))
            if self.trainer.world_size > 1:
                torch.distributed.all_reduce(values)
            self.log("train/loss", values.sum(), prog_bar=True, batch_size=len(batch))
            for name, value in zip(self._step_loss, values, strict=True):
                self.log(f"train/{name}/loss", value, batch_size=len(batch))


def check_tasks(tasks: Mapping[str, Task], encoder: Encoder) -> None:
    """Raise ConfigError if the tasks do not go together or with the encoder."""
    if not tasks:
        raise ConfigError("model.objectives: found none, expected at least one, e.g. [mlm, nsp]")
    objectives = {name: task for name, task in tasks.items() if isinstance(task, Objective)}
    writers = [name for name, objective in objectives.items() if objective.corrupts_input]
    if len(writers) > 1:
        raise ConfigError(
            f"model.objectives: {' and '.join(writers)} both overwrite the input; keep one of them"
        )
    for name, objective in objectives.items():
        needed = objective.requires_causal
        if needed is not None and needed != encoder.causal:
            direction = "left-to-right" if needed else "bidirectional"
            raise ConfigError(
                f"model.objectives.{name} needs a {direction} encoder, but "
                f"model.encoder.causal is {str(encoder.causal).lower()}"
            )


def _task_metrics(task: Task) -> MetricCollection:
    metrics: dict[str, Metric | MetricCollection] = {"loss": MeanMetric(), **task.metrics()}
    return MetricCollection(metrics, compute_groups=False)


def _update(collection: nn.Module, loss: TaskLoss) -> None:
    assert isinstance(collection, MetricCollection)
    for name, metric in collection.items(keep_base=True, copy_state=False):
        if name == "loss":
            metric.update(loss.sum.float() / max(1, loss.count), weight=loss.count)
        elif loss.count:
            metric.update(loss.preds, loss.target)
