"""Checkpoints that are whole or absent: written aside, synced to the disk, renamed."""

import errno
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor

from bertlab.errors import OutputError, causes
from bertlab.files import replacing


class WholeCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, so that neither a kill nor a power cut leaves half a file there.

    Lightning writes to ``/tmp`` and moves, which is a copy where that is another file system. The
    file is a zip archive whose records carry CRC-32 checksums; they are checked on load.

    Args:
        home: folder without which nothing is written: where its disk has vanished, a checkpoint
            would go to the one below, and be missed. None: folders are made as need be.
    """

    def __init__(self, home: Path | None = None) -> None:
        super().__init__()
        self.home = home

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: object | None = None
    ) -> None:
        """Write a checkpoint, or leave what stood there before."""
        del storage_options
        path = Path(path)
        try:
            if self.home is not None and not self.home.is_dir():
                raise FileNotFoundError(errno.ENOENT, f"{self.home} is gone")
            path.parent.mkdir(parents=True, exist_ok=True)
            # a run is written by one process, on whatever host it goes on after a kill
            with replacing(path, durable=True, sole_writer=True) as file:
                torch.save(checkpoint, file)
        except (OSError, RuntimeError) as error:
            raise OutputError(
                f"{path}: the checkpoint cannot be written: {_reason(error)}; those before it are "
                "whole"
            ) from error


class BackgroundCheckpointIO(WholeCheckpointIO):
    """Writes a copy of each checkpoint in a thread, while training goes on.

    An old file is deleted after the new one is whole, in the same thread. Two copies are in memory
    at most; a third waits. A write that fails ends the run at the next checkpoint, or at the end.
    What is saved after training is written at once.
    """

    def __init__(self, home: Path | None = None) -> None:
        super().__init__(home)
        self._thread: ThreadPoolExecutor | None = None
        self._writing: deque[Future[None]] = deque()
        self._is_over = False

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: object | None = None
    ) -> None:
        """Copy a checkpoint and begin to write it; errors as the parent's, of an earlier one."""
        if self._is_over:
            super().save_checkpoint(checkpoint, path)
            return
        self._wait(_COPIES - 1)
        # lists and dicts, too, are made anew
        copy = apply_to_collection(checkpoint, Tensor, _copy)
        self._writing.append(self._in_thread().submit(super().save_checkpoint, copy, path))

    def remove_checkpoint(self, path: str | Path) -> None:
        """Delete a checkpoint after those are written that were saved before."""
        if self._is_over:
            super().remove_checkpoint(path)
        else:
            self._in_thread().submit(super().remove_checkpoint, path)

    def load_checkpoint(self, *arguments: Any, **options: Any) -> dict[str, Any]:  # noqa: ANN401  Lightning's
        """Read a file that may still be being written, as the LearningRateFinder does."""
        self._wait(0)
        return super().load_checkpoint(*arguments, **options)

    def teardown(self) -> None:
        """Wait for the last file; raise what failed."""
        self._is_over = True
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        self._wait(0)

    def _in_thread(self) -> ThreadPoolExecutor:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "checkpoints")
        return self._thread

    def _wait(self, left: int) -> None:
        """Wait until so many files are still to be written; raise what failed."""
        while self._writing and (len(self._writing) > left or self._writing[0].done()):
            self._writing.popleft().result()


_COPIES = 2


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)


def _reason(error: BaseException) -> str:
    """Return what the system says; torch hides it behind its own error."""
    # torch's RuntimeError "PytorchStreamWriter failed" <- OSError "No space left on device"
    for each in causes(error):
        if isinstance(each, OSError):
            return each.strerror or str(each)
    return str(error).splitlines()[0]
