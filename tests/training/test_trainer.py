"""Settings of the Trainer that are refused by their key: numbers out of range, names, devices."""

from pathlib import Path

import pytest

from tests.conftest import Command


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("gradient_clip_val -1.5", "gradient_clip_val: found -1.5, expected 0 or more"),
        ("gradient_clip_val .nan", "gradient_clip_val: found nan, expected 0 or more"),
        ("log_every_n_steps -1", "log_every_n_steps: found -1, expected 0 or more"),
        ("max_steps 0", "max_steps: found 0, expected 1 or more, or -1 for no limit"),
        ("max_epochs 0", "max_epochs: found 0, expected 1 or more, or -1 for no limit"),
        ("accumulate_grad_batches 0", "accumulate_grad_batches: found 0, expected 1 or more"),
        ("num_nodes 0", "num_nodes: found 0, expected 1 or more"),
    ],
)
def test_numbers_out_of_range(
    bertlab: Command, tiny_config: Path, tmp_path: Path, argument: str, message: str
) -> None:
    key, value = argument.split()
    command = ["fit", "--config", tiny_config, "--run_dir", tmp_path / "run"]
    code, _, error = bertlab(*command, f"--trainer.{key}={value}")
    assert (code, error) == (2, f"bertlab: error E105: trainer.{message}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            "accelerator abacus",
            "accelerator: found 'abacus', which is unknown; expected one of auto,",
        ),
        ("accelerator tpu", "accelerator: found 'tpu', which is not on this machine; expected"),
        ("strategy ddpp", "strategy: found 'ddpp', expected auto, ddp, fsdp or another that"),
        ("strategy xla", "strategy: found 'xla': "),  # its package is not there
        ("devices cuda:0", "devices: found 'cuda:0', expected 1 "),
        ("devices 0", "devices: found '0', expected 1 "),
        (
            "precision transformer-engine",
            "precision: found 'transformer-engine': transformer_engine is not",
        ),
    ],
)
def test_what_lightning_does_not_take_is_told_by_its_key(
    bertlab: Command, tiny_config: Path, tmp_path: Path, argument: str, message: str
) -> None:
    key, value = argument.split()
    command = ["fit", "--config", tiny_config, "--run_dir", tmp_path / "run"]
    code, _, error = bertlab(*command, f"--trainer.{key}={value}")
    assert (code, error.count("\n")) == (2, 1)
    assert error.startswith(f"bertlab: error E105: trainer.{message}")
    assert list(tmp_path.iterdir()) == []
