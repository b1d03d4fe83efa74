"""Folders that transformers loads, and the way back."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import (
    AutoTokenizer,
    BertForMaskedLM,
    BertForNextSentencePrediction,
    BertForPreTraining,
    BertLMHeadModel,
    BertModel,
)

from bertlab.api import ExportReport
from bertlab.api.task import Task
from bertlab.checkpoints.huggingface import read_huggingface
from bertlab.checkpoints.tensor_files import load_matching
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import CheckpointError, OutputError
from bertlab.model.build import build_encoder
from bertlab.tokenizer.files import WordPieceTokenizer
from bertlab_interop.export import export_model
from tests.checkpoints.peers import (
    SIZES,
    TOKENIZER,
    assert_bit_equal,
    batch_of,
    export_huggingface,
    padded_inputs,
    randomized,
    tasks_for,
    unpadded,
)

CLOSE = {"atol": 1e-5, "rtol": 0}


def model(**changes: object) -> tuple[BertEncoder, dict[str, Task]]:
    torch.manual_seed(0)
    encoder = randomized(BertEncoder(**(SIZES | changes)))
    return encoder, tasks_for(encoder)


def export(
    encoder: BertEncoder, tasks: dict[str, Task], output: Path, overwrite: bool = False
) -> ExportReport:
    states = {name: task.state_dict() for name, task in tasks.items()}
    return export_huggingface(encoder, states, TOKENIZER, output, overwrite)


def loaded(model_class: type, folder: Path) -> torch.nn.Module:
    """The model as transformers loads it, with nothing initialised anew."""
    found, info = model_class.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["mismatched_keys"]
    return found.eval()


@pytest.mark.first_fast
@pytest.mark.parametrize(
    "changes",
    [{}, {"position_embedding": "sinusoidal"}, {"layer_norm_eps": 1e-3}, {"type_vocab_size": 3}],
    ids=["learned", "sinusoidal", "eps", "segments"],
)
def test_transformers_computes_equal_logits(tmp_path: Path, changes: dict[str, object]) -> None:
    encoder, tasks = model(**changes)
    report = export(encoder, tasks, tmp_path / "out")
    assert report.architecture == "BertForPreTraining"
    assert bool(report.notes) == ("position_embedding" in changes)
    reference = loaded(BertForPreTraining, tmp_path / "out")
    batch = batch_of([7, 48, 1, 20])
    with torch.no_grad():
        expected = reference(**padded_inputs(batch))
        output = encoder(batch)
        logits, pairs = tasks["mlm"].logits(output.tokens), tasks["nsp"].classifier(output.pooled)
    torch.testing.assert_close(logits, unpadded(batch, expected.prediction_logits), **CLOSE)
    torch.testing.assert_close(pairs, expected.seq_relationship_logits, **CLOSE)


@pytest.mark.parametrize(
    ("heads", "model_class"),
    [
        ([], BertModel),
        (["mlm"], BertForMaskedLM),
        (["nsp"], BertForNextSentencePrediction),
        (["mlm", "nsp"], BertForPreTraining),
    ],
)
def test_the_architecture_is_that_of_the_heads(
    tmp_path: Path, heads: list[str], model_class: type
) -> None:
    encoder, tasks = model()
    report = export(encoder, {name: tasks[name] for name in heads}, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert report.architecture == model_class.__name__ == config["architectures"][0]
    loaded(model_class, tmp_path / "out")


def test_a_left_to_right_model_becomes_a_decoder(tmp_path: Path) -> None:
    encoder, tasks = model(causal=True)
    report = export(encoder, tasks, tmp_path / "out")
    assert report.architecture == "BertLMHeadModel"
    assert "pooler_output differs" in report.notes[0]
    assert "'nsp' is not exported" in report.notes[1]
    reference = loaded(BertLMHeadModel, tmp_path / "out")
    batch = batch_of([7, 48, 1])
    with torch.no_grad():
        expected = unpadded(batch, reference(**padded_inputs(batch)).logits)
        found = tasks["clm"].logits(encoder(batch).tokens)
    torch.testing.assert_close(found, expected, **CLOSE)
    assert read_huggingface(tmp_path / "out").encoder_config["causal"] is True


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_the_way_back_is_bit_equal(tmp_path: Path, dtype: torch.dtype, causal: bool) -> None:
    encoder, tasks = model(
        causal=causal, hidden_dropout_prob=0.25, layer_norm_eps=1e-7, pad_token_id=4
    )
    if causal:
        del tasks["nsp"]
    for module in (encoder, *tasks.values()):
        module.to(dtype)
    export(encoder, tasks, tmp_path / "out")
    back = read_huggingface(tmp_path / "out")
    assert back.unused == []
    assert_bit_equal(back.encoder_state, encoder.state_dict())
    assert set(back.task_states) == set(tasks)
    for name, task in tasks.items():
        assert_bit_equal(back.task_states[name], task.state_dict())
    again = build_encoder(back.encoder_config, back.vocab_size)
    for key in back.encoder_config:
        if key not in ("name", "position_embedding"):
            assert getattr(again, key) == getattr(encoder, key), key
    assert load_matching(again, back.encoder_state, "out").newly_initialized == []


def test_sinusoidal_positions_come_back_as_a_table(tmp_path: Path) -> None:
    encoder, tasks = model(position_embedding="sinusoidal")
    report = export(encoder, tasks, tmp_path / "out")
    assert "sinusoidal" in report.notes[0]
    back = read_huggingface(tmp_path / "out")
    assert back.encoder_config["position_embedding"] == "learned"
    assert torch.equal(back.encoder_state["position_embedding.weight"], encoder.sinusoidal_table)


def test_the_tokenizer_and_the_format_go_along(tmp_path: Path) -> None:
    export(*model(), tmp_path / "out")
    peer_tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    text = "w1 w2 W3 w4w5 w77"
    assert peer_tokenizer.encode(text, add_special_tokens=False) == TOKENIZER.encode(text)
    back = read_huggingface(tmp_path / "out").tokenizer
    assert back is not None
    assert back.fingerprint == TOKENIZER.fingerprint
    with safe_open(tmp_path / "out" / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_a_task_without_a_place_is_noted(tmp_path: Path) -> None:
    encoder, tasks = model()
    states = {"order": tasks["nsp"].state_dict()}
    report = export_huggingface(encoder, states, TOKENIZER, tmp_path / "out")
    assert report.architecture == "BertModel"
    assert "'order' is not exported" in report.notes[0]


def files_under(folder: Path) -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture
def untouched(tmp_path: Path) -> Iterator[None]:
    """Fail if the test leaves ``tmp_path`` other than it was."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    before = files_under(tmp_path)
    yield
    assert files_under(tmp_path) == before


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_other_files_is_left_alone(tmp_path: Path, overwrite: bool) -> None:
    with pytest.raises(CheckpointError, match=r"out: "):
        export(*model(), tmp_path / "out", overwrite)
    with pytest.raises(CheckpointError, match="is a file"):
        export(*model(), tmp_path / "out" / "thesis.tex", overwrite)


