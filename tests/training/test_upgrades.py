"""Runs that an earlier bertlab began go on in this one, and those of a later one say why not."""

import json
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import yaml

from bertlab.checkpoints.run_checkpoint import RUN_KEY
from bertlab.config import recorded as versions
from bertlab.config.merge import read_request
from bertlab.config.recorded import computed, decides
from bertlab.config.run_config import parse_request
from bertlab.model.module import BertModule
from bertlab.training.record import RunRecord
from tests.conftest import Command

RELEASED = Path(__file__).with_name("released")
RUNS = sorted(path.name for path in RELEASED.iterdir() if path.is_dir())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_dir: Path) -> Path:
    shutil.copy(RELEASED / "corpus.txt", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def begin(place: Path, name: str = "0.1.0") -> Path:
    """Return a run directory with the checkpoint of a released version, and nothing else."""
    (place / "run/checkpoints").mkdir(parents=True)
    shutil.copy(RELEASED / name / "step-3.ckpt", place / "run/checkpoints/last.ckpt")
    manifest = json.loads((RELEASED / name / "manifest.json").read_text("utf-8"))
    del manifest["corpus"]  # it changes with the sentence splitter's version
    shutil.copy(RELEASED / name / "config.yaml", place / "run")
    (place / "run/manifest.json").write_text(json.dumps(manifest))
    return place / "run"


def rewrite(run: Path, change: Any, **ours: Any) -> None:
    """Let ``change`` alter the stored config, and set other entries of bertlab's."""
    path = run / "checkpoints/last.ckpt"
    content = torch.load(path, weights_only=True)
    change(content["bertlab"]["config"])
    content["bertlab"] |= ours
    torch.save(content, path)


def stored_config(name: str) -> dict[str, Any]:
    content = torch.load(RELEASED / name / "step-3.ckpt", weights_only=True)
    return content["bertlab"]["config"]


@pytest.mark.first_fast
@pytest.mark.parametrize("name", RUNS)
def test_a_released_run_goes_on(place: Path, bertlab: Command, name: str) -> None:
    run = begin(place, name)
    code, _, error = bertlab("fit", "--ckpt_path", run)
    assert code == 0, error
    end = torch.load(run / "checkpoints/last.ckpt", weights_only=True)
    assert end["global_step"] == 6
    assert end["bertlab"]["config_version"] == versions.CONFIG_VERSION
    assert ("dropout is no longer drawn as when" in error) == (name == "0.1.0")
    expected = RELEASED / name / "end.ckpt"
    if expected.exists():
        weights = torch.load(expected, weights_only=True)
        assert weights.keys() == end["state_dict"].keys()
        for key, value in weights.items():
            assert torch.allclose(value, end["state_dict"][key], atol=1e-6), key


def test_one_process_of_several_tells_of_other_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = RunRecord(tmp_path, {}, goes_on=True)
    checkpoint = {RUN_KEY: {"random_states": []}}
    for is_first in (True, False):
        trainer = Mock(is_global_zero=is_first, checkpoint_callbacks=[])
        record.on_load_checkpoint(trainer, Mock(spec=BertModule), checkpoint)
        assert ("dropout is no longer drawn" in capsys.readouterr().err) == is_first


@pytest.mark.first_fast
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("command", ["validate", "predict"])
def test_a_released_run_is_used(place: Path, bertlab: Command, name: str, command: str) -> None:
    more = ("--text", "the [MASK] of it") if command == "predict" else ()
    code, _, error = bertlab(command, "--ckpt_path", begin(place, name), *more)
    assert code == 0, error


def without(config: dict[str, Any], key: str) -> dict[str, Any]:
    """A copy of a config that lacks a dotted key."""
    kept = above = deepcopy(config)
    *sections, name = key.split(".")
    for section in sections:
        above = above[section]
    above.pop(name)
    return kept


def leaves(config: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for key, value in config.items():
        below = isinstance(value, dict) and value
        found += leaves(value, f"{prefix}{key}.") if below else [f"{prefix}{key}"]
    return found


@pytest.mark.slow
def test_every_key_that_is_at_its_default_may_lack(place: Path) -> None:
    """As in a checkpoint from before there was the key."""
    whole = stored_config("0.1.0")
    request = read_request([], deepcopy(whole), "x")
    config = parse_request(request, "fit", resumed_seed=3)
    assert computed(versions.complete(whole, config.plain, config.defaults()), True) == computed(
        config.plain, True
    )
    given = {  # by the config of the run, so that a checkpoint without them is of another run
        *("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size"),
        *("max_position_embeddings", "learning_rate", "corpus", "corpus_format", "vocab_size"),
        *("max_seq_length", "batch_size", "validation_fraction", "validation_sequences"),
        *("seed_everything", "max_steps", "val_check_interval", "name"),
        *("log_every_n_steps", "accelerator", "save_top_k"),
    }
    checked = 0
    for key in leaves(whole):
        _, _, name = key.rpartition(".")
        lacking = without(whole, key)
        if name in given or key.startswith("model.objectives") or not decides(key):
            continue
        found = versions.complete(lacking, config.plain, config.defaults())
        assert computed(found, True) == computed(config.plain, True), key
        checked += 1
    assert checked > 50


def test_a_key_that_lacks_and_is_not_at_its_default_is_listed(
    place: Path, bertlab: Command
) -> None:
    run = begin(place)
    config = place / "other.yaml"
    whole = stored_config("0.1.0")
    rewrite(run, lambda stored: stored["model"]["encoder"].pop("layer_norm_eps"))
    whole["model"]["encoder"]["layer_norm_eps"] = 1e-6
    config.write_text(yaml.safe_dump(whole, sort_keys=False))
    code, _, error = bertlab("fit", "--ckpt_path", run, "--config", config)
    assert code == 2
    assert "model.encoder.layer_norm_eps: 1e-06 here, 1e-12 there" in error
    assert error.count(" there\n") == 1


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("model.encoder", "experts"),
        ("model.optimizer", "momenta"),
        ("model.objectives.mlm", "spans"),
        ("data", "curriculum"),
    ],
)
def test_a_key_of_a_later_version_that_decides(
    place: Path, bertlab: Command, section: str, key: str
) -> None:
    run = begin(place)

    def add(stored: dict[str, Any]) -> None:
        for name in section.split("."):
            stored = stored[name]
        stored[key] = 4

    rewrite(run, add, version="9.1.0")
    before = (run / "checkpoints/last.ckpt").read_bytes()
    code, _, error = bertlab("fit", "--ckpt_path", run)
    assert code == 2
    assert f"{section}.{key}: 4; install " in error
    assert error.count("error E") == 1
    assert (run / "checkpoints/last.ckpt").read_bytes() == before


