"""The held-out loss: equal to transformers' on the same masks, and the same for any batch."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertlab import Example, PackedBatch, load
from bertlab.api import EvaluatedModel
from bertlab.cli.main import main
from bertlab.errors import DataError, EvaluationError
from bertlab.extend import ChangingNumber
from bertlab_evaluations.held_out_loss import HeldOutLoss, _windows

TEXTS = [
    "A statement is executed when the module is imported. Names refer to objects.",
    "yield",
    "The interpreter evaluates unparenthesized expressions, one after another, from left to right. "
    "An assignment evaluates its expression first, and then binds the names on its left.",
]


@pytest.fixture(scope="module")
def model(tiny_run: Path) -> EvaluatedModel:
    made = load(tiny_run).evaluated()
    assert made.language_model[0] is made.tasks["mlm"]  # found by a batch of its own, once
    return made


def rows(texts: list[str] = TEXTS) -> list[Example]:
    return [Example({"text": text}, f"text.txt:{line}") for line, text in enumerate(texts, 1)]


def batches_of(model: EvaluatedModel, evaluation: HeldOutLoss) -> list[PackedBatch]:
    """What the encoder is given while the evaluation runs."""
    found: list[PackedBatch] = []
    hook = model.encoder.register_forward_pre_hook(lambda _, given: found.append(given[0]))
    evaluation.evaluate(model, rows())
    hook.remove()
    return found


@pytest.fixture(scope="module")
def peer(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> torch.nn.Module:
    """The same model in transformers."""
    from transformers import BertForMaskedLM

    folder = tmp_path_factory.mktemp("peer") / "hf"
    assert main(["export", str(tiny_run), str(folder)]) == 0
    return BertForMaskedLM.from_pretrained(folder).eval()


class Peers:
    """Losses that transformers gives to the inputs of some batches."""

    def __init__(self, peer: torch.nn.Module, mask_id: int, batches: list[PackedBatch]) -> None:
        self.losses: list[float] = []
        self.right: list[bool] = []
        self.at_mask: list[float] = []
        self.inputs: list[int] = []
        for batch in batches:
            labels = torch.full_like(batch.input_ids, -100)
            written = batch.token_labels("mlm")
            labels[written.positions] = written.labels
            parts = batch.lengths.tolist()
            for ids, wanted in zip(batch.input_ids.split(parts), labels.split(parts), strict=True):
                with torch.no_grad():
                    logits = peer(ids[None]).logits[0].double()
                for place in torch.nonzero(wanted != -100).flatten().tolist():
                    loss = -logits[place].log_softmax(-1)[wanted[place]].item()
                    self.losses.append(loss)
                    self.right.append(bool(logits[place].argmax() == wanted[place]))
                    self.inputs.append(int(ids[place]))
                    self.at_mask += [loss] if ids[place] == mask_id else []


@pytest.mark.slow
def test_the_loss_is_that_of_transformers_on_the_same_masks(model, peer):
    evaluation = HeldOutLoss(max_seq_length=16, single_tokens=0)
    found = Peers(peer, model.tokenizer.mask_id, batches_of(model, evaluation))
    metrics = evaluation.evaluate(model, rows()).metrics
    assert len(found.losses) > 5
    assert metrics["loss"] == pytest.approx(np.mean(found.losses), rel=1e-5)
    assert metrics["accuracy"] == np.mean(found.right)
    assert 0 < len(found.at_mask) < len(found.losses)
    assert metrics["mask_loss"] == pytest.approx(np.mean(found.at_mask), rel=1e-5)
    assert metrics["perplexity"] == pytest.approx(math.exp(np.mean(found.losses)), rel=1e-4)
    assert metrics["trained_loss"] == metrics["loss"]  # it was trained at 15 %, 80/10/10
    assert "pll_loss" not in metrics


@pytest.mark.slow
def test_masked_as_trained_it_is_that_of_transformers_at_these_masks(model, peer, monkeypatch):
    standard = HeldOutLoss(max_seq_length=16).evaluate(model, rows()).metrics
    recipe = replace(
        model.tasks["mlm"].recipe, rate=0.4, mask_share=1.0, random_share=0.0, keep_share=0.0
    )
    monkeypatch.setattr(model.tasks["mlm"], "recipe", recipe)
    evaluation = HeldOutLoss(max_seq_length=16, single_tokens=0)
    as_trained = batches_of(model, evaluation)[1::2]  # each window is masked in both ways
    found = Peers(peer, model.tokenizer.mask_id, as_trained)
    metrics = HeldOutLoss(max_seq_length=16).evaluate(model, rows()).metrics
    assert len(found.at_mask) == len(found.losses) > 15
    assert metrics["trained_loss"] == pytest.approx(np.mean(found.losses), rel=1e-5)
    others = metrics.keys() - {"trained_loss"}
    assert {name: metrics[name] for name in others} == {name: standard[name] for name in others}


def test_a_changing_rate_is_that_of_the_last_step(model, monkeypatch):
    rate = {"from": 1.0, "to": 0.15}
    changing = ChangingNumber.read(rate, "model.objectives.mlm.rate")
    standard = HeldOutLoss(max_seq_length=16).evaluate(model, rows()).metrics
    monkeypatch.setattr(model.tasks["mlm"], "rate", changing)
    monkeypatch.setattr(model.tasks["mlm"], "evaluation", "training")
    assert HeldOutLoss(max_seq_length=16).evaluate(model, rows()).metrics == standard


def words_and_losses(model, peer, max_seq_length):
    """For each token of the text that is not special: is it a word, and its loss when masked."""
    found = []
    for text in TEXTS:
        pieces = model.tokenizer.encode(text)
        for window in _windows(pieces, max_seq_length - 2):
            ids = torch.tensor([model.tokenizer.build_inputs(window)[0]])
            names = [model.tokenizer.token(each) for each in window]
            for place, (own, after) in enumerate(zip(names, [*names[1:], ""], strict=True)):
                if own == "[UNK]":
                    continue
                masked = ids.clone()
                masked[0, place + 1] = model.tokenizer.mask_id
                with torch.no_grad():
                    scores = peer(masked).logits[0, place + 1].double().log_softmax(-1)
                is_word = not own.startswith("##") and not after.startswith("##")
                found.append((is_word, -scores[window[place]].item()))
    return found


@pytest.mark.slow
def test_single_tokens_have_the_pseudo_log_likelihood_of_transformers(model, peer):
    found = words_and_losses(model, peer, 16)
    words = [loss for is_word, loss in found if is_word]
    result = HeldOutLoss(max_seq_length=16).evaluate(model, rows())
    assert 0 < len(words) < len(found)
    assert result.metrics["pll_loss"] == pytest.approx(np.mean([x for _, x in found]), rel=1e-5)
    assert result.metrics["word_pll_loss"] == pytest.approx(np.mean(words), rel=1e-5)
    assert f"pll_loss: {len(found)} tokens" in result.notes


@pytest.mark.slow
def test_a_sample_of_single_tokens_is_of_the_text(model, peer):
    found = [loss for _, loss in words_and_losses(model, peer, 16)]
    result = HeldOutLoss(max_seq_length=16, single_tokens=9).evaluate(model, rows())
    assert "pll_loss: 9 tokens" in result.notes
    again = HeldOutLoss(max_seq_length=16, single_tokens=9, batch_tokens=1).evaluate(model, rows())
    assert again.metrics["pll_loss"] == pytest.approx(result.metrics["pll_loss"], rel=1e-6)
    assert min(found) < result.metrics["pll_loss"] < max(found)
    assert result.metrics["pll_loss"] != pytest.approx(np.mean(found), rel=1e-3)


def test_rows_have_scores_of_each_reading(model):
    result = HeldOutLoss(max_seq_length=16).evaluate(model, rows())
    for name in ("mask_loss", "trained_loss", "pll_loss", "word_pll_loss"):
        assert np.mean(result.details[name]) == pytest.approx(result.metrics[name], rel=1e-12)


def test_the_text_is_read_once_and_masked_as_bert_does(model):
    text = " ".join(TEXTS) * 60
    evaluation = HeldOutLoss(max_seq_length=32, single_tokens=0)
    seen: list[PackedBatch] = []
    hook = model.encoder.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    evaluation.evaluate(model, rows([text]))
    hook.remove()
    inputs, originals, masked = [], [], 0
    for batch in seen:
        restored = batch.input_ids.clone()
        written = batch.token_labels("mlm")
        restored[written.positions] = written.labels
        assert batch.lengths.max() <= 32
        for each in restored.split(batch.lengths.tolist()):
            originals += each[1:-1].tolist()
        inputs += batch.input_ids[written.positions].tolist()
        masked += len(written.positions)
    assert originals == model.tokenizer.encode(text)
    assert masked / len(originals) == pytest.approx(0.15, abs=0.01)
    share = np.mean(np.array(inputs) == model.tokenizer.mask_id)
    assert share == pytest.approx(0.8, abs=0.06)


@pytest.mark.first_fast
@pytest.mark.parametrize("batch_tokens", [1, 40, 100_000])
def test_the_loss_does_not_depend_on_the_batch(model, batch_tokens):
    whole = HeldOutLoss(max_seq_length=16).evaluate(model, rows())
    cut = HeldOutLoss(max_seq_length=16, batch_tokens=batch_tokens).evaluate(model, rows())
    np.testing.assert_allclose(cut.scores, whole.scores, rtol=1e-5)
    for name, values in whole.details.items():
        np.testing.assert_allclose(cut.details[name], values, rtol=1e-5)
    assert whole.scores.mean() == pytest.approx(whole.metrics["loss"], rel=1e-12)


def test_equal_logits_cost_the_logarithm_of_the_vocabulary(tiny_run):
    model = load(tiny_run).evaluated()
    with torch.no_grad():
        for parameter in model.tasks["mlm"].parameters():
            parameter.zero_()
    found = HeldOutLoss(max_seq_length=16).evaluate(model, rows())
    assert found.metrics["loss"] == pytest.approx(math.log(model.encoder.vocab_size), rel=1e-5)
    np.testing.assert_allclose(found.scores, found.metrics["loss"], rtol=1e-5)


def test_windows_longer_than_the_model_reads_are_refused(model):
    with pytest.raises(EvaluationError, match=r"settings\.max_seq_length: found 4096"):
        HeldOutLoss(max_seq_length=4096).evaluate(model, rows())


@given(st.integers(1, 300), st.integers(1, 40))
def test_windows_are_few_and_of_about_equal_length(length, room):
    ids = list(range(length))
    windows = _windows(ids, room)
    assert [token for window in windows for token in window] == ids
    lengths = [len(window) for window in windows]
    assert len(lengths) == math.ceil(length / room)
    assert max(lengths) <= room
    assert max(lengths) - min(lengths) <= 1


def test_a_text_without_a_known_token_is_named(model: EvaluatedModel) -> None:
    with pytest.raises(DataError, match=r"text\.txt:1: text: no token of the 2 rows can be .*UNK"):
        HeldOutLoss().evaluate(model, rows(["\u4e00 \u4e8c", "\u4e09"]))
