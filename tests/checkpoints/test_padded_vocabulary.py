"""Embeddings of more rows than their tokenizer has ids: padded to a multiple of 64."""

import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import BertForPreTraining

from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.pretrained_model import load
from bertlab.checkpoints.restore import warm_tokenizer
from bertlab.checkpoints.run_checkpoint import read_run_checkpoint
from bertlab.errors import CheckpointError, TokenizerError
from bertlab.tokenizer.files import load_tokenizer
from bertlab.training.run import Run, fit

ROWS = 320  # for the 300 tokens of the tiny run


@pytest.fixture(scope="module")
def padded(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny run as a Hugging Face folder, whose embedding was padded."""
    folder = tmp_path_factory.mktemp("padded") / "model"
    Run(tiny_run).export(folder)
    model = BertForPreTraining.from_pretrained(folder)
    model.resize_token_embeddings(pad_to_multiple_of=64)
    # a row without a token may win
    model.cls.predictions.bias.data[ROWS - 1] = 50.0
    model.save_pretrained(folder)
    return folder


def test_its_scores_are_those_of_transformers(padded: Path) -> None:
    model = load(padded)
    model.tasks["mlm"].top_k = 10**6
    (row,) = model.predict("Some [MASK].")
    found = {each["token"]: each["probability"] for each in row["fillers"][0]}
    assert 0 < len(found) <= model.tokenizer.vocab_size
    ids, _ = model.tokenizer.build_inputs(model.tokenizer.encode("Some [MASK]."))
    with torch.no_grad():
        logits = BertForPreTraining.from_pretrained(padded)(torch.tensor([ids])).prediction_logits
    place = ids.index(model.tokenizer.mask_id)
    assert logits.shape[-1] == ROWS
    theirs = logits[0, place].softmax(-1)[: model.tokenizer.vocab_size]
    assert sum(found.values()) == pytest.approx(theirs.sum().item(), abs=1e-6)


@pytest.mark.nightly
def test_a_run_keeps_the_rows_resumes_and_is_exported(
    padded: Path, tiny_config: Path, tmp_path: Path
) -> None:
    start = {"model.init_from": str(padded), "data.max_seq_length": 32}
    whole = fit(tiny_config, {"run_dir": str(tmp_path / "whole"), **start})
    part = fit(
        tiny_config,
        {
            "run_dir": str(tmp_path / "part"),
            **start,
            "checkpoint.every_n_train_steps": 2,
            "checkpoint.save_top_k": -1,
            "checkpoint.filename": "step-{step}",
        },
    )
    middle, *_ = sorted((part.directory / "checkpoints").glob("step-*2.ckpt"))
    again = fit(None, {"ckpt_path": str(middle), "run_dir": str(tmp_path / "again")})
    states = [
        read_run_checkpoint(run.directory / "checkpoints" / "last.ckpt") for run in (whole, again)
    ]
    assert {each.vocab_size for each in states} == {ROWS}
    for name, tensor in states[0].state.items():
        assert torch.equal(tensor, states[1].state[name])
    whole.export(tmp_path / "out")
    assert load(tmp_path / "out").encoder.vocab_size == ROWS
    assert load(tmp_path / "out").predict("A [MASK].") == whole.predict("A [MASK].")


@pytest.mark.parametrize(
    ("more", "belong"), [(0, True), (4, True), (20, True), (124, True), (10, False), (204, False)]
)
def test_rows_beyond_the_ids_are_padding(padded: Path, more: int, belong: bool) -> None:
    tokenizer = load_tokenizer(padded)
    rows = tokenizer.vocab_size + more
    data: Any = SimpleNamespace(tokenizer_path=None, load_tokenizer=lambda: tokenizer)
    warm = Pretrained("model", {"name": "bert"}, rows, {}, tokenizer)
    told = f"model: its tokenizer has 300 tokens, its encoder {rows} rows, which no padding"
    with nullcontext() if belong else pytest.raises(TokenizerError, match=told):
        assert warm_tokenizer(warm, data).vocab_size == 300


def test_a_tokenizer_that_is_given_has_as_many_ids_but_for_padding(padded: Path) -> None:
    tokenizer = load_tokenizer(padded)  # 300 ids
    data: Any = SimpleNamespace(tokenizer_path=str(padded), load_tokenizer=lambda: tokenizer)
    for rows in (300, 304, 320, 384):
        warm_tokenizer(Pretrained("model", {"name": "bert"}, rows, {}, None), data)
    for rows in (299, 301, 310, 432):
        with pytest.raises(TokenizerError, match=f"has 300 tokens, its encoder {rows}"):
            warm_tokenizer(Pretrained("model", {"name": "bert"}, rows, {}, None), data)


def test_more_ids_than_rows_are_refused(padded: Path) -> None:
    tokenizer = load_tokenizer(padded)
    data: Any = SimpleNamespace(tokenizer_path=None, load_tokenizer=lambda: tokenizer)
    with pytest.raises(CheckpointError, match=r"tokenizer has 300 ids, .* only 299 rows"):
        warm_tokenizer(Pretrained("model", {"name": "bert"}, 299, {}, tokenizer), data)


def test_a_folder_without_tokenizer_is_named_as_that(
    padded: Path, tiny_config: Path, tmp_path: Path
) -> None:
    (tmp_path / "bare").mkdir()
    for name in ("config.json", "model.safetensors"):
        os.link(padded / name, tmp_path / "bare" / name)
    with pytest.raises(TokenizerError, match=r"bare: has no tokenizer .* has 300 tokens, .* 320"):
        fit(
            tiny_config, {"model.init_from": str(tmp_path / "bare"), "run_dir": str(tmp_path / "r")}
        )
