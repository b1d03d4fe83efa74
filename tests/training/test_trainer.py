"""Numbers that Lightning takes without a word are refused."""

from pathlib import Path

import pytest

from tests.conftest import Command


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("gradient_clip_val -1.5", "gradient_clip_val: found -1.5, expected 0 or more"),
        ("gradient_clip_val .nan", "gradient_clip_val: found nan, expected 0 or more"),
        ("log_every_n_steps -1", "log_every_n_steps: found -1, expected 0 or more"),
        ("max_steps 0", "max_steps: found 0, expected 1 or more, or -1 for no limit"),
        ("max_epochs 0", "max_epochs: found 0, expected 1 or more, or -1 for no limit"),
        ("accumulate_grad_batches 0", "accumulate_grad_batches: found 0, expected 1 or more"),
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
