"""Losses of the held-out sequences of a pre-training, one by one: the rows of its measures.

All runs of a study that share data read the same held-out sequences with the same masks, whatever
their seeds. So sequences are rows that are crossed with runs, as those of a test set are, and what
other sequences, or other documents, would give is known. A run of a study writes them at its end.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch import Callback, LightningModule, Trainer
from numpy.typing import NDArray

from bertlab import TokenPrediction
from bertlab.api import Objective, PackedBatch
from bertlab.extend import (
    BertModule,
    PretrainingData,
    explain_damage,
    open_to_read,
    parse_json,
    write_text,
)
from bertlab_evaluations.row_influence import ratio_scores

HELD_OUT_ROWS = "held_out_rows.jsonl"  # in the directory of a run
_HEIGHT = 512  # rows of scores of the vocabulary that are in memory at a time
_CLOSE = 1e-3  # of the run's own value: kernels and precision differ, another text differs by more


class Sums(NamedTuple):
    """What an objective reached in each of B sequences, float64 ``(B,)`` each.

    Attributes:
        loss: sum of the losses of its predictions.
        right: predictions that are right.
        predictions: that were made.
    """

    loss: NDArray[np.float64]
    right: NDArray[np.float64]
    predictions: NDArray[np.float64]


class HeldOutRows(Callback):
    """Reads the held-out sequences once more when a pre-training ends, and writes their losses.

    Nothing is written by runs of several processes, each of which reads a part of the sequences,
    nor of objectives that rewrite their input or predict no tokens.

    Args:
        directory: of the run.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / HELD_OUT_ROWS

    @torch.no_grad()
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write a line for each sequence."""
        data = getattr(trainer, "datamodule", None)
        if not (isinstance(pl_module, BertModule) and isinstance(data, PretrainingData)):
            return
        tasks = {
            name: task
            for name, task in pl_module.named_tasks().items()
            if isinstance(task, TokenPrediction)
        }
        rewrites = any(
            isinstance(task, Objective) and type(task).rewrite_input is not Objective.rewrite_input
            for task in pl_module.named_tasks().values()
        )
        if trainer.world_size > 1 or rewrites or not tasks:
            return
        was_training = pl_module.training
        pl_module.eval()
        found: dict[str, list[Sums]] = {name: [] for name in tasks}
        with trainer.precision_plugin.val_step_context():
            for batch in _held_out(trainer, data):
                output = pl_module(batch)
                for name, task in tasks.items():
                    found[name].append(_sums(task, output.tokens, batch))
        pl_module.train(was_training)
        sums = {
            name: Sums(*map(np.concatenate, zip(*parts, strict=True)))
            for name, parts in found.items()
            if parts
        }
        if sums:
            self._write(sums, _documents(data, len(next(iter(sums.values())).predictions)))

    def _write(self, sums: dict[str, Sums], documents: list[int]) -> None:
        lines = [
            json.dumps(
                {
                    "row": row,
                    "cluster": f"document:{document}",
                    **{
                        name: {key: float(values[row]) for key, values in own._asdict().items()}
                        for name, own in sums.items()
                    },
                }
            )
            for row, document in enumerate(documents)
        ]
        write_text(self.path, "\n".join(lines) + "\n")


def _held_out(trainer: Trainer, data: PretrainingData) -> Iterator[PackedBatch]:
    """Yield the batches that a held-out evaluation reads, on the device of the weights."""
    loader = data.val_dataloader()
    limit = trainer.limit_val_batches
    most = limit if isinstance(limit, int) else int(len(loader) * (1.0 if limit is None else limit))
    for number, batch in enumerate(loader):
        if number >= most:
            return
        yield trainer.strategy.batch_to_device(batch)


def _documents(data: PretrainingData, count: int) -> list[int]:
    """Return the document of each held-out sequence; of pairs, that of their first text."""
    assert data.validation_sampler is not None
    assert data.store is not None
    sequences = data.validation_sampler.sample(np.zeros(count, np.int64), np.arange(count))
    first = sequences.corpus_offsets[sequences.cu_seqlens[:-1] + 1]  # behind [CLS]
    ends = data.store.document_token_offsets
    return [int(each) for each in np.searchsorted(ends, first, side="right") - 1]


def _sums(task: TokenPrediction, states: torch.Tensor, batch: PackedBatch) -> Sums:
    """Return the sums of an objective over each sequence of a batch."""
    written = batch.token_labels(task.name)
    # cu_seqlens [0, 3, 5], positions [1, 2, 4] -> sequences [0, 0, 1]
    sequence = torch.searchsorted(batch.cu_seqlens[1:].long(), written.positions, right=True)
    sums = torch.zeros(3, len(batch), dtype=torch.float64)
    for place in torch.split(torch.arange(len(written.labels), device=states.device), _HEIGHT):
        labels, logits = written.labels[place], task.logits(states[written.positions[place]])
        values = (
            F.cross_entropy(logits, labels, reduction="none"),
            logits.argmax(-1) == labels,
            torch.ones_like(labels),
        )
        own = sequence[place].cpu()
        for total, each in zip(sums, values, strict=True):
            total.index_add_(0, own, each.double().cpu())
    return Sums(*sums.numpy())


def held_out_scores(
    directory: Path, objective: str, metric: str, value: float
) -> NDArray[np.float64] | None:
    """Return ``(rows,)`` scores of the held-out sequences whose mean is a measure of pre-training.

    A measure is the ratio of two sums over sequences, and a score is what one adds to it in first
    order (:mod:`bertlab_evaluations.row_influence`).

    Args:
        directory: of the run.
        objective: by its name in the config.
        metric: ``loss`` or ``accuracy``; of others None is returned.
        value: that the run reported; None is returned if the sequences' own is another.
    """
    path = directory / HELD_OUT_ROWS
    part = {"loss": "loss", "accuracy": "right"}.get(metric)
    if part is None or not path.is_file():
        return None
    with explain_damage(path), open_to_read(path) as file:
        lines = [parse_json(line.decode()) for line in file]
        if not lines or any(objective not in line for line in lines):
            return None
        sums, counts = (
            np.array([line[objective][key] for line in lines], np.float64)
            for key in (part, "predictions")
        )
    scores = ratio_scores(sums, counts)
    if not np.isfinite(value) or abs(scores.mean() - value) > _CLOSE * max(1.0, abs(value)):
        return None
    return np.asarray(scores + (value - scores.mean()))
