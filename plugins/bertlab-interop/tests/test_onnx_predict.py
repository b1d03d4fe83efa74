"""An ONNX export predicts as the checkpoint does, and a stranger's folder is data."""

import json
import resource
import shutil
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertlab.api.examples import Labels
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import CheckpointError
from bertlab_interop import onnx_use
from bertlab_interop.export import export_model
from bertlab_interop.exported_model import read_exported
from tests.checkpoints.peers import (
    SIZES,
    TOKENIZER,
    export_huggingface,
    randomized,
    tasks_for,
)
from tests.checkpoints.test_fine_tuned import POLARITY, TAGS, write_run
from tests.conftest import Command

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

TEXTS = [{"text": "a list of names"}, {"text": "return"}, {"text": "the value of a key " * 9}]
PAIRS = [{"text_a": "a list", "text_b": "of names and of keys"}, {"text_a": "x", "text_b": "y"}]
WORDS = [{"words": ["a", "list"]}, {"words": ["names"] * 30}, {"words": []}]
CONTEXT = "the list has names, and each name has a value of its own in the list of values"
QUESTIONS = [{"question": "what has names", "context": CONTEXT * 3, "id": "q"}]
CHOICES = [{"context": "a list", "choices": ["of names", "of"]}]

# outputs pooled or of tokens, one or two of them, of windows, of several rows; an empty row
HEADS: list[tuple[dict[str, Any], Labels | None, list[dict[str, Any]]]] = [
    ({"name": "tagging"}, TAGS, WORDS),
    ({"name": "span", "unanswerable": True}, None, QUESTIONS),
    ({"name": "sentence_pair", "regression": True}, None, PAIRS),
    ({"name": "long_text"}, POLARITY, TEXTS),
    ({"name": "multiple_choice"}, None, CHOICES),
]


# a run's config names every argument
SETTINGS = {
    name: each.default
    for name, each in signature(BertEncoder).parameters.items()
    if name not in SIZES
}


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def predicted(bertlab: Command, *arguments: object) -> list[dict[str, Any]]:
    code, out, error = bertlab("predict", *arguments)
    assert code in (0, 3), error  # 3: a row has an error in place of a prediction
    return [json.loads(line) for line in out.splitlines()]


