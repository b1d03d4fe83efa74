"""Two processes see the same sequences as one and end with the same weights."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bertlab.checkpoints.run_checkpoint import read_run_checkpoint
from tests.conftest import Command


@pytest.mark.slow
@pytest.mark.parametrize("objectives", ["[mlm, nsp]", "[mlm]"])
def test_two_processes_equal_one(
    objectives: str, tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    common = ["fit", "--config", str(tiny_config), "--model.objectives", objectives]
    code, _, error = bertlab(*common, "--run_dir", tmp_path / "one")
    assert code == 0, error
    two = ["--trainer.devices", "2", "--trainer.strategy", "ddp"]
    done = subprocess.run(
        [sys.executable, "-m", "bertlab", *common, *two, "--run_dir", str(tmp_path / "two")],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    one, other = (
        read_run_checkpoint(tmp_path / name / "checkpoints" / "last.ckpt").state
        for name in ("one", "two")
    )
    assert all(torch.allclose(one[name], other[name], atol=1e-5) for name in one)
