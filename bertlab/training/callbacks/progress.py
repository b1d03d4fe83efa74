"""What a run shows and keeps: tokens a second, a line an evaluation, a picture at its end."""

import sys
import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from bertlab.api.batch import PackedBatch
from bertlab.errors import say
from bertlab.model.module import BertModule
from bertlab.training.history import draw, read_curves
from bertlab.training.results import show


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
        if "train/loss" in logged:
            parts.append(f"train loss {logged['train/loss']:.3f}")
        wanted = {"loss", "accuracy"}
        if isinstance(pl_module, BertModule) and pl_module.head is not None:
            wanted.add(pl_module.head.monitor[0])
        for name, value in logged.items():
            if name.startswith("val/") and name.rpartition("/")[2] in wanted:
                shown = show(name, value)
                parts.append(f"{name.removeprefix('val/').replace('/', ' ')} {shown}")
        say("  ".join(parts))
        sys.stdout.flush()


class LossCurve(Callback):
    """Draws ``loss_curve.png`` from the run's CSV logs when training ends.

    Args:
        directory: of the run.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw what has been logged so far, earlier attempts at the same run included."""
        if trainer.is_global_zero and (curves := read_curves(self.directory)):
            draw(curves).savefig(self.directory / "loss_curve.png", dpi=130)
