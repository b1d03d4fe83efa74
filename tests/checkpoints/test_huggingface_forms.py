"""Hugging Face forms of other packages: of an encoder of their own, and added to another one."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from bertlab.api.tokenizer import Tokenizer
from bertlab.checkpoints.huggingface import read_huggingface
from bertlab.encoders.bert import BertEncoder
from bertlab.encoders.bert_form import BertForm
from bertlab.errors import CheckpointError
from bertlab.plugins import index
from tests.checkpoints.peers import TOKENIZER, export_huggingface, randomized
from tests.plugins.core_alone import leave_the_core_alone
from tests.plugins.strange_packages import install


class OtherForm(BertForm):
    model_type = "other"


class OtherEncoder(BertEncoder):
    huggingface: ClassVar = (OtherForm(),)


class AddedForm(BertForm):
    model_type = "added"
    extends = "bert"

    def suits(self, encoder: BertEncoder, tokenizer: Tokenizer) -> bool:
        return encoder.type_vocab_size == 1


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    index.forget_installed()


def offer(folder: Path, patch: pytest.MonkeyPatch, groups: Mapping[str, Mapping[str, str]]) -> None:
    install(folder, "stranger", groups, {})
    patch.syspath_prepend(folder)
    index.forget_installed()


def test_an_encoder_of_a_plugin_is_written_and_read_in_its_own_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = {"bertlab.encoders": {"other": f"{__name__}:OtherEncoder"}}
    offer(tmp_path / "site", monkeypatch, group)
    encoder = randomized(OtherEncoder(97, "tiny", num_hidden_layers=1))
    export_huggingface(encoder, {}, TOKENIZER, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == "other"
    found = read_huggingface(tmp_path / "out")
    assert found.encoder_config["name"] == "other"
    assert found.encoder_state.keys() == encoder.state_dict().keys()
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(found.encoder_state[name], tensor), name


def test_a_form_is_added_to_an_encoder_of_another_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {"broken": "no_such_module:Form", "added": f"{__name__}:AddedForm"}
    offer(tmp_path / "site", monkeypatch, {"bertlab.huggingface_forms": broken})
    for segments, expected in ((1, "added"), (2, "bert")):
        encoder = randomized(BertEncoder(97, "tiny", num_hidden_layers=1, type_vocab_size=segments))
        folder = tmp_path / expected
        export_huggingface(encoder, {}, TOKENIZER, folder)
        assert json.loads((folder / "config.json").read_text())["model_type"] == expected
        found = read_huggingface(folder)
        assert found.encoder_config["name"] == "bert"
        for name, tensor in encoder.state_dict().items():
            assert torch.equal(found.encoder_state[name], tensor), name


@pytest.mark.parametrize("model_type", ["roberta", "modernbert"])
def test_a_model_of_a_missing_package_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_type: str
) -> None:
    leave_the_core_alone(monkeypatch)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    with pytest.raises(CheckpointError, match="pip install bertlab-modern") as caught:
        read_huggingface(tmp_path)
    assert f"found model_type '{model_type}', expected 'bert'; it comes" in str(caught.value)
    assert caught.value.code == "E401"
