"""Says what a run will take: before a large text is prepared, else from the run's first steps."""

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from jsonargparse import Namespace
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_only

from bertlab.api import BertlabError, PackedBatch, TaskData
from bertlab.extend import (
    STUDY_ENVIRONMENT,
    Config,
    Request,
    add_to_json,
    say,
    told,
    whole_ends,
)
from bertlab_pages.run_cost import (
    RunCost,
    measure_pretraining,
    process_memory,
    steps_of,
    whole_cost,
    within_an_hour,
)
from bertlab_pages.step_cost import StepCost, checkpoint_size

_FEW = 2_000  # sequences: a run that reads fewer says nothing
_TYPICAL = 128  # tokens
_SMALL = 3_000_000  # bytes of text
_OWN_TEXT = "python-english"
_UNTIMED, _TIMED = 2, 6  # steps; the first ones are slower
_FORWARD = 1 / 3  # of a step, whose backward pass takes twice as long


def plain_config(values: Namespace, request: Request) -> Config:
    """Return typed values as nested mappings, with the objectives and plugins that are named."""
    found: Config = values.as_dict()
    model = found["model"]
    if request.objectives:
        given = model.get("objectives") or {}
        model["objectives"] = {name: given.get(name) or {} for name in request.objectives}
    return found


def takes_long(corpus: str | list[str] | Mapping[str, object] | None) -> bool:
    """Whether text has to be fetched, or is over a few megabytes; False if some is missing."""
    if isinstance(corpus, Mapping):  # a source with settings
        corpus = str(corpus["source"])
    sources = [corpus] if isinstance(corpus, str) else corpus or []
    paths = [Path(each) for each in sources if ":" not in each and each != _OWN_TEXT]
    if not all(path.exists() for path in paths):
        return False  # the run itself says so
    size = 0
    for path in paths:
        for file in path.rglob("*") if path.is_dir() else [path]:
            size += file.stat().st_size
            if size > _SMALL:
                return True
    return any(":" in each for each in sources)


class SayCost(Callback):
    """Says minutes, memory and disk, once.

    Args:
        config: of the run, as plain data.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.is_done = getattr(rank_zero_only, "rank", 0) > 0 or STUDY_ENVIRONMENT in os.environ
        self._step = -1  # that has begun
        self._begins: list[float] = []  # of steps, without the seconds of evaluations
        self._evaluations: list[float] = []  # seconds of each
        self._evaluating = 0.0  # begin

    def before_data(self) -> None:
        """Say it of a pre-training, whose text may take long to prepare."""
        if self.is_done or self.config["model"].get("objectives") is None or self._heads():
            return
        if not takes_long(self.config["data"].get("corpus")):
            return  # its first steps come within seconds
        self.is_done = True
        steps = steps_of(self.config, self._size() * _TYPICAL)
        if steps is None or steps * self._size() >= _FEW:
            self._say(lambda: measure_pretraining(self.config))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Time no run of few steps, of several devices or heads, or whose layers are compiled."""
        data: TaskData = trainer.datamodule  # type: ignore[attr-defined]
        _, most = whole_ends(data.sequences_per_step())
        several = trainer.world_size > 1 or len(self.config["model"].get("heads") or ()) > 1
        few = data.total_steps(trainer) * most < _FEW
        known = pl_module.device.type in ("cpu", "cuda")
        self.is_done |= several or few or not known or bool(self.config.get("compile"))

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: PackedBatch, batch_idx: int
    ) -> None:
        """Note when a step begins; say it after the last one that is timed."""
        if self.is_done or trainer.global_step == self._step:  # another part of the step
            return
        self._step = trainer.global_step
        if self._step < _UNTIMED:
            return
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize()
        self._begins.append(time.perf_counter() - sum(self._evaluations))
        if len(self._begins) > _TIMED:
            self.is_done = True
            self._say(lambda: self._measured(trainer, pl_module))

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note when an evaluation begins."""
        self._evaluating = time.perf_counter()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note what it took."""
        if not (self.is_done or trainer.sanity_checking):
            self._evaluations.append(time.perf_counter() - self._evaluating)

    def _measured(self, trainer: Trainer, module: LightningModule) -> RunCost:
        """Return what the run takes if all steps are like the first ones."""
        data: TaskData = trainer.datamodule  # type: ignore[attr-defined]
        steps, parts = data.total_steps(trainer), trainer.accumulate_grad_batches
        seconds = statistics.median(end - begin for begin, end in pairwise(self._begins))
        # 32 sequences now, 64 on average: twice the time
        (_, now), (tokens, mean) = data.mean_lengths(), data.mean_lengths(steps)
        seconds *= mean / now
        _, most = whole_ends(data.sequences_per_step())
        held_out = sum(trainer.num_val_batches) * most / parts
        if self._evaluations and held_out:
            evaluation = min(self._evaluations) / held_out
        else:
            evaluation = _FORWARD * seconds * tokens / mean
        on_gpu = module.device.type == "cuda"
        memory = float(torch.cuda.max_memory_allocated()) if on_gpu else process_memory()
        step = StepCost(seconds, evaluation, memory, tokens, checkpoint_size(module))
        number = None if math.isinf(steps) else int(steps)
        times = math.ceil((number or 1) * parts / (trainer.val_check_batch or math.inf))
        return whole_cost(self.config, step, number, max(1, times), held_out, memory)

    def _say(self, measure: Callable[[], RunCost | None]) -> None:
        try:
            if (cost := measure()) is None:
                return
            shorter = within_an_hour(self.config, cost)
        except (BertlabError, RuntimeError, OSError, ValueError) as error:
            # the run itself says what is wrong; a plugin may not bear to be timed
            say(f"what the run takes is not known: {told(error)}", to_errors=True)
            return
        add_to_json(cost=cost)
        say(cost.line())
        if shorter is not None:
            say(shorter)

    def _heads(self) -> Any:  # noqa: ANN401  the section
        return self.config["model"].get("head") or self.config["model"].get("heads")

    def _size(self) -> int:
        size = self.config["data"].get("batch_size")
        return size if isinstance(size, int) else 256
