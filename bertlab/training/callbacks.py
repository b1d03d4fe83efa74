"""Callbacks that show how a run is going, and how it ends: a signal, a number, a lost process."""

import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import LambdaCallback, WeightAveraging
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch.distributed import DistError

from bertlab.api.batch import PackedBatch
from bertlab.api.measures import is_share
from bertlab.checkpoints.run_checkpoint import LAST_FILE
from bertlab.checkpoints.run_directory import CONFIG_FILE, STAGES_FILE
from bertlab.config.checkpoint_config import asks_for_more
from bertlab.config.yaml_files import read_config, value_at
from bertlab.errors import LostProcessError, NumericalError, causes, say
from bertlab.files import explain_vanished_folder
from bertlab.model.module import BertModule
from bertlab.plugins.hooks import hook_results, is_hooked, run_callbacks
from bertlab.training.results import shown_figure


class EvaluationLines(Callback):
    """Prints one plain line an evaluation, which stays in logs where no bar can be drawn."""

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print step, training loss, and held-out losses, accuracies and the head's score."""
        if trainer.sanity_checking or trainer.state.fn != "fit" or not trainer.is_global_zero:
            return
        logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
        parts = [f"step {trainer.global_step}"]
        wanted = {"loss", "accuracy"}
        assert isinstance(pl_module, BertModule)
        heads, shares = pl_module.heads, pl_module.evaluations.shares()
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
                bare = name.removeprefix("val/")
                shown = shown_figure(name, value, is_share(bare, shares))
                parts.append(f"{bare.replace('/', ' ')} {shown}")
        say("  ".join(parts), is_progress=True)
        sys.stdout.flush()


def can_draw() -> bool:
    """Whether output goes to a terminal or a notebook, where a bar is redrawn in place."""
    return sys.stdout.isatty() or ("ipykernel" in sys.modules and "IPython" in sys.modules)


def _inspect(stage: str, trainer: Trainer, module: object, batch: PackedBatch, *_: int) -> None:
    hook_results("bertlab_inspect_batch", batch=batch, stage=stage, step=trainer.global_step)


def added_callbacks(directory: Path, config: Namespace) -> list[Callback]:
    """Return what every ``fit`` has beside record and checkpoints: ours, and those of packages."""
    own: list[Callback] = [EvaluationLines()]
    if is_hooked("bertlab_inspect_batch"):
        stages = {"on_train_batch_start": "train", "on_validation_batch_start": "validate"}
        own.append(LambdaCallback(**{on: partial(_inspect, each) for on, each in stages.items()}))
    return [*own, *run_callbacks(directory, config)]


# PyTorch reports killed processes as RuntimeErrors; only their words tell them apart
# "DataLoader worker (pid 4711) is killed by signal: Killed."
_LOST_WORKER = "DataLoader worker"
# "[…] Timed out waiting 1800000ms for recv operation to complete": a machine without power
_LOST_RANK = (
    *("Connection closed by peer", "Connection reset by peer", "Broken pipe"),
    *("Timed out waiting", "NCCL"),
)


def train(fit: Callable[[], None], trainer: Trainer, run: Path, saved: Callable[[], bool]) -> int:
    """Train; if training stops early, print why and how to resume."""
    try:
        fit()
    except NumericalError as error:
        skip = _command(run, "--on_nonfinite", "skip")
        hint = f". To leave such steps out from the last checkpoint on: {skip}"
        raise NumericalError(f"{error}{hint if saved() else ''}") from error
    except SIGTERMException:
        return _stopped(trainer, how_to_resume(run))
    except SystemExit:  # what Lightning makes of Ctrl-C
        if not trainer.interrupted:
            raise
        # Lightning ignores SIGINT from the first Ctrl-C on, also after fit() in a notebook
        signal.signal(signal.SIGINT, signal.default_int_handler)
        none = "interrupted before the first checkpoint"
        say(f"interrupted; {how_to_resume(run)}" if saved() else none)
        return 130
    return 0


def how_to_resume(run: Path) -> str:
    """Return the line that tells the user how to resume a saved run."""
    return f"continue with: {_command(run)}"


def _command(run: Path, *more: str) -> str:
    """Return the command, quoted to be pasted; with the run's config if a checkpoint may not do."""
    places = (run / STAGES_FILE, run / CONFIG_FILE)
    # Path.is_file() raises an error where a name is too long
    files = [each for each in places if os.path.isfile(each)]  # noqa: PTH113
    config = ["--config", str(files[0])] if files and asks_for_more(files[0]) else []
    kept = value_at(read_config(files[0]), "checkpoint.dirpath") if config else None
    path = str(run if kept is None else Path(str(kept), LAST_FILE))
    return shlex.join(["bertlab", "fit", "--ckpt_path", path, *config, *more])


def _stopped(trainer: Trainer, go_on: str) -> int:
    """Print where a signal stopped the run; return the exit code."""
    stop, step = stopped_by(trainer), trainer.global_step
    number = signal.SIGTERM if stop is None or stop.number is None else stop.number
    name = signal.Signals(number).name
    if stop is None or stop.file is None:
        say(f"{name}: stopped at step {step}; nothing was saved")
        return 128 + number
    say(f"{name}: saved at step {step}; {go_on}")
    if number in stop.afterwards and trainer.is_global_zero:
        say(stop.afterwards[number]())
    return 128 + number


