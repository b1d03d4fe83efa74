"""Stages that go on with pre-training from a Hugging Face folder, then fine-tune: one config."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import bertlab as api
from bertlab.config.shipped import find_config
from bertlab.config.yaml_files import read_config
from bertlab_studies.plan.stages import read_stages
from tests.conftest import Command

ROWS = [
    {"text": f"{word} the list {number}.", "label": word}
    for number in range(40)
    for word in ("return", "open")
]
HEAD: dict[str, Any] = {"head": "single_sentence"}


@pytest.fixture(scope="module")
def folder(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Hugging Face folder, rows, and the shipped config at a tiny size."""
    made = tmp_path_factory.mktemp("adapted")
    api.Run(tiny_run).export(made / "hf")
    (made / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)), "utf-8")
    return made


@pytest.fixture(scope="module")
def overrides(folder: Path, corpus_file: Path, cache_dir: Path) -> dict[str, Any]:
    tiny = {"data.max_seq_length": 32, "data.batch_size": 4, "trainer.accelerator": "cpu"}
    ends = {"trainer.max_steps": 6, "trainer.val_check_interval": 3, "seed_everything": 3}
    text = {"data.corpus": str(corpus_file), "data.corpus_format": "sentences"}
    shown = {"trainer.enable_progress_bar": False, "data.cache_dir": str(cache_dir)}
    stages = read_config(find_config("recipes/domain-adaptation"))["stages"]
    stages["finetune"]["data"] |= {"source": str(folder / "rows.jsonl"), "max_seq_length": 32}
    stages["finetune"]["trainer"] = {"max_steps": 4}
    start = {"model.init_from": str(folder / "hf"), "data.validation_sequences": 20}
    return {**tiny, **ends, **text, **shown, **start, "stages": stages}


@pytest.fixture(scope="module")
def adapted(overrides: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> api.Run:
    run = tmp_path_factory.mktemp("runs") / "adapted"
    return api.fit("recipes/domain-adaptation", {**overrides, "run_dir": str(run)})


def checkpoint(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    return content


@pytest.mark.slow
def test_it_pre_trains_and_fine_tunes(adapted: api.Run) -> None:
    assert list(adapted.stages) == ["causal", "masked", "finetune"]
    causal, masked, tuned = adapted.stages.values()
    assert [checkpoint(each.directory)["global_step"] for each in (causal, masked, tuned)] == [
        2,
        4,
        4,
    ]
    assert list(causal.config["model"]["objectives"]) == ["clm"]
    assert [each.config["model"]["encoder"]["causal"] for each in (causal, masked, tuned)] == [
        True,
        False,
        False,
    ]
    assert tuned.config["model"]["init_from"] == str(masked.directory)
    assert "single_sentence/accuracy" in adapted.metrics
    assert tuned.directory == adapted.directory
    assert adapted.is_finished


@pytest.mark.slow
def test_the_fine_tuning_has_settings_of_its_own(adapted: api.Run) -> None:
    tuned = adapted.config
    assert tuned["model"]["optimizer"]["learning_rate"] == 2e-5
    assert tuned["data"]["batch_size"] == 32
    assert "corpus" not in tuned["data"]
    assert tuned["seed_everything"] == 3


@pytest.mark.slow
def test_it_predicts_labels(adapted: api.Run) -> None:
    (row,) = adapted.predict(["open the list."])
    assert row["label"] in ("return", "open")


@pytest.mark.slow
def test_the_fine_tuning_alone_gives_the_same(
    adapted: api.Run, tmp_path: Path, bertlab: Command
) -> None:
    file = adapted.directory / "config.yaml"
    code, _, error = bertlab("fit", "--config", file, "--run_dir", tmp_path / "alone")
    assert code == 0, error
    ours, theirs = (
        checkpoint(each)["state_dict"] for each in (adapted.directory, tmp_path / "alone")
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.nightly
def test_it_goes_on_in_the_fine_tuning(adapted: api.Run, tmp_path: Path, bertlab: Command) -> None:
    run = tmp_path / "run"
    shutil.copytree(adapted.directory, run)
    for path in run.iterdir():
        if path.name not in ("stages", "stages.yaml"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    code, output, error = bertlab("fit", "--ckpt_path", run)
    assert code == 0, error
    assert "stage finetune, 3 of 3" in output
    assert "stage masked" not in output
    ours, theirs = (checkpoint(each)["state_dict"] for each in (adapted.directory, run))
    # the weights that it starts from lie elsewhere
    assert ours.keys() == theirs.keys()


@pytest.mark.slow
def test_one_stage_before_needs_no_share(adapted: api.Run) -> None:
    stages = read_stages({"masked": {}, "finetune": HEAD})
    assert [float(each.share) for each in stages] == [1, 0]
    assert read_stages([each.to_dict() for each in stages]) == stages
    recorded = yaml.safe_load((adapted.directory / "stages.yaml").read_text("utf-8"))["stages"]
    assert read_stages(recorded)[-1].fine_tunes


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ({"a": HEAD, "b": {"share": 0.5}}, "stages.a: found a head before the last stage"),
        ({"a": {}, "b": {}}, "stages.a.share: found none, expected a share"),
        ({"a": {}, "b": {**HEAD, "share": 0.5}}, "stages.b.share: found 0.5 beside a head"),
        ({"a": {"trainer.max_steps": 3}, "b": HEAD}, "trainer.max_steps"),
        ({"a": {}, "b": {**HEAD, "run_dir": "x"}}, "run_dir"),
        ({"a": {}, "b": {**HEAD, "data.sourc": "x"}}, "data.sourc"),
        ({"a": {}, "b": {"head": "single_sentense"}}, "did you mean 'single_sentence'"),
    ],
)
def test_mistakes_are_one_line(
    stages: dict[str, Any], words: str, overrides: dict[str, Any], tmp_path: Path, bertlab: Command
) -> None:
    given = {**overrides, "stages": json.dumps(stages), "run_dir": tmp_path / "run"}
    arguments = [part for key, each in given.items() for part in (f"--{key}", each)]
    code, _, error = bertlab("fit", "--config", "recipes/domain-adaptation", *arguments)
    assert code == 2
    assert error.count("\n") == 1, error
    assert words in error
    assert not (tmp_path / "run").exists()


def test_others_point_to_the_run(overrides: dict[str, Any], bertlab: Command) -> None:
    code, _, error = bertlab(
        "validate", "--config", "recipes/domain-adaptation", "--ckpt_path", "x"
    )
    assert code == 2
    assert "expected the run: bertlab validate RUN" in error
