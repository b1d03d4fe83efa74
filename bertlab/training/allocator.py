"""How glibc's heap is used: freed memory is kept for the next step, and returned when asked."""

import ctypes
import os
import sys
from functools import cache
from pathlib import Path

# parameters of mallopt(3)
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8


def keep_freed_memory() -> None:
    """Have freed memory kept for what is allocated next.

    glibc asks the system for every large tensor anew, which clears its pages: a tenth of a training
    step on a CPU. All threads share one heap, so that the backward pass takes what the forward pass
    freed; with a heap for each, as is glibc's way, memory was twice as large. Does nothing where
    there is no glibc, and where the user has set one of its variables (``MALLOC_…``).
    """
    library = _glibc()
    if library is None or any(name.startswith("MALLOC_") for name in os.environ):
        return
    library.mallopt(_ARENA_MAX, 1)
    library.mallopt(_MMAP_MAX, 0)
    library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    library.mallopt(_TOP_PAD, 2**26)


def return_free_memory() -> None:
    """Return free pages in the middle of the heap, too; does nothing where there is no glibc."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


def resident_memory() -> int:
    """Return the bytes of memory that this process has now; 0 where there is no Linux."""
    if sys.platform != "linux":
        return 0
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@cache
def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "malloc_trim") else None
