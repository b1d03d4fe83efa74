"""Memory: what is free, and glibc's allocator, which keeps freed memory for the next step."""

import contextlib
import ctypes
import os
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from bertlab.data.module import TaskData

# parameters of mallopt(3)
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8


def keep_freed_memory() -> None:
    """Tell glibc to keep freed memory for the next allocation.

    glibc asks the system for every large tensor anew, which clears its pages: a tenth of a training
    step on a CPU. All threads share one arena, so that the backward pass takes what the forward
    pass freed; with an arena for each, as is glibc's way, memory was twice as large. Does nothing
    where there is no glibc, and where the user has set one of its variables (``MALLOC_…``).
    """
    library = _glibc()
    if library is None or any(name.startswith("MALLOC_") for name in os.environ):
        return
    library.mallopt(_ARENA_MAX, 1)  # one for all threads
    library.mallopt(_MMAP_MAX, 0)  # a large tensor's pages are no longer returned one by one
    library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)  # never returns the end of the heap by itself
    library.mallopt(_TOP_PAD, 2**26)  # grows by 64 MiB at a time


def return_free_memory() -> None:
    """Return all free pages to the system; without glibc, do nothing."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


def resident_memory() -> int:
    """Return the resident memory of this process in bytes; 0 on systems other than Linux."""
    if sys.platform != "linux":
        return 0
    # "5210 1432 877 1 0 612 0": all pages, resident ones, shared, …
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that this process can still take of a device; None if nobody says."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        # "MemAvailable:   22334455 kB"
        found += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvail")]
    with contextlib.suppress(OSError, ValueError):
        limit = Path("/sys/fs/cgroup/memory.max").read_text("ascii")
        used = Path("/sys/fs/cgroup/memory.current").read_text("ascii")
        found.append(int(limit) - int(used))  # ValueError: "max", no limit
    return max(0, min(found)) if found else None


@cache
def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)  # this process itself; musl's C library has no malloc_trim
    return library if hasattr(library, "malloc_trim") else None


INTERVAL = 30.0  # seconds between two looks
GROWTH = 1.1  # what is returned has to be cleared when it is taken again: up to a second each time


class ReturnMemory(Callback):
    """Returns free memory when memory has grown by a tenth, and before workers are forked.

    Batches of packed tokens differ in size from step to step. On a CPU that fragments memory: what
    is in use stays the same, what the system counts grew from 0.8 to 2 GB in an hour of BERT-tiny.
    Growth counts from the first look after memory was last returned, when batches have taken what
    they need. Data workers are forked where evaluations and epochs begin; what is free then would
    be theirs as well once it is taken again.
    """

    def __init__(self) -> None:
        self.looked = time.monotonic()
        self.level: int | None = None  # bytes, at the first look after memory was returned

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401  as Lightning has it
        batch: Any,  # noqa: ANN401
        batch_idx: int,
    ) -> None:
        """Check the memory if the interval has passed."""
        del trainer, pl_module, outputs, batch, batch_idx
        if time.monotonic() > self.looked + INTERVAL:
            self.look()

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401  as Lightning has it
        batch: Any,  # noqa: ANN401
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Check the memory if the interval has passed."""
        del dataloader_idx
        self.on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Return free memory if data workers are about to be forked."""
        del pl_module
        data = getattr(trainer, "datamodule", None)
        if isinstance(data, TaskData) and data.num_workers:
            self.return_now()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Return free memory if data workers are about to be forked."""
        self.on_train_epoch_start(trainer, pl_module)

    def look(self) -> None:
        """Return free memory if resident memory has grown by a tenth."""
        self.looked = time.monotonic()
        memory = resident_memory()
        if self.level is None:
            self.level = memory
        elif memory > GROWTH * self.level:
            self.return_now()

    def return_now(self) -> None:
        """Return free memory, and measure growth from the next check on."""
        return_free_memory()
        self.looked = time.monotonic()
        self.level = None
