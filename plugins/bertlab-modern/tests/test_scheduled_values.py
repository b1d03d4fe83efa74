"""Values beside the rate that change over a run: figures, an exact resume, refusals."""

from pathlib import Path
from typing import Any

import pytest
import torch

import bertlab
from bertlab import ConfigError, MaskedLM
from bertlab.cli.main import main

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
