"""The key ``background_checkpoints``: checkpoints are written while training goes on."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor

from bertlab.extend import WholeCheckpointIO

_COPIES = 2


class BackgroundCheckpoints(Callback):
    """Has the checkpoints of a run written in the background.

    Attributes:
        checkpoint_io: what the Trainer writes them with.
    """

    def __init__(self, run_dir: Path) -> None:
        self.checkpoint_io = BackgroundCheckpointIO(run_dir)


class BackgroundCheckpointIO(WholeCheckpointIO):
    """Writes a copy of each checkpoint in a thread, while training goes on.

    Lightning's AsyncCheckpointIO copies on the GPU, keeps any number of copies, and deletes an old
    file before the new one is there. Here an old file goes, in the same thread, when the new one is
    whole; two copies are in memory at most, and a third waits. A write that fails ends the run at
    the next checkpoint, or at the end. What is saved after training is written at once.
    """

    def __init__(self, home: Path | None = None) -> None:
        super().__init__(home)
        self._thread: ThreadPoolExecutor | None = ThreadPoolExecutor(1, "checkpoints")
        self._writing: deque[Future[None]] = deque()

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: object | None = None
    ) -> None:
        """Copy a checkpoint and begin to write it; errors as the parent's, of an earlier one."""
        if self._thread is None:
            super().save_checkpoint(checkpoint, path)
            return
        self._wait(_COPIES - 1)
        # lists and dicts, too, are made anew
        copy = apply_to_collection(checkpoint, Tensor, _copy)
        self._writing.append(self._thread.submit(super().save_checkpoint, copy, path))

    def remove_checkpoint(self, path: str | Path) -> None:
        """Delete a checkpoint after those are written that were saved before."""
        if self._thread is None:
            super().remove_checkpoint(path)
        else:
            self._thread.submit(super().remove_checkpoint, path)

    def load_checkpoint(self, *arguments: Any, **options: Any) -> dict[str, Any]:  # noqa: ANN401  Lightning's
        """Read a file that may still be being written, as the LearningRateFinder does."""
        self._wait(0)
        return super().load_checkpoint(*arguments, **options)

    def teardown(self) -> None:
        """Wait for the last file; raise what failed."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        self._wait(0)

    def _wait(self, left: int) -> None:
        """Wait until so many files are still to be written; raise what failed."""
        while self._writing and (len(self._writing) > left or self._writing[0].done()):
            self._writing.popleft().result()


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)
