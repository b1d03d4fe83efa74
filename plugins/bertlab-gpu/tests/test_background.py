"""Checkpoints that are written while training goes on."""

import errno
import threading
from pathlib import Path

import pytest
import torch

from bertlab.checkpoints.run_checkpoint import read_run_checkpoint
from bertlab.errors import OutputError
from bertlab.training.record import WholeCheckpointIO
from bertlab_gpu.background import BackgroundCheckpointIO
from tests.conftest import Command


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_in_the_background_is_what_was_saved_and_outlives_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    io, weight, may_write = BackgroundCheckpointIO(tmp_path), torch.zeros(3), threading.Event()
    write = torch.save

    def wait_and_write(*arguments: object) -> None:
        assert may_write.wait(20)
        write(*arguments)

    WholeCheckpointIO().save_checkpoint({"weight": weight}, tmp_path / "old.ckpt")
    monkeypatch.setattr(torch, "save", wait_and_write)
    history = {"steps": [1]}
    io.save_checkpoint({"weight": weight, "history": history}, tmp_path / "new.ckpt")
    io.remove_checkpoint(tmp_path / "old.ckpt")
    weight += 1  # training goes on
    history["steps"].append(2)
    assert "old.ckpt" in names(tmp_path)
    assert "new.ckpt" not in names(tmp_path)
    may_write.set()
    found = io.load_checkpoint(tmp_path / "new.ckpt", weights_only=True)  # waits for it
    assert found["weight"].tolist() == [0, 0, 0]
    assert found["history"] == {"steps": [1]}
    io.teardown()
    assert names(tmp_path) == ["new.ckpt"]
    io.save_checkpoint({"weight": weight}, tmp_path / "last.ckpt")  # after training: at once
    assert torch.load(tmp_path / "last.ckpt")["weight"].tolist() == [1, 1, 1]


def test_a_write_that_fails_in_the_background_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", fail)
    io = BackgroundCheckpointIO(tmp_path)
    io.save_checkpoint({}, tmp_path / "last.ckpt")
    with pytest.raises(OutputError, match=r"last.ckpt: .*No space left on device; those"):
        io.teardown()
    assert names(tmp_path) == []


@pytest.mark.slow
def test_a_run_writes_the_same_checkpoints_in_the_background(
    bertlab: Command, tiny_config: Path, tmp_path: Path
) -> None:
    ends = []
    for background in ("true", "false"):
        run = tmp_path / background
        code, _, error = bertlab(
            *("fit", "--config", tiny_config, "--run_dir", run),
            *("--background_checkpoints", background, "--checkpoint.save_top_k", 2),
        )
        assert code == 0, error
        ends.append(
            (names(run / "checkpoints"), read_run_checkpoint(run / "checkpoints/last.ckpt"))
        )
    assert ends[0][0] == ends[1][0]
    one, other = (end[1].encoder_state for end in ends)
    assert all(torch.equal(one[name], other[name]) for name in other)