@pytest.mark.usefixtures("untouched")
def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(WordPieceTokenizer, "save", full)
    with pytest.raises(OutputError, match="No space left on device"):
        export(*model(), tmp_path / "new")


@pytest.mark.usefixtures("untouched")
def test_a_head_with_other_tensors_is_refused(tmp_path: Path) -> None:
    encoder, tasks = model()
    with pytest.raises(CheckpointError, match=r"tasks\.mlm: found .*expected"):
        export(encoder, {"mlm": tasks["nsp"]}, tmp_path / "new")


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("causal", [False, True])
def test_a_bilstm_is_refused(tmp_path: Path, causal: bool) -> None:
    with pytest.raises(CheckpointError, match=r"new: not written: the encoder has a BiLSTM"):
        export(*model(causal=causal, bilstm_layers=1), tmp_path / "new")


@pytest.mark.usefixtures("untouched")
def test_a_tokenizer_with_more_ids_than_the_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="97 ids, but the encoder only 96"):
        export(randomized(BertEncoder(**(SIZES | {"vocab_size": 96}))), {}, tmp_path / "new")


def test_an_older_export_is_replaced_when_asked(tmp_path: Path) -> None:
    encoder, tasks = model()
    export(encoder, {}, tmp_path / "deep" / "out")
    with pytest.raises(CheckpointError, match="not empty"):
        export(encoder, tasks, tmp_path / "deep" / "out")
    export(encoder, tasks, tmp_path / "deep" / "out", overwrite=True)
    assert set(read_huggingface(tmp_path / "deep" / "out").task_states) == {"mlm", "nsp"}
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]
    (tmp_path / "empty").mkdir()
    export(encoder, tasks, tmp_path / "empty")
    assert (tmp_path / "empty").stat().st_mode & 0o055  # readable for others, as umask says


@pytest.mark.parametrize(("given", "written"), [(None, 48), (20, 20), (10**30, 48)])
def test_lengths_are_those_of_the_source(tmp_path: Path, given: int | None, written: int) -> None:
    encoder, _ = model()
    report = export_huggingface(
        encoder, {}, TOKENIZER, tmp_path / "out", model_max_length=given, trained_max_length=16
    )
    assert AutoTokenizer.from_pretrained(report.output).model_max_length == written
    back = read_huggingface(report.output)
    assert (back.model_max_length, back.trained_max_length) == (written, 16)
    export_model(str(report.output), tmp_path / "again")
    again = read_huggingface(tmp_path / "again")
    assert (again.model_max_length, again.trained_max_length) == (written, 16)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_files_have_the_rights_that_umask_leaves(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        export(*model(), tmp_path / "out")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()} == {mode}
