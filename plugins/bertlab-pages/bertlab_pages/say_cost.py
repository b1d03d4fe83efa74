"""Says what a run will take, before its text is prepared, or once its rows are read."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.utilities import rank_zero_only

from bertlab.api import BertlabError, TaskData
from bertlab.extend import STUDY_ENVIRONMENT, Config, Request, say, told, whole_ends
from bertlab_pages.run_cost import (
    RunCost,
    measure_prepared,
    measure_pretraining,
    steps_of,
    within_an_hour,
)

_FEW = 2_000  # sequences: a run that reads fewer says nothing
_TYPICAL = 128  # tokens
_SMALL = 3_000_000  # bytes of text
_OWN_TEXT = "python-english"


def plain_config(values: Namespace, request: Request) -> Config:
    """Return typed values as nested mappings, with the objectives and plugins that are named."""
    found: Config = values.as_dict()
    model = found["model"]
    if request.objectives:
        given = model.get("objectives") or {}
        model["objectives"] = {name: given.get(name) or {} for name in request.objectives}
    return found


def is_small(corpus: str | list[str] | None) -> bool:
    """Whether text takes seconds to prepare: bertlab's own, or a few megabytes of files."""
    sources = [corpus] if isinstance(corpus, str) else corpus or []
    size = 0
    for path in map(Path, sources):
        if str(path) == _OWN_TEXT:
            continue
        if not path.exists():
            return False
        files = path.rglob("*") if path.is_dir() else [path]
        for file in files:
            size += file.stat().st_size
            if size > _SMALL:
                return False
    return bool(sources)


class SayCost(Callback):
    """Times a few steps, and says minutes, memory and disk.

    Args:
        config: of the run, as plain data.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.is_done = getattr(rank_zero_only, "rank", 0) > 0 or STUDY_ENVIRONMENT in os.environ

    def before_data(self) -> None:
        """Say it of a pre-training, whose text may take long to prepare."""
        if self.is_done or self.config["model"].get("objectives") is None or self._heads():
            return
        if is_small(self.config["data"].get("corpus")):
            return  # it is read before training, within seconds
        self.is_done = True
        steps = steps_of(self.config, None, self._size() * _TYPICAL)
        if steps is None or steps * self._size() >= _FEW:
            self._say(lambda: measure_pretraining(self.config))

    def prepare(self, trainer: Trainer, data: TaskData) -> None:
        """Say it of rows, and of little text, which have been read."""
        if self.is_done or len(self.config["model"].get("heads") or ()) > 1:
            return
        self.is_done = True
        _, most = whole_ends(data.sequences_per_step())
        if data.total_steps(trainer) * most >= _FEW:
            self._say(lambda: measure_prepared(self.config, data, trainer))

    def _say(self, measure: Callable[[], RunCost | None]) -> None:
        try:
            if (cost := measure()) is None:
                return
            shorter = within_an_hour(self.config, cost)
        except (BertlabError, RuntimeError, OSError, ValueError) as error:
            # the run itself says what is wrong; a plugin may not bear to be timed
            say(f"what the run takes is not known: {told(error)}", to_errors=True)
            return
        say(cost.line())
        if shorter is not None:
            say(shorter)

    def _heads(self) -> Any:  # noqa: ANN401  the section
        return self.config["model"].get("head") or self.config["model"].get("heads")

    def _size(self) -> int:
        size = self.config["data"].get("batch_size")
        return size if isinstance(size, int) else 256
