"""Reading what transformers, in all its ages, has written."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertLMHeadModel,
    BertModel,
)

from bertlab.checkpoints.huggingface import read_huggingface
from bertlab.checkpoints.tensor_files import load_matching
from bertlab.errors import CheckpointError
from bertlab.model.build import build_encoder
from bertlab.tokenizer.files import WordPieceTokenizer
from tests.checkpoints.peers import (
    SPECIAL,
    assert_bit_equal,
    batch_of,
    built,
    padded_inputs,
    peer,
    unpadded,
)

LENGTHS = [7, 48, 1, 20]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BertForPreTraining as transformers writes it today."""
    folder = tmp_path_factory.mktemp("whole")
    peer(BertForPreTraining).save_pretrained(folder)
    return folder


def variant(
    whole: Path,
    folder: Path,
    change: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict,
    **config: object,
) -> Path:
    """A copy of the checkpoint with other tensors or config keys (None removes a key)."""
    folder.mkdir(exist_ok=True)
    content = json.loads((whole / "config.json").read_text()) | config
    content = {key: value for key, value in content.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(content))
    tensors = change(load_file(whole / "model.safetensors"))
    save_file({name: t.clone() for name, t in tensors.items()}, folder / "model.safetensors")
    return folder


def renamed(pattern: str, replacement: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {re.sub(pattern, replacement, n): t for n, t in tensors.items()}


def refusal(folder: Path | str) -> str:
    with pytest.raises(CheckpointError) as error:
        read_huggingface(folder)
    return str(error.value)


def test_hidden_states_and_both_heads_equal_transformers(whole: Path) -> None:
    reference = BertForPreTraining.from_pretrained(whole).eval()
    checkpoint = read_huggingface(whole)
    assert set(checkpoint.task_states) == {"mlm", "nsp"}
    assert checkpoint.unused == []
    encoder, tasks = built(checkpoint)
    batch = batch_of(LENGTHS)
    with torch.no_grad():
        expected = reference(**padded_inputs(batch), output_hidden_states=True)
        output = encoder(batch)
        logits, pairs = tasks["mlm"].logits(output.tokens), tasks["nsp"].classifier(output.pooled)
    close = {"atol": 1e-5, "rtol": 0}
    torch.testing.assert_close(output.tokens, unpadded(batch, expected.hidden_states[-1]), **close)
    torch.testing.assert_close(logits, unpadded(batch, expected.prediction_logits), **close)
    torch.testing.assert_close(pairs, expected.seq_relationship_logits, **close)


def test_a_decoder_is_read_as_causal(tmp_path: Path) -> None:
    reference = peer(BertLMHeadModel, is_decoder=True)
    reference.save_pretrained(tmp_path)
    checkpoint = read_huggingface(tmp_path)
    assert checkpoint.encoder_config["causal"] is True
    assert set(checkpoint.task_states) == {"clm"}
    encoder = build_encoder(checkpoint.encoder_config, checkpoint.vocab_size).eval()
    state = checkpoint.encoder_state
    assert load_matching(encoder, state, "", ["pooler."]).newly_initialized == [
        "pooler.weight",
        "pooler.bias",
    ]
    batch = batch_of(LENGTHS)
    with torch.no_grad():
        hidden = reference.bert(**padded_inputs(batch)).last_hidden_state
        found = encoder(batch).tokens
    torch.testing.assert_close(found, unpadded(batch, hidden), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("model_class", "heads", "unused"),
    [
        (BertModel, set(), []),
        (BertForMaskedLM, {"mlm"}, []),
        (BertForSequenceClassification, set(), []),
    ],
)
def test_every_class_that_holds_a_bert_is_read(
    tmp_path: Path, model_class: type, heads: set[str], unused: list[str]
) -> None:
    peer(model_class).save_pretrained(tmp_path)
    checkpoint = read_huggingface(tmp_path)
    assert set(checkpoint.task_states) == heads
    assert sorted(checkpoint.unused) == sorted(unused)
    has_pooler = "pooler.weight" in checkpoint.encoder_state
    assert has_pooler == (model_class is not BertForMaskedLM)


@pytest.mark.parametrize(
    "change",
    [
        renamed("^", "model."),
        renamed("^", "module."),
        renamed(r"LayerNorm\.weight", "LayerNorm.gamma"),
        renamed(r"LayerNorm\.bias", "LayerNorm.beta"),
        lambda t: t | {"bert.embeddings.position_ids": torch.arange(48)[None]},
        lambda t: (
            t | {"cls.predictions.decoder.weight": t["bert.embeddings.word_embeddings.weight"]}
        ),
        lambda t: t | {"cls.predictions.decoder.bias": t["cls.predictions.bias"]},
        renamed(r"cls\.predictions\.bias", "cls.predictions.decoder.bias"),
    ],
    ids=["model.bert", "module.bert", "gamma", "beta", "ids", "decoder", "bias", "only bias"],
)
def test_other_spellings_read_the_same(
    whole: Path, tmp_path: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]
) -> None:
    expected = read_huggingface(whole)
    found = read_huggingface(variant(whole, tmp_path, change))
    assert_bit_equal(found.encoder_state, expected.encoder_state)
    for task in ("mlm", "nsp"):
        assert_bit_equal(found.task_states[task], expected.task_states[task])
    assert found.unused == []


