"""How training ends: at its last step, by a signal, by a number, or by the loss of a process."""

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from lightning.pytorch import Trainer
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch.distributed import DistError

from bertlab.errors import LostProcessError, NumericalError
from bertlab.files import explain_vanished_folder
from bertlab.training.callbacks.stop_on_signal import REQUEUE, queue_again, stopped_by

# how PyTorch tells of processes that are gone, in errors of no class of their own
_LOST_WORKER = "DataLoader worker"
_LOST_RANK = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "NCCL")


def train(fit: Callable[[], None], trainer: Trainer, run: Path, saved: Callable[[], bool]) -> int:
    """Train; where it does not come to its end, say what happened and how to go on.

    Args:
        fit: trains, and validates.
        trainer: that does it.
        run: the run's directory.
        saved: whether there is a checkpoint to go on from.

    Returns:
        The exit code: 0 at the end, 130 for Ctrl-C, 143 for SIGTERM, 138 for SLURM's SIGUSR1.

    Raises:
        NumericalError: a gradient is not finite; with how to leave such steps out.
    """
    go_on = how_to_resume(run)
    try:
        fit()
    except NumericalError as error:
        skip = f"bertlab fit --ckpt_path {run} --on_nonfinite skip"
        hint = f". To leave such steps out from the last checkpoint on: {skip}"
        raise NumericalError(f"{error}{hint if saved() else ''}") from error
    except SIGTERMException:
        return _stopped(trainer, go_on)
    except SystemExit:  # what Lightning makes of Ctrl-C
        if not trainer.interrupted:
            raise
        signal.signal(signal.SIGINT, signal.default_int_handler)
        none = "interrupted before the first checkpoint"
        sys.stdout.write(f"interrupted; {go_on}\n" if saved() else f"{none}\n")
        return 130
    return 0


def how_to_resume(run: Path) -> str:
    """Return what is said to who wants to go on with a run that was saved."""
    return f"go on with: bertlab fit --ckpt_path {run}"


def _stopped(trainer: Trainer, go_on: str) -> int:
    """Say where a run was stopped by a signal; return the exit code."""
    stop, step = stopped_by(trainer), trainer.global_step
    number = signal.SIGTERM if stop is None or stop.number is None else stop.number
    name = signal.Signals(number).name
    if stop is None or stop.file is None:
        sys.stdout.write(f"{name}: stopped at step {step}; nothing was saved\n")
        return 128 + number
    sys.stdout.write(f"{name}: saved at step {step}; {go_on}\n")
    if number == REQUEUE and trainer.is_global_zero:
        sys.stdout.write(f"{queue_again()}\n")
    return 128 + number


@contextlib.contextmanager
def naming_losses(world_size: int, directory: Path, hint: Callable[[], str]) -> Iterator[None]:
    """Say of errors of what goes on inside that a process or a disk is gone, if that is the cause.

    Args:
        world_size: processes that compute together.
        directory: where they write.
        hint: returns what is said after it.

    Raises:
        LostProcessError: a data worker or another rank was killed.
        OutputError: the directory is not there any more.
    """
    try:
        with explain_vanished_folder(directory, hint):
            yield
    except LostProcessError as error:
        raise LostProcessError(f"{error}{hint()}") from error
    except RuntimeError as error:
        lost = lost_process(error, world_size)
        if lost is None:
            raise
        raise LostProcessError(f"{lost}{hint()}") from error


def lost_process(error: RuntimeError, world_size: int) -> str | None:
    """Return which process an error tells the loss of; None if it tells of something else."""
    words = " ".join(str(error).split())
    if words.startswith(_LOST_WORKER):
        return f"a data worker is gone ({words.rstrip('.')})"
    if world_size > 1 and (
        isinstance(error, DistError) or any(part in words for part in _LOST_RANK)
    ):
        return f"another process of the {world_size} is gone ({words.partition('. ')[0]})"
    return None
