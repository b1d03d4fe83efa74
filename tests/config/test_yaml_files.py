"""Config composition: which plugins a command names, and what is left for jsonargparse."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bertlab.config.merge import read_request
from bertlab.config.request import to_arguments
from bertlab.config.yaml_files import differences, read_config, split_arguments
from bertlab.errors import ConfigError

NAMES = st.text("abcdefghijklmnop_", min_size=1, max_size=8)


def write(folder: Path, text: str, name: str = "config.yaml") -> str:
    path = folder / name
    path.write_text(text, "utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("text", "names", "arguments"),
    [
        ("model: {objectives: [mlm, nsp]}", ["mlm", "nsp"], None),
        ("model: {objectives: [mlm: {rate: 0.3}, nsp]}", ["mlm", "nsp"], {"mlm": {"rate": 0.3}}),
        ("model: {objectives: {clm: {}}}", ["clm"], None),
        ("model: {objectives: {mlm: {}, nsp: null}}", ["mlm"], None),
        ("data: {}", ["mlm", "nsp"], None),
        ("", ["mlm", "nsp"], None),
    ],
)
def test_objectives_are_a_list_or_a_mapping(
    tmp_path: Path, text: str, names: list[str], arguments: dict[str, object] | None
) -> None:
    plan = read_request(["--config", write(tmp_path, text)])
    assert plan.objectives == names
    ((_, content),) = plan.files
    assert (content.get("model") or {}).get("objectives") == arguments


def test_later_files_and_arguments_override(tmp_path: Path) -> None:
    first = write(tmp_path, "model: {objectives: {mlm: {rate: 0.2}, nsp: {}}, encoder: bert}")
    second = write(tmp_path, "model: {objectives: {nsp: null}}", "second.yaml")
    assert read_request(["-c", first, f"--config={second}"]).objectives == ["mlm"]
    assert read_request(["-c", first, "--model.objectives.nsp", "null"]).objectives == ["mlm"]
    plan = read_request(["-c", first, "--model.objectives", "[clm: {x: 1}]", "--data.batch_size=4"])
    assert plan.objectives == ["clm"]
    assert plan.values["data"] == {"batch_size": "4"}
    assert plan.values["model"]["objectives"] == {"clm": {"x": 1}}
    assert plan.source["data.batch_size"] == "--data.batch_size"
    assert plan.source["model.objectives.clm.x"] == "--model.objectives"
    assert read_request(["--model.encoder", "elmo", "-c", first]).encoder == "elmo"
    assert read_request(["-c", first, "--model.init_from=runs/a"]).init_from == "runs/a"


def test_a_base_config_is_not_changed() -> None:
    base = {"model": {"objectives": {"mlm": {}, "nsp": {}}}}
    read_request([], base=base)
    assert base == {"model": {"objectives": {"mlm": {}, "nsp": {}}}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\na: 2", "key 'a' is given twice"),
        ("a: [1", "not valid YAML"),
        ("- a", "found list, expected a mapping"),
        ("a: !!python/object/apply:os.system [ls]", "not valid YAML"),
        ("model: 3", "model: found 3"),
        ("model: {objectives: mlm}", "found 'mlm', expected names"),
        ("model: {objectives: [3]}", "found 3"),
        ("model: {objectives: {mlm: 3}}", "'mlm': 3"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError, match=words) as caught:
        read_request(["--config", path])
    assert path in str(caught.value)


@pytest.mark.parametrize("text", ["😀", "a 😀\U0010ffff b", "Größe", "\ufeffa"])
def test_json_is_read_as_json(tmp_path: Path, text: str) -> None:
    config = {"data": {"columns": {text: [text]}}}
    written = json.dumps(config)  # "\ud83d\ude00"
    assert read_config(Path(write(tmp_path, written, "config.json"))) == config


@pytest.mark.parametrize("half", ["\ud83d", "a\ude00", "\ude00\ud83d"])
def test_half_a_character_is_refused_with_its_place(tmp_path: Path, half: str) -> None:
    path = write(tmp_path, json.dumps({"run_dir": half}, indent=1), "config.json")
    with pytest.raises(ConfigError, match=r"config\.json: not .* half a character at line 2,"):
        read_config(Path(path))
    for read in (to_arguments, lambda given: read_request([], base=given)):
        with pytest.raises(ConfigError, match=r"data\.columns\.text: found .*whole characters"):
            read({"data": {"columns": {"text": [half]}}})


def test_missing_and_undecodable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such config file"):
        read_config(tmp_path / "absent.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9")
    with pytest.raises(ConfigError, match="invalid UTF-8 at byte 3"):
        read_config(tmp_path / "latin.yaml")


@pytest.mark.slow
@given(st.lists(st.tuples(NAMES, NAMES, st.booleans())))
def test_arguments_are_split_and_kept_whole(given_arguments: list[tuple[str, str, bool]]) -> None:
    argv: list[str] = []
    for key, value, joined in given_arguments:
        argv += [f"--{key}={value}"] if joined else [f"--{key}", value]
    parts = list(split_arguments(argv))
    assert [token for _, _, tokens in parts for token in tokens] == argv
    assert [(key, value) for key, value, _ in parts] == [
        (f"--{key}", value) for key, value, _ in given_arguments
    ]


def test_differences_name_nested_keys() -> None:
    found = {"a": {"b": 1, "c": 2}, "d": 3}
    expected = {"a": {"b": 1, "c": 5}, "e": 4}
    assert differences(found, expected) == [
        "a.c: 2 here, 5 there",
        "d: 3 here, None there",
        "e: None here, 4 there",
    ]


def test_another_encoder_keeps_the_arguments_that_both_take(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    shared = {"preset": "tiny", "hidden_dropout_prob": 0.0}
    path.write_text(
        yaml.safe_dump({"model": {"encoder": {"name": "modern", "norm": "rms", **shared}}})
    )
    request = read_request(["--config", str(path), "--model.encoder", "bert"])
    ((_, content),) = request.files
    assert content["model"]["encoder"] == {"name": "bert", **shared}
    assert request.left_out == [f"{path}: model.encoder.norm: set for modern, not for bert"]
    assert read_request(["--config", str(path)]).left_out == []


def test_another_head_or_encoder_does_not_get_the_arguments_of_the_files(tmp_path: Path) -> None:
    path = tmp_path / "task.yaml"
    path.write_text("model: {head: {name: span, threshold: 1}, encoder: {name: a, width: 2}}\n")
    plan = read_request(["--config", str(path), "--model.head", "tagging", "--model.encoder", "b"])
    assert (plan.head, plan.encoder) == ("tagging", "b")
    assert plan.files[0][1]["model"] == {"head": {"name": "tagging"}, "encoder": {"name": "b"}}
    same = read_request(["--config", str(path), "--model.head", "span"])
    assert same.files[0][1]["model"]["head"] == {"name": "span", "threshold": 1}