def test_an_old_config_without_a_model_type_is_read(whole: Path, tmp_path: Path) -> None:
    folder = variant(whole, tmp_path, model_type=None, architectures=None, pad_token_id=None)
    assert read_huggingface(folder).encoder_config == read_huggingface(whole).encoder_config


def test_pytorch_weights_and_shards_are_read(whole: Path, tmp_path: Path) -> None:
    expected = read_huggingface(whole)
    for folder, kind in (("bin", False), ("shards", True)):
        variant(whole, tmp_path / folder)
        tensors = load_file(tmp_path / folder / "model.safetensors")
        (tmp_path / folder / "model.safetensors").unlink()
        torch.save(tensors, tmp_path / folder / ("a.bin" if kind else "pytorch_model.bin"))
        if kind:
            index = {"weight_map": dict.fromkeys(tensors, "a.bin")}
            path = tmp_path / folder / "pytorch_model.bin.index.json"
            path.write_text(json.dumps(index))
        found = read_huggingface(tmp_path / folder)
        assert_bit_equal(found.encoder_state, expected.encoder_state)


def found_word(folder: Path) -> str:
    tokenizer = read_huggingface(folder).tokenizer
    assert tokenizer is not None
    return tokenizer.token(len(SPECIAL))


def test_the_tokenizer_is_found(whole: Path, tmp_path: Path) -> None:
    folder = variant(whole, tmp_path)
    assert read_huggingface(folder).tokenizer is None
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, "plain"]))
    assert found_word(folder) == "plain"
    WordPieceTokenizer.from_vocabulary([*SPECIAL, "better"]).save(folder)
    assert found_word(folder) == "better"  # of tokenizer.json


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("model_type", "albert", "'albert', expected 'bert'"),
        ("hidden_act", "gelu_new", "'gelu_new', expected 'gelu'"),
        ("hidden_act", "relu", "'relu', expected 'gelu'"),
        ("position_embedding_type", "relative_key", "expected 'absolute'"),
        ("add_cross_attention", True, "found add_cross_attention True"),
        ("vocab_size", "97", "vocab_size '97', expected a whole number"),
        ("hidden_size", 0, "hidden_size 0"),
        ("num_hidden_layers", True, "num_hidden_layers True"),
        ("num_hidden_layers", 10**12, "holds 3 layers"),
        ("max_position_embeddings", 10**30, "expected a whole number of at least 1, and below"),
        ("num_attention_heads", 5, "does not divide"),
        ("layer_norm_eps", float("nan"), "layer_norm_eps nan"),
        ("layer_norm_eps", 10**400, "layer_norm_eps 1000"),
        ("hidden_dropout_prob", "0.1", "hidden_dropout_prob '0.1'"),
        ("pad_token_id", -1, "pad_token_id -1"),
    ],
)
def test_a_config_that_is_not_the_papers_bert_is_refused(
    whole: Path, tmp_path: Path, key: str, value: object, words: str
) -> None:
    message = refusal(variant(whole, tmp_path, **{key: value}))
    assert words in message
    assert str(tmp_path) in message
    assert "\n" not in message


@pytest.mark.parametrize("content", ["", "{", "[]", "<html>", "\xff", "[" * 10**5])
def test_a_damaged_config_is_refused(whole: Path, tmp_path: Path, content: str) -> None:
    variant(whole, tmp_path)
    (tmp_path / "config.json").write_bytes(content.encode("latin-1"))
    assert "config.json" in refusal(tmp_path)


