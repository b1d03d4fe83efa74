"""Free memory in the middle of the heap goes back to the system."""

import subprocess
import sys
from pathlib import Path

import pytest

from bertlab.callbacks.memory_return import ReturnMemory
from bertlab.hooks import run_callbacks

SCATTER = """
import ctypes
from bertlab.callbacks import memory_return

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
blocks = [libc.malloc(ctypes.c_size_t(100_000)) for _ in range(2000)]
for block in blocks:
    ctypes.memset(ctypes.c_void_p(block), 1, 100_000)
for block in blocks[:-1]:  # the last pins the heap
    libc.free(ctypes.c_void_p(block))
before = resident()
memory_return.return_free_memory()
print(before - resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_pages_that_nothing_uses_are_returned() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCATTER], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 150_000_000


def test_every_run_does_it(tmp_path: Path) -> None:
    assert [each for each in run_callbacks(tmp_path) if isinstance(each, ReturnMemory)]
