"""Checkpoints that are whole or absent: written aside, synced to the disk, renamed."""

import errno
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO

from bertlab.errors import OutputError
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
        """Write a checkpoint, or leave what stood there before.

        Raises:
            OutputError: the file cannot be written, as on a full disk.
        """
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


def _reason(error: BaseException) -> str:
    """Return what the system says; torch hides it behind its own error."""
    seen: BaseException | None = error
    # torch's RuntimeError "PytorchStreamWriter failed" <- OSError "No space left on device"
    while seen is not None:
        if isinstance(seen, OSError):
            return seen.strerror or str(seen)
        seen = seen.__cause__ or seen.__context__
    return str(error).splitlines()[0]