def test_tensors_that_differ_from_the_config_are_listed(whole: Path, tmp_path: Path) -> None:
    message = refusal(variant(whole, tmp_path, vocab_size=96, intermediate_size=128))
    assert "embeddings.word_embeddings.weight: tensor (97, 32) float32, config.json (96, 32)" in (
        message
    )
    assert "encoder.layer.2.output.dense.weight: tensor (32, 64)" in message
    assert "predictions.bias: tensor (97,)" in message
    assert message.count(": tensor") == 3 * 3 + 2


def test_another_number_of_layers_is_refused(whole: Path, tmp_path: Path) -> None:
    message = refusal(variant(whole, tmp_path, num_hidden_layers=2))
    assert "holds 3 layers, but config.json beside it says num_hidden_layers 2" in message


def test_missing_tensors_are_listed(whole: Path, tmp_path: Path) -> None:
    name = "bert.encoder.layer.1.attention.self.key.bias"
    folder = variant(whole, tmp_path, lambda t: {n: v for n, v in t.items() if n != name})
    assert name.removeprefix("bert.") in refusal(folder)


def test_half_a_head_is_unused_and_not_taken(whole: Path, tmp_path: Path) -> None:
    name = "cls.predictions.transform.dense.bias"
    checkpoint = read_huggingface(
        variant(whole, tmp_path, lambda t: {n: v for n, v in t.items() if n != name})
    )
    assert set(checkpoint.task_states) == {"nsp"}
    assert "cls.predictions.bias" in checkpoint.unused


@pytest.mark.parametrize(
    ("name", "twin"),
    [
        ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    ],
)
def test_an_untied_decoder_is_refused(whole: Path, tmp_path: Path, name: str, twin: str) -> None:
    for number, change in enumerate((lambda t: t + 1, lambda t: t.half(), lambda t: t[:9])):
        folder = variant(whole, tmp_path / str(number), lambda t, c=change: t | {name: c(t[twin])})
        message = refusal(folder)
        assert name in message
        assert "untied decoders are not supported" in message


def test_no_bert_and_two_berts_are_refused(whole: Path, tmp_path: Path) -> None:
    none = variant(whole, tmp_path / "none", renamed(r"^bert\.", "distilbert."))
    assert "found 0 tensors" in refusal(none)
    two = variant(whole, tmp_path / "two", lambda t: t | renamed("^", "context.")(t))
    assert "found 2 tensors" in refusal(two)


def test_a_folder_without_weights_says_what_it_looked_for(whole: Path, tmp_path: Path) -> None:
    (variant(whole, tmp_path) / "model.safetensors").unlink()
    assert "expected model.safetensors or" in refusal(tmp_path)
    (tmp_path / "no model").mkdir()
    (tmp_path / "no model" / "notes.txt").touch()
    assert "holds no model (notes.txt); expected a run" in refusal(tmp_path / "no model")


def test_a_file_and_a_misspelt_folder_get_advice(whole: Path, tmp_path: Path) -> None:
    folder = variant(whole, tmp_path / "my-bert")
    assert "expected the folder that holds config.json" in refusal(folder / "config.json")
    assert "did you mean 'my-bert'?" in refusal(tmp_path / "my-brt")
    assert "did you mean 'my-bert'?" in refusal(str(tmp_path / "my-brt"))


def test_a_hub_name_is_downloaded_as_safetensors_first(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    tensors = load_file(whole / "model.safetensors")

    def snapshot(name: str, allow_patterns: list[str]) -> str:
        assert name == "someone/bert"
        asked.append(allow_patterns)
        if len(asked) == 2:  # the repository has only a .bin
            torch.save(tensors, tmp_path / "pytorch_model.bin")
        return str(tmp_path)

    (tmp_path / "config.json").write_text((whole / "config.json").read_text())
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    checkpoint = read_huggingface("someone/bert")
    assert checkpoint.source == "someone/bert"
    assert [any(".bin" in p for p in patterns) for patterns in asked] == [False, True]
    assert {p.rsplit(".")[-1] for patterns in asked for p in patterns} == {
        "json",
        "txt",
        "safetensors",
        "bin",
    }


@pytest.mark.parametrize(
    "error", [LocalEntryNotFoundError("offline"), OSError("disk"), ValueError("bad name")]
)
def test_a_hub_that_cannot_help_ends_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def snapshot(name: str, allow_patterns: list[str]) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bert-base-cased").mkdir()
    message = refusal("bert-base-cadse")
    assert "\n" not in message
    assert "did you mean 'bert-base-cased'?" in message


def test_a_local_folder_wins_over_the_hub(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "google-bert").mkdir()
    variant(whole, tmp_path / "google-bert" / "bert-base-uncased")
    assert read_huggingface("google-bert/bert-base-uncased").vocab_size == 97
