"""Two packages share a name: ``package:name`` says which is meant, everywhere a name is taken."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import bertlab
from bertlab.data.sources import open_source, source_of
from bertlab.plugins import index
from tests.conftest import Command
from tests.plugins.strange_packages import install

CODE = """
from bertlab import BertEncoder, MaskedLM
from bertlab.api import DataSource, RawDocument, Schedule
from bertlab.model.optimizer_config import AdamW
from torchmetrics import MeanMetric
class Mine(MaskedLM):
    "Masks."
    def __init__(self, mine: int = 3, rate: float = 0.15):
        super().__init__(rate=rate)
        self.mine = mine
class Encoder(BertEncoder): pass
class Optimizer(AdamW): pass
class Half(Schedule):
    def factor(self, progress): return 0.5
class Lines(DataSource):
    def documents(self): yield RawDocument("One. " + self.argument, False, "here")
"""
NAMES = {
    "bertlab.objectives": {"mine": "Mine", "mlm": "Mine"},
    "bertlab.encoders": {"mine": "Encoder"},
    "bertlab.optimizers": {"mine": "Optimizer"},
    "bertlab.schedules": {"mine": "Half"},
    "bertlab.sources": {"mine": "Lines"},
}


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install two packages with the same names."""
    monkeypatch.syspath_prepend(tmp_path)
    for package in ("pack-a", "Pack.B"):
        module = package.lower().replace("-", "_").replace(".", "_")
        groups = {
            group: {name: f"{module}:{own}" for name, own in names.items()}
            for group, names in NAMES.items()
        }
        install(tmp_path, package, groups, {module: CODE})
    index.forget_installed()
    yield tmp_path
    index.forget_installed()


@pytest.mark.slow
def test_a_run_takes_them_and_its_checkpoint_resolves_again(
    two: Path, tiny_config: Path, bertlab: Command
) -> None:
    run = two / "run"
    given = ("fit", "--config", tiny_config, "--run_dir", run)
    code, _, error = bertlab(*given, "--model.objectives", "[mine]")
    assert code == 2
    assert "'mine' is a name in several packages; expected pack_a:mine or pack_b:mine" in error
    names = (
        *("--model.objectives", "{'pack_b:mine': {mine: 4}, mlm: null}"),
        *("--model.encoder.name", "pack_a:mine", "--model.optimizer.name", "pack_a:mine"),
        *("--model.optimizer.schedule", "pack_b:mine"),
    )
    code, _, error = bertlab(*given, *names, "--model.objectives.pack_b:mine.rate=0.2")
    assert code == 0, error
    manifest = json.loads((run / "manifest.json").read_text("utf-8"))
    assert manifest["plugins"].keys() >= {"pack-a", "Pack.B"}
    assert "pack_b:mine/loss" in (run / "results.json").read_text("utf-8")
    code, _, error = bertlab(
        *("fit", "--ckpt_path", run / "checkpoints/step-3.ckpt", "--run_dir", two / "again")
    )
    assert code == 0, error
    model = bertlab_model(run)
    assert type(model.tasks["pack_b:mine"]).__module__ == "pack_b"
    assert model.tasks["pack_b:mine"].mine == 4
    assert type(model.encoder).__module__ == "pack_a"
    code, _, error = bertlab("validate", "--ckpt_path", run)
    assert code == 0, error


def bertlab_model(run: Path) -> bertlab.PretrainedModel:
    return bertlab.load(run)


def test_a_source_takes_its_argument_behind_the_name(two: Path) -> None:
    assert source_of("mine:x") is None
    assert source_of("pack_a:mine") == source_of("pack_a:mine:x:y") == "pack_a:mine"
    (document,) = open_source("pack_a:mine:x:y").documents()
    assert document.text == "One. x:y"
    assert source_of("https://pack_a:mine") is None


def test_the_listed_names_are_those_that_can_be_given(two: Path, bertlab: Command) -> None:
    names = list(index.installed("objective"))
    assert {"mlm", "pack_a:mlm", "pack_b:mine", "pack_a:mine"} <= set(names)
    assert "mine" not in names
    printed = bertlab("plugins", "list")[1]
    assert "pack_a:mine" in printed
    code, printed, error = bertlab("plugins", "show", "pack_a:mine")
    assert code == 0, error
    assert "pack_a:mine: objective of pack-a 1.0" in printed
    assert "Pack.B" not in printed


def test_a_name_of_one_package_may_have_it_in_front(
    two: Path, tiny_config: Path, bertlab: Command
) -> None:
    """So a config stays right when another package of that name is installed or taken away."""
    more = ("--model.objectives", "['bertlab_core:mlm']", "--print_config")
    code, printed, error = bertlab("fit", "--config", tiny_config, *more)
    assert code == 0, error
    assert "bertlab_core:mlm" in printed
