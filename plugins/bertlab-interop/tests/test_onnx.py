"""ONNX files give bertlab's logits in onnxruntime, for batches and lengths of any size."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor

from bertlab.api.batch import PackedBatch
from bertlab.api.examples import Labels
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import CheckpointError, ConfigError
from bertlab_interop import onnx_file
from bertlab_interop.export import export_model
from bertlab_modern.modern import ModernEncoder
from tests.checkpoints.peers import (
    SIZES,
    TOKENIZER,
    batch_of,
    export_huggingface,
    padded_inputs,
    randomized,
    tasks_for,
    unpadded,
)
from tests.checkpoints.test_fine_tuned import POLARITY, TAGS, write_run
from tests.conftest import Command

onnxruntime = pytest.importorskip("onnxruntime")
CLOSE = {"atol": 1e-4, "rtol": 0}


def run_file(folder: Path, batch: PackedBatch) -> dict[str, Tensor]:
    """What onnxruntime computes of the padded batch, by the names of the outputs."""
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    inputs = {name: tensor.numpy() for name, tensor in padded_inputs(batch).items()}
    taken = {each.name: inputs[each.name] for each in session.get_inputs()}
    names = [each.name for each in session.get_outputs()]
    found = session.run(names, taken)
    return {name: torch.from_numpy(each) for name, each in zip(names, found, strict=True)}


def packed_logits(encoder: Any, task: Any, batch: PackedBatch) -> Tensor:
    with torch.no_grad():
        output = encoder(batch)
        if hasattr(task, "qa_outputs"):
            return task.qa_outputs(output.tokens)
        return task.classifier(output.pooled if task.uses_pooled else output.tokens)


HEADS = [
    ({"name": "single_sentence"}, POLARITY),
    ({"name": "tagging"}, TAGS),
    ({"name": "span"}, None),
]


# each head on one encoder, the pooled one with the lines of the card; the other with pooled
# states here, with those of tokens below
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("encoder_name", "head_config", "labels"),
    [*(("bert", *head) for head in HEADS[1:]), ("modern", *HEADS[0]), ("causal", *HEADS[0])],
    ids=["tagging-bert", "span-bert", "single-modern", "single-causal"],
)
def test_heads_have_equal_logits(
    tmp_path: Path, encoder_name: str, head_config: dict[str, Any], labels: Labels | None
) -> None:
    sizes = {"bert": {}, "modern": {"local_window": 8}, "causal": {"causal": True}}[encoder_name]
    encoder_name = "bert" if encoder_name == "causal" else encoder_name
    run = tmp_path / "run.ckpt"
    encoder, head = write_run(run, head_config, labels, encoder_name, **sizes)
    report = export_model(str(run), tmp_path / "out", form="onnx")
    check_logits(report.output, head_config["name"], encoder, head)


def check_logits(folder: Path, name: str, encoder: Any, head: Any) -> None:
    """Compare the logits of an export with those of its head, padded and not."""
    for lengths in ([7, 48, 1], [5]):
        batch = batch_of(lengths)
        expected = packed_logits(encoder, head, batch)
        found = run_file(folder, batch)
        if name == "span":
            both = torch.stack([found["start_logits"], found["end_logits"]], -1)
            torch.testing.assert_close(unpadded(batch, both), expected, **CLOSE)
        elif name == "tagging":
            torch.testing.assert_close(unpadded(batch, found["logits"]), expected, **CLOSE)
        else:
            torch.testing.assert_close(found["logits"], expected, **CLOSE)


@pytest.mark.first_slow
@pytest.mark.parametrize("encoder_name", ["bert", "modern"])
def test_masked_lm_has_equal_logits(tmp_path: Path, encoder_name: str) -> None:
    torch.manual_seed(0)
    kind = {"bert": BertEncoder, "modern": ModernEncoder}[encoder_name]
    encoder = randomized(kind(**SIZES, hidden_dropout_prob=0.1))
    tasks = tasks_for(encoder)
    if encoder_name == "modern":  # has no class of transformers for the pair's order
        del tasks["nsp"]
    states = {name: task.state_dict() for name, task in tasks.items()}
    export_huggingface(encoder, states, TOKENIZER, tmp_path / "in")
    export_model(str(tmp_path / "in"), tmp_path / "out", form="onnx")
    content = (tmp_path / "out" / "model.onnx").read_bytes()  # it names no file of this machine
    assert not [
        part for part in (b".py", str(tmp_path).encode(), b"site-packages") if part in content
    ]
    batch = batch_of([20, 3])
    found = run_file(tmp_path / "out", batch)
    with torch.no_grad():
        output = encoder(batch)
        expected = tasks["mlm"].logits(output.tokens)
    name = "logits" if encoder_name == "modern" else "prediction_logits"
    torch.testing.assert_close(unpadded(batch, found[name]), expected, **CLOSE)
    if encoder_name == "bert":
        with torch.no_grad():
            order = tasks["nsp"].classifier(output.pooled)
        torch.testing.assert_close(found["seq_relationship_logits"], order, **CLOSE)


@pytest.mark.nightly
def test_the_lines_of_the_card_run_and_the_logits_are_equal(
    bertlab: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, classifier = write_run(tmp_path / "run.ckpt", {"name": "single_sentence"}, POLARITY)
    arguments = ("export", tmp_path / "run.ckpt", tmp_path / "out", "--format", "onnx")
    code, printed, error = bertlab(*arguments)
    assert (code, error) == (0, "")
    assert printed == f"{tmp_path / 'out'}: logits\n"
    check_logits(tmp_path / "out", "single_sentence", encoder, classifier)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert list(config["id2label"].values()) == list(POLARITY.names)
    assert {each.stat().st_mode & 0o777 for each in (tmp_path / "out").iterdir()} == {0o644}
    card = (tmp_path / "out" / "README.md").read_text()
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(card.split("```python")[1].split("```")[0], names)
    assert names["outputs"][0].shape == (2, 3)
    code, _, error = bertlab(*arguments)
    assert code == 2
    assert "--overwrite true" in error


def test_what_has_no_padded_form_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run.ckpt"
    write_run(run, {"name": "tagging"}, TAGS, bilstm_layers=1)
    with pytest.raises(CheckpointError, match="not written as ONNX: it has a BiLSTM"):
        export_model(str(run), tmp_path / "out", form="onnx")
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_one_line(
    bertlab: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "find_spec", lambda name: None)
    code, _, error = bertlab("export", tmp_path, tmp_path / "out", "--format", "onnx")
    assert code == 2
    assert error.endswith(
        "onnx and onnxscript not installed; pip install 'bertlab-interop[onnx]'\n"
    )


@pytest.mark.nightly
def test_int8_is_smaller_and_close(bertlab: Command, tmp_path: Path) -> None:
    run = tmp_path / "run.ckpt"
    sizes = {"hidden_size": 128, "intermediate_size": 512}
    encoder, head = write_run(run, {"name": "single_sentence"}, POLARITY, **sizes)
    arguments = ("--format", "onnx", "--quantize", "int8")
    code, printed, error = bertlab("export", run, tmp_path / "out", *arguments)
    assert (code, error) == (0, "")
    assert "note: int8: " in printed
    batch = batch_of([7, 48, 1])
    expected = packed_logits(encoder, head, batch)
    found = run_file(tmp_path / "out", batch)["logits"]
    assert 0 < (found - expected).abs().max() < 0.1 * expected.abs().max()
    names = {each.name for each in (tmp_path / "out").iterdir()}
    assert {"model.onnx", "config.json"} <= names
    assert not [name for name in names if name.startswith("tmp")]
    weights = sum(each.numel() for each in encoder.parameters())
    file = tmp_path / "out" / "model.onnx"
    assert file.stat().st_size < 0.4 * 4 * weights
    tensors = [onnx.numpy_helper.to_array(each) for each in onnx.load(file).graph.initializer]
    bytes_of = [each for each in tensors if each.dtype == np.int8 and each.size > 1]
    assert len(bytes_of) > 6
    # two products of a byte and a weight fit into 16 bits, where others would saturate
    assert all(2 * 255 * abs(each.astype(int)).max() < 2**15 for each in bytes_of)


@pytest.mark.nightly
def test_what_int8_cannot_be_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run.ckpt"
    write_run(run, {"name": "single_sentence"}, POLARITY)

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("Could not find an implementation\nfor ConvInteger(10)")

    monkeypatch.setattr("onnxruntime.InferenceSession", refuse)
    reason = r"onnxruntime refuses it \(Could not find an implementation for ConvInteger\(10\)\)"
    with pytest.raises(CheckpointError, match=f"not written in int8: {reason}; leave out"):
        export_model(str(run), tmp_path / "out", form="onnx", settings={"quantize": "int8"})
    assert not (tmp_path / "out").exists()


def test_int8_of_another_form_is_one_line(bertlab: Command, tmp_path: Path) -> None:
    code, _, error = bertlab("export", tmp_path, tmp_path / "out", "--quantize", "int8")
    assert code == 2
    assert (
        "--quantize int8: --format transformers has no such form; expected --format onnx" in error
    )


def test_int8_asks_for_onnxruntime(
    bertlab: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "find_spec", lambda name: None if "runtime" in name else name)
    arguments = ("--format", "onnx", "--quantize", "int8")
    code, _, error = bertlab("export", tmp_path, tmp_path / "out", *arguments)
    assert code == 2
    assert error.endswith("onnxruntime not installed; pip install 'bertlab-interop[onnx]'\n")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quantize": "fp16"}, r"settings\.quantize: found 'fp16', expected int8 or None"),
        (
            {"quantise": "int8"},
            r"found 'quantise'; did you mean 'quantize'\?, expected those of form 'onnx': quant",
        ),
    ],
)
def test_settings_from_python_are_checked(
    tmp_path: Path, settings: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        export_model("nowhere", tmp_path / "out", form="onnx", settings=settings)
