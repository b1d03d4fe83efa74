"""``bertlab init pretraining --for PLACE``: the template with the values of a place."""

from pathlib import Path

import pytest
import yaml

import bertlab
from bertlab_conformance import init_place
from bertlab_conformance.init import templates
from bertlab_conformance.init_place import for_place, largest_size
from bertlab_pages.run_cost import RunCost
from bertlab_pages.step_cost import StepCost
from tests.conftest import Command

TEMPLATE = templates()["pretraining"]


@pytest.mark.parametrize("place", ["gpu", "cluster"])
def test_values_change_and_remarks_stay(place: str) -> None:
    before = TEMPLATE.read_text("utf-8")
    after, said = for_place(before, TEMPLATE, place)
    config = yaml.safe_load(after)
    assert not said
    assert config["compile"] is True
    assert config["trainer"]["precision"] == "bf16-mixed"
    assert config["model"]["encoder"]["preset"] == "base"
    assert config["data"]["batch_size"] == {"gpu": 256, "cluster": 2048}[place]
    assert config["data"]["corpus"] == "my-text/"
    for old, new in zip(before.splitlines(), after.splitlines(), strict=False):
        assert old.partition("#")[2] == new.partition("#")[2]
    assert for_place(before, TEMPLATE, None) == (before, [])


@pytest.mark.slow
def test_a_laptop_gets_the_largest_that_reads_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    def estimate(config: Path, overrides: dict) -> RunCost:
        seconds = 0.05 * 4 ** init_place._PRESETS.index(overrides["model.encoder.preset"])
        step = StepCost(seconds, evaluation=1e-4, memory=1e8, tokens=120.0, checkpoint=1e7)
        return RunCost(100, step, 100 * seconds, disk=2e7, memory=1e9)

    monkeypatch.setattr(bertlab, "estimate", estimate, raising=False)
    preset, steps, line = largest_size(TEMPLATE, 64)
    # mini: 0.2 s a step, 17,000 steps of 7,680 tokens for 3 million weights; small has too few
    assert (preset, steps) == ("mini", 17_000)
    assert "57 min" in line
    text, said = for_place(TEMPLATE.read_text("utf-8"), TEMPLATE, "laptop")
    config = yaml.safe_load(text)
    assert config["trainer"] == {"max_steps": 17_000, "val_check_interval": 1_700}
    assert config["model"]["encoder"]["preset"] == "mini"
    assert said[0].startswith("mini, 17,000 steps: on this machine")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pretraining", "x.yaml", "--for", "phone"], "found 'phone', expected laptop, gpu"),
        (["ner", "x.yaml", "--for", "gpu"], "found it with ner, expected pretraining"),
    ],
)
def test_mistakes(arguments: list[str], said: str, bertlab: Command) -> None:
    code, _, error = bertlab("init", *arguments)
    assert code == 2
    assert said in error
