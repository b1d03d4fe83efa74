"""A study that is run again: unchanged, changed, from elsewhere, damaged."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from bertlab.config.yaml_files import read_config
from bertlab.errors import ConfigError
from bertlab_studies.errors import StudyError
from bertlab_studies.folder import read_study
from bertlab_studies.plan.study_file import BASE
from bertlab_studies.study import Study
from bertlab_studies.study import study as open_study
from small_study import TASK, TWO, finish, opened, write_study, write_yaml

EVALUATED: dict[str, Any] = {"evaluate": {"x": "task.yaml"}}


def begun(folder: Path, **content: Any) -> Study:
    """Return a study whose first run is done and whose second one was begun."""
    study = opened(folder, **content)
    assert study.claim(accept_changes=False) == []
    first, second = study.runs[:2]
    finish(study, first, {"mlm/loss": 5.0, "loss": 5.0})
    second.directory(study.study_dir).mkdir(parents=True)
    return study


def content_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_nothing_is_written_before_a_study_is_claimed(tmp_path: Path) -> None:
    study = opened(tmp_path)
    assert not study.study_dir.exists()
    assert [each.name for each in study.scores().measures] == ["mlm loss"]
    assert not study.study_dir.exists()


def test_again_unchanged(tmp_path: Path) -> None:
    study = begun(tmp_path, **EVALUATED)
    before = content_of(study.study_dir)
    again = opened(tmp_path, **EVALUATED)
    assert again.claim(accept_changes=False) == []
    assert content_of(study.study_dir) == before
    assert again.runs == study.runs


def test_the_directory_opens_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_study(Path("files"), **EVALUATED)
    study = open_study("files/study.yaml", "place")
    study.claim(accept_changes=False)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    again = open_study("../../place")
    assert again.runs == study.runs
    assert again.claim(accept_changes=False) == []
    assert again.config == study.config


def test_a_study_is_kept_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_study(tmp_path)
    assert open_study(str(path)).study_dir == Path("runs/studies/study")
    assert open_study(str(write_study(tmp_path, name="a b"))).study_dir == Path("runs/studies/a b")


def test_what_is_more_needs_no_flag(tmp_path: Path) -> None:
    study = begun(tmp_path, **EVALUATED)
    more = {
        "variants": {**TWO, "ltr": {"encoder.causal": True, "objectives": ["clm"]}},
        "evaluate": {"x": "task.yaml", "y": {"config": "other.yaml", "step": "best"}},
        "evaluate_settings": {},
        "seeds": 3,
    }
    again = opened(tmp_path, **more)
    assert {run.id for run in study.runs} <= {run.id for run in again.runs}
    assert again.claim(accept_changes=False) == [
        "seeds: [1, 2, 3] here, [1, 2] there",
        "variant 'ltr': new",
        "evaluation 'y': new",
    ]
    assert again.claim(accept_changes=False) == []


def test_another_name_or_order_keeps_all_runs(tmp_path: Path) -> None:
    study = begun(tmp_path, variants={"a": {}, "b": {"evaluate.head.dropout": 0.2}}, **EVALUATED)
    renamed = {"with dropout": {"evaluate.head.dropout": 0.2}, "without": {}}
    again = opened(tmp_path, variants=renamed, **EVALUATED)
    changes = again.claim(accept_changes=False)
    assert sorted(changes) == sorted(
        f"variant {name!r}: {what}"
        for names, what in ((("with dropout", "without"), "new"), (("a", "b"), "taken out"))
        for name in names
    )
    first, second = study.runs[:2]
    assert again.planned.cells["without", BASE, 1] == first.id
    assert second.id in again.planned.runs


def test_a_change_that_runs_would_be_lost_by(tmp_path: Path) -> None:
    study = begun(tmp_path, **EVALUATED)
    before = content_of(study.study_dir)
    again = opened(tmp_path, settings={"optimizer.learning_rate": 0.01}, **EVALUATED)
    with pytest.raises(ConfigError) as caught:
        again.claim(accept_changes=False)
    message = str(caught.value)
    assert f"{study.study_dir}: the study changed since it was begun" in message
    assert "both: model.optimizer.learning_rate: 0.01 here, 0.0001 there" in message
    assert "0 of its 2 runs can be kept" in message
    assert "--accept_changes true" in message
    assert content_of(study.study_dir) == before
    assert len(again.claim(accept_changes=True)) == 2
    assert again.claim(accept_changes=False) == []
    kept = read_config(study.study_dir / "study.yaml")
    assert kept["settings"] == {"optimizer.learning_rate": 0.01}
    # and back again: what was done is there
    assert opened(tmp_path, settings={}, **EVALUATED).claim(accept_changes=True)
    assert study.runs[0].directory(study.study_dir).is_dir()


def test_a_changed_evaluation_keeps_the_pre_training(tmp_path: Path) -> None:
    study = begun(tmp_path, **EVALUATED)
    write_yaml(tmp_path / "task.yaml", {**TASK, "trainer": {"max_epochs": 3}})
    with pytest.raises(ConfigError) as caught:
        opened(tmp_path, **EVALUATED).claim(accept_changes=False)
    assert "both: x: trainer.max_epochs: 3 here, 2 there" in str(caught.value)
    assert "1 of its 2 runs can be kept" in str(caught.value)
    assert study.runs[0].stage == BASE


def test_many_changes_are_cut_short(tmp_path: Path) -> None:
    begun(tmp_path)
    sizes = {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 20, "causal": False}
    rates = {"learning_rate": 0.1, "eps": 0.1, "weight_decay": 0.2, "warmup_steps": 0.3}
    changed = opened(tmp_path, settings={"encoder": sizes, "optimizer": rates})
    with pytest.raises(ConfigError) as caught:
        changed.claim(accept_changes=False)
    assert "… and 2 more" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 15


def test_runs_that_were_not_begun_are_not_missed(tmp_path: Path) -> None:
    study = opened(tmp_path)
    study.claim(accept_changes=False)
    changes = opened(tmp_path, seeds=[9]).claim(accept_changes=False)
    assert changes == ["seeds: [9] here, [1, 2] there"]


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", "{}", '{"seeds": 3, "runs": [], "configs": {}}', '"x"', "null"]
)
def test_a_damaged_plan(damage: str, tmp_path: Path) -> None:
    study = begun(tmp_path)
    (study.study_dir / "plan.json").write_text(damage, "utf-8")
    with pytest.raises(ConfigError) as caught:
        study.claim(accept_changes=True)
    message = str(caught.value)
    assert message.startswith(f"{study.study_dir / 'plan.json'}: damaged: ")
    assert "\n" not in message
    (study.study_dir / "plan.json").unlink()
    assert study.claim(accept_changes=False) == []


@pytest.mark.parametrize("damage", [b"", b"base: [", b"- a\n", b"\xff\xfe", b"name: 3\n"])
def test_a_damaged_study_file(damage: bytes, tmp_path: Path) -> None:
    study = begun(tmp_path)
    (study.study_dir / "study.yaml").write_bytes(damage)
    with pytest.raises(ConfigError) as caught:
        open_study(str(study.study_dir))
    assert str(caught.value).startswith(f"{study.study_dir / 'study.yaml'}: ")
    assert "\n" not in str(caught.value)


def test_what_is_no_study(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not the directory of a study"):
        open_study(str(tmp_path))
    with pytest.raises(ConfigError, match="no such study file or directory"):
        open_study(str(tmp_path / "none.yaml"))
    study = begun(tmp_path)
    place = study.study_dir
    with pytest.raises(ConfigError, match=f"did you mean '{place}'"):
        open_study(str(place.with_name(place.name[:-1])))
    with pytest.raises(ConfigError, match="is the directory of a study already"):
        open_study(str(study.study_dir), "elsewhere")
    with pytest.raises(ConfigError, match="was begun without it"):
        open_study(str(study.study_dir), settings={"trainer.max_steps": 3})


def test_settings_of_the_command_line_are_kept(tmp_path: Path) -> None:
    path = write_study(tmp_path, settings={"trainer": {"max_steps": 3}}, **EVALUATED)
    place = tmp_path / "place"
    study = open_study(
        str(path),
        str(place),
        settings={"trainer.max_steps": 9},
        evaluate_settings={"trainer.max_epochs": 7},
    )
    study.claim(accept_changes=False)
    again = open_study(str(place))
    for each in (study, again):
        assert each.planned.configs["mlm", BASE]["trainer"]["max_steps"] == 9
        assert each.planned.configs["mlm", "x"]["trainer"]["max_epochs"] == 7


def test_what_repeats_the_study_is_in_its_report(tmp_path: Path) -> None:
    study = begun(tmp_path, **EVALUATED)
    manifest = study.scores().manifest
    assert str(study.study_dir / "study.yaml") in manifest["command"]
    assert Path(manifest["study"]["base"]).is_absolute()
    assert manifest["packages"]["torch"]
    json.dumps(manifest)
    yaml.safe_dump(manifest["study"])


def test_numbers_of_numpy_and_paths_in_a_mapping_are_kept_as_yaml(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    content: dict[str, Any] = {
        "name": "s",
        "base": path.with_name("base.yaml"),
        "variants": {"a": {}, "b": {"optimizer.learning_rate": np.float64(0.5)}},
        "axes": {"data.batch_size": list(np.array([4, 8]))},
        "seeds": [np.int64(3), np.int64(5)],
        "evaluate": {"x": path.with_name("task.yaml")},
    }
    settings = {"trainer.max_steps": np.int64(9)}
    of_evaluations = {"x.trainer.max_epochs": np.int64(7), "data.source": tmp_path / "rows.jsonl"}
    place = tmp_path / "place"
    study = open_study(content, place, settings=settings, evaluate_settings=of_evaluations)
    study.claim(accept_changes=False)
    kept = read_config(place / "study.yaml")
    assert kept["variants"]["b"] == {"optimizer.learning_rate": 0.5}
    assert (kept["seeds"], kept["axes"]) == ([3, 5], {"data.batch_size": [4, 8]})
    again = open_study(str(place))
    assert again.runs == study.runs
    assert again.claim(accept_changes=False) == []
    trained = again.planned.configs["b batch_size=8", "x"]
    assert (trained["trainer"]["max_epochs"], trained["data"]["source"]) == (
        7,
        str(tmp_path / "rows.jsonl"),
    )
    assert again.planned.configs["a batch_size=4", BASE]["trainer"]["max_steps"] == 9


def test_runs_of_an_address_with_a_password_are_those_of_the_study_that_is_kept(
    tmp_path: Path,
) -> None:
    address = "https://me:geheim@127.0.0.1:9/corpus.txt"
    study = opened(tmp_path, settings={"data.corpus": address})
    study.claim(accept_changes=False)
    kept = content_of(study.study_dir)
    assert not any(b"geheim" in each for each in kept.values())
    for again in (
        open_study(str(study.study_dir)),
        opened(tmp_path, settings={"data.corpus": address.replace("geheim", "neu")}),
    ):
        assert [run.id for run in again.runs] == [run.id for run in study.runs]
    other = opened(tmp_path, settings={"data.corpus": address.replace("corpus", "other")})
    assert {run.id for run in other.runs}.isdisjoint(run.id for run in study.runs)


def test_runs_whose_data_differ_in_what_is_hidden_are_two(tmp_path: Path) -> None:
    address = "https://example.org/uc?id="
    variants = {name: {"data.corpus": address + name} for name in ("a", "b")}
    study = opened(tmp_path, variants=variants, seeds=1)
    assert len(study.runs) == 2
    ids = [run.id for run in study.runs]
    assert [run.id for run in opened(tmp_path, variants=variants, seeds=1).runs] == ids


def test_an_evaluation_whose_name_is_a_number_has_settings_of_its_own() -> None:
    content = {"name": "x", "evaluate": {2018: "a.yaml", 2019: "b.yaml"}}
    found, _, _ = read_study(content, None, {"2018.trainer.max_epochs": 1})
    assert found["evaluate"]["2018"]["settings"] == {"trainer.max_epochs": 1}
    assert found["evaluate"]["2019"] == "b.yaml"


def test_a_study_that_was_begun_keeps_settings_that_change_nothing(tmp_path: Path) -> None:
    order = {"order": {"evaluation": "minimal_pairs", "data": "pairs.jsonl"}}
    (tmp_path / "pairs.jsonl").write_text('{"good": "a b", "bad": "b a"}\n', "utf-8")
    given = {"evaluate": order, "evaluate_settings": {"trainer.max_epochs": 1}}
    with pytest.raises(StudyError, match="evaluate_settings: found"):
        opened(tmp_path, **given)
    opened(tmp_path, evaluate=order).claim()
    kept = tmp_path / "study" / "study.yaml"
    kept.write_text(kept.read_text("utf-8") + "evaluate_settings: {trainer.max_epochs: 1}\n")
    assert open_study(str(tmp_path / "study")).runs