@contextlib.contextmanager
def explain_lost_process(
    world_size: int, directory: Path, hint: Callable[[], str]
) -> Iterator[None]:
    """Re-raise an error inside the block as its cause: a killed process, or a vanished disk."""
    try:
        with explain_vanished_folder(directory, hint):
            yield
    except LostProcessError as error:
        raise LostProcessError(f"{error}{hint()}") from error
    except Exception as error:
        # PyTorch tells of a worker's end by a signal, so in whatever code runs at that moment: what
        # writes a checkpoint, say, makes "cannot be written" of it.
        found = (lost_process(each, world_size) for each in causes(error))
        lost = next(filter(None, found), None)
        if lost is None:
            raise
        raise LostProcessError(f"{lost}{hint()}") from error


def lost_process(error: BaseException, world_size: int) -> str | None:
    """Return which process died, if that is what an error means; else None."""
    if not isinstance(error, RuntimeError):
        return None
    words = " ".join(str(error).split())  # gloo's messages have several lines
    if words.startswith(_LOST_WORKER):
        return f"a data worker is gone ({words.rstrip('.')})"
    if world_size > 1 and (
        isinstance(error, DistError) or any(part in words for part in _LOST_RANK)
    ):
        return f"another process of the {world_size} is gone ({words.partition('. ')[0]})"
    return None


class StopOnSignal(Callback):
    """On a signal, saves between two optimiser steps, then stops; the run resumes exactly.

    Lightning's own handlers stop, or save, inside an accumulation window or an evaluation, which
    cannot be repeated exactly.

    Attributes:
        number: of the signal that came to this process; once stopping, the same on all devices.
        is_stopping: whether no further step is taken.
        afterwards: what a package does once the run is saved, by the number of the signal. It is
            called in the first process and returns a line for the user.
    """

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.number: int | None = None
        self.is_stopping = False
        self.afterwards: dict[int, Callable[[], str]] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the signals over from Lightning, which gives them back when the run ends."""
        # Python sets signal handlers in the main thread only
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, *self.afterwards):
                signal.signal(number, self._note)

    def on_train_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:  # noqa: ANN401
        """Save where a step ends, if any process was asked to."""
        # accumulating 4: only behind batches 3, 7, 11, …, where an optimiser step has ended
        ends = not (trainer.fit_loop.batch_idx + 1) % trainer.accumulate_grad_batches
        if not (ends and _any_device(trainer, self.number is not None)):  # all at the same step
            return
        # equal on all: so is the exit code
        again = (each for each in self.afterwards if _any_device(trainer, self.number == each))
        self.number = next(again, signal.SIGTERM)
        self.is_stopping = True
        if not evaluation_follows(trainer):
            self._save(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save after the evaluation of that step: a resumed run neither repeats nor lacks it."""
        if self.is_stopping:
            self._save(trainer)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: PackedBatch, batch_idx: int
    ) -> None:
        """Stop before the next step; Lightning counts its batch already: nothing is saved here."""
        if self.is_stopping:
            # Lightning's own way out: it tears down as after a SIGTERM that it caught itself
            raise SIGTERMException

    def _save(self, trainer: Trainer) -> None:
        if self.file is not None:
            trainer.save_checkpoint(self.file)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = number


def evaluation_follows(trainer: Trainer) -> bool:
    """Return whether an evaluation comes next; Lightning asks itself so after a batch."""
    fetcher = trainer.fit_loop._data_fetcher
    assert fetcher is not None, "training has begun"
    return trainer.fit_loop.epoch_loop._should_check_val_fx(fetcher)


class Averages(Callback):
    """Keeps Lightning's WeightAveraging exact, before which it stands.

    Averages get the module's buffers before they are evaluated, saved and left: a threshold is
    tuned, and never averaged.
    """

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule, *_: object) -> None:
        """Copy the buffers."""
        own = dict(pl_module.named_buffers())
        for each in _averaging(trainer):
            averages: Any = each._average_model  # there is one from a fit's setup on
            for name, buffer in averages.module.named_buffers():
                buffer.copy_(own[name])

    on_train_end = on_save_checkpoint = on_validation_start  # type: ignore[assignment]

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the averages in the module, also where no step was left to train."""
        for each in _averaging(trainer):
            each.on_train_end(trainer, pl_module)


def _averaging(trainer: Trainer) -> list[WeightAveraging]:
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return [each for each in callbacks if isinstance(each, WeightAveraging)]


def stopped_by(trainer: Trainer) -> StopOnSignal | None:
    """Return the callback that stopped the run between two steps; None if none did."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    stops = [each for each in callbacks if isinstance(each, StopOnSignal) and each.is_stopping]
    return stops[0] if stops else None


def _any_device(trainer: Trainer, here: bool) -> bool:
    """Return whether ``here`` is true on any device."""
    if trainer.world_size == 1:
        return here
    return bool(trainer.strategy.reduce_boolean_decision(here, all=False))
