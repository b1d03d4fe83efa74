"""Memory that is free but scattered goes back to the system from time to time."""

import ctypes
import sys
from functools import cache

from lightning.pytorch import Callback, LightningModule, Trainer


class ReturnMemory(Callback):
    """Asks glibc for it before and after each evaluation, and before each epoch.

    Batches of packed tokens differ in size from step to step. On a CPU that scatters the heap: what
    is in use stays the same, what the system counts grew from 0.8 to 2 GB in an hour of BERT-tiny.
    Data workers are forked where evaluations and epochs begin, and keep what there was.
    """

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Return it."""
        return_free_memory()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Return it."""
        return_free_memory()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Return it."""
        return_free_memory()


def return_free_memory() -> None:
    """Return free pages in the middle of the heap, too; does nothing where there is no glibc."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "malloc_trim") else None
