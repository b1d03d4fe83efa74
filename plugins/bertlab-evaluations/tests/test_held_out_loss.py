"""The held-out loss: equal to transformers' on the same masks, and the same for any batch."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertlab import Example, PackedBatch, load
from bertlab.api import EvaluatedModel
from bertlab.cli.main import main
from bertlab.errors import EvaluationError
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


def test_the_loss_is_that_of_transformers_on_the_same_masks(model, tiny_run, tmp_path):
    from transformers import BertForMaskedLM

    assert main(["export", str(tiny_run), str(tmp_path / "hf")]) == 0
    peer = BertForMaskedLM.from_pretrained(tmp_path / "hf").eval()
    evaluation = HeldOutLoss(max_seq_length=16)
    total, count, right = 0.0, 0, 0
    at_mask: list[float] = []
    for batch in batches_of(model, evaluation):
        labels = torch.full_like(batch.input_ids, -100)
        written = batch.token_labels("mlm")
        labels[written.positions] = written.labels
        parts = batch.lengths.tolist()
        for ids, wanted in zip(batch.input_ids.split(parts), labels.split(parts), strict=True):
            with torch.no_grad():
                logits = peer(ids[None]).logits[0].double()
            chosen = wanted != -100
            total += torch.nn.functional.cross_entropy(
                logits[chosen], wanted[chosen], reduction="sum"
            ).item()
            for place in torch.nonzero(chosen & (ids == model.tokenizer.mask_id)).flatten():
                at_mask.append(-logits[place].log_softmax(-1)[wanted[place]].item())
            right += (logits.argmax(-1) == wanted).sum().item()
            count += chosen.sum().item()
    result = evaluation.evaluate(model, rows())
    assert count > 5
    assert result.metrics["loss"] == pytest.approx(total / count, rel=1e-5)
    assert result.metrics["accuracy"] == right / count
    assert 0 < len(at_mask) < count
    assert result.metrics["mask_loss"] == pytest.approx(sum(at_mask) / len(at_mask), rel=1e-5)
    assert result.metrics["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-4)


def test_the_text_is_read_once_and_masked_as_bert_does(model):
    text = " ".join(TEXTS) * 60
    evaluation = HeldOutLoss(max_seq_length=32)
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


@pytest.mark.parametrize("batch_tokens", [1, 40, 100_000])
def test_the_loss_does_not_depend_on_the_batch(model, batch_tokens):
    whole = HeldOutLoss(max_seq_length=16).evaluate(model, rows())
    cut = HeldOutLoss(max_seq_length=16, batch_tokens=batch_tokens).evaluate(model, rows())
    np.testing.assert_allclose(cut.scores, whole.scores, rtol=1e-5)
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
