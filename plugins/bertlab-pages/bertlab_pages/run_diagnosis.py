"""What a run's page needs and no log has: predictions for held-out rows, data, wall time, commit.

``diagnosis.json`` of the run has it, and the page is made of the run's files alone, also while it
runs.
"""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from bertlab.api import BertlabError, EncoderOutput, Example, Head, PackedBatch, TaskData
from bertlab.extend import STUDY_ENVIRONMENT, BertModule, told, warn, write_json
from bertlab_pages.diagnosis import diagnose
from bertlab_pages.run_page import write_page
from bertlab_pages.run_records import DIAGNOSIS, PAGE, read_diagnosis

_SLOW_ROWS = 2_000  # of a head whose decoding is slow: with more, only the last step is looked at
_MOST_ROWS = 50_000
_SECONDS, _PART = 5.0, 0.25  # of an evaluation, that decoding for the page may take
_INTERVAL = 30  # seconds from one page to the next, at least
_SHARE = 100  # and so many times as long as the page took


class RunDiagnosis(Callback):
    """Keeps what heads predict for held-out rows, and writes the page while the run goes on.

    The states are those of the evaluation itself, so that nothing is encoded twice.

    Args:
        directory: of the run.
        task_name: what the user calls the task; None: the head's own name.
    """

    def __init__(self, directory: Path, task_name: str | None = None) -> None:
        self.directory = directory
        self.record: dict[str, Any] = {"task_name": task_name, "seconds": 0.0, "tasks": {}}
        self._parts: dict[str, dict[int, dict[int, dict[str, Any]]]] = {}
        self._output: EncoderOutput | None = None
        self._hook: Any = None
        self._before = 0.0  # seconds of earlier sessions
        self._has_page = False
        self._given_up: set[str] = set()  # heads whose decoding fails, or takes too long
        self._evaluating = self._decoding = 0.0  # begin of an evaluation, seconds of decoding in it
        self._started = time.monotonic()
        self._next_page = time.monotonic() + _INTERVAL

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the record."""
        self._begin(trainer)

    def _begin(self, trainer: Trainer) -> None:
        """Take over what an earlier session of the run has written; note data and commit."""
        data = getattr(trainer, "datamodule", None)
        if "data" in self.record or not trainer.is_global_zero or not isinstance(data, TaskData):
            return
        with contextlib.suppress(
            BertlabError, OSError, ValueError, TypeError
        ):  # to be written anew
            before = read_diagnosis(self.directory)
            self.record["tasks"] = before.get("tasks", {})
            self.record["task_name"] = self.record["task_name"] or before.get("task_name")
            self._before = float(before.get("seconds", 0.0))
        self.record |= {
            "data": data.report_tables(),
            "commit": commit_of(Path.cwd()),
            "steps": _finite(data.total_steps(trainer)),
        }
        self._write()

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401  Lightning's signature
        batch: PackedBatch,
        batch_idx: int,
    ) -> None:
        """Write the page, if it is time."""
        self._write_page(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the states of each batch until it has been decoded."""
        self._parts, self._output = {}, None
        self._evaluating, self._decoding = time.monotonic(), 0.0
        if isinstance(pl_module, BertModule) and pl_module.heads and trainer.is_global_zero:

            def keep(module: torch.nn.Module, given: object, output: EncoderOutput) -> None:
                self._output = output

            self._hook = pl_module.register_forward_hook(keep)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401  Lightning's signature
        batch: PackedBatch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Decode a batch of a head's first set."""
        output, self._output = self._output, None
        if output is None or not isinstance(pl_module, BertModule):
            return
        if pl_module.device_mesh is not None:  # all processes would have to compute
            return
        sets = pl_module.evaluations.sets()
        for name, head in pl_module.heads.items():
            first = next(place for place, each in enumerate(sets) if name in each.tasks)
            if first != dataloader_idx or not _is_looked_at(head, sets[first].examples, trainer):
                continue
            if name in self._given_up:
                continue
            begun = time.monotonic()
            with self._survived(name), torch.no_grad(), trainer.precision_plugin.forward_context():
                found = head.decode(output, batch)
            self._decoding += time.monotonic() - begun
            if self._decoding > max(_SECONDS, _PART * (time.monotonic() - self._evaluating)):
                self._given_up.add(name)  # such as a beam search: the page goes without
            if name in self._given_up:
                self._parts.pop(name, None)
                continue
            rows, numbers = (batch.fields[key].tolist() for key in ("row", "sequence"))
            parts = self._parts.setdefault(name, {})
            for row, number, prediction in zip(rows, numbers, found, strict=True):
                parts.setdefault(row, {})[number] = prediction

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Sum up, and write ``diagnosis.json``."""
        self._remove_hook()
        if not trainer.is_global_zero or not isinstance(pl_module, BertModule):
            return
        self._begin(trainer)  # of a run that goes on at its end, which trains no more
        sets = pl_module.evaluations.sets()
        for name, parts in self._parts.items():
            place = next(n for n, each in enumerate(sets) if name in each.tasks)
            with self._survived(name):
                encoded = _encoded(trainer, place)
                found = _diagnosis(pl_module.heads[name], sets[place].examples, parts, encoded)
                rows = len(sets[place].examples)
                step = trainer.global_step
                self.record["tasks"][name] = {"step": step, "all_rows": rows, **found}
        self._parts = {}
        self._write()
        self._write_page(trainer)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Leave no hook behind, and no page that says that the run goes on."""
        self._remove_hook()
        if self._has_page:
            with self._survived("the run so far"):
                self._write()
                write_page(self.directory, "stopped")

    @contextlib.contextmanager
    def _survived(self, name: str) -> Iterator[None]:
        """Give a head up if the block fails: a run does not end for its page."""
        try:
            yield
        except Exception as error:
            self._given_up.add(name)
            warn(f"{PAGE} goes without {name}: {told(error)}")

    def _remove_hook(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _write(self) -> None:
        self.record["seconds"] = self._before + time.monotonic() - self._started
        if self.directory.is_dir():
            write_json(self.directory / DIAGNOSIS, self.record)

    def _write_page(self, trainer: Trainer) -> None:
        begun = time.monotonic()
        due = begun >= self._next_page and trainer.state.fn == "fit" and trainer.is_global_zero
        if due and STUDY_ENVIRONMENT not in os.environ and self.directory.is_dir():
            with self._survived("the run so far"):
                self._write()
                write_page(self.directory, "running")
                self._has_page = True
            taken = time.monotonic() - begun
            self._next_page = time.monotonic() + max(_INTERVAL, _SHARE * taken)


def commit_of(folder: Path) -> str | None:
    """Return the commit of the git checkout that a folder is in, if there is one."""
    if (git := shutil.which("git")) is None:
        return None
    command = [git, "-C", str(folder), "rev-parse", "--short=12", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None


def _is_looked_at(head: Head, rows: Any, trainer: Trainer) -> bool:  # noqa: ANN401
    """Whether decoding all rows costs little beside the evaluation, or is due at the end."""
    if len(rows) > _MOST_ROWS:
        return False
    data = trainer.datamodule  # type: ignore[attr-defined]
    is_last = isinstance(data, TaskData) and trainer.global_step >= data.total_steps(trainer)
    return not head.score_names() or len(rows) <= _SLOW_ROWS or is_last


def _encoded(trainer: Trainer, place: int) -> Any:  # noqa: ANN401  EncodedExamples, if it is one
    loaders = trainer.val_dataloaders
    loader = loaders[place] if isinstance(loaders, list) else loaders
    stream = getattr(getattr(getattr(loader, "loader", None), "dataset", None), "stream", None)
    return getattr(stream, "encoded", None)


def _diagnosis(
    head: Head,
    examples: Sequence[Example],
    parts: dict[int, dict[int, dict[str, Any]]],
    encoded: Any,  # noqa: ANN401
) -> dict[str, Any]:
    numbers = sorted(parts)
    rows: list[Example] = [examples[number] for number in numbers]
    merged = [
        head.merge(examples[row], [parts[row][key] for key in sorted(parts[row])])
        for row in numbers
    ]
    tokens = cut = np.zeros(len(examples), np.int64)
    if encoded is not None:
        # rows [0, 0, 2] with 5, 3 and 4 tokens -> [8, 0, 4]
        lengths = np.diff(encoded.offsets)
        tokens = np.bincount(encoded.row_numbers, lengths, len(examples)).astype(np.int64)
        cut = np.bincount(encoded.row_numbers, encoded.truncated, len(examples)).astype(np.int64)
    truths = [column.name for column in head.columns if column.is_truth]
    threshold = float(getattr(head, "threshold", 0.5))
    return diagnose(
        rows, merged, truths, tokens[numbers].tolist(), cut[numbers].tolist(), threshold
    )


def _finite(steps: float) -> int | None:
    return int(steps) if np.isfinite(steps) else None
