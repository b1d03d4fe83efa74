"""Checkpoints are whole or absent, and a damaged one is found out and an older one offered."""

import errno
import os
import shutil
from pathlib import Path

import pytest
import torch

from bertlab.checkpoints.run_checkpoint import read_run_checkpoint
from bertlab.errors import CheckpointError, OutputError
from bertlab.training.record import WholeCheckpointIO
from tests.conftest import Command


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_is_written_whole_over_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "last.ckpt"
    for value in (1.0, 2.0):
        WholeCheckpointIO().save_checkpoint({"weight": torch.tensor(value)}, path)
    assert names(path.parent) == ["last.ckpt"]
    assert torch.load(path, weights_only=True) == {"weight": torch.tensor(2.0)}


@pytest.mark.parametrize("step", ["save", "fsync"])
def test_a_write_that_fails_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "last.ckpt"
    WholeCheckpointIO().save_checkpoint({"step": 1}, path)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    module = torch if step == "save" else os
    monkeypatch.setattr(module, step, fail)
    with pytest.raises(OutputError, match=r"last.ckpt: .*No space left on device; those"):
        WholeCheckpointIO().save_checkpoint({"step": 2}, path)
    monkeypatch.undo()
    assert names(tmp_path) == ["last.ckpt"]
    assert torch.load(path, weights_only=True) == {"step": 1}


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"Not a directory|File exists"):
        WholeCheckpointIO().save_checkpoint({}, tmp_path / "file" / "last.ckpt")


def test_nothing_is_written_where_the_run_has_gone_with_its_disk(tmp_path: Path) -> None:
    home = tmp_path / "mount" / "run"
    with pytest.raises(OutputError, match="run is gone; those before it are whole"):
        WholeCheckpointIO(home).save_checkpoint({}, home / "checkpoints" / "last.ckpt")
    assert not (tmp_path / "mount").exists()
    home.mkdir(parents=True)
    WholeCheckpointIO(home).save_checkpoint({}, home / "checkpoints" / "last.ckpt")


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    """Return a copy of a run with two checkpoints and ``last.ckpt``."""
    shutil.copytree(tiny_run, tmp_path / "run")
    return tmp_path / "run"


def flip_a_bit(path: Path, share: float = 0.5) -> None:
    content = bytearray(path.read_bytes())
    content[int(len(content) * share)] ^= 1
    path.write_bytes(content)


@pytest.mark.first_slow
@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8])
def test_a_flipped_bit_is_found_and_the_one_before_offered(
    run: Path, bertlab: Command, share: float
) -> None:
    last = run / "checkpoints" / "last.ckpt"
    flip_a_bit(last, share)
    with pytest.raises(CheckpointError, match=r"last\.ckpt"):
        read_run_checkpoint(last)
    code, _, error = bertlab("fit", "--ckpt_path", run)
    assert code == 2
    assert f"{last}: damaged:" in error
    assert "a whole one: --ckpt_path" in error
    offered = error.split("--ckpt_path ")[-1].strip()
    assert Path(offered).name.startswith("step-")
    assert bertlab("validate", "--ckpt_path", offered)[0] == 0


def test_without_a_whole_one_nothing_is_offered(run: Path, bertlab: Command) -> None:
    for path in (run / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-100])
    code, _, error = bertlab("fit", "--ckpt_path", run)
    assert code == 2
    assert "not a whole checkpoint" in error
    assert "a whole one" not in error


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("part", "found", "said"),
    [
        ("loops", {}, "which no run can continue from: KeyError"),
        ("pytorch-lightning_version", "x", "which no run can continue from: InvalidVersion"),
        ("optimizer_states", [{"state": {}, "param_groups": []}], "param_groups: expected"),
    ],
)
def test_a_state_that_no_run_writes_is_named(
    run: Path, bertlab: Command, part: str, found: object, said: str
) -> None:
    file = min((run / "checkpoints").glob("step-*.ckpt"))
    torch.save(torch.load(file, weights_only=True) | {part: found}, file)
    code, _, error = bertlab("fit", "--ckpt_path", file, "--run_dir", run.parent / "other")
    assert code == 2
    assert f"error E402: {file}: a damaged bertlab checkpoint" in error
    assert said in error
    assert not (run.parent / "other").exists()


def test_runs_write_through_it(tiny_run: Path) -> None:
    assert all(name.endswith(".ckpt") for name in names(tiny_run / "checkpoints"))
    assert len(names(tiny_run / "checkpoints")) == 3
