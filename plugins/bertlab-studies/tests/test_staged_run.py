"""``stages``: several stages of pre-training in one config, each from the checkpoint before."""

import copy
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import bertlab as api
from bertlab.config.checkpoint_config import asks_for_more
from bertlab.config.yaml_files import read_config
from bertlab_studies.plan.stages import share_out
from tests.conftest import Command

STAGES = {
    "causal": {"share": 0.5, "encoder.causal": True, "objectives": ["clm"]},
    "short": {"share": "1/6", "objectives": {"mlm": {"rate": 0.4}, "nsp": None}},
    "long": {"share": "1/3", "data.max_seq_length": 48, "objectives.mlm.rate": 0.15},
}


def checkpoint(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    return content


def assert_same_weights(one: Path, other: Path) -> None:
    ours, theirs = checkpoint(one)["state_dict"], checkpoint(other)["state_dict"]
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.fixture(scope="module")
def config(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    content = yaml.safe_load(tiny_config.read_text("utf-8"))
    content["model"]["encoder"]["hidden_dropout_prob"] = 0.1
    content |= {"stages": STAGES}
    content["model"]["init_optimizer"] = True
    path = tmp_path_factory.mktemp("staged") / "staged.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")
    return path


@pytest.fixture(scope="module")
def staged(config: Path, tmp_path_factory: pytest.TempPathFactory) -> api.Run:
    return api.fit(config, {"run_dir": str(tmp_path_factory.mktemp("runs") / "staged")})


@pytest.mark.slow
def test_each_stage_is_a_run_with_its_share_and_settings(staged: api.Run) -> None:
    assert list(staged.stages) == ["causal", "short", "long"]
    causal, short, long = staged.stages.values()
    assert [run.config["trainer"]["max_steps"] for run in staged.stages.values()] == [3, 1, 2]
    assert [checkpoint(run.directory)["global_step"] for run in (causal, short, long)] == [3, 1, 2]
    assert causal.directory == staged.directory / "stages" / "causal"
    assert long.directory == staged.directory
    assert list(causal.config["model"]["objectives"]) == ["clm"]
    assert [run.config["model"]["encoder"]["causal"] for run in (causal, short)] == [True, False]
    assert [run.config["model"]["objectives"]["mlm"]["rate"] for run in (short, long)] == [
        0.4,
        0.15,
    ]
    assert [run.config["data"]["max_seq_length"] for run in (short, long)] == [32, 48]
    assert "mlm/loss" in staged.metrics
    assert staged.is_finished


@pytest.mark.slow
def test_moments_and_weights_go_from_stage_to_stage(staged: api.Run) -> None:
    ends = [checkpoint(run.directory) for run in staged.stages.values()]
    steps = []
    for end in ends:
        names = end["bertlab"]["optimizer_parameters"]
        state = end["optimizer_states"][0]["state"]
        steps.append({name: int(state[number]["step"]) for number, name in enumerate(names)})
    word = "encoder.token_embedding.weight"
    assert [each[word] for each in steps] == [3, 4, 6]
    assert steps[1]["tasks.mlm.dense.weight"] == 1  # new in this stage
    assert [end["lr_schedulers"][0]["last_epoch"] for end in ends] == [3, 1, 2]


@pytest.mark.slow
def test_a_stage_is_what_fit_makes_of_its_config(
    staged: api.Run, tmp_path: Path, bertlab: Command
) -> None:
    file = staged.stages["short"].directory / "config.yaml"
    code, _, error = bertlab("fit", "--config", file, "--run_dir", tmp_path / "alone")
    assert code == 0, error
    assert_same_weights(tmp_path / "alone", staged.stages["short"].directory)


def test_a_later_stage_reads_other_text(staged: api.Run) -> None:
    causal, short, long = (run.config for run in staged.stages.values())
    assert "seed" not in causal
    assert len({each["seed"]["order"] for each in (short, long)}) == 2
    assert {each["seed_everything"] for each in (causal, short, long)} == {3}


@pytest.mark.slow
def test_the_config_of_the_whole_repeats_it(
    staged: api.Run, tmp_path: Path, bertlab: Command
) -> None:
    whole = staged.directory / "stages.yaml"
    assert [each["name"] for each in read_config(whole)["stages"]] == list(STAGES)
    code, output, error = bertlab("fit", "--config", whole, "--run_dir", tmp_path / "again")
    assert code == 0, error
    assert "stage short, 2 of 3" in output
    assert_same_weights(tmp_path / "again", staged.directory)


@pytest.mark.first_slow
@pytest.mark.parametrize(
    ("stage", "checkpoints"),
    [
        ("short", False),
        pytest.param("causal", True, marks=pytest.mark.slow),
        pytest.param("causal", False, marks=pytest.mark.slow),
        pytest.param("short", True, marks=pytest.mark.slow),
        pytest.param("long", True, marks=pytest.mark.slow),
        pytest.param("long", False, marks=pytest.mark.slow),
    ],
)
def test_a_run_goes_on_in_the_stage_that_it_was_in(
    staged: api.Run, stage: str, checkpoints: bool, tmp_path: Path, bertlab: Command
) -> None:
    run = tmp_path / "run"
    shutil.copytree(staged.directory, run)
    place = run if stage == "long" else run / "stages" / stage
    for name in list(STAGES)[list(STAGES).index(stage) + 1 :]:
        shutil.rmtree(run / "stages" / name, ignore_errors=True)
    if stage != "long":
        for path in run.iterdir():
            if path.name not in ("stages", "stages.yaml"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    (place / "results.json").unlink()
    if not checkpoints:
        shutil.rmtree(place / "checkpoints")
    code, _, error = bertlab("fit", "--ckpt_path", run)
    assert code == 0, error
    assert_same_weights(run, staged.directory)
    assert api.Run(run).metrics == staged.metrics


@pytest.mark.slow
def test_last_finds_the_stage(
    config: Path, staged: api.Run, tmp_path: Path, bertlab: Command
) -> None:
    place = ("--config", config, "--run_dir", tmp_path / "run", "--ckpt_path", "last")
    assert bertlab("fit", *place)[0] == 0  # begins it
    assert_same_weights(tmp_path / "run", staged.directory)
    results = tmp_path / "run" / "stages" / "short" / "results.json"
    before = results.stat().st_mtime_ns
    assert bertlab("fit", *place)[0] == 0
    assert results.stat().st_mtime_ns == before  # what is done is not done again


def test_the_last_stages_model_is_the_runs(config: Path, staged: api.Run, bertlab: Command) -> None:
    for more in ((), ("--config", config)):
        code, output, error = bertlab("validate", *more, "--ckpt_path", staged.directory)
        assert code == 0, error
        assert "mlm" in output


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"stages": {"a": {"share": 1}}}, ["stages: found", "two or more"]),
    ({"stages": 3}, ["stages: found 3"]),
    ({"stages.b": {"share": 0.6}}, ["0.5 + 0.6 = 1.1", "add up to 1"]),
    ({"stages.b": {"share": "x"}}, ["stages.b.share: found 'x'", "between 0 and 1"]),
    ({"stages.b": {}}, ["stages.b.share: found none"]),
    ({"stages.b": 3}, ["stages: found", "expected a mapping or a list of mappings"]),
    ({"stages": [{"share": 0.5}, {"share": 0.5}]}, ["stages: found", "name"]),
    ({"stages": [{"name": "a", "share": 0.5}] * 2}, ["found 'a' twice"]),
    ({"stages": {"../a": {"share": 0.5}, "b": {"share": 0.5}}}, ["found the name '../a'"]),
    (
        {"stages.b": {"share": 0.5, "data.max_seq_lenght": 3}},
        ["stages.b: data.max_seq_lenght", "max_seq_length"],
    ),
    (
        {"stages.b": {"share": 0.5, "data.max_seq_length": 65}},
        ["stages.b: data.max_seq_length: found 65", "at most", "64"],
    ),
    (
        {"stages.b": {"share": 0.5, "trainer.max_steps": 3}},
        ["b: trainer.max_steps", "share"],
    ),
    ({"stages.b": {"share": 0.5, "init_from": "x"}}, ["stages.b: init_from", "the one before"]),
    ({"stages.b": {"share": 0.5, "trainer.callbacks": []}}, ["trainer.callbacks", "whole run"]),
    ({"stages.b": {"share": 0.5, "trainer.devices": 2}}, ["trainer.devices", "whole run"]),
    (
        {"stages.b": {"share": 0.5, "checkpoint.filename": "x"}},
        ["checkpoint.filename"],
    ),
    ({"stages.b": {"share": 0.5, "modell.x": 1}}, ["stages.b: modell.x", "no such key", "model"]),
    ({"stages.b": {"share": 0.5, "seed.masks": 3}}, ["stages.b: seed.masks", "whole run"]),
    ({"stages.b": {"share": 0.5, "encoder.hidden_size": 64}}, ["stages.b: stage a", "hidden_size"]),
    ({"stages.b": {"share": 0.5, "encoder": "modern"}}, ["stages.b: model.encoder: found modern"]),
    ({"stages.b": {"share": 0.5, "objectives": ["clm"]}}, ["stages.b: ", "causal"]),
    (
        {"stages.b": {"share": 0.5, "data.batch_size": 1}, "trainer.accumulate_grad_batches": 3},
        ["stages.b: data.batch_size: 1"],
    ),
    (
        {"stages.b": {"share": 0.5, "optimizer.name": "lion"}, "model.init_optimizer": True},
        ["stages.b: model.init_optimizer", "lion"],
    ),
    ({"trainer.max_steps": 1}, ["stages.a.share: 0.5 of trainer.max_steps, which is 1", "step"]),
    (
        {"trainer.max_steps": -1, "trainer.max_epochs": 3},
        ["stages.a.share: 0.5 of trainer.max_epochs, which is 3, is 1.5", "whole number"],
    ),
    ({"trainer.max_steps": -1}, ["stages: found none to end the run", "max_tokens"]),
    ({"max_tokens": 1e5}, ["found trainer.max_steps and max_tokens to end the run"]),
    (
        {"trainer.max_steps": -1, "max_tokens": 200},
        ["stages.a: max_tokens: found 100", "at least a step's"],
    ),
    (
        {"trainer.max_steps": -1, "max_words": 3e5, "trainer.max_epochs": 1},
        ["max_words", "trainer.max_epochs is 1"],
    ),
    ({"trainer.max_time": "00:00:01:00"}, ["trainer.max_time: found", "beside stages"]),
    ({"checkpoint_words": [1000]}, ["checkpoint_words: found", "beside stages"]),
    ({"checkpoint.dirpath": "x"}, ["checkpoint.dirpath: found x", "last.ckpt"]),
    ({"checkpoint.save_last": False}, ["checkpoint.save_last", "last.ckpt"]),
    ({"keep_predictions": True}, ["keep_predictions: found beside stages"]),
    ({"model.optimizer.schedule_steps": 6}, ["schedule_steps", "model.init_optimizer: true"]),
    (
        {"model.optimizer.schedule_steps": 5, "model.init_optimizer": True},
        ["stages.b: model.optimizer.schedule_steps: found 5", "at least 6"],
    ),
]


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize(("changes", "words"), WRONG)
def test_what_does_not_fit_is_said_before_anything_is_trained(
    changes: dict[str, Any], words: list[str], tiny_config: Path, tmp_path: Path
) -> None:
    stages: dict[str, Any] = {"a": {"share": 0.5}, "b": {"share": 0.5}}
    changes = copy.deepcopy(changes)
    stages |= {"b": changes.pop("stages.b")} if "stages.b" in changes else {}
    overrides = {"stages": stages, **changes, "run_dir": str(tmp_path / "run")}
    with pytest.raises(api.BertlabError) as caught:
        api.fit(tiny_config, overrides)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_another_config_does_not_go_on(config: Path, staged: api.Run, bertlab: Command) -> None:
    changed = ("--config", config, "--ckpt_path", staged.directory, "--stages")
    for stages in ({**STAGES, "long": {"share": "1/3"}}, dict(reversed(STAGES.items()))):
        text = yaml.safe_dump(stages, sort_keys=False, default_flow_style=True)
        code, _, error = bertlab("fit", *changed, text)
        assert code == 2
        assert "stages: " in error


