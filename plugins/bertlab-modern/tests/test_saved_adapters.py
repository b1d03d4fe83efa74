"""Adapters saved alone: small, several on one base, refused on another, and equal to their runs."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

import bertlab
from bertlab.errors import BertlabError
from bertlab_modern.saved_adapters import join_adapter, load_adapter, save_adapter
from tests.conftest import Command

HEADS = {"houses": ("old", "new"), "miles": ("near", "far", "there")}


def fit(folder: Path, rows: Path, base: Path, **changes: Any) -> bertlab.Run:
    """Fine-tune a base for a few steps."""
    given = {
        "seed_everything": 2,
        "model": {"head": {"name": "single_sentence"}, "init_from": str(base)},
        "data": {"source": str(rows), "max_seq_length": 16, "batch_size": 8},
        "trainer": {"max_steps": 3, "accelerator": "cpu", "logger": False},
        "run_dir": str(folder),
    }
    return bertlab.fit(given, {"model.optimizer.learning_rate": 0.01, **changes})


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, tiny_run: Path) -> Path:
    """The tiny run as a folder of Hugging Face's, which any run may begin with."""
    folder = tmp_path_factory.mktemp("base") / "model"
    bertlab.Run(tiny_run).export(folder)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, base: Path) -> dict[str, bertlab.Run]:
    folder = tmp_path_factory.mktemp("adapted")
    found = {}
    for name, labels in HEADS.items():
        rows = folder / f"{name}.jsonl"
        texts = [{"text": f"It is {n} {name}", "label": labels[n % len(labels)]} for n in range(30)]
        rows.write_text("".join(f"{json.dumps(each)}\n" for each in texts))
        adapter = {"model.adapter": {"name": "lora", "rank": 2}}
        found[name] = fit(folder / name, rows, base, **adapter)
    found["top"] = fit(folder / "top", rows, base, **{"model.optimizer.frozen_layers": 1})
    return found


@pytest.fixture(scope="module")
def files(runs: dict[str, bertlab.Run], base: Path) -> dict[str, Path]:
    return {name: save_adapter(run.directory, base, name) for name, run in runs.items()}


