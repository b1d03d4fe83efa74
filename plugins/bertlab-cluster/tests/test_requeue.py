"""A job of SLURM whose time is up is saved and queued again."""

import os
import signal
from pathlib import Path

import pytest

from bertlab_cluster.requeue import queue_again
from tests.conftest import Command
from tests.training.test_stop_on_signal import SETTINGS, signal_after


@pytest.fixture(scope="module")
def undisturbed(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from bertlab.cli.main import main

    run = tmp_path_factory.mktemp("undisturbed") / "run"
    arguments = ["fit", "--config", str(tiny_config), "--run_dir", str(run), *map(str, SETTINGS)]
    assert main(arguments) == 0
    return run


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job of SLURM; returns the file that what it is asked goes to."""
    folder = tmp_path / "bin"
    folder.mkdir()
    asked = folder / "asked"
    control = folder / "scontrol"
    control.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    names = ("NTASKS", "PROCID", "LOCALID", "NODEID", "JOB_ID", "NODELIST", "JOB_NAME")
    for name, value in zip(names, ("1", "0", "0", "0", "4711", "localhost", "bert"), strict=True):
        monkeypatch.setenv(f"SLURM_{name}", value)
    return asked


@pytest.mark.nightly
def test_a_job_whose_time_is_up_is_saved_and_queued_again(
    slurm: Path,
    undisturbed: Path,
    tiny_config: Path,
    bertlab: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    signal_after(3, signal.SIGUSR1, monkeypatch)
    run = tmp_path / "run"
    fit = ("fit", "--config", tiny_config, "--run_dir", run, *SETTINGS, "--ckpt_path", "last")
    code, printed, error = bertlab(*fit)
    assert code == 128 + signal.SIGUSR1, error
    assert "SIGUSR1: saved at step 2; continue with: bertlab fit" in printed
    assert "job 4711 is queued again" in printed
    assert slurm.read_text() == "requeue 4711\n"
    assert bertlab(*fit)[0] == 0
    assert (run / "results.json").read_text() == (undisturbed / "results.json").read_text()


def test_a_job_that_cannot_be_queued_again_says_so(
    slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (slurm.parent / "scontrol").write_text("#!/bin/sh\necho Access denied >&2; exit 1\n")
    assert queue_again() == "job 4711 is not queued again: Access denied"
    (slurm.parent / "scontrol").unlink()
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "7")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "2")
    assert queue_again().startswith("job 7_2 is not queued again: scontrol: No such file")
