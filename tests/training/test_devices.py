"""Two processes see the same sequences as one and end with the same weights."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from tests.conftest import Command

TWO = ("--trainer.devices", "2", "--trainer.strategy")
ONE = ("--trainer.devices", "1", "--trainer.strategy", "auto")
SETTINGS = {
    "pairs": {"model.objectives": "[mlm, nsp]"},
    "mlm": {"model.objectives": "[mlm]"},
    "changing": {
        "data.batch_size": "{from: 4, to: 8}",
        "data.max_seq_length": "{from: 16, to: 32}",
    },
    "stages": {"stages": "{short: {share: 0.5, data.max_seq_length: 16}, long: {share: 0.5}}"},
}
DROPOUT = ("--model.encoder.hidden_dropout_prob", "0.3")
DROPOUTS = (*DROPOUT, "--model.encoder.attention_probs_dropout_prob", "0.3")


def fit_by_two(strategy: str, run: Path, *arguments: object) -> None:
    fits_by_two(strategy, {run: arguments})


def fits_by_two(strategy: str, runs: Mapping[Path, tuple[object, ...]]) -> None:
    """Train runs one after another, by the same two processes: imports take longer than a run."""
    lines = [
        "\t".join(map(str, ("fit", *given, *TWO, strategy, "--run_dir", run)))
        for run, given in runs.items()
    ]
    commands = Path(f"{next(iter(runs))}.commands")
    commands.write_text("\n".join(lines), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.fits", str(commands)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for run in runs:
        sessions = json.loads((run / "manifest.json").read_text())["sessions"]
        assert sessions[-1]["processes"] == 2


def assert_same_end(one: Path, other: Path) -> None:
    """Assert that two runs have the same weights and moments at the end."""
    ends = [
        torch.load(run / "checkpoints" / "last.ckpt", weights_only=True) for run in (one, other)
    ]
    weights, others = (end["state_dict"] for end in ends)
    assert weights.keys() == others.keys()
    assert all(torch.allclose(weights[name], others[name], atol=1e-5) for name in weights)
    state, others = (end["optimizer_states"][0] for end in ends)
    groups = [[(g["params"], g["lr"]) for g in each["param_groups"]] for each in (state, others)]
    assert groups[0] == groups[1]
    assert state["state"].keys() == others["state"].keys()
    for number, moments in state["state"].items():
        for name in ("exp_avg", "exp_avg_sq", "step"):
            assert torch.allclose(moments[name], others["state"][number][name], atol=1e-5)


def given_by(name: str) -> list[str]:
    return [f"--{key}={value}" for key, value in SETTINGS[name].items()]


@pytest.fixture(scope="module")
def by_two(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the runs of two processes with DDP that CI needs."""
    folder = tmp_path_factory.mktemp("by two")
    config = ("--config", tiny_config)
    third = folder / "whole" / "checkpoints" / "step-3.ckpt"
    runs = {
        folder / "pairs": (*config, *given_by("pairs")),
        folder / "whole": (*config, *DROPOUT),
        folder / "resumed": ("--ckpt_path", third),
    }
    fits_by_two("ddp", runs)
    return folder


@pytest.fixture(scope="module")
def more_by_two(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of those that are run at night."""
    folder = tmp_path_factory.mktemp("more by two")
    config = ("--config", tiny_config)
    runs = {folder / name: (*config, *given_by(name)) for name in SETTINGS if name != "pairs"}
    fits_by_two("ddp", {**runs, folder / "dropped": (*config, *DROPOUTS)})
    return folder


@pytest.mark.first_slow
@pytest.mark.parametrize("name", SETTINGS)
def test_two_processes_equal_one(
    name: str,
    request: pytest.FixtureRequest,
    tiny_config: Path,
    tmp_path: Path,
    bertlab: Command,
) -> None:
    common = ("--config", tiny_config, *given_by(name))
    code, _, error = bertlab("fit", *common, "--run_dir", tmp_path / "one")
    assert code == 0, error
    folder = request.getfixturevalue("by_two" if name == "pairs" else "more_by_two")
    assert_same_end(tmp_path / "one", folder / name)


@pytest.mark.nightly
@pytest.mark.parametrize("encoder", ["bert", "modern"])
def test_divided_weights_equal_whole_ones_and_go_on_from_each_other(
    encoder: str, tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    whole, divided = tmp_path / "whole", tmp_path / "divided"
    common = ["--config", tiny_config, "--trainer.gradient_clip_val", "0.5"]
    common += ["--model.encoder.name", encoder]
    code, _, error = bertlab("fit", *common, "--run_dir", whole)
    assert code == 0, error
    fit_by_two("fsdp", divided, *common)
    assert_same_end(whole, divided)

    third = Path("checkpoints", "step-3.ckpt")
    fit_by_two("fsdp", tmp_path / "from whole", "--ckpt_path", whole / third)
    assert_same_end(whole, tmp_path / "from whole")
    again = ["--ckpt_path", divided / third, "--run_dir", tmp_path / "from divided", *ONE]
    code, _, error = bertlab("fit", *again)
    assert code == 0, error
    assert_same_end(whole, tmp_path / "from divided")


@pytest.mark.nightly
def test_a_second_phase_takes_the_optimizer_over_under_any_strategy(
    tiny_config: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    second = ["--model.init_from", tiny_run, "--model.init_optimizer", "true"]
    second += ["--model.optimizer.schedule_steps", "12", "--config", tiny_config]
    code, _, error = bertlab("fit", *second, "--run_dir", tmp_path / "one")
    assert code == 0, error
    fit_by_two("fsdp", tmp_path / "two", *second)
    assert_same_end(tmp_path / "one", tmp_path / "two")


@pytest.mark.nightly
def test_two_processes_drop_what_one_does_that_accumulates_two_batches(
    more_by_two: Path, tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    divided, one = tmp_path / "divided", tmp_path / "one"
    fit_by_two("fsdp", divided, "--config", tiny_config, *DROPOUTS)
    accumulate = ["--config", tiny_config, *DROPOUTS, "--trainer.accumulate_grad_batches", "2"]
    accumulate += ["--trainer.val_check_interval", "6"]  # counts batches
    code, _, error = bertlab("fit", *accumulate, "--run_dir", one)
    assert code == 0, error
    assert_same_end(one, more_by_two / "dropped")
    assert_same_end(one, divided)
    other = [*accumulate, "--seed.dropout", "4", "--run_dir", tmp_path / "other"]
    assert bertlab("fit", *other)[0] == 0
    with pytest.raises(AssertionError):
        assert_same_end(one, tmp_path / "other")


@pytest.mark.slow
def test_dropout_of_two_processes_goes_on_bit_by_bit(by_two: Path) -> None:
    ends = [
        torch.load(by_two / name / "checkpoints" / "last.ckpt", weights_only=True)
        for name in ("whole", "resumed")
    ]
    weights, others = (end["state_dict"] for end in ends)
    assert all(torch.equal(weights[name], others[name]) for name in weights)