def weights(file: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = torch.load(file, weights_only=True)["state_dict"]
    return found


def checkpoint_of(run: bertlab.Run) -> Path:
    return run.directory / "checkpoints" / "last.ckpt"


@pytest.mark.slow
def test_an_adapter_has_only_what_the_base_lacks(
    files: dict[str, Path], runs: dict[str, bertlab.Run], base: Path
) -> None:
    assert files["miles"] == base / "adapters" / "miles.adapter"
    for name in HEADS:
        kept = weights(files[name])
        inside = {each for each in kept if each.startswith("encoder.layers.")}
        assert inside
        assert all(each.endswith(("lora_a", "lora_b")) for each in inside)
        assert "encoder.token_embedding.weight" not in kept
    top = weights(files["top"])
    assert {each.split(".")[2] for each in top if each.startswith("encoder.layers.")} == {"1"}
    for name, file in files.items():
        assert file.stat().st_size < checkpoint_of(runs[name]).stat().st_size / 2


@pytest.mark.slow
def test_it_predicts_as_its_run_from_python_and_the_command(
    files: dict[str, Path], runs: dict[str, bertlab.Run], tmp_path: Path, bertlab: Command
) -> None:
    texts = ["It is 3 miles", "It is old"]
    for name, run in runs.items():
        expected = run.predict(texts)
        assert load_adapter(files[name]).predict(texts) == expected
        assert set(expected[0]["scores"]) == set(HEADS.get(name, HEADS["miles"]))
        output = tmp_path / f"{name}.jsonl"
        code, _, error = bertlab("predict", files[name], "--text", texts[0], "--output", output)
        assert code == 0, error
        row = json.loads(output.read_text("utf-8").splitlines()[0])
        assert row["scores"] == pytest.approx(expected[0]["scores"], abs=1e-5)


@pytest.mark.slow
def test_joined_it_is_the_checkpoint_of_its_run(
    files: dict[str, Path], runs: dict[str, bertlab.Run], tmp_path: Path, bertlab: Command
) -> None:
    for name, run in runs.items():
        code, _, error = bertlab("adapter", files[name], "--join", tmp_path / f"{name}.ckpt")
        assert code == 0, error
        found, expected = weights(tmp_path / f"{name}.ckpt"), weights(checkpoint_of(run))
        assert found.keys() == {each for each in expected if "lora_" not in each}
        assert all(torch.equal(found[each], expected[each]) for each in found)


@pytest.mark.slow
def test_the_adapter_of_another_base_is_refused(
    files: dict[str, Path], runs: dict[str, bertlab.Run], base: Path, tiny_run: Path, tmp_path: Path
) -> None:
    other = bertlab.Run(tiny_run).export(tmp_path / "other").output
    state = next(Path(other).glob("*.safetensors"))
    content = bytearray(state.read_bytes())
    content[-1] ^= 1  # one bit of one weight
    state.write_bytes(content)
    (tmp_path / "other" / "adapters").mkdir()
    moved = tmp_path / "other" / "adapters" / "miles.adapter"
    moved.write_bytes(files["miles"].read_bytes())
    with pytest.raises(BertlabError, match=r"miles.adapter: the adapter of another base: .*other"):
        load_adapter(moved)
    load_adapter(moved, base)  # which is named
    alone = tmp_path / "miles.adapter"
    alone.write_bytes(files["miles"].read_bytes())
    with pytest.raises(BertlabError, match="expected the adapter in the folder adapters of its"):
        load_adapter(alone)
    whole = runs["miles"].directory.parent / "miles.jsonl"
    tuned = fit(tmp_path / "tuned", whole, base)
    with pytest.raises(BertlabError, match="all of the encoder is not as in"):
        save_adapter(tuned.directory, base, "tuned")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scale": "1"}, "a damaged adapter: scale"),
        ({"merged": {}}, "a damaged adapter: merged"),
        ({"names": ["encoder.x"]}, "a damaged adapter: encoder.x is missing"),
        ({"state_dict": {}}, "lora_a and lora_b are missing, or do not fit"),
        ({"rest": {}}, "not a bertlab checkpoint"),
        ({"bertlab_adapter": 9}, "not an adapter that this bertlab reads"),
    ],
)
def test_what_is_damaged_is_refused(
    changes: dict[str, Any], words: str, files: dict[str, Path], tmp_path: Path, base: Path
) -> None:
    content = torch.load(files["miles"], weights_only=True) | changes
    torch.save(content, tmp_path / "bad.adapter")
    with pytest.raises(BertlabError, match=words):
        load_adapter(tmp_path / "bad.adapter", base)


@pytest.mark.slow
def test_a_small_file_does_not_stand_for_a_large_tensor(files: dict[str, Path]) -> None:
    content = torch.load(files["miles"], weights_only=True)
    content["state_dict"]["x"] = torch.zeros(1, 1).expand(10**6, 10**6)
    bad = files["miles"].with_name("bad.adapter")
    torch.save(content, bad)
    with pytest.raises(BertlabError, match=r"bad\.adapter: .*x"):
        load_adapter(bad)
    bad.unlink()


@pytest.mark.slow
@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("adapter", "words"),
    [
        (None, "damaged|NoneType"),
        ({}, "lacks 'rank'"),
        ({"rank": 0, "alpha": 16.0}, "model.adapter.rank: found 0"),
        ({"rank": "two", "alpha": 16.0}, "last.ckpt"),
        ({"rank": 2, "alpha": [1]}, "last.ckpt"),
    ],
)
def test_a_run_whose_config_was_changed_is_refused(
    adapter: object,
    words: str,
    runs: dict[str, bertlab.Run],
    base: Path,
    tmp_path: Path,
    bertlab: Command,
) -> None:
    content = torch.load(checkpoint_of(runs["miles"]), weights_only=False)
    content["bertlab"]["config"]["model"]["adapter"] = adapter
    (tmp_path / "checkpoints").mkdir()
    torch.save(content, tmp_path / "checkpoints" / "last.ckpt")
    code, _, error = bertlab("adapter", tmp_path, "--base", base, "--name", "theirs")
    assert code == 2, error
    assert re.search(words, error)
    assert not (base / "adapters" / "theirs.adapter").exists()


