"""Shared fixtures: a scheduler on this machine."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import fake_slurm


@pytest.fixture(scope="module")
def no_other_ray() -> Iterator[None]:
    """Let the modules that start Ray take turns: a test may find another's."""
    with (Path(tempfile.gettempdir()) / "bertlab-tests-ray.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scheduler; returns the folder of its jobs."""
    pytest.importorskip("submitit")
    root = tmp_path / "scheduler"
    bin_folder = fake_slurm.install(root)
    monkeypatch.setenv("FAKE_SLURM", str(root))
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    for name in ("_WAIT", "_AGAIN"):
        monkeypatch.setattr(f"bertlab_cluster.slurm.{name}", 0.1)
    # another test's jobs have the same numbers
    from submitit.slurm.slurm import SlurmInfoWatcher, SlurmJob

    monkeypatch.setattr(SlurmJob, "watcher", SlurmInfoWatcher(delay_s=1))
    return root
