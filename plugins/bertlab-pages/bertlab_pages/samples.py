"""What a run predicts for a few held-out sequences or rows, at each evaluation."""

import io
import json
import shutil
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger, WandbLogger

from bertlab import TokenPrediction
from bertlab.api import EncoderOutput, Example, Head, PackedBatch, TaskData
from bertlab.extend import BertModule, open_to_append, parse_json, read_bytes, replacing, utf8

SAMPLES = "samples.jsonl"
_COUNT = 6
_TEXTS = ("task", "sample", "text", "truth", "prediction")  # of a line, beside its step
_FORM = {"step": int, **dict.fromkeys(_TEXTS, str)}


class SampleRows(Callback):
    """Appends a line for each sample and evaluation to ``samples.jsonl`` of the run.

    A line has ``step``, ``task``, ``sample``, ``text``, and ``truth`` and ``prediction`` as texts.
    Of a language model these are the tokens that it predicts.

    Args:
        directory: of the run.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._samples: list[tuple[Sequence[Example], PackedBatch]] = []

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Predict the samples."""
        module, data = pl_module, getattr(trainer, "datamodule", None)
        if not isinstance(module, BertModule) or not isinstance(data, TaskData):
            return
        is_divided = module.device_mesh is not None  # all processes would have to compute
        if trainer.state.fn != "fit" or is_divided or not trainer.is_global_zero:
            return
        if not self._samples:
            self._samples = data.samples(_COUNT)
        rows: list[dict[str, Any]] = []
        trains = module.training
        module.eval()
        for examples, given in self._samples:
            batch = given.to(module.device)
            with torch.no_grad(), trainer.precision_plugin.forward_context():
                output = module(batch)
                rows += [
                    {"step": trainer.global_step, "task": name, **row}
                    for name, task in module.tasks_of(batch).items()
                    for row in self._rows(examples, task, output, batch)
                ]
        module.train(trains)
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        append_text(self.directory / SAMPLES, lines)
        for name in module.named_tasks():
            _log(trainer, name, [row for row in rows if row["task"] == name])

    def _rows(
        self, examples: Sequence[Example], task: object, output: EncoderOutput, batch: PackedBatch
    ) -> Iterator[dict[str, Any]]:
        if isinstance(task, TokenPrediction):
            yield from _tokens(task, output, batch)
        elif isinstance(task, Head):
            found = task.decode(output, batch)
            rows: list[int] = batch.fields["row"].tolist()
            for number in dict.fromkeys(rows):
                example = examples[number]
                parts = [each for row, each in zip(rows, found, strict=True) if row == number]
                of_truth = {column.name for column in task.columns if column.is_truth}
                values = {key: _short(value) for key, value in example.values.items()}
                yield {
                    "sample": example.where,
                    "text": " / ".join(v for key, v in values.items() if key not in of_truth),
                    "truth": " / ".join(v for key, v in values.items() if key in of_truth),
                    "prediction": _first(task.merge(example, parts)),
                }


def _log(trainer: Trainer, task: str, rows: list[dict[str, Any]]) -> None:
    """Give a task's samples to the loggers that take texts: TensorBoard, Weights & Biases."""
    columns = ["sample", "text", "truth", "prediction"]
    cells = [[str(row[name]) for name in columns] for row in rows]
    for logger in trainer.loggers if rows else ():
        if isinstance(logger, TensorBoardLogger):
            # its texts are Markdown: an indented block is shown as it is
            named = (zip(columns, row, strict=True) for row in cells)
            text = "\n".join(f"    {name}: {cell}" for row in named for name, cell in row)
            logger.experiment.add_text(f"samples/{task}", text, trainer.global_step)
        elif isinstance(logger, WandbLogger):
            logger.log_text(f"samples/{task}", columns, cells, step=trainer.global_step)


def _tokens(
    task: TokenPrediction, output: EncoderOutput, batch: PackedBatch
) -> Iterator[dict[str, Any]]:
    written = batch.token_labels(task.name)
    predicted = task.loss(output, batch).preds.tolist()
    positions, labels = written.positions.tolist(), written.labels.tolist()
    ids, ends = batch.input_ids.tolist(), batch.cu_seqlens.tolist()
    for number, (start, end) in enumerate(pairwise(ends)):
        places = [place for place, at in enumerate(positions) if start <= at < end]
        yield {
            "sample": f"held-out sequence {number + 1}",
            "text": " ".join(task.tokenizer.readable(each) for each in ids[start:end]),
            "truth": " ".join(task.tokenizer.readable(labels[place]) for place in places),
            "prediction": " ".join(task.tokenizer.readable(predicted[place]) for place in places),
        }


def _first(prediction: dict[str, Any]) -> str:
    """Return what a head predicts, without the probabilities that stand beside it."""
    return _short(next(iter(prediction.values()), ""))


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 500 else f"{text[:500]}…"


def read_samples(path: Path) -> list[dict[str, Any]]:
    """Return the lines, of each step and sample the latest; what is no such line is left out.

    A kill may have cut one, and another program may have written the file.
    """
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    if path.is_file():
        for line in io.BytesIO(read_bytes(path)):
            try:
                row = parse_json(line.decode(errors="replace"))
            except ValueError:
                continue
            if isinstance(row, dict) and all(isinstance(row.get(k), t) for k, t in _FORM.items()):
                found[row["step"], row["task"], row["sample"]] = row
    return list(found.values())


def append_text(path: Path, text: str) -> None:
    """Add UTF-8 text to a file; never to what a link leads to, nor to another name's content."""
    if path.exists() and path.stat().st_nlink > 1:  # a hard link: to be this name's own first
        with path.open("rb") as before, replacing(path) as own:
            shutil.copyfileobj(before, own)
    with open_to_append(path) as file:
        file.write(utf8(text))
