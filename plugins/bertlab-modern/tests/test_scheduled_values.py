"""Values beside the rate that change over a run: figures, an exact resume, refusals."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import bertlab
from bertlab import ConfigError, MaskedLM
from bertlab.cli.main import main
from bertlab.config.recorded import computed
from bertlab.config.yaml_files import read_config
from bertlab.model.module import BertModule
from bertlab_modern.scheduled_values import ScheduledValues

CHANGES = {
    "optimizer": {
        "weight_decay": {"from": 0.1, "to": 0.0},
        "betas": {"from": [0.5, 0.9], "to": [0.9, 0.99], "schedule": "cosine"},
    }
}


def settings(run: Path, schedules: Any, **more: Any) -> dict[str, Any]:
    return {
        "run_dir": str(run),
        "schedules": schedules,
        "trainer.max_steps": 4,
        "trainer.val_check_interval": 1,
        "trainer.limit_val_batches": 1,
        "checkpoint.save_top_k": -1,
        "data.num_workers": 0,
        **more,
    }


def groups(run: Path, step: int) -> list[dict[str, Any]]:
    path = run / "checkpoints" / f"step-{step}.ckpt"
    found = torch.load(path, weights_only=True)["optimizer_states"][0]["param_groups"]
    assert isinstance(found, list)
    return found


@pytest.mark.nightly
def test_values_change_with_the_step_and_go_on_exactly(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[int, float] = {}
    monkeypatch.setattr(MaskedLM, "scheduled", ("pace",))
    monkeypatch.setattr(MaskedLM, "pace", 0.0, raising=False)
    monkeypatch.setattr(MaskedLM, "after_step", lambda self, step: seen.update({step: self.pace}))
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    changes = CHANGES | {"mlm": {"pace": {"from": 1, "to": 3}}}
    bertlab.fit(tiny_config, settings(whole, changes))
    assert seen == {1: 1.0, 2: 1.5, 3: 2.0, 4: 2.5}
    for done in range(4):
        decayed, plain = groups(whole, done + 1)
        assert decayed["weight_decay"] == pytest.approx(0.1 * (1 - done / 4))
        assert plain["weight_decay"] == 0
    assert groups(whole, 1)[0]["betas"] == (0.5, 0.9)
    assert groups(whole, 3)[1]["betas"] == pytest.approx((0.7, 0.945))

    middle = whole / "checkpoints" / "step-2.ckpt"
    assert main(["fit", "--ckpt_path", str(middle), "--run_dir", str(resumed)]) == 0
    one, other = (
        torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for run in (whole, resumed)
    )
    assert all(torch.equal(each, other[name]) for name, each in one.items())
    bertlab.fit(tiny_config, settings(tmp_path / "plain", None))
    assert "schedules" not in (tmp_path / "plain" / "config.yaml").read_text("utf-8")
    plain = torch.load(tmp_path / "plain" / "checkpoints" / "last.ckpt", weights_only=True)
    assert not all(torch.equal(each, plain["state_dict"][name]) for name, each in one.items())


class Task(MaskedLM):
    scheduled = ("pace",)
    pace = 0.0


def starting(schedules: Any, monkeypatch: pytest.MonkeyPatch) -> ScheduledValues:
    """Begin a fit of AdamW and one task as far as values that change are looked at."""
    module = BertModule.__new__(BertModule)
    nn.Module.__init__(module)
    module.weight = nn.Parameter(torch.ones(2, 2))
    monkeypatch.setattr(BertModule, "named_tasks", lambda self: {"mlm": Task()})
    optimizer = torch.optim.AdamW(module.parameters(), 0.1)
    optimizer.param_groups[0]["ns_steps"] = 5  # as Muon's
    torch.optim.lr_scheduler.ConstantLR(optimizer)  # which adds initial_lr
    trainer: Any = SimpleNamespace(optimizers=[optimizer], estimated_stepping_batches=4)
    values = ScheduledValues(schedules)
    values.on_fit_start(trainer, module)
    return values


def test_values_of_the_form_that_is_there_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = CHANGES | {"mlm": {"pace": {"from": 1, "to": 3}}}
    assert len(starting(changes, monkeypatch).numbers) == 3


@pytest.mark.parametrize(
    ("owner", "name", "start", "end", "words"),
    [
        (
            "optimizer",
            "betas",
            0.9,
            0.95,
            "found from 0.9 to 0.95, expected two values of the form",
        ),
        ("optimizer", "betas", [0.9], [0.95], "of the form of [0.9, 0.999]"),
        ("optimizer", "eps", [1e-6, 1e-6], [1e-8, 1e-8], "of the form of 1e-08"),
        ("mlm", "pace", [0.5], [0.9], "found from [0.5] to [0.9], expected two values"),
        ("optimizer", "maximize", 0, 1, "nothing that can change, expected one of betas, eps, wei"),
        ("optimizer", "ns_steps", 5, 3, "nothing that can change, expected one of betas, eps, wei"),
        ("optimizer", "initial_lr", 0, 1, "see model.optimizer.schedule"),
        ("optimizer", "params", 0, 1, "nothing that can change, expected"),
        ("optimizer", "eps", True, 1, "found from True to 1, expected two numbers"),
    ],
)
def test_values_of_another_form_are_refused(
    owner: str, name: str, start: Any, end: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError) as raised:
        starting({owner: {name: {"from": start, "to": end}}}, monkeypatch)
    assert str(raised.value).startswith(f"schedules.{owner}.{name}: ")
    assert words in str(raised.value)


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("schedules", "words"),
    [
        ({"optimiser": {"betas": {"from": 1, "to": 2}}}, "did you mean 'optimizer'"),
        ({"optimizer": {"momentum": {"from": 1, "to": 2}}}, "nothing that can change"),
        ({"optimizer": {"lr": {"from": 1, "to": 2}}}, "see model.optimizer.schedule"),
        ({"optimizer": {"betas": {"from": [1, 2], "to": 2}}}, "two lists of as many"),
        ({"optimizer": {"betas": 3}}, "expected {from"),
        ({"mlm": {"rate": {"from": 1, "to": 2}}}, "schedules.mlm.rate: nothing that can change"),
        ({"optimizer": {"eps": {"from": 1, "to": 2, "schedule": "plateau"}}}, "goes by steps"),
    ],
)
def test_what_cannot_be_is_refused(
    schedules: Any, words: str, tiny_config: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=words):
        bertlab.fit(tiny_config, settings(tmp_path / "run", schedules))
    assert not (tmp_path / "run").exists()


def test_a_schedule_is_compared_by_whatever_it_is_written(tiny_run: Path) -> None:
    config = read_config(tiny_run / "config.yaml")

    def with_schedule(schedule: Any) -> dict[str, Any]:
        change = {"from": 0.1, "to": 0.0, "schedule": schedule}
        return {**config, "schedules": {"optimizer": {"weight_decay": change}}}

    short, long = with_schedule("cosine"), with_schedule({"name": "cosine"})
    assert computed(short, by_place=True) == computed(long, by_place=True)
    assert long == with_schedule({"name": "cosine"})
    arguments = with_schedule({"name": "cosine", "cycles": 2})
    for other in (with_schedule("linear"), arguments, {**config, "schedules": None}):
        assert computed(other, by_place=True) != computed(short, by_place=True)


def test_a_run_does_not_go_on_with_other_schedules(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = ["fit", "--ckpt_path", str(tiny_run / "checkpoints" / "step-3.ckpt")]
    changes = "--schedules={optimizer: {weight_decay: {from: 0.1, to: 0.0}}}"
    assert main([*again, changes, "--run_dir", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err
    assert "error E403" in told
    assert "schedules" in told
    assert not (tmp_path / "run").exists()
