"""`--ckpt_path last`: the config's own run, wherever it stopped, or a new one."""

import shutil
from pathlib import Path

import pytest

from bertlab.checkpoints.run_checkpoint import read_run_checkpoint
from tests.conftest import Command


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_a_run_it_starts_one_and_then_goes_on_with_it(
    place: Path, tiny_config: Path, bertlab: Command
) -> None:
    arguments = ("fit", "--config", tiny_config, "--ckpt_path", "last")
    assert bertlab(*arguments)[0] == 0
    assert read_run_checkpoint(place / "runs/tiny/checkpoints/last.ckpt").global_step == 6
    code, printed, error = bertlab(*arguments, "--trainer.max_steps", 6)
    assert code == 0, error
    assert "runs/tiny: step 6" in printed
    assert [each.name for each in (place / "runs").iterdir()] == ["tiny"]


def test_the_newest_of_the_configs_runs_is_meant(
    place: Path, tiny_config: Path, tiny_run: Path, bertlab: Command
) -> None:
    for name in ("tiny-2", "tiny", "tiny-other"):
        shutil.copytree(tiny_run, place / "runs" / name)
        (place / "runs" / name / "checkpoints" / "last.ckpt").touch()
    (place / "runs" / "tiny" / "checkpoints" / "last.ckpt").touch()
    code, printed, error = bertlab("fit", "--config", tiny_config, "--ckpt_path", "last")
    assert code == 0, error
    assert "runs/tiny: " in printed


def test_run_dir_says_which_and_one_without_a_checkpoint_begins_anew(
    place: Path, tiny_config: Path, tiny_run: Path, bertlab: Command
) -> None:
    run = place / "mine"
    shutil.copytree(tiny_run, run)
    arguments = ("fit", "--config", tiny_config, "--run_dir", run, "--ckpt_path", "last")
    assert bertlab(*arguments)[0] == 0
    shutil.rmtree(run / "checkpoints")
    (run / "results.json").unlink()
    code, _, error = bertlab(*arguments)
    assert code == 0, error
    assert (run / "checkpoints" / "last.ckpt").is_file()
    assert (run / "results.json").is_file()


def test_what_needs_weights_says_that_there_are_none(
    place: Path, tiny_config: Path, bertlab: Command
) -> None:
    code, _, error = bertlab("validate", "--config", tiny_config, "--ckpt_path", "last")
    assert code == 2
    assert "--ckpt_path last: no run of this config has a checkpoint" in error
