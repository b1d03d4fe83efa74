"""Multiple choice: parity with Hugging Face, rows of different sizes, refusals."""

import pytest
import torch
import torch.nn.functional as F
from transformers import BertForMultipleChoice

from bertlab.errors import ConfigError, DataError
from bertlab_tasks.multiple_choice import MultipleChoice
from tests.checkpoints.peers import TOKENIZER
from tests.heads.samples import (
    Pooled,
    assert_equal_gradients,
    batch_of,
    beside_hugging_face,
    built,
    rows_of,
    words,
)


def swag(choices: int, label: object, seed: int) -> dict[str, object]:
    return {
        "context": words(4 + 9 * seed, seed),
        "stem": words(2, seed + 50),
        "choices": [words(3 + 5 * n, seed + 100 + n) for n in range(choices)],
        "label": label,
    }


SAME = rows_of(*(swag(4, label, seed) for seed, label in enumerate([2, "0", 3])))
RAGGED = rows_of(swag(2, 1, 0), swag(5, 4, 1), swag(3, 0, 2), swag(2, 0, 3))


def test_logits_loss_and_gradients_equal_hugging_face(tmp_path, hugging_face_tokenizer):
    head = MultipleChoice()
    encoder, reference = beside_hugging_face(head, SAME, BertForMultipleChoice, tmp_path)
    inputs = hugging_face_tokenizer(
        [row.values["context"] for row in SAME for _ in range(4)],
        [f"{row.values['stem']} {end}" for row in SAME for end in row.values["choices"]],
        truncation="longest_first",
        max_length=24,
        padding=True,
        return_tensors="pt",
    )
    shaped = {name: tensor.view(3, 4, -1) for name, tensor in inputs.items()}
    expected = reference(**shaped, labels=torch.tensor([2, 0, 3]))
    batch = batch_of(head, SAME, max_seq_length=24)
    assert torch.equal(batch.input_ids, inputs["input_ids"][inputs["attention_mask"].bool()])
    loss = head.loss(encoder(batch), batch)
    torch.testing.assert_close(loss.sum / loss.count, expected.loss, rtol=1e-5, atol=1e-5)
    assert (loss.count, batch.counts) == (3, {"head": 3})
    assert torch.equal(loss.preds, expected.logits.argmax(-1))
    scores = [part["score"] for part in head.decode(encoder(batch), batch)]
    assert scores == pytest.approx(expected.logits.flatten().tolist(), abs=1e-5)
    (expected.loss).backward()
    (loss.sum / loss.count).backward()
    # the bias adds the same to every choice: its gradient is rounding error
    reference.classifier.bias.grad = head.classifier.bias.grad = torch.ones(1)
    assert_equal_gradients(encoder, head, reference)


def test_rows_may_have_different_numbers_of_choices():
    head = built(MultipleChoice(dropout=0.0))
    batch = batch_of(head, RAGGED)
    pooled = torch.randn(len(batch), 32, requires_grad=True)
    loss = head.loss(Pooled(pooled), batch)
    rows = head.classifier(pooled).squeeze(-1).split([2, 5, 3, 2])
    truth = [1, 4, 0, 0]
    expected = sum(
        F.cross_entropy(row, torch.tensor(label)) for row, label in zip(rows, truth, strict=True)
    )
    torch.testing.assert_close(loss.sum, expected)
    assert loss.preds.tolist() == [int(row.argmax()) for row in rows]
    assert loss.target.tolist() == truth
    found = torch.autograd.grad(loss.sum, pooled, retain_graph=True)
    torch.testing.assert_close(found, torch.autograd.grad(expected, pooled))
    assert found[0].isfinite().all()


def test_only_the_first_choice_of_a_row_counts():
    features = built(MultipleChoice()).encode(RAGGED[1], TOKENIZER, 48)
    assert [each.count for each in features] == [1, 0, 0, 0, 0]
    assert [each.fields for each in features] == [
        {"choice": n, "choice_label": 4} for n in range(5)
    ]


def test_new_rows_are_decoded_and_merged_without_truth():
    head = built(MultipleChoice())
    rows = rows_of(*({k: v for k, v in row.values.items() if k != "label"} for row in RAGGED))
    batch = batch_of(head, rows)
    assert "choice_label" not in batch.fields
    parts = head.eval().decode(Pooled(torch.randn(len(batch), 32)), batch)[2:7]
    merged = head.merge(rows[1], parts)
    scores = [part["score"] for part in parts]
    assert merged["label"] == scores.index(max(scores))
    assert merged["choice"] == rows[1].values["choices"][merged["label"]]
    assert merged["scores"] == pytest.approx(torch.tensor(scores).softmax(0).tolist(), abs=1e-6)


@pytest.mark.parametrize("stem", [{}, {"stem": ""}, {"stem": None}])
def test_a_row_may_lack_a_stem(stem):
    values = {"context": "w1", "choices": ["w2", "w3"]} | stem
    first, _ = built(MultipleChoice()).encode(rows_of(values)[0], TOKENIZER, 48)
    assert TOKENIZER.decode(first.input_ids) == "[CLS] w1 [SEP] w2 [SEP]"
    assert first.token_type_ids == [0, 0, 0, 1, 1]


def test_cut_tokens_are_counted():
    row = rows_of({"context": words(20), "choices": [words(10), words(1)]})[0]
    features = built(MultipleChoice()).encode(row, TOKENIZER, 13)
    assert [len(each.input_ids) for each in features] == [13, 13]
    assert [each.truncated for each in features] == [20, 11]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": 4}, "label: found 4, expected the number of the right one of 4 choices, 0 to 3"),
        ({"label": -1}, "label: found -1"),
        ({"label": "b"}, "label: found 'b'"),
        ({"label": True}, "label: found True"),
        ({"label": None}, "label: found None"),
        ({"label": 1.0}, "label: found 1.0"),
        ({"choices": ["w1"]}, "choices: found ['w1'], expected a list of two texts or more"),
        ({"choices": "w1 w2"}, "choices: found 'w1 w2'"),
        ({"choices": None}, "choices: found None"),
        ({"choices": ["w1", "", "w2", "w3"]}, "choices[1]: found ''"),
        ({"choices": ["w1", None, "w2", "w3"]}, "choices[1]: found None"),
        ({"context": ""}, "context: found ''"),
        ({"stem": 3}, "stem: found 3"),
    ],
)
def test_rows_that_are_refused(change, message):
    with pytest.raises(DataError) as error:
        built(MultipleChoice()).encode(rows_of(swag(4, 0, 0) | change)[0], TOKENIZER, 48)
    assert str(error.value).startswith(f"train.tsv:2: {message}")
    assert "\n" not in str(error.value)


def test_settings_that_are_refused():
    with pytest.raises(ConfigError, match=r"model.head.dropout: found -0.1"):
        MultipleChoice(dropout=-0.1)
    with pytest.raises(ConfigError, match="max_seq_length: found 4"):
        built(MultipleChoice()).encode(SAME[0], TOKENIZER, 4)


def test_metrics():
    head = MultipleChoice()
    assert set(head.metrics()) == {"accuracy", "majority_accuracy"}
    assert head.monitor == ("accuracy", "max")
    assert head.keeps_examples_together
