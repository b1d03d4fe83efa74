"""`--ckpt_path last`: the config's own run, wherever it stopped, or a new one."""

import os
import shutil
from pathlib import Path

import pytest

from bertlab.checkpoints.run_checkpoint import find_checkpoint, read_run_checkpoint
from tests.conftest import Command
from tests.reliability.commands import contents


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.parametrize("begun", [False, True])
def test_a_run_whose_checkpoints_lie_elsewhere_is_not_looked_for(
    place: Path, tiny_config: Path, tiny_run: Path, bertlab: Command, begun: bool
) -> None:
    """Its run would be taken for one that has none yet, and be begun anew."""
    if begun:
        shutil.copytree(tiny_run, place / "runs" / "tiny")
    shutil.copytree(tiny_run / "checkpoints", place / "kept")
    elsewhere = ("--checkpoint.dirpath", place / "kept")
    code, _, error = bertlab("fit", "--config", tiny_config, "--ckpt_path", "last", *elsewhere)
    assert code == 2
    assert (
        f"--ckpt_path last: found checkpoint.dirpath; --ckpt_path {place}/kept/last.ckpt" in error
    )
    assert sorted(each.name for each in place.iterdir()) == ["kept", *["runs"] * begun]


def test_a_finished_run_without_checkpoints_is_not_written_over(
    place: Path, tiny_config: Path, tiny_run: Path, bertlab: Command
) -> None:
    shutil.copytree(tiny_run, place / "mine", ignore=shutil.ignore_patterns("checkpoints"))
    before = contents(place)
    arguments = ("--run_dir", "mine", "--ckpt_path", "last")
    code, _, error = bertlab("fit", "--config", tiny_config, *arguments)
    assert code == 2
    assert "mine: holds a finished run without checkpoints" in error
    assert contents(place) == before


@pytest.mark.slow
def test_a_fine_tuning_goes_on_with_the_sizes_that_it_began_with(
    place: Path, tiny_run: Path, bertlab: Command
) -> None:
    """They came with ``model.init_from``, which is not read again."""
    rows = "".join(f"the value {n} is {'red' if n % 2 else 'blue'},{n % 2}\n" for n in range(20))
    (place / "rows.csv").write_text(f"text,label\n{rows}")
    (place / "weights").symlink_to(tiny_run)
    (place / "task.yaml").write_text(
        "{seed_everything: 1, model: {init_from: weights, head: single_sentence},"
        "data: {source: rows.csv, validation_fraction: 0.3, max_seq_length: 32, batch_size: 4},"
        "trainer: {max_steps: 4, val_check_interval: 2, accelerator: cpu},"
        "checkpoint: {save_top_k: -1}}"
    )
    command = ("fit", "--config", "task.yaml", "--ckpt_path", "last")
    assert bertlab(*command)[0] == 0
    undisturbed = (place / "runs/finetune-task/results.json").read_bytes()
    checkpoints = place / "runs/finetune-task/checkpoints"
    shutil.copy(checkpoints / "step-2.ckpt", checkpoints / "last.ckpt")
    (place / "runs/finetune-task/results.json").unlink()
    (place / "weights").unlink()
    code, _, error = bertlab(*command)
    assert code == 0, error
    assert (place / "runs/finetune-task/results.json").read_bytes() == undisturbed


def test_other_sizes_are_a_changed_config(
    place: Path, tiny_config: Path, tiny_run: Path, bertlab: Command
) -> None:
    size = ("--model.encoder.hidden_size", 64)
    code, _, error = bertlab("fit", "--config", tiny_config, "--ckpt_path", tiny_run, *size)
    assert code == 2
    assert error.startswith("bertlab: error E403: --ckpt_path resumes a run exactly")
    assert "model.encoder.hidden_size" in error


@pytest.mark.parametrize("named", ["runs/x", "runs/x/checkpoints/last.ckpt"])
def test_a_checkpoint_that_is_a_pipe_is_refused_at_once(
    place: Path, bertlab: Command, named: str
) -> None:
    checkpoints = place / "runs/x/checkpoints"
    checkpoints.mkdir(parents=True)
    os.mkfifo(checkpoints / "last.ckpt")
    code, _, error = bertlab("export", named, "out")
    assert code == 2
    assert "runs/x/checkpoints/last.ckpt: is a pipe" in error


def test_a_pipe_among_checkpoints_is_passed_over(place: Path, tiny_run: Path) -> None:
    shutil.copytree(tiny_run, place / "run")
    os.mkfifo(place / "run/checkpoints/step-9.ckpt")
    assert find_checkpoint("run", best=False) == Path("run/checkpoints/last.ckpt")