def test_a_run_from_elsewhere_names_no_class(
    staged: api.Run, tmp_path: Path, bertlab: Command
) -> None:
    run = tmp_path / "run"
    shutil.copytree(staged.directory, run)
    content = read_config(run / "stages.yaml")
    hostile: tuple[dict[str, Any], ...] = (
        {"trainer": {**content["trainer"], "callbacks": [{"class_path": "os.system"}]}},
        {
            "stages": [
                {**content["stages"][0], "evaluations": {"class_path": "os.system"}},
                *content["stages"][1:],
            ]
        },
    )
    for each in hostile:
        (run / "stages.yaml").write_text(yaml.safe_dump(content | each), "utf-8")
        code, _, error = bertlab("fit", "--ckpt_path", run)
        assert code == 2
        assert "stages.yaml" in error, error


@pytest.mark.slow
def test_a_stage_begins_on_the_text_of_the_one_before(
    tiny_config: Path, corpus_file: Path, tmp_path: Path, bertlab: Command
) -> None:
    corpus, run = tmp_path / "corpus.txt", tmp_path / "run"
    shutil.copy(corpus_file, corpus)
    stages = "{short: {share: 0.5, data.max_seq_length: 16}, long: {share: 0.5}}"
    arguments = ("--data.corpus", corpus, "--run_dir", run, "--stages", stages)
    assert bertlab("fit", "--config", tiny_config, *arguments)[0] == 0
    for kept in ("checkpoints", "manifest.json", "results.json"):  # the first stage is done
        path = run / kept
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    corpus.write_text(corpus.read_text("utf-8").replace("the", "a", 1), "utf-8")
    code, _, error = bertlab("fit", "--ckpt_path", run)
    assert code == 2
    assert "stages.long: --ckpt_path resumes a run exactly, but its data" in error
    assert f"data.corpus: {corpus}: " in error


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize(
    "settings",
    [
        {"data.num_workers": 2},
        {"data": {"num_workers": 2}},
        {"data": {"objectives": {"cache_dir": "planted"}}},
        {"data.objectives": {"cache_dir": "planted"}},
        {"check_every": 3},
        {"trainer": {"devices": 2}},
    ],
)
@pytest.mark.parametrize("is_list", [True, False])
def test_settings_of_a_stored_stage_are_of_the_closed_list(
    settings: dict[str, Any],
    is_list: bool,
    staged: api.Run,
    tiny_run: Path,
    tmp_path: Path,
    bertlab: Command,
) -> None:
    stages: Any = {"a": {"share": 0.5, "data.batch_size": 4}, "b": {"share": 0.5, **settings}}
    if is_list:
        stages = [{"name": name, **each} for name, each in stages.items()]
    run = tmp_path / "run"
    shutil.copytree(staged.directory, run)
    content = read_config(run / "stages.yaml")
    (run / "stages.yaml").write_text(yaml.safe_dump(content | {"stages": stages}), "utf-8")
    assert asks_for_more(run / "stages.yaml")
    plain = tmp_path / "plain"
    shutil.copytree(tiny_run, plain)
    stored = checkpoint(plain)
    stored["bertlab"]["config"]["stages"] = stages
    torch.save(stored, plain / "checkpoints" / "last.ckpt")
    for each in (run, plain):
        code, _, error = bertlab("fit", "--ckpt_path", each)
        assert code == 2
        assert "error E403: " in error
        assert f"its run has stages.{'1' if is_list else 'b'}." in error


