"""What is freed is kept for the next step, and goes back to the system once it has grown."""

import mmap
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from bertlab.config.merge import read_request
from bertlab.config.parser import build_parser
from bertlab.plugins.hooks import run_callbacks
from bertlab.training.trainer import keep_freed_memory
from bertlab_gpu import returned_memory
from bertlab_gpu.returned_memory import ReturnMemory
from tests.conftest import Command

MEASURE = """
import ctypes, resource
from bertlab.training.trainer import keep_freed_memory
from bertlab_gpu import returned_memory

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
returned_memory.return_free_memory()
print(before - resident())

keep_freed_memory()
for turn in range(50):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = libc.malloc(ctypes.c_size_t(40_000_000))
    ctypes.memset(ctypes.c_void_p(block), 1, 40_000_000)
    libc.free(ctypes.c_void_p(block))
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_unused_pages_are_returned_and_a_large_block_is_not_asked_for_anew() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE],
        capture_output=True,
        text=True,
        check=True,
        env={name: value for name, value in os.environ.items() if "MALLOC" not in name},
    )
    returned, faults = map(int, done.stdout.split())
    assert returned > 150_000_000
    assert faults < 100  # pages of 4 KB: 40 MB are 10,000


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
@pytest.mark.parametrize(
    ("variables", "changed"),
    # M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX and M_ARENA_MAX of glibc's malloc.h
    [({}, [-8, -4, -2, -1]), ({"MALLOC_ARENA_MAX": "8"}, [])],
)
def test_a_users_own_settings_of_malloc_stay(
    variables: dict[str, str], changed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Mock()
    monkeypatch.setattr("ctypes.CDLL", lambda _: library)
    others = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    monkeypatch.setattr("os.environ", others | variables)
    keep_freed_memory()
    assert sorted(call.args[0] for call in library.mallopt.call_args_list) == changed


def test_memory_is_returned_once_it_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    returned: list[int] = []
    monkeypatch.setattr(returned_memory, "return_free_memory", lambda: returned.append(1))
    callback = ReturnMemory()

    def returns_at(memory: int) -> bool:
        before = len(returned)
        monkeypatch.setattr(returned_memory, "resident_memory", lambda: memory)
        callback.look()
        return len(returned) > before

    # growth counts from 500, and after the first return from 1000
    found = (500, 549, 551, 1000, 1099, 1101, 900)
    assert [memory for memory in found if returns_at(memory)] == [551, 1101]


@pytest.mark.nightly
@pytest.mark.parametrize("workers", [0, 1])
def test_memory_is_returned_before_data_workers_are_forked(
    monkeypatch: pytest.MonkeyPatch,
    tiny_config: Path,
    bertlab: Command,
    tmp_path: Path,
    workers: int,
) -> None:
    returned: list[int] = []
    monkeypatch.setattr(returned_memory, "return_free_memory", lambda: returned.append(1))
    code, _, error = bertlab(
        "fit", "--config", tiny_config, "--run_dir", tmp_path / "run", "--data.num_workers", workers
    )
    assert code == 0, error
    assert bool(returned) is bool(workers)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_resident_memory_counts_what_is_touched() -> None:
    size = 50_000_000
    # a map of its own: pages that the heap gives may be resident already
    with mmap.mmap(-1, size) as block:
        before = returned_memory.resident_memory()
        for place in range(0, size, mmap.PAGESIZE):
            block[place] = 1
        assert 0.9 * size < returned_memory.resident_memory() - before < 1.5 * size


def test_every_run_does_it(tmp_path: Path) -> None:
    config = build_parser("fit", read_request([])).get_defaults()
    assert [each for each in run_callbacks(tmp_path, config) if isinstance(each, ReturnMemory)]