def test_bad_names_and_places_are_refused(
    runs: dict[str, bertlab.Run], files: dict[str, Path], base: Path, bertlab: Command
) -> None:
    run = runs["miles"].directory
    for arguments, words in (
        ((run, "--base", base, "--name", "../x"), "--name: found '../x', expected the name of a"),
        ((run, "--base", "some/hub", "--name", "x"), "some/hub: expected a folder"),
        ((run, "--name", "x"), "expected --base FOLDER and --name NAME, or --join FILE"),
        ((base, "--base", base, "--name", "x"), "no such run or checkpoint of bertlab"),
    ):
        code, _, error = bertlab("adapter", *arguments)
        assert code == 2
        assert words in error
    code, _, error = bertlab("fit", "--ckpt_path", files["miles"])
    assert code == 2
    assert "is an adapter, which fit does not continue" in error


@pytest.mark.slow
def test_nothing_is_replaced_unasked_nor_written_elsewhere(
    runs: dict[str, bertlab.Run],
    files: dict[str, Path],
    base: Path,
    tmp_path: Path,
    bertlab: Command,
) -> None:
    mine, before = tmp_path / "mine.ckpt", files["miles"].read_bytes()
    mine.write_text("mine")
    save = (runs["miles"].directory, "--base", base, "--name", "miles")
    for arguments in (save, (files["miles"], "--join", mine)):
        code, _, error = bertlab("adapter", *arguments)
        assert code == 2
        assert "exists; choose another name, or replace it by --overwrite true" in error
    assert (mine.read_text(), files["miles"].read_bytes()) == ("mine", before)
    assert bertlab("adapter", *save, "--overwrite", "true")[0] == 0
    theirs = shutil.copytree(base, tmp_path / "theirs", ignore=shutil.ignore_patterns("adapters"))
    (tmp_path / "elsewhere").mkdir()
    (theirs / "adapters").symlink_to(tmp_path / "elsewhere")
    code, _, error = bertlab("adapter", save[0], "--base", theirs, "--name", "miles")
    assert code == 2
    assert "adapters: is a link that leads out" in error
    assert not [*(tmp_path / "elsewhere").iterdir()]


@pytest.mark.slow
def test_frozen_layers_get_no_adapter_and_rates_decay(
    runs: dict[str, bertlab.Run], base: Path, tmp_path: Path
) -> None:
    rows = runs["miles"].directory.parent / "miles.jsonl"
    beside = {
        "model.adapter": {"name": "lora", "rank": 2},
        "model.optimizer.frozen_layers": 1,
        "model.optimizer.layer_decay": 0.5,
    }
    run = fit(tmp_path / "run", rows, base, **beside)
    changed = {each for each in weights(checkpoint_of(run)) if each.endswith("lora_b")}
    assert {each.split(".")[2] for each in changed} == {"1"}
    join_adapter(save_adapter(run.directory, base, "upper"), tmp_path / "whole.ckpt")
    assert (tmp_path / "whole.ckpt").exists()


@pytest.mark.slow
def test_a_study_compares_adapters_with_frozen_layers_and_decay(
    runs: dict[str, bertlab.Run], base: Path, tmp_path: Path, bertlab: Command
) -> None:
    rows = runs["miles"].directory.parent / "miles.jsonl"
    fine_tuning = {
        "model": {"head": {"name": "single_sentence"}, "init_from": str(base)},
        "data": {"source": str(rows), "max_seq_length": 16, "batch_size": 8},
        "trainer": {"max_steps": 3, "accelerator": "cpu"},
    }
    (tmp_path / "tune.yaml").write_text(yaml.safe_dump(fine_tuning))
    variants = {
        "all": {},
        "lora": {"model.adapter": {"name": "lora", "rank": 2}},
        "lora on top": {
            "model.adapter": {"name": "lora", "rank": 2},
            "optimizer": {"frozen_layers": 1, "layer_decay": 0.9},
        },
    }
    study = {"base": "tune.yaml", "variants": variants, "seeds": 1, "budget": {"steps": 3}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    code, printed, error = bertlab("study", "plan", tmp_path / "study.yaml")
    assert code == 0, error
    assert "3 runs" in printed
    assert "lora" in printed