@pytest.mark.slow
def test_stages_of_a_stored_config_may_be_anything(
    staged: api.Run, tmp_path: Path, bertlab: Command
) -> None:
    run = tmp_path / "run"
    shutil.copytree(staged.directory, run)
    content = read_config(run / "stages.yaml")
    assert not asks_for_more(run / "stages.yaml")
    for stages in (3, [3, "x"], {"a": 3}, [[[]]]):
        (run / "stages.yaml").write_text(yaml.safe_dump(content | {"stages": stages}), "utf-8")
        code, _, error = bertlab("fit", "--ckpt_path", run)
        assert code == 2
        assert "stages" in error


def test_a_plain_run_is_no_run_in_stages(
    config: Path, staged: api.Run, tiny_run: Path, bertlab: Command
) -> None:
    code, _, error = bertlab("fit", "--config", config, "--ckpt_path", tiny_run)
    assert code == 2
    assert "is no run in stages" in error
    code, _, error = bertlab("fit", "--config", config, "--run_dir", staged.directory)
    assert code == 2
    assert "already holds a run" in error


@pytest.mark.slow
def test_stages_share_tokens_out(tiny_config: Path, tmp_path: Path) -> None:
    stages = {"a": {"share": 0.75}, "b": {"share": 0.25, "data.max_seq_length": 64}}
    overrides = {"stages": stages, "trainer.max_steps": -1, "max_tokens": 2000}
    run = api.fit(tiny_config, {**overrides, "run_dir": str(tmp_path / "run")})
    tokens = [each.manifest["training_tokens"] for each in run.stages.values()]
    assert tokens == pytest.approx([1500, 500], abs=300)


def test_the_parts_of_a_budget_add_up_to_it() -> None:
    shares = [Fraction(1, 3), Fraction(1, 6), Fraction(1, 2)]
    ends = {"max_steps": -1, "max_epochs": None}
    for key, amount, expected in (
        ("max_steps", 10, [3, 2, 5]),
        ("max_steps", 100, [33, 17, 50]),
        ("max_epochs", 6, [2, 1, 3]),
    ):
        config = {"trainer": {**ends, key: amount}, "max_tokens": None, "max_words": None}
        parts = share_out(config, ["a", "b", "c"], shares)
        assert [each[f"trainer.{key}"] for each in parts] == expected
