"""Settings of the Trainer that are refused by their key: numbers out of range, names, devices."""

from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Timer
from lightning.pytorch.demos.boring_classes import BoringModel
from torch import Tensor

from bertlab.config.parser import TRAINER_DEFAULTS
from bertlab.errors import TrainerError
from bertlab.model.optimizer import run_timer
from bertlab.training.trainer import make_trainer
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
        ("min_steps 7", "min_steps: found 7, expected at most max_steps, 6"),
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


def settings(**given: Any) -> dict[str, Any]:
    """Arguments of the Trainer, as a config that gives these alone has them."""
    all_ = signature(Trainer.__init__).parameters.values()
    defaults = {each.name: each.default for each in all_ if each.name != "self"}
    quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
    return defaults | TRAINER_DEFAULTS | quiet | {"enable_checkpointing": False} | given


@pytest.mark.parametrize(("batches", "epochs"), [(500, 3), (3, 2)])
def test_evaluations_are_counted_in_batches_or_in_epochs(batches: int, epochs: int) -> None:
    both = settings(val_check_interval=batches, check_val_every_n_epoch=epochs)
    message = rf"check_val_every_n_epoch: found {epochs} beside a trainer\.val_check_interval"
    with pytest.raises(TrainerError, match=message):
        make_trainer(both)
    for epoch in (1, None):
        trainer = make_trainer(both | {"check_val_every_n_epoch": epoch})
        assert (trainer.val_check_interval, trainer.check_val_every_n_epoch) == (batches, None)
    trainer = make_trainer(both | {"val_check_interval": 0.5})
    assert trainer.check_val_every_n_epoch == epochs


class TooSlow(BoringModel):
    """Its first batch takes longer than the whole run may."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = 0

    def training_step(self, batch: Tensor, batch_idx: int) -> Any:
        self.batches += 1
        timer = run_timer(self.trainer)
        assert timer is not None
        timer.load_state_dict({"time_elapsed": {"train": 7200}})
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize("accumulate", [1, 2, 4])
def test_a_time_ends_a_run_between_steps(accumulate: int) -> None:
    given = settings(max_time="00:01:00:00", max_steps=9, limit_val_batches=0)
    trainer = make_trainer(given | {"accumulate_grad_batches": accumulate})
    timer = run_timer(trainer)
    assert timer is not None
    assert timer.state_key == "Timer"  # by which checkpoints of any accumulation have it
    model = TooSlow()
    trainer.fit(model)
    assert (model.batches, trainer.global_step) == (accumulate, 1)


def test_a_timer_that_a_config_names_is_the_one() -> None:
    own = Timer("00:02:00:00")
    given = settings(max_time="00:01:00:00", accumulate_grad_batches=2, callbacks=[own])
    found = [each for each in make_trainer(given).callbacks if isinstance(each, Timer)]
    assert found == [own]
