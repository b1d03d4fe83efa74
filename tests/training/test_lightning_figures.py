"""What Lightning's settings and callbacks compute is what a plain loop of PyTorch computes."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn

from bertlab.api.batch import PackedBatch
from bertlab.model.module import BertModule
from bertlab.model.optimizer import build_optimizer, build_schedule
from tests.conftest import Command

Weights = dict[str, Tensor]
RECORDER = f"{{class_path: {__name__}.Recorder}}"


def weights_of(module: nn.Module) -> Weights:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


class Recorder(Callback):
    """Keeps what a run reads and computes."""

    module: ClassVar[BertModule]
    batches: ClassVar[list[PackedBatch]] = []
    losses: ClassVar[list[float]] = []
    weights: ClassVar[list[Weights]] = []  # at the start, and after each step

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, BertModule)
        Recorder.module = pl_module
        Recorder.batches, Recorder.losses, Recorder.weights = [], [], [weights_of(pl_module)]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.batches.append(batch)
        self.losses.append(float(outputs["loss"]))
        self.weights.append(weights_of(pl_module))


@pytest.fixture
def recorded(
    tiny_config: Path, tmp_path: Path, bertlab: Command
) -> Iterator[Callable[..., Weights]]:
    def run(*settings: str) -> Weights:
        """Train, and return the weights that are saved at the end."""
        given = ("--config", tiny_config, "--trainer.callbacks+", RECORDER, *settings)
        code, _, error = bertlab("fit", *given, "--run_dir", tmp_path / "run")
        assert code == 0, error
        last = tmp_path / "run/checkpoints/last.ckpt"
        saved: Weights = torch.load(last, weights_only=True)["state_dict"] if last.exists() else {}
        return saved

    yield run
    del Recorder.module
    Recorder.batches, Recorder.losses, Recorder.weights = [], [], []


def plain_loop(
    steps: int,
    clip: Callable[[Sequence[nn.Parameter]], object] | None = None,
    autocast: torch.dtype | None = None,
) -> list[float]:
    """Return the loss of each step of what was recorded, computed without Lightning."""
    module = Recorder.module
    module.load_state_dict(Recorder.weights[0])
    module.train()
    optimizer = build_optimizer(module.optimizer_config, module)
    schedule = build_schedule(module.optimizer_config, optimizer, steps)
    losses = []
    for batch in Recorder.batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", autocast) if autocast else contextlib.nullcontext():
            loss = torch.stack(
                [each.sum.float() / each.count for each in module.losses(batch)]
            ).sum()
        loss.backward()
        if clip is not None:
            clip([*module.parameters()])
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def by_norm(parameters: Sequence[nn.Parameter]) -> object:
    return nn.utils.clip_grad_norm_(parameters, 1.0)


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize(
    ("settings", "clip", "autocast"),
    [
        (["gradient_clip_val=0.01"], lambda them: nn.utils.clip_grad_norm_(them, 0.01), None),
        (
            ["gradient_clip_val=1.0e-4", "gradient_clip_algorithm=value"],
            lambda them: nn.utils.clip_grad_value_(them, 1e-4),
            None,
        ),
        (["gradient_clip_val=null"], None, None),
        (["precision=bf16-mixed"], by_norm, torch.bfloat16),
        (["precision=64-true"], by_norm, None),
        (["precision=bf16-true"], by_norm, None),
    ],
)
def test_clipping_and_precision(
    recorded: Callable[..., Weights],
    settings: list[str],
    clip: Callable[[Sequence[nn.Parameter]], object] | None,
    autocast: torch.dtype | None,
) -> None:
    recorded(*(f"--trainer.{each}" for each in settings))
    assert Recorder.losses == pytest.approx(plain_loop(6, clip, autocast), rel=1e-6)
    computed = weights_of(Recorder.module)
    assert all(torch.allclose(computed[name], it) for name, it in Recorder.weights[-1].items())
    # and it is not what the run computes without the setting
    Recorder.module.float()
    plain_loop(6, by_norm)
    usual = weights_of(Recorder.module)
    assert any((usual[name] != it).any() for name, it in Recorder.weights[-1].items())


@pytest.mark.slow
def test_a_fast_run_takes_the_first_steps(recorded: Callable[..., Weights]) -> None:
    recorded("--trainer.fast_dev_run", "3")
    assert len(Recorder.losses) == 3
    assert Recorder.losses == pytest.approx(plain_loop(3, by_norm), rel=1e-6)


def average(*all_: Weights) -> Weights:
    return {name: torch.stack([each[name] for each in all_]).mean(0) for name in all_[0]}


def moving_average(decay: float, first: Weights, *others: Weights) -> Weights:
    for each in others:
        first = {name: decay * first[name] + (1 - decay) * each[name] for name in first}
    return first


AVERAGES: dict[str, Callable[[list[Weights]], Weights]] = {
    "WeightAveraging": lambda after: average(*after[1:]),
    "{class_path: EMAWeightAveraging, init_args: {decay: 0.5}}": lambda after: moving_average(
        0.5, *after[1:]
    ),
}


# bertlab's module always overrides it
@pytest.mark.first_fast
@pytest.mark.filterwarnings("ignore:You're using the WeightAveraging callback with a model that")
@pytest.mark.parametrize("callback", AVERAGES)
def test_averages_of_weights_are_saved(recorded: Callable[..., Weights], callback: str) -> None:
    saved, expected = (
        recorded("--trainer.callbacks+", callback),
        AVERAGES[callback](Recorder.weights),
    )
    assert all(torch.allclose(saved[name], expected[name], atol=1e-6) for name in expected)
    assert not all(torch.equal(expected[name], Recorder.weights[-1][name]) for name in expected)


@pytest.mark.slow
def test_a_limit_evaluates_the_first_batches(
    tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    given = ("validate", "--ckpt_path", tiny_run)
    printed = {
        bertlab(*given, *settings)[1]
        for settings in (
            ("--trainer.limit_val_batches", 1),
            ("--data.validation_sequences", 8),  # a batch
        )
    }
    assert len(printed) == 1
    assert printed != {bertlab(*given)[1]}