@pytest.mark.first_fast
@pytest.mark.parametrize("section", ["model.encoder", "model.optimizer", "data"])
def test_a_key_of_a_later_version_that_asks_for_nothing(
    place: Path, bertlab: Command, section: str
) -> None:
    run = begin(place)

    def add(stored: dict[str, Any]) -> None:
        for name in section.split("."):
            stored = stored[name]
        stored["experts"] = None

    rewrite(run, add)
    code, _, error = bertlab("fit", "--ckpt_path", run)
    assert code == 0, error


@pytest.mark.slow
def test_a_key_of_a_later_version_that_decides_nothing(place: Path, bertlab: Command) -> None:
    run = begin(place)

    def add(stored: dict[str, Any]) -> None:
        stored["checkpoint"]["in_background"] = True
        stored["notes"] = {"of": "a later one"}

    rewrite(run, add)
    code, _, error = bertlab("fit", "--ckpt_path", run)
    assert code == 0, error
    assert "left out of its config what this bertlab" in error
    assert "checkpoint.in_background, notes" in error


@pytest.mark.first_fast
def test_a_key_that_decides_of_a_package_that_is_not_installed(
    place: Path, bertlab: Command
) -> None:
    run = begin(place)
    schedules = {"optimizer": {"weight_decay": {"from": 0.1, "to": 0.0}}}
    rewrite(run, lambda stored: stored.update(schedules=schedules))
    code, _, error = bertlab("fit", "--ckpt_path", run, "--without_hooks", "[bertlab-modern]")
    assert code == 2
    assert "that decide what is computed: schedules: {'optimizer': " in error
    assert "it comes with bertlab-modern: pip install bertlab-modern" in error


def test_a_config_of_a_later_version(place: Path, bertlab: Command) -> None:
    run = begin(place)
    rewrite(run, lambda stored: None, config_version=99, version="9.1.0")
    code, _, error = bertlab("validate", "--ckpt_path", run)
    assert code == 2
    assert "its config has version 99, and this bertlab" in error
    assert "install bertlab 9.1.0 or a later one" in error


@pytest.mark.parametrize("found", [0, -1, "2", 2.0, True, [2]])
def test_a_version_that_is_none(place: Path, bertlab: Command, found: object) -> None:
    run = begin(place)
    rewrite(run, lambda stored: None, config_version=found)
    code, _, error = bertlab("validate", "--ckpt_path", run)
    assert code == 2
    assert "a damaged bertlab checkpoint: the version of its config" in error
