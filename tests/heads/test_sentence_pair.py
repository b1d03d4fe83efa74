"""Classification and regression of pairs: parity with Hugging Face, truncation included."""

from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertForSequenceClassification

from bertlab.errors import ConfigError, DataError
from bertlab.heads.sentences import SentencePair
from tests.checkpoints.peers import TOKENIZER, padded_inputs
from tests.heads.samples import (
    assert_equal_gradients,
    batch_of,
    beside_hugging_face,
    built,
    rows_of,
    words,
)

ROWS = rows_of(
    *(
        {"text_a": words(a, a), "text_b": words(b, b), "label": label}
        for a, b, label in [(3, 9, "no"), (40, 30, "yes"), (1, 1, "no"), (5, 60, "yes")]
    )
)


@cache
def built_once() -> SentencePair:
    return built(SentencePair(), ROWS)


@pytest.mark.slow
@given(st.integers(1, 40), st.integers(1, 40), st.integers(5, 60), st.booleans())
def test_truncation_equals_hugging_face(hugging_face_tokenizer, a, b, limit, named):
    row = rows_of({"text_a": words(a, 1), "text_b": words(b, 2)})[0]
    [features] = built_once().encode(row, TOKENIZER, limit)
    strategy = "longest_first" if named else True
    expected = hugging_face_tokenizer(
        row.values["text_a"], row.values["text_b"], truncation=strategy, max_length=limit
    )
    assert features.input_ids == expected["input_ids"]
    assert features.token_type_ids == expected["token_type_ids"]
    assert features.truncated == a + b + 3 - len(expected["input_ids"])


def test_a_token_of_each_text_has_to_fit() -> None:
    row = rows_of({"text_a": words(3, 1), "text_b": words(3, 2)})[0]
    [features] = built_once().encode(row, TOKENIZER, 5)
    assert features.token_type_ids == [0, 0, 0, 1, 1]
    with pytest.raises(ConfigError, match="max_seq_length: found 4, expected 5 or more for pairs"):
        built_once().encode(row, TOKENIZER, 4)


@pytest.mark.parametrize("regression", [False, True])
def test_logits_loss_and_gradients_equal_hugging_face(tmp_path, hugging_face_tokenizer, regression):
    rows = ROWS
    labels = torch.tensor([0, 1, 0, 1])
    if regression:
        scores = ["2.5", 0, 5, "-1"]
        rows = rows_of(*({**row.values, "label": s} for row, s in zip(ROWS, scores, strict=True)))
        labels = torch.tensor([2.5, 0.0, 5.0, -1.0])
    head = SentencePair(regression=regression)
    encoder, reference = beside_hugging_face(
        head, rows, BertForSequenceClassification, tmp_path, num_labels=1 if regression else 2
    )
    batch = batch_of(head, rows, max_seq_length=40)
    inputs = hugging_face_tokenizer(
        [row.values["text_a"] for row in rows],
        [row.values["text_b"] for row in rows],
        truncation=True,
        max_length=40,
        padding=True,
        return_tensors="pt",
    )
    assert torch.equal(inputs["input_ids"], padded_inputs(batch)["input_ids"])
    expected = reference(**inputs, labels=labels)
    loss = head.loss(encoder(batch), batch)
    torch.testing.assert_close(loss.sum / loss.count, expected.loss, rtol=1e-5, atol=1e-5)
    expected.loss.backward()
    (loss.sum / loss.count).backward()
    assert_equal_gradients(encoder, head, reference)


def test_dropout_is_the_encoders_unless_given():
    assert built(SentencePair(), ROWS).dropout.p == 0.1
    assert built(SentencePair(dropout=0.0), ROWS).dropout.p == 0


@pytest.mark.parametrize(("column", "other"), [("text_a", "text_b"), ("text_b", "text_a")])
def test_an_empty_text_is_refused(column, other):
    row = rows_of({column: " ", other: "w1", "label": "no"})[0]
    with pytest.raises(DataError, match=rf"train.tsv:2: {column}: found ' '"):
        built_once().encode(row, TOKENIZER, 32)


def test_too_short_a_limit_is_refused():
    with pytest.raises(ConfigError, match="max_seq_length: found 4, expected 5 or more"):
        built_once().encode(ROWS[0], TOKENIZER, 4)
