"""Files and arguments become one mapping, each value with its source, and a refusal names it."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch

from bertlab.config.merge import read_request
from bertlab.config.request import to_arguments
from bertlab.config.run_config import parse_request, resolve_request
from bertlab.config.yaml_files import load_yaml, plain, yaml_inline
from bertlab.errors import ConfigError

STRATEGY = "lightning.pytorch.strategies.DDPStrategy"


def write(folder: Path, text: str, name: str = "config.yaml") -> str:
    path = folder / name
    path.write_text(text, "utf-8")
    return str(path)


def trainer(*arguments: str) -> dict[str, Any]:
    section: dict[str, Any] = resolve_request(read_request(arguments))["trainer"]
    return section


def test_each_value_has_its_source(tmp_path: Path) -> None:
    first = write(tmp_path, "data: {corpus: a, batch_size: 4}\ntrainer: {max_steps: 3}\n")
    second = write(tmp_path, "data: {batch_size: 8}\n", "second.yaml")
    request = read_request(["-c", first, "-c", second, "--trainer.max_steps", "5"])
    assert request.values == {
        "data": {"corpus": "a", "batch_size": 8},
        "trainer": {"max_steps": "5"},
    }
    assert request.source == {
        "data.corpus": first,
        "data.batch_size": second,
        "trainer.max_steps": "--trainer.max_steps",
    }
    assert request.part_of(first) == {"data": {"corpus": "a"}}


@pytest.mark.parametrize(
    ("text", "argument", "words"),
    [
        ("data: {batch_size: x}", "", "FILE: data.batch_size: found 'x', expected a whole number"),
        ("data: {batch_size: 8}", "--data.batch_size=x", "data.batch_size: found 'x', expected"),
        ("data: {batch_size: x}", "--data.vocab_size=y", "FILE: data.batch_size: found 'x'"),
        ("data: {batch: 8}", "", "FILE: data.batch: no such key; did you mean 'data.batch_size'?"),
        ("model: {objectives: [mlm: {rate: null}]}", "", "FILE: model.objectives.mlm.rate: found"),
        ("trainer: {max_steps: 3}", "--trainer.max_steps.x=1", "trainer.max_steps: found the key"),
        ("", "--model.encoder.name", "--model.encoder.name: expected a value after it"),
        ("", "--model.objectives+=clm", "model.objectives: is a section, expected a key in it"),
        ("", "--data+=3", "data: is a section, expected a key in it"),
        ("trainer.max_step: 3", "", "FILE: trainer.max_step: no such key; did you mean"),
    ],
)
def test_a_refusal_names_the_file_or_argument(
    tmp_path: Path, text: str, argument: str, words: str
) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        resolve_request(read_request(["-c", file, *([argument] if argument else [])]))
    assert str(caught.value).startswith(words.replace("FILE", file))


def test_what_parses_with_another_value_is_not_refused(tmp_path: Path) -> None:
    file = write(tmp_path, "data: {batch_size: x}")
    config = resolve_request(read_request(["-c", file, "--data.batch_size", "4"]))
    assert config["data"]["batch_size"] == 4


def test_dotted_keys_of_a_file_are_those_of_sections(tmp_path: Path) -> None:
    file = write(
        tmp_path, "trainer.max_steps: 3\ntrainer: {devices: 2}\nmodel.encoder.causal: true"
    )
    config = resolve_request(read_request(["-c", file]))
    assert (config["trainer"]["max_steps"], config["trainer"]["devices"]) == (3, 2)
    assert config["model"]["encoder"]["causal"] is True


@pytest.mark.parametrize(
    "text",
    [
        "trainer.max_steps: 3\ntrainer: {max_steps: 4}",
        "trainer: {max_steps: 4}\ntrainer.max_steps: 4",
        "model: {objectives: {mlm: {rate: 0.3}}, objectives.mlm.rate: 0.3}",
    ],
)
def test_a_key_that_a_file_gives_with_dots_and_without_is_refused(
    tmp_path: Path, text: str
) -> None:
    file = write(tmp_path, text)
    words = rf"{file}: (trainer\.max_steps|model\.objectives\.mlm\.rate): given twice, once with"
    with pytest.raises(ConfigError, match=words):
        read_request(["-c", file])
    write(tmp_path, "trainer: {devices: 1}\ntrainer.max_steps: 3\nmodel: {objectives: [mlm]}")
    assert read_request(["-c", file, "--trainer.max_steps", "5"]).values["trainer"]["devices"] == 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"model.optimizer.name": "lion"}, {"optimizer.name": "lion"}),
        ({"model": {"optimizer.name": "lion"}}, {"optimizer.name": "lion"}),
        (
            {"model": {"optimizer": {"schedule.name": "cosine"}}},
            {"optimizer.schedule": {"name": "cosine", "final": 0.0}},
        ),
        ({"model.objectives.nsp": None}, {"objectives": ["mlm"]}),
        ({"model": {"objectives.nsp": None}}, {"objectives": ["mlm"]}),
        (
            {"model.objectives.mlm.rate": 0.3},
            {"objectives": ["mlm", "nsp"], "objectives.mlm.rate": 0.3},
        ),
        (
            {"model": {"objectives": {"mlm.rate": 0.3}}},
            {"objectives": ["mlm", "nsp"], "objectives.mlm.rate": 0.3},
        ),
        (
            {"model": {"objectives": ["nsp"]}, "model.objectives.mlm.rate": 0.3},
            {"objectives": ["nsp", "mlm"], "objectives.mlm.rate": 0.3},
        ),
        (
            {"model.optimizer": {"name": "lion", "schedule.name": "cosine"}},
            {"optimizer.name": "lion", "optimizer.schedule.name": "cosine"},
        ),
    ],
)
def test_dotted_keys_of_files_and_mappings_name_plugins(
    tmp_path: Path, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    file = write(tmp_path, yaml_inline(given))
    for request in (read_request(["-c", file]), read_request([], base=given)):
        model = resolve_request(request)["model"]
        for key, value in expected.items():
            found = model
            for name in key.split("."):
                found = found[name]
            assert ([*found] if isinstance(value, list) else found) == value


def test_dotted_keys_inside_of_an_argument_name_plugins() -> None:
    for argv in (
        ["--model.optimizer", "{schedule.name: cosine}"],
        ["--model", "{optimizer.schedule.name: cosine}"],
    ):
        model = resolve_request(read_request(argv))["model"]
        assert model["optimizer"]["schedule"]["name"] == "cosine"
    settings = {"model": {"optimizer.name": "lion"}}
    model = resolve_request(read_request([], settings=settings))["model"]
    assert model["optimizer"]["name"] == "lion"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--trainer.strategy=DDPStrategy", "--trainer.strategy.find_unused_parameters=true"],
        [
            "--trainer.strategy.class_path=DDPStrategy",
            "--trainer.strategy.init_args.find_unused_parameters=true",
        ],
        [
            "--trainer.strategy={class_path: DDPStrategy}",
            "--trainer.strategy.find_unused_parameters=true",
        ],
    ],
)
def test_arguments_of_a_class(arguments: list[str]) -> None:
    strategy = trainer(*arguments)["strategy"]
    assert strategy["class_path"] == STRATEGY
    assert "find_unused_parameters" in str(strategy)


def test_callbacks_are_appended_and_the_last_gets_the_arguments() -> None:
    callbacks = trainer(
        "--trainer.callbacks+=LearningRateMonitor",
        "--trainer.callbacks+=EarlyStopping",
        "--trainer.callbacks.monitor=val/loss",
    )["callbacks"]
    assert [each["class_path"].rpartition(".")[2] for each in callbacks] == [
        "LearningRateMonitor",
        "EarlyStopping",
    ]
    assert callbacks[1]["init_args"]["monitor"] == "val/loss"


def test_a_class_of_two_files_has_the_arguments_of_both(tmp_path: Path) -> None:
    files = [
        write(
            tmp_path, f"trainer: {{profiler: {{class_path: SimpleProfiler, init_args: {each}}}}}", n
        )
        for n, each in {"a.yaml": "{filename: a}", "b.yaml": "{dirpath: b}"}.items()
    ]
    arguments = trainer("-c", files[0], "-c", files[1])["profiler"]["init_args"]
    assert (arguments["filename"], arguments["dirpath"]) == ("a", "b")


def test_settings_lie_over_files_and_below_arguments(tmp_path: Path) -> None:
    file = write(tmp_path, "data: {batch_size: 4, vocab_size: 300}")
    settings = {"data.batch_size": 8, "data.vocab_size": 400, "model.objectives": ["mlm"]}
    request = read_request(["-c", file, "--data.vocab_size=500"], settings=settings)
    assert request.values["data"] == {"batch_size": 8, "vocab_size": "500"}
    assert request.objectives == ["mlm"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *(
            (np.float64(1e-4), 1e-4),
            (np.float32(0.5), 0.5),
            (np.int64(3), 3),
            (np.bool_(True), True),
        ),
        *((torch.tensor(0.5), 0.5), (np.array([1, 2]), [1, 2]), ((1, (2,)), [1, [2]])),
        *((Path("a/b"), "a/b"), ({"a": [Path("b"), {"c": np.int64(1)}]}, {"a": ["b", {"c": 1}]})),
    ],
)
def test_a_value_of_python_is_plain(given: object, expected: object) -> None:
    for found in (plain(given), load_yaml(yaml_inline(given))):
        assert repr(found) == repr(expected)


def test_a_mapping_and_overrides_of_python_take_paths_and_numbers_of_numpy(tmp_path: Path) -> None:
    given = {
        "model": {"optimizer": {"learning_rate": np.float64(0.5), "betas": (0.5, 0.75)}},
        "data": {"corpus": tmp_path, "batch_size": np.int64(3)},
    }
    flat = {"model.optimizer": given["model"]["optimizer"], "data": given["data"]}
    for request in (
        *(read_request([], base=given), read_request(to_arguments(given))),
        *(read_request(to_arguments(flat)), read_request([], settings=flat)),
    ):
        found = resolve_request(request)
        assert found["model"]["optimizer"]["learning_rate"] == 0.5
        assert found["model"]["optimizer"]["betas"] == [0.5, 0.75]
        assert (found["data"]["corpus"], found["data"]["batch_size"]) == (str(tmp_path), 3)
    with pytest.raises(ConfigError, match="found object, expected text, numbers, lists or map"):
        to_arguments({"trainer.callbacks": [object()]})
    rows = pandas.DataFrame({"text": ["a"]})
    for read in (to_arguments, lambda given: read_request([], base=given)):
        with pytest.raises(ConfigError, match="found DataFrame, expected a file with rows: its to"):
            read({"data": {"source": rows}})


ODD_TEXTS = (
    *("#MeToo is here", "#", "1", "-1", "1.0", "1e5", "0x1f", "null", "~", "true", "NaN"),
    *("[a]", "[", "{a: 1}", "{", "a: b", "- a", "&a", "*a", "!t", "!!timestamp x", "2020-01-01"),
    *("", " x ", "'q'", "a #b", "%", "@a", "|", ">", "a, b", "[" * 60, "=", "--"),
)


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_a_text_is_taken_as_it_is(text: str) -> None:
    given = read_request([f"--data.text={text}", f"--data.text_pair={text}"])
    values = parse_request(given, "predict").values
    assert values.data.text == [text]
    assert values.data.text_pair == [text]


@pytest.mark.parametrize("model", [[], ["--model.head=single_sentence"]])
def test_several_texts_are_a_list_and_win_over_those_of_files(
    model: list[str], tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text("data: {text: '[a]'}")
    file = [*model, "--config", str(tmp_path / "c.yaml")]
    assert parse_request(read_request(file), "predict").values.data.text == ["[a]"]
    more = [f"--data.text={text}" for text in ODD_TEXTS]
    values = parse_request(read_request([*file, *more]), "predict").values
    assert values.data.text == list(ODD_TEXTS)
    (tmp_path / "c.yaml").write_text("data: {text: ['#a', null]}")
    with pytest.raises(ConfigError, match=r"data\.text"):
        parse_request(read_request(file), "predict")


@pytest.mark.parametrize("path", ["#a", "&a", "a #b"])
def test_a_path_that_yaml_reads_as_nothing_is_a_path(path: str) -> None:
    values = parse_request(read_request([f"--output={path}"]), "predict").values
    assert values.output == path


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("[title, body]", ["title", "body"]),
        ("title", "title"),
        ("3", "3"),
        ("[title", "[title"),
        *[(yaml_inline(each), each) for each in ("Größe", "a: b", "[a]", "null", ["a", "Größe"])],
    ],
)
def test_a_column_on_the_command_line_is_what_it_is_in_a_file(given: str, found: object) -> None:
    head = ("--model.init_from", "x", "--model.head", "single_sentence")
    data = resolve_request(read_request([*head, "--data.columns.text", given]))["data"]
    assert data["columns"] == {"text": found}
    several = ("--model.init_from", "x", "--model.heads.a", "single_sentence")
    arguments = [*several, f"--data.heads.a.columns.text={given}", f"--data.validation.a={given}"]
    assert read_request(arguments).values["data"] == {
        "heads": {"a": {"columns": {"text": found}}},
        "validation": {"a": found},
    }