def assert_close(found: Any, expected: Any, where: str = "") -> None:
    """Equal rows: keys, texts and order as they are, numbers to 1e-4."""
    if isinstance(expected, float):
        assert found == pytest.approx(expected, abs=1e-4), where
    elif isinstance(expected, dict):
        assert list(found) == list(expected), where
        for key, each in expected.items():
            assert_close(found[key], each, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for number, each in enumerate(expected):
            assert_close(found[number], each, f"{where}[{number}]")
    else:
        assert found == expected, where


@pytest.mark.first_slow
@pytest.mark.parametrize(("head", "labels", "rows"), HEADS, ids=[each[0]["name"] for each in HEADS])
def test_the_same_rows_come_out(
    bertlab: Command,
    tmp_path: Path,
    head: dict[str, Any],
    labels: Labels | None,
    rows: list[dict[str, Any]],
) -> None:
    run, out = tmp_path / "run.ckpt", tmp_path / "out"
    write_run(run, head, labels, **SETTINGS)
    export_model(str(run), out, form="onnx")
    given = ("--input", write_rows(tmp_path / "rows.jsonl", rows))
    if head["name"] == "span":
        given = (*given, "--data.max_seq_length", 32)
    expected = predicted(bertlab, run, *given)
    assert_close(predicted(bertlab, out, "--backend", "onnx", *given), expected)


@pytest.mark.nightly
def test_a_fill_in_comes_out(bertlab: Command, tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = randomized(BertEncoder(**SIZES))
    states = {name: task.state_dict() for name, task in tasks_for(encoder).items()}
    export_huggingface(encoder, states, TOKENIZER, tmp_path / "in")
    export_model(str(tmp_path / "in"), tmp_path / "out", form="onnx")
    texts = ("--text", "a list of [MASK]", "--text_pair", "the [MASK]")
    expected = predicted(bertlab, tmp_path / "in", *texts)
    assert {"fillers", "is_next_probability"} <= expected[0].keys()
    assert_close(predicted(bertlab, tmp_path / "out", *texts), expected)
    code, _, error = bertlab("validate", tmp_path / "out")
    assert code == 2
    assert "whose loss an ONNX file does not give; expected predict" in error


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an export beside the run and rows of it."""
    folder = tmp_path_factory.mktemp("export")
    write_run(folder / "run.ckpt", {"name": "single_sentence"}, POLARITY, **SETTINGS)
    export_model(str(folder / "run.ckpt"), folder / "out", form="onnx")
    write_rows(folder / "rows.jsonl", TEXTS)
    return folder / "out"


@pytest.fixture
def mine(exported: Path, tmp_path: Path) -> Path:
    """Return a copy of the export, to be changed."""
    shutil.copytree(exported, tmp_path / "mine")
    return tmp_path / "mine"


@pytest.mark.nightly
def test_an_export_is_found_by_itself_and_scored(bertlab: Command, exported: Path) -> None:
    rows = exported.parent / "rows.jsonl"
    run = exported.parent / "run.ckpt"
    assert_close(
        predicted(bertlab, exported, "--input", rows), predicted(bertlab, run, "--input", rows)
    )
    labelled = write_rows(
        exported.parent / "dev.jsonl",
        [{**row, "label": name} for row, name in zip(TEXTS, POLARITY.names, strict=True)],
    )
    scores = [
        bertlab("validate", model, "--data.validation", labelled)[1] for model in (run, exported)
    ]
    assert scores[0] == scores[1]
    assert "accuracy" in scores[0]


def change_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "config.json"
    content = json.loads(path.read_text("utf-8"))
    change(content)
    path.write_text(json.dumps(content), "utf-8")


def change_file(folder: Path, change: Callable[[Any], object]) -> None:
    model = onnx.load(folder / "model.onnx")
    change(model)
    onnx.save(model, folder / "model.onnx")


def _elsewhere(model: Any, place: str = "../../secret") -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=place)


def _loop(model: Any) -> None:
    inner = onnx.helper.make_graph([], "inner", [], [])
    model.graph.node.append(onnx.helper.make_node("Loop", ["", ""], ["x"], body=inner))


def _grown(model: Any) -> None:
    # 3 billion zeros, of which the largest is added to the logits
    name = model.graph.output[0].name
    last = next(node for node in model.graph.node if name in node.output)
    last.output[list(last.output).index(name)] = "before"
    size = onnx.numpy_helper.from_array(np.array([3000, 1000, 1000]), "size")
    model.graph.initializer.append(size)
    make = onnx.helper.make_node
    model.graph.node.extend(
        [
            make("ConstantOfShape", ["size"], ["zeros"]),
            make("ReduceMax", ["zeros"], ["zero"], keepdims=0),
            make("Add", ["before", "zero"], [name]),
        ]
    )


def _more_labels(content: dict[str, Any]) -> None:
    content["bertlab"]["labels"] = {"names": ["a", "b", "c", "d"], "counts": [1, 1, 1, 1]}


CHANGES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "cut": (
        "model.onnx",
        lambda at: (at / "model.onnx").write_bytes((at / "model.onnx").read_bytes()[:5000]),
        "model.onnx: no whole ONNX file",
    ),
    "empty": ("model.onnx", lambda at: (at / "model.onnx").write_bytes(b""), "has 0 bytes"),
    "elsewhere": (
        "model.onnx",
        lambda at: change_file(at, _elsewhere),
        "are in ['../../secret'], expected model.onnx.data beside it",
    ),
    "link": (
        "model.onnx.data",
        lambda at: (
            change_file(at, lambda model: _elsewhere(model, "model.onnx.data")),
            (at / "model.onnx.data").symlink_to("/etc/hostname"),
        ),
        "no such file in the folder",
    ),
    "loop": ("model.onnx", lambda at: change_file(at, _loop), "no functions, loops, branches"),
    "library": (
        "model.onnx",
        lambda at: change_file(at, lambda m: setattr(m.graph.node[0], "domain", "evil")),
        "found 'evil.",
    ),
    "memory": (
        "model.onnx",
        lambda at: change_file(at, _grown),
        "of memory; expected less, as it has with a smaller --data.batch_size, or "
        "BERTLAB_READING_MB",
    ),
    "labels": (
        "model.onnx",
        lambda at: change_config(at, _more_labels),
        "output logits is (1, 3), expected (1, 4) as config.json beside it says",
    ),
    "class": (
        "config.json",
        lambda at: change_config(
            at, lambda c: c["bertlab"]["config"]["model"].update(metrics={"class_path": "os"})
        ),
        "which names a class",
    ),
    "length": (
        "config.json",
        lambda at: change_config(at, lambda c: c["bertlab"].update(max_position_embeddings=2**60)),
        "max_position_embeddings: found '1152921504606846976', expected 1 to 1,048,576",
    ),
    "stranger": (
        "config.json",
        lambda at: change_config(at, lambda c: c.pop("bertlab")),
        "says nothing of bertlab's model",
    ),
    "no file": ("mine", lambda at: (at / "model.onnx").unlink(), "holds no model.onnx"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_folder_is_one_line(bertlab: Command, mine: Path, name: str) -> None:
    file, change, words = CHANGES[name]
    change(mine)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code, out, error = bertlab("predict", mine, "--backend", "onnx", "--text", "a list")
    assert (code, out, error.count("\n")) == (2, "", 1), error
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000  # kB
    assert file in error
    assert words in error


def test_names_of_what_was_left_out_are_a_list(tmp_path: Path) -> None:
    config = {"seed_everything": 0, "model": {"encoder": {"name": "bert"}, "objectives": {}}}
    config |= {"data": {"max_seq_length": 8}, "trainer": {}}
    content = {"bertlab": {"config": config, "left_out": 5}}
    (tmp_path / "config.json").write_text(json.dumps(content), "utf-8")
    with pytest.raises(CheckpointError, match=r"bertlab\.left_out: found '5', expected a list of"):
        read_exported(tmp_path)


@pytest.mark.nightly
def test_what_the_export_brings_is_a_closed_list(
    bertlab: Command, mine: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    evil = {"output": str(elsewhere), "trainer": {"default_root_dir": str(elsewhere)}}
    change_config(mine, lambda content: content["bertlab"]["config"].update(evil))
    assert predicted(bertlab, mine, "--text", "a list")[0]["label"] in POLARITY.names
    assert not elsewhere.exists()


@pytest.mark.nightly
def test_a_mistake_is_one_line(
    bertlab: Command, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistake(*arguments: object) -> str:
        code, out, error = bertlab(*arguments)
        assert (code, out, error.count("\n")) == (2, "", 1), error
        return error

    use = ("predict", exported, "--text", "a list")
    assert "--backend: found 'onxn', expected onnx" in mistake(*use, "--backend", "onxn")
    found = mistake(*use, "--data.max_seq_length", 4096)
    assert "data.max_seq_length: found 4096" in found
    assert str(SIZES["max_position_embeddings"]) in found
    assert "an ONNX file is not trained" in mistake("fit", "--ckpt_path", exported)
    assert "found no model" in mistake("predict", "--backend", "onnx", "--text", "a list")
    assert "--config: found beside an ONNX export" in mistake(*use, "--config", "quickstart")
    monkeypatch.setattr(onnx_use, "find_spec", lambda name: None)
    assert "onnx and onnxruntime not installed; pip install" in mistake(*use)


@pytest.mark.nightly
def test_a_head_that_is_not_in_the_file_is_named(bertlab: Command, mine: Path) -> None:
    def without(content: dict[str, Any]) -> None:
        content["bertlab"]["config"]["model"] = {"encoder": {"name": "bert"}, "objectives": {}}
        content["bertlab"]["left_out"] = ["feature_tagging"]

    change_config(mine, without)
    code, _, error = bertlab("predict", mine, "--text", "a list")
    assert code == 2
    assert "its feature_tagging has more than one layer; use the model that was exported" in error


@pytest.mark.nightly
def test_an_export_compares_speed_and_scores(bertlab: Command, tmp_path: Path) -> None:
    run, out = tmp_path / "run.ckpt", tmp_path / "out"
    encoder, head = write_run(run, {"name": "single_sentence"}, POLARITY, **SETTINGS)
    labelled = [{"text": "a list of " * n, "label": POLARITY.names[n % 3]} for n in range(1, 41)]
    rows = write_rows(tmp_path / "dev.jsonl", labelled)
    asked = ("--format", "onnx", "--quantize", "int8", "--validation", rows)
    code, printed, error = bertlab("export", run, out, *asked, "--json")
    assert code == 0, error
    (table,) = json.loads(printed)["tables"]
    assert table["headings"] == ["form", "MB", "rows a second", "single_sentence/accuracy"]
    content = json.loads((out / "comparison.json").read_text("utf-8"))
    assert json.loads(printed)["exports"][0]["comparison"] == content
    assert (content["rows"], content["file"]) == (40, "dev.jsonl")
    torch_form, file, small = content["forms"]
    assert [each["form"] for each in content["forms"]] == [row[0] for row in table["rows"]]
    assert small["bytes"] == (out / "model.onnx").stat().st_size < file["bytes"]
    weights = sum(each.numel() for part in (encoder, head) for each in part.parameters())
    assert torch_form["bytes"] == 4 * weights
    assert all(each["rows_per_second"] > 0 for each in content["forms"])
    assert_close(file["results"], torch_form["results"])
    scored = json.loads(bertlab("validate", run, "--data.validation", rows, "--json")[1])
    assert_close(torch_form["results"], scored["results"])


def test_what_cannot_be_compared_is_one_line(bertlab: Command, tmp_path: Path) -> None:
    code, _, error = bertlab("export", tmp_path, tmp_path / "out", "--validation", "dev.csv")
    assert code == 2
    assert "--validation dev.csv: --format transformers has no such report" in error


@pytest.mark.nightly
@pytest.mark.parametrize("rows", ["missing.jsonl", "no truth"])
def test_rows_that_cannot_be_scored_leave_no_export(
    bertlab: Command, tmp_path: Path, rows: str
) -> None:
    run = tmp_path / "run.ckpt"
    write_run(run, {"name": "single_sentence"}, POLARITY, **SETTINGS)
    file = tmp_path / rows if rows[:2] == "mi" else write_rows(tmp_path / "rows.jsonl", TEXTS)
    asked = ("--format", "onnx", "--validation", file)
    code, _, error = bertlab("export", run, tmp_path / "out", *asked)
    assert (code, error.count("\n")) == (2, 1), error
    assert file.name in error
    assert not (tmp_path / "out").exists()
