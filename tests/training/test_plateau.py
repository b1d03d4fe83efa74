"""A rate that falls where a metric stops improving: figures, direction, and an exact resume."""

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import bertlab
from bertlab.api.optimizer import Progress
from bertlab.cli.main import main
from bertlab.errors import ConfigError
from bertlab_modern.schedules import Plateau

PLATEAU = {"name": "plateau", "patience": 0, "threshold": 0.01, "reduce": 0.5}


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("patience", [0, 1, 3])
@pytest.mark.parametrize("cooldown", [0, 2])
def test_its_figures_are_those_of_torch(mode: Any, patience: int, cooldown: int) -> None:
    generator = random.Random(patience + cooldown)
    scores = [generator.choice([1.0, 2.0, 2.0001, 3.0, float("nan")]) for _ in range(60)]
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode, 0.5, patience, 1e-3, "rel", cooldown, min_lr=0.01, eps=0.0
    )
    ours = Plateau("val/loss", mode, 0.5, patience, 1e-3, cooldown, final=0.01)
    for number in range(len(scores)):
        theirs.step(scores[number])
        found = ours.factor(Progress(number, 100, 0, scores[: number + 1]))
        assert found == optimizer.param_groups[0]["lr"]
    assert found < 0.6


def settings(run: Path, schedule: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "run_dir": str(run),
        "model.optimizer.schedule": schedule,
        "model.optimizer.learning_rate": 0.004,
        "model.optimizer.warmup_steps": 0,
        "trainer.max_steps": 24,
        "trainer.val_check_interval": 3,
        "data.num_workers": 0,
        **more,
    }


def columns(run: Path) -> tuple[dict[int, float], dict[int, float]]:
    """The learning rate of each step, and the loss of each evaluation by its step."""
    with next(run.rglob("metrics.csv")).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    pairs = [
        {int(row["step"]): float(row[name]) for row in rows if row.get(name)}
        for name in ("learning_rate", "val/loss")
    ]
    return pairs[0], pairs[1]


@pytest.mark.nightly
def test_a_run_has_the_rates_of_a_plain_loop(tiny_config: Path, tmp_path: Path) -> None:
    logs = {"trainer.logger": "csv", "trainer.log_every_n_steps": 1}
    bertlab.fit(tiny_config, settings(tmp_path / "run", PLATEAU, **logs))
    rates, losses = columns(tmp_path / "run")
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.004)
    plain = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, "min", 0.5, patience=0, threshold=0.01
    )
    steps = sorted(rates)
    evaluated = dict(zip(range(2, 24, 3), (losses[each] for each in sorted(losses)), strict=False))
    for number, step in enumerate(steps):
        assert rates[step] == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-6), step
        if number in evaluated:  # behind the third, sixth, … step
            plain.step(evaluated[number])
    assert rates[steps[-1]] < rates[steps[0]]


@pytest.mark.nightly
def test_it_goes_on_exactly(tiny_config: Path, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    bertlab.fit(tiny_config, settings(whole, PLATEAU, **{"checkpoint.save_top_k": -1}))
    middle = whole / "checkpoints" / "step-12.ckpt"
    assert main(["fit", "--ckpt_path", str(middle), "--run_dir", str(parts)]) == 0
    one, other = (
        torch.load(run / "checkpoints" / "last.ckpt", weights_only=True) for run in (whole, parts)
    )
    assert one["optimizer_states"][0]["param_groups"][0]["lr"] < 0.004
    for name, each in one["state_dict"].items():
        assert torch.equal(each, other["state_dict"][name]), name
    results = [json.loads((run / "results.json").read_text()) for run in (whole, parts)]
    assert results[0] == results[1]


@pytest.mark.first_slow
@pytest.mark.parametrize(
    ("key", "schedule", "words"),
    [
        ("model.optimizer.schedule", {**PLATEAU, "monitor": "val/mlm/los"}, "did you mean"),
        ("model.optimizer.schedule", {**PLATEAU, "monitor": "train/loss"}, "expected one of val/"),
        (
            "model.optimizer.schedule",
            {**PLATEAU, "monitor": "val/mlm/loss", "mode": "max"},
            "the better end is min",
        ),
        (
            "model.objectives.mlm.rate",
            {"from": 0.3, "to": 0.15, "schedule": PLATEAU},
            "goes by steps",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    key: str, schedule: dict[str, Any], words: str, tmp_path: Path
) -> None:
    given = settings(tmp_path / "run", PLATEAU) | {key: schedule}
    with pytest.raises(ConfigError, match=words):
        bertlab.fit("quickstart", given)
    assert not (tmp_path / "run").exists()
