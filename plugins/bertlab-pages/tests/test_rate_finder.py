"""A learning rate that a sweep proposes: from losses whose best rates are known, and in a run."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import LearningRateFinder
from lightning.pytorch.tuner.lr_finder import _LRCallback

from bertlab.extend import TrainerError, as_mistakes
from bertlab_pages.rate_finder import FoundLearningRate
from bertlab_pages.rate_range import RATES, losses_of, propose, rates_section
from browser import complaints
from tests.conftest import Command

RATES_TRIED = np.geomspace(1e-8, 1, 100)


def sweep(noise: float, fall: float = 2.0) -> np.ndarray:
    """Return losses that fall by a sigmoid around 1e-3, and rise with the square from 1e-2 on."""
    place = np.log10(RATES_TRIED)
    falling = 9 - fall / (1 + np.exp(-4 * (place + 3)))
    rising = np.where(place > -2, 3 * (place + 2) ** 2, 0)
    return falling + rising + noise * np.random.default_rng(1).normal(size=100)


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
def test_the_range_lies_between_the_descent_and_its_end(noise: float) -> None:
    found = propose(RATES_TRIED.tolist(), sweep(noise).tolist())
    assert 3e-4 < found.low <= found.best <= found.high < 1e-2


def test_lightnings_average_is_undone() -> None:
    losses = sweep(0.1)
    finder, averages, total = _LRCallback(100), [], 0.0
    for step, loss in enumerate(losses, 1):  # as it averages
        total = finder.beta * total + (1 - finder.beta) * loss
        averages.append(total / (1 - finder.beta ** (step + 1)))
    assert losses_of(averages) == pytest.approx(losses)


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        (sweep(0.2, fall=0.0), "no clear descent"),
        (sweep(2.0), "no clear descent"),
        (9 - np.linspace(0, 2, 100), "still falls at 1, the largest rate"),
        (np.where(np.arange(100) < 5, 9.0, np.nan), "5 losses before they were no numbers"),
    ],
)
def test_what_shows_no_rate_is_refused(losses: np.ndarray, said: str) -> None:
    with pytest.raises(TrainerError, match=f"LearningRateFinder.*{said}"), as_mistakes():
        propose(RATES_TRIED.tolist(), losses.tolist())


def finder(steps: int, **settings: object) -> list[str]:
    callbacks = "--trainer.callbacks"
    given = {"num_training_steps": steps, **settings}
    return [f"{callbacks}+=LearningRateFinder", *(f"{callbacks}.{k}={v}" for k, v in given.items())]


@pytest.mark.nightly
def test_a_run_with_a_found_rate_is_that_with_it_given(
    bertlab: Command, tiny_config: Path, tmp_path: Path
) -> None:
    common = (
        *("fit", tiny_config, "--trainer.log_every_n_steps", 1),
        # the trials draw dropout too, of which nothing is left
        *("--model.encoder.hidden_dropout_prob", 0.1),
    )
    looks = tmp_path / "looks"
    code, output, error = bertlab(*common, *finder(60), "--run_dir", looks)
    assert code == 0, error
    found = re.search(r"learning rate found: .*(--model.optimizer.learning_rate \S+)", output)
    assert found is not None
    code, _, error = bertlab(*common, *found[1].split(), "--run_dir", tmp_path / "given")
    assert code == 0, error
    one, other = (
        torch.load(tmp_path / run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for run in ("looks", "given")
    )
    assert all(torch.allclose(one[name], other[name], rtol=0, atol=1e-7) for name in other)
    low, best, high = json.loads((looks / RATES).read_text("utf-8"))["proposed"]
    assert low <= best <= high
    page = (looks / "run.html").read_text("utf-8")
    assert "Learning rates tried" in page
    assert "proposed range" in page
    assert complaints(page, tmp_path) == []
    # from its middle it goes on with the rate that it has, looks for none, and ends as it did
    middle = tmp_path / "middle"
    code, output, error = bertlab(
        *("fit", "--ckpt_path", looks / "checkpoints" / "step-3.ckpt"),
        *("--config", looks / "config.yaml", "--run_dir", middle),
    )
    assert code == 0, error
    assert "learning rate found" not in output
    again = torch.load(middle / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert all(torch.equal(one[name], again[name]) for name in one)


@pytest.mark.slow
def test_a_sweep_without_descent_ends_the_run_before_its_first_step(
    bertlab: Command, tiny_config: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    code, _, error = bertlab(
        "fit", tiny_config, *finder(20, min_lr=1e-9, max_lr=1e-8), "--run_dir", run
    )
    assert code == 2
    assert "LearningRateFinder: no clear descent" in error
    assert not (run / "results.json").exists()
    assert rates_section(run)["about"].endswith("no clear descent.")


@pytest.mark.parametrize(("epochs", "fits"), [(1, False), (2, False), (3, True), (-1, True)])
def test_a_sweep_that_the_last_epoch_would_end(epochs: int, fits: bool) -> None:
    trainer = SimpleNamespace(max_epochs=epochs, callbacks=[LearningRateFinder()])  # of 100 rates
    data = SimpleNamespace(steps_per_epoch=lambda: 34)
    found = FoundLearningRate(Path())
    if fits:
        found.prepare(trainer, data)
        return
    said = f"ends after {34 * epochs}; expected --trainer.max_epochs -1 --trainer.max_steps"
    with pytest.raises(TrainerError, match=said), as_mistakes():
        found.prepare(trainer, data)


def test_no_record_no_section(tmp_path: Path) -> None:
    assert rates_section(tmp_path) is None
