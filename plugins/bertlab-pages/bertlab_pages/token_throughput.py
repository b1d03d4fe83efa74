"""Tokens a second, and the padding that packing avoids, beside the training loss in the logs."""

import time
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from bertlab.api import PackedBatch


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
        self.tokens = self.padded = 0
