"""What a study file may say, and what is said of one that is wrong."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertlab.config.request import to_arguments
from bertlab.errors import ConfigError
from bertlab_studies.errors import StudyError
from bertlab_studies.plan.budget import budget_settings
from bertlab_studies.plan.study_file import BASE, make_study, with_absolute_paths
from bertlab_studies.plan.variants import read_variants
from bertlab_studies.settings import overridden, parse_settings, read_settings
from bertlab_studies.study import study as open_study
from small_study import TWO, plan_of, read_study, write_study


def test_a_study(tmp_path: Path) -> None:
    study = read_study(
        tmp_path,
        name="does nsp help",
        settings={"trainer": {"val_check_interval": 6}},
        variants={"both": {}, "mlm": {"objectives": {"nsp": None}, "evaluate.head.dropout": 0.2}},
        baseline="mlm",
        seeds=[4, 2],
        evaluate={"one": "task.yaml", "two": {"config": "other.yaml", "step": "best"}},
        evaluate_settings={"trainer.max_epochs": 1},
    )
    assert (study.name, study.baseline, study.seeds) == ("does nsp help", "mlm", (4, 2))
    assert study.settings == {"trainer.val_check_interval": 6}
    both, mlm = study.variants
    assert (both.settings, both.evaluate) == ({}, {})
    assert mlm.settings == {"model.objectives": {"nsp": None}}
    assert mlm.evaluate == {"model.head.dropout": 0.2}
    assert [(each.name, each.config.name, each.step) for each in study.evaluations] == [
        ("one", "task.yaml", "last"),
        ("two", "other.yaml", "best"),
    ]
    assert all(each.settings == {"trainer.max_epochs": 1} for each in study.evaluations)


def test_the_first_variant_is_the_baseline_and_seeds_are_three(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    content = {"name": "s", **yaml.safe_load(path.read_text())}
    del content["seeds"]
    study = make_study(content, "s.yaml", tmp_path)
    assert study.baseline == "both"
    assert study.seeds == (1, 2, 3)


def test_evaluations_as_a_list_are_called_after_their_files(tmp_path: Path) -> None:
    study = read_study(tmp_path, evaluate=["task.yaml", "other.yaml"])
    assert [each.name for each in study.evaluations] == ["task", "other"]


def test_settings_of_an_evaluation_override_those_of_all(tmp_path: Path) -> None:
    study = read_study(
        tmp_path,
        evaluate={"a": {"config": "task.yaml", "settings": {"trainer": {"max_epochs": 9}}}},
        evaluate_settings={"trainer.max_epochs": 1, "data.batch_size": 4},
    )
    assert study.evaluations[0].settings == {"trainer.max_epochs": 9, "data.batch_size": 4}


def test_products_of_axes_and_variants(tmp_path: Path) -> None:
    study = read_study(
        tmp_path,
        variants=TWO,
        axes={
            "objectives.mlm.rate": [0.15, 0.4],
            "unit": {"token": {}, "word": {"objectives.mlm.unit": "whole_word"}},
        },
    )
    assert [variant.name for variant in study.variants] == [
        f"{name} rate={rate} {unit}"
        for name in ("both", "mlm")
        for rate in (0.15, 0.4)
        for unit in ("token", "word")
    ]
    assert study.variants[-1].settings == {
        "model.objectives": {"nsp": None},
        "model.objectives.mlm.rate": 0.4,
        "model.objectives.mlm.unit": "whole_word",
    }


def test_axes_alone_make_variants_named_by_key_and_value(tmp_path: Path) -> None:
    study = read_study(tmp_path, axes={"objectives": [["mlm"], ["mlm", "nsp"]]})
    assert [variant.name for variant in study.variants] == ["objectives=mlm", "objectives=mlm+nsp"]


def test_names_that_yaml_reads_as_numbers(tmp_path: Path) -> None:
    study = read_study(tmp_path, variants={1: {}, 2: {"objectives": ["mlm"]}}, baseline=2)
    assert [variant.name for variant in study.variants] == ["1", "2"]
    assert study.baseline == "2"


def test_the_file_can_be_read_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_study(
        tmp_path / "files",
        evaluate={"a": "task.yaml", "b": {"config": "other.yaml", "metric": "f1", "step": "best"}},
    )
    content = {"name": "s", **yaml.safe_load(path.read_text())}
    monkeypatch.chdir(tmp_path)
    study = make_study(content, "s.yaml", Path("files"))
    absolute = with_absolute_paths(content, study)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert make_study(absolute, "s.yaml", Path()) == study


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"varients": {}}, ["'varients'", "did you mean 'variants'"]),
    ({"base": None}, ["s.yaml: base: found None"]),
    ({"base": "bse.yaml"}, ["bse.yaml: no such config file", "did you mean 'base.yaml'"]),
    ({"baseline": "bth"}, ["baseline: found 'bth'", "did you mean 'both'"]),
    ({"variants": {"a": {}}}, ["variants: found one, expected two or more"]),
    ({"variants": {}}, ["variants: found none"]),
    ({"variants": None}, ["variants: found none"]),
    ({"variants": ["a", "b"]}, ["variants: found ['a', 'b'], expected a mapping"]),
    ({"variants": {"a": {}, "b": "mlm"}}, ["variants.b: found 'mlm'", "config keys and values"]),
    ({"variants": {"1": {}, 1: {"objectives": ["mlm"]}}}, ["variants: '1' is there twice"]),
    ({"variants": {"a": {}, "b": {3: 4}}}, ["variants.b: found the key 3"]),
    ({"axes": {"objectives.mlm.rate": []}}, ["axes.objectives.mlm.rate: found []"]),
    ({"axes": {"objectives.mlm.rate": [0.1, 0.1]}}, ["'rate=0.1' is there twice"]),
    ({"axes": ["objectives.mlm.rate"]}, ["axes: found", "expected a mapping"]),
    ({"seeds": 0}, ["seeds: found 0"]),
    # refused before any of them is made
    ({"seeds": 10**12}, ["seeds: found 1,000,000,000,000, expected at most 10,000"]),
    ({"seeds": {"weights": 500, "order": 500}}, ["found 250,000 combinations of seeds"]),
    ({"seeds": 9000}, ["runs (variants times seeds), expected at most 10,000"]),
    (
        {"axes": {f"data.{key}": list(range(1, 400)) for key in ("batch_size", "max_seq_length")}},
        ["variants, expected at most 10,000"],
    ),
    ({"seeds": [1, 1]}, ["seeds: found [1, 1]"]),
    ({"seeds": "three"}, ["seeds: found 'three'"]),
    ({"seeds": True}, ["seeds: found True"]),
    ({"seeds": [2**32]}, ["found 4294967296"]),
    ({"evaluate": "task.yaml"}, ["evaluate: found 'task.yaml', expected config files"]),
    ({"evaluate": [{"config": "task.yaml"}]}, ["evaluate: found [{", "expected config files"]),
    ({"evaluate": ["tsk.yaml"]}, ["evaluate.tsk", "did you mean 'task.yaml'"]),
    ({"evaluate": ["task.yaml", "./task.yaml"]}, ["evaluate: 'task' is there twice"]),
    ({"evaluate": {"base": "task.yaml"}}, ["'base' is the name of the pre-training"]),
    ({"evaluate": {"a": {"metric": "f1"}}}, ["evaluate.a.config: found None"]),
    ({"evaluate": {"a": {"config": "task.yaml", "metrik": 1}}}, ["did you mean 'metric'"]),
    ({"evaluate": {"a": {"config": "task.yaml", "metric": 1}}}, ["evaluate.a.metric: found 1"]),
    ({"evaluate": {"a": {"config": "task.yaml", "step": 5}}}, ["found 5, expected last or best"]),
    ({"settings": ["a"]}, ["settings: found ['a']"]),
    (
        {"settings": {"encoder.causal": True, "model.encoder.causal": False}},
        ["settings: model.encoder.causal is given twice"],
    ),
    (
        {"settings": {"trainer": {"max_steps": 3}, "trainer.max_steps": 3}},
        ["settings: trainer.max_steps is given twice"],
    ),
    ({"settings": {"seed_everything": 1}}, ["seed_everything: cannot be set", "give the study"]),
    ({"settings": {"run_dir": "x"}}, ["settings: run_dir: cannot be set"]),
    ({"settings": {"config": "x.yaml"}}, ["settings: config: cannot be set"]),
    ({"settings": {"ckpt_path": "x"}}, ["settings: ckpt_path: cannot be set"]),
    ({"variants": {"a": {}, "b": {"evaluate.seeds": 3}}}, ["evaluate.seeds: cannot be set"]),
    ({"variants": {"a": {}, "b": {"evaluate.from_step": 0}}}, ["from_step: found 0"]),
    ({"variants": {"a": {}, "b": {"evaluate": {"from_step": "end"}}}}, ["found 'end'"]),
    ({"name": "../x"}, ["name: found '../x', expected a name without slashes"]),
    ({"name": ".."}, ["name: found '..'"]),
    ({"name": "/abs"}, ["name: found '/abs'"]),
    ({"name": 3}, ["name: found 3"]),
    ({"budget": 5}, ["budget: found 5, expected one of steps, tokens, words, time"]),
    ({"budget": {"steps": 5, "tokens": 9}}, ["budget: found", "expected one of"]),
    ({"budget": {"epochs": 5}}, ["expected one of steps, tokens, words, time"]),
]


@pytest.mark.parametrize(("content", "words"), WRONG, ids=[words[0] for _, words in WRONG])
def test_a_wrong_study_gets_one_line(
    content: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_study(tmp_path, **content)
    message = str(caught.value)
    assert message.startswith("s.yaml: ")
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("given_budget", "key", "value"),
    [
        ({"steps": 10}, "trainer.max_steps", 10),
        ({"tokens": 1_000_000}, "max_tokens", 1e6),
        ({"tokens": "1e6"}, "max_tokens", 1e6),  # what YAML makes of it
        ({"words": "1e6"}, "max_words", 1e6),
        ({"time": "00:01:30:00"}, "trainer.max_time", "00:01:30:00"),
        ({"time": {"hours": 25, "seconds": 1}}, "trainer.max_time", "01:01:00:01"),
    ],
)
def test_a_budget_leaves_no_other_end(
    given_budget: dict[str, Any], key: str, value: object
) -> None:
    found = budget_settings(given_budget, "b")
    assert found.pop(key) == value
    assert all(each in (None, -1) for each in found.values())
    # beside words, max_epochs is no end but a limit
    assert len(found) == (3 if key == "max_words" else 4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"steps": 1.5},
        {"steps": True},
        {"steps": None},
        {"tokens": -1},
        {"words": -1},
        {"tokens": float("nan")},
        {"tokens": float("inf")},
        {"tokens": "many"},
        {"tokens": True},
        {"time": 600},  # what YAML makes of 10:00
        {"time": "10:00"},
        {"time": "00:00:00:00"},
        {"time": {"hour": 1}},
        {"time": {"hours": "one"}},
        {"time": {"hours": float("nan")}},
        {"time": {}},
        {},
    ],
    ids=str,
)
def test_no_amount(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^b(\.\w+)?: found .*, expected "):
        budget_settings(wrong, "b")


@pytest.mark.parametrize(
    ("given_overrides", "expected"),
    [
        ({"encoder.causal": True}, {"model.encoder.causal": True}),
        ({"encoder": {"causal": True}}, {"model.encoder.causal": True}),
        ({"model": {"encoder": {"causal": True}}}, {"model.encoder.causal": True}),
        ({"encoder": "bert"}, {"model.encoder": "bert"}),
        ({"objectives": {"nsp": None}}, {"model.objectives": {"nsp": None}}),
        ({"objectives.nsp": None}, {"model.objectives.nsp": None}),
        ({"from_scratch": True}, {"model.from_scratch": True}),
        ({"data": {"columns": {"text": "t"}}}, {"data.columns": {"text": "t"}}),
        ({"data.columns": {"text": "t"}}, {"data.columns": {"text": "t"}}),
        ({"optimizer.betas": [0.9, 0.98]}, {"model.optimizer.betas": [0.9, 0.98]}),
        ({"evaluate": {"head": {"dropout": 0}}}, {"evaluate.model.head.dropout": 0}),
        ({"evaluate.model.head.dropout": 0}, {"evaluate.model.head.dropout": 0}),
        ({"evaluate": {"from_step": 3}}, {"evaluate.from_step": 3}),
        (None, {}),
    ],
    ids=str,
)
def test_short_keys_and_nested_keys(given_overrides: Any, expected: dict[str, Any]) -> None:
    assert read_settings(given_overrides, "here") == expected


plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    plain, lambda each: st.lists(each) | st.dictionaries(st.text(), each), max_leaves=5
)


@pytest.mark.slow
@given(values)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_arguments_carry_values_unchanged(value: object) -> None:
    (argument,) = to_arguments({"a.b": value})
    assert argument.startswith("--a.b=")
    assert "\n" not in argument
    assert yaml.safe_load(argument.removeprefix("--a.b=")) == value


def test_settings_of_the_command_line() -> None:
    assert parse_settings(["encoder.causal=true", "objectives=[clm]", "x=a=b"], "--set") == {
        "model.encoder.causal": True,
        "model.objectives": ["clm"],
        "x": "a=b",
    }


@pytest.mark.parametrize("wrong", ["x", "=3", "", "x=[", "seed_everything=1"])
def test_wrong_settings_of_the_command_line(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"^--set: "):
        parse_settings([wrong], "--set")


def test_a_variant_that_builds_on_another_has_its_overrides_too() -> None:
    content = {
        "variants": {
            "bert": {"data.batch_size": 8},
            "muon": {"builds_on": "bert", "optimizer.name": "muon"},
            "fast": {"builds_on": "muon", "data.batch_size": 16, "evaluate.head.dropout": 0.0},
        },
        "axes": {"encoder.causal": [False, True]},
    }
    found = {variant.name: variant for variant in read_variants(content, "s.yaml")}
    assert found["fast causal=True"].overrides == {
        "data.batch_size": 16,
        "model.optimizer.name": "muon",
        "model.encoder.causal": True,
        "evaluate.model.head.dropout": 0.0,
    }
    assert found["muon causal=False"].overrides["data.batch_size"] == 8
    assert found["fast causal=True"].builds_on == "muon causal=True"
    assert found["bert causal=True"].builds_on is None


# a key, what lies above it, and the key again: the last word on it counts
FIRST = {"objectives.mlm.rate": 0.3}
ABOVE = {"objectives": {"mlm": {"rate": 0.4}}}
LAST = {"objectives.mlm.rate": 0.2}
COLUMNS = ({"data.columns.text": "a"}, {"data.columns": {"text": "b"}}, {"data.columns.text": "c"})


def test_a_later_override_wins_over_an_earlier_one_above_it(tmp_path: Path) -> None:
    assert [*overridden({"a.b": 1, "a": {"b": 2}}, {"a.b": 3}).items()] == [
        ("a", {"b": 2}),
        ("a.b", 3),
    ]
    both = {**FIRST, **ABOVE}
    built_on: dict[str, Any] = {"one": both, "two": {"builds_on": "one", **LAST}}
    varied = {"variants": {"two": both, "one": {"data.batch_size": 4}}}
    varied |= {"axes": {"objectives.mlm.rate": [0.2]}}
    for content in ({"variants": built_on}, varied):
        plan = plan_of(tmp_path, **content)
        name = "two" if "axes" not in content else "two rate=0.2"
        assert plan.configs[name, BASE]["model"]["objectives"]["mlm"]["rate"] == 0.2
    path = write_study(tmp_path, settings=both)
    study = open_study(path, tmp_path / "place", settings={"model.objectives.mlm.rate": 0.2})
    assert study.planned.configs["both", BASE]["model"]["objectives"]["mlm"]["rate"] == 0.2


@pytest.mark.parametrize("place", ["own", "of one", "of all"])
def test_a_later_setting_of_an_evaluation_wins_over_an_earlier_one_above_it(
    tmp_path: Path, place: str
) -> None:
    (first, above, last), entry = COLUMNS, {"config": "task.yaml"}
    given: dict[str, Any] = {}
    if place == "own":  # the entry's own settings over those of all
        content: dict[str, Any] = {"evaluate_settings": first | above}
        entry |= {"settings": last}
    elif place == "of one":
        content, entry = {}, entry | {"settings": first | above}
        given = {f"x.{key}": value for key, value in last.items()}
    else:
        content, given = {"evaluate_settings": first | above}, last
    path = write_study(tmp_path, evaluate={"x": entry}, **content)
    study = open_study(path, tmp_path / "place", evaluate_settings=given)
    assert study.planned.configs["both", "x"]["data"]["columns"] == {"text": "c"}


BLIMP = {"evaluation": "minimal_pairs", "data": "nowhere.jsonl"}
UNTRAINED: list[tuple[dict[str, Any], str]] = [
    (
        {"evaluate_settings": {"trainer.max_epochs": 1}},
        r"evaluate_settings: found trainer\.max_epochs, but no evaluation is trained",
    ),
    (
        {"seeds": {"pretrain": 2, "finetune": 2}},
        r"seeds\.finetune: found \[1, 2\], but (there is no|no evaluation)",
    ),
    (
        {"variants": {"a": {}, "b": {"evaluate.head.dropout": 0.2}}},
        r"variant b: evaluate: found .*(no evaluation is trained|the study has none)",
    ),
]


@pytest.mark.parametrize("evaluate", [{}, {"blimp": BLIMP}], ids=["none", "untrained"])
@pytest.mark.parametrize(("content", "message"), UNTRAINED)
def test_settings_of_evaluations_where_none_is_trained_are_refused(
    content: dict[str, Any], message: str, evaluate: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(StudyError, match=message):
        plan_of(tmp_path, evaluate=evaluate, **content)
    plan_of(tmp_path, evaluate={**evaluate, "x": "task.yaml"}, **content)


def test_the_step_of_the_weights_may_be_said_where_no_evaluation_is_trained(
    tmp_path: Path,
) -> None:
    variants = {"early": {"evaluate.from_step": 3}, "late": {}}
    plan = plan_of(
        tmp_path,
        evaluate={"blimp": BLIMP},
        variants=variants,
        settings={"checkpoint.save_top_k": -1},
    )
    assert plan.run_of("early", "blimp", 1).id != plan.run_of("late", "blimp", 1).id


def test_an_evaluation_with_a_dot_in_its_name_has_settings_of_its_own(tmp_path: Path) -> None:
    names = ("squad", "squad-v1.1", "squad-v1.1.hard")
    path = write_study(tmp_path, evaluate=dict.fromkeys(names, "task.yaml"))
    given = {f"{names[1]}.trainer.max_epochs": 1, f"{names[2]}.trainer.max_epochs": 5}
    study = open_study(path, tmp_path / "place", evaluate_settings=given)
    found = [study.planned.configs["both", name]["trainer"]["max_epochs"] for name in names]
    assert found == [2, 1, 5]


@pytest.mark.parametrize("name", ["fast", "mion", "slow", 3])
def test_a_variant_builds_only_on_one_above_it(name: object) -> None:
    content = {"variants": {"muon": {}, "fast": {"builds_on": name}, "slow": {}}}
    with pytest.raises(StudyError, match=r"variants\.fast\.builds_on: found .*variant above"):
        read_variants(content, "s.yaml")


def test_a_variant_may_be_the_control_of_another(tmp_path: Path) -> None:
    variants = {"a": {}, "b": {"encoder.hidden_size": 64}}
    control = {"control_of": "b", "trainer.max_steps": 12}
    study = read_study(tmp_path, variants={**variants, "c": control})
    assert [each.control_of for each in study.variants] == [None, None, "b"]
    for of, words in (("x", "found 'x'"), ("c", "found 'c'"), ("a", "the baseline")):
        wrong = {**variants, "c": {**control, "control_of": of}}
        with pytest.raises(StudyError, match=words):
            read_study(tmp_path, variants=wrong)
