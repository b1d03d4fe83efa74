"""Two processes see the same sequences as one and end with the same weights."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import Command

TWO = ("--trainer.devices", "2", "--trainer.strategy")
ONE = ("--trainer.devices", "1", "--trainer.strategy", "auto")


def fit_by_two(strategy: str, run: Path, *arguments: object) -> None:
    named = [*map(str, arguments), *TWO, strategy, "--run_dir", str(run)]
    done = subprocess.run(
        [sys.executable, "-m", "bertlab", "fit", *named],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr


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


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"model.objectives": "[mlm, nsp]"},
        {"model.objectives": "[mlm]"},
        {"data.batch_size": "{from: 4, to: 8}", "data.max_seq_length": "{from: 16, to: 32}"},
        {"stages": "{short: {share: 0.5, data.max_seq_length: 16}, long: {share: 0.5}}"},
    ],
    ids=["pairs", "mlm", "changing", "stages"],
)
def test_two_processes_equal_one(
    settings: dict[str, str], tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    common = ["--config", tiny_config, *(f"--{key}={value}" for key, value in settings.items())]
    code, _, error = bertlab("fit", *common, "--run_dir", tmp_path / "one")
    assert code == 0, error
    fit_by_two("ddp", tmp_path / "two", *common)
    assert_same_end(tmp_path / "one", tmp_path / "two")


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


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_drop_what_one_does_that_accumulates_two_batches(
    strategy: str, tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    common = ["--config", tiny_config, "--model.encoder.hidden_dropout_prob", "0.3"]
    common += ["--model.encoder.attention_probs_dropout_prob", "0.3"]
    two, one = tmp_path / "two", tmp_path / "one"
    fit_by_two(strategy, two, *common)
    accumulate = ["--trainer.accumulate_grad_batches", "2"]
    accumulate += ["--trainer.val_check_interval", "6"]  # counts batches
    code, _, error = bertlab("fit", *common, *accumulate, "--run_dir", one)
    assert code == 0, error
    assert_same_end(one, two)
    other = [*common, *accumulate, "--seed.dropout", "4", "--run_dir", tmp_path / "other"]
    assert bertlab("fit", *other)[0] == 0
    with pytest.raises(AssertionError):
        assert_same_end(one, tmp_path / "other")


@pytest.mark.slow
def test_dropout_of_two_processes_goes_on_bit_by_bit(tiny_config: Path, tmp_path: Path) -> None:
    whole, third = tmp_path / "whole", Path("checkpoints", "step-3.ckpt")
    dropout = ["--config", tiny_config, "--model.encoder.hidden_dropout_prob", "0.3"]
    fit_by_two("ddp", whole, *dropout)
    fit_by_two("ddp", tmp_path / "resumed", "--ckpt_path", whole / third)
    ends = [
        torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
        for run in (whole, tmp_path / "resumed")
    ]
    weights, others = (end["state_dict"] for end in ends)
    assert all(torch.equal(weights[name], others[name]) for name in weights)
